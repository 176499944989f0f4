//! An entry of the dead letters, as a lane wrote it; or anything else that somebody has put there.

use ring::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};

use crate::lane::{Envelope, Task, Text};
use crate::vocabulary::{TaskId, clipped, hex, printable};

/// What a lane writes.
#[derive(Debug, Deserialize)]
struct DeadElement {
    code: String,
    text: String,
    at: String,
    sha256: String,
    bytes: usize,
    task: Text,
}

/// One entry.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Dead {
    #[serde(skip)]
    raw: Vec<u8>,
    /// The task's id, if it has one that can be read.
    pub id: Option<TaskId>,
    /// The SHA-256 of its bytes; of the entry's, if no lane wrote it.
    pub sha256: String,
    pub code: String,
    pub text: String,
    pub at: String,
    /// What it asks for: action and parameters, if that can be read.
    pub asks: Option<String>,
    /// Its own bytes, if they are all there.
    #[serde(skip)]
    whole: Option<String>,
    #[serde(skip)]
    envelope: Option<Envelope>,
}

impl Dead {
    pub(super) fn read(raw: Vec<u8>, lane: &str) -> Self {
        let short = |text: &str| clipped(&printable(text), 200).into_owned();
        let Ok(entry) = serde_json::from_slice::<DeadElement>(&raw) else {
            let sha256 = hash(&raw);
            let text = format!("no {lane} lane wrote this");
            return Self {
                raw,
                id: None,
                sha256,
                code: "malformed".to_owned(),
                text,
                at: String::new(),
                asks: None,
                whole: None,
                envelope: None,
            };
        };
        let whole = match entry.task {
            // What is cut or not UTF-8 is no task.
            Text::Text(text) if text.len() == entry.bytes => Some(text),
            Text::Text(_) | Text::Escaped(_) => None,
        };
        let task = whole.as_deref().and_then(task);
        let sha256 = match &whole {
            Some(whole) => hash(whole.as_bytes()),
            None => short(&entry.sha256),
        };
        Self {
            raw,
            id: task.as_ref().and_then(|task| task.id.parse().ok()),
            sha256,
            code: short(&entry.code),
            text: short(&entry.text),
            at: short(&entry.at),
            asks: task.as_ref().map(asks),
            envelope: whole.as_deref().and_then(|whole| serde_json::from_str(whole).ok()),
            whole,
        }
    }

    pub(super) fn raw(&self) -> &[u8] {
        &self.raw
    }

    /// What it goes by: its id, else its hash.
    pub(super) fn name(&self) -> String {
        self.id.as_ref().map_or_else(|| self.sha256.clone(), ToString::to_string)
    }

    pub(super) fn is_called(&self, beginning: &str) -> bool {
        let id = self.id.as_ref().is_some_and(|id| id.as_str().starts_with(beginning));
        id || self.sha256.starts_with(beginning)
    }

    /// Action and parameters, fit for a terminal.
    pub(super) fn asked(&self) -> Option<&str> {
        self.asks.as_deref()
    }

    /// Its own bytes and the envelope that they are, if they are one.
    pub(super) fn envelope(&self) -> Option<(&[u8], &Envelope)> {
        self.whole.as_deref().map(str::as_bytes).zip(self.envelope.as_ref())
    }
}

/// What is shown of what a task asks for, in bytes.
const ASKS: usize = 160;

/// Action and parameters, as `keyholder run` takes them; fit for a terminal.
pub(super) fn asks(task: &Task) -> String {
    let mut text = printable(&task.action).into_owned();
    for (name, value) in &task.params {
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        text += &format!(" {}={}", printable(name), printable(&value));
    }
    clipped(&text, ASKS).into_owned()
}

pub(super) fn hash(bytes: &[u8]) -> String {
    hex(digest(&SHA256, bytes).as_ref())
}

/// The task within its envelope, or without one, to be shown. Nothing is believed of it.
pub(super) fn task(text: &str) -> Option<Task> {
    let inner = serde_json::from_str::<Envelope>(text).map(|envelope| envelope.task);
    serde_json::from_str(inner.as_deref().unwrap_or(text)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TASK: &str = r#"{"id":"t-1","action":"service.logs","params":{"lines":20},"by":"ada","issued_at":"2026-11-29T14:02:00Z"}"#;

    fn entry(task: &str) -> Vec<u8> {
        let task = serde_json::to_string(task).unwrap();
        let bytes = serde_json::from_str::<String>(&task).unwrap().len();
        format!(r#"{{"code":"replayed","text":"x","at":"2026","sha256":"3f9c00","bytes":{bytes},"task":{{"text":{task}}}}}"#)
            .into_bytes()
    }

    #[test]
    fn an_entry_goes_by_its_id_or_its_hash_and_knows_what_was_asked_for() {
        let dead = Dead::read(entry(TASK), "write");
        assert_eq!(dead.name(), "t-1");
        let hash = hash(TASK.as_bytes());
        assert!(dead.is_called("t-") && dead.is_called(&hash[..8]) && !dead.is_called("3f9c"));
        assert_eq!((dead.asked(), dead.envelope()), (Some("service.logs lines=20"), None));
        let signed = Envelope { task: TASK.into(), key: "k".into(), sig: "00".into(), approval: None };
        let text = serde_json::to_string(&signed).unwrap();
        let dead = Dead::read(entry(&text), "write");
        assert_eq!((dead.name().as_str(), dead.envelope()), ("t-1", Some((text.as_bytes(), &signed))));
        let unreadable = Dead::read(entry("{"), "write");
        assert_eq!((unreadable.name(), unreadable.asked()), (super::hash(b"{"), None));
        let loud = TASK.replace("service.logs", "\\u001b[2J").replace("20", &"9".repeat(300));
        let shown = Dead::read(entry(&loud), "write").asks.unwrap();
        assert!(!shown.contains('\x1b') && shown.len() <= ASKS + 3, "{shown}");
    }

    #[test]
    fn anything_else_can_at_least_be_thrown_away() {
        for raw in [b"".as_slice(), b"\xff\x00", b"[]", b"{\"code\":7}"] {
            let dead = Dead::read(raw.to_vec(), "read");
            assert_eq!(dead.raw(), raw);
            assert_eq!(dead.name().len(), 64);
            assert!(dead.name().parse::<TaskId>().is_ok() && dead.asked().is_none());
        }
    }
}
