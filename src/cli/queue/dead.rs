//! An entry of the dead letters, as a lane wrote it; or anything else that somebody has put there.

use std::collections::BTreeMap;

use ring::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::lane::{Envelope, Task, Text};
use crate::vocabulary::{TaskId, clipped, printable};

/// What a lane writes.
#[derive(Debug, Deserialize)]
struct Entry {
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
    #[serde(skip)]
    task: Option<Task>,
}

impl Dead {
    pub(super) fn read(raw: Vec<u8>, lane: &str) -> Self {
        let short = |text: &str| clipped(&printable(text), 200).into_owned();
        let Ok(entry) = serde_json::from_slice::<Entry>(&raw) else {
            let sha256 = digest(&SHA256, &raw).as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
            let text = format!("no {lane} lane wrote this");
            return Self {
                raw,
                id: None,
                sha256,
                code: "malformed".to_owned(),
                text,
                at: String::new(),
                task: None,
            };
        };
        let task = match &entry.task {
            // What is cut or not UTF-8 is no task.
            Text::Text(text) if text.len() == entry.bytes => task(text),
            Text::Text(_) | Text::Escaped(_) => None,
        };
        Self {
            raw,
            id: task.as_ref().and_then(|task| task.id.parse().ok()),
            sha256: short(&entry.sha256),
            code: short(&entry.code),
            text: short(&entry.text),
            at: short(&entry.at),
            task,
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

    /// What it asked for.
    pub(super) fn task(&self) -> Option<(String, BTreeMap<String, Value>)> {
        self.task.as_ref().map(|task| (task.action.clone(), task.params.clone()))
    }
}

/// The task within its envelope, or without one. Nothing is believed of it: it is checked and signed anew.
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
        assert!(dead.is_called("t-") && dead.is_called("3f9c") && !dead.is_called("x"));
        assert_eq!(dead.task().unwrap().0, "service.logs");
        let signed =
            serde_json::to_string(&Envelope { task: TASK.into(), key: "k".into(), sig: "00".into() })
                .unwrap();
        assert_eq!(Dead::read(entry(&signed), "write").name(), "t-1");
        let unreadable = Dead::read(entry("{"), "write");
        assert_eq!((unreadable.name(), unreadable.task()), ("3f9c00".to_owned(), None));
    }

    #[test]
    fn anything_else_can_at_least_be_thrown_away() {
        for raw in [b"".as_slice(), b"\xff\x00", b"[]", b"{\"code\":7}"] {
            let dead = Dead::read(raw.to_vec(), "read");
            assert_eq!(dead.raw(), raw);
            assert_eq!(dead.name().len(), 64);
            assert!(dead.name().parse::<TaskId>().is_ok() && dead.task().is_none());
        }
    }
}
