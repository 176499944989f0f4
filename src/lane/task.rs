//! Reading a task: strictly, bounded, and from exactly the bytes that were signed.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{Deserializer, Error as _, MapAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::approval::Approval;
use super::refusal::{Refusal, RefusalCode};
use super::sign::{Context, TaskKeys};
use crate::queue::{CANARY, CANARY_ID};
use crate::vocabulary::{TaskId, clipped, printable};

/// The longest task, in bytes, its envelope included: names and bounded parameters need some hundred.
pub const MAX_TASK: usize = 16 * 1024;
/// The most parameters: more than any command line that a person writes has.
const MAX_PARAMS: usize = 32;
/// The longest name of who asks, in bytes.
const MAX_BY: usize = 200;

/// The longest canary, in bytes; they have some 200.
const MAX_CANARY: usize = 1024;

/// What producers push.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Task {
    /// Its own for good: letters, digits, `-`, `_` and `.`, at most 64. A UUID is best.
    pub id: String,
    /// What to do, by the name in the node's catalog.
    pub action: String,
    /// The values for its parameters.
    #[serde(default, deserialize_with = "params")]
    pub params: BTreeMap<String, Value>,
    /// Who asks, for the records.
    pub by: String,
    /// When it was asked, RFC 3339 with its offset.
    pub issued_at: String,
}

/// A signed task. The signature is over the bytes of `task` as they are in the string, never over a re-written form.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Envelope {
    /// The [`Task`] as JSON text.
    pub task: String,
    /// The name of the key.
    pub key: String,
    /// The Ed25519 signature in lower-case hex.
    pub sig: String,
    /// A person's approval of it, where the catalog wants one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval: Option<Approval>,
}

/// Whose word a task is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Word {
    /// Anybody's.
    Unsigned,
    /// That of who holds a key that is known here.
    Signed(Option<Presented>),
}

/// An approval that came with a task, not yet looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Presented {
    pub(super) approval: Approval,
    /// The digest of what it came with.
    pub(super) digest: String,
}

/// Reads a task and checks its signature, if it has one.
///
/// # Errors
/// `malformed`, or `unsigned` for a signature that does not count for this node and lane.
pub(super) fn read(raw: &[u8], keys: &TaskKeys, context: &Context<'_>) -> Result<(Task, i64, Word), Refusal> {
    let malformed = |why: String| Refusal::new(RefusalCode::Malformed, why);
    if raw.len() > MAX_TASK {
        return Err(malformed(format!("{} bytes are too many, at most {MAX_TASK}", raw.len())));
    }
    let (task, word) = match serde_json::from_slice::<Envelope>(raw) {
        Ok(envelope) => {
            keys.verify(&envelope, context).map_err(|why| Refusal::new(RefusalCode::Unsigned, why))?;
            let presented = envelope
                .approval
                .map(|approval| Presented { approval, digest: context.digest(&envelope.task) });
            (serde_json::from_str::<Task>(&envelope.task), Word::Signed(presented))
        }
        Err(_) => (serde_json::from_slice::<Task>(raw), Word::Unsigned),
    };
    // The reader's words may quote what was given.
    let task = task.map_err(|error| malformed(clipped(&printable(&error.to_string()), 200).into_owned()))?;
    if !is_id(&task.id) {
        return Err(malformed(format!(
            "the id must be letters, digits, '-', '_' and '.', at most 64, not \"{}\"",
            clipped(&printable(&task.id), 80)
        )));
    }
    if task.by.len() > MAX_BY {
        return Err(malformed(format!("`by` is longer than {MAX_BY} bytes")));
    }
    let issued = task.issued_at.parse::<jiff::Timestamp>().map_err(|_| {
        malformed(format!(
            "issued_at must be like 2026-11-29T14:02:00Z, not \"{}\"",
            clipped(&printable(&task.issued_at), 80)
        ))
    })?;
    let issued = issued.as_millisecond();
    Ok((task, issued, word))
}

/// The id of a canary, if that is what it is: unsigned, without parameters, under an id that no real task has.
pub(super) fn canary(raw: &[u8]) -> Option<String> {
    // Most tasks are none; they are not read twice.
    if raw.len() > MAX_CANARY || !raw.windows(CANARY.len()).any(|part| part == CANARY.as_bytes()) {
        return None;
    }
    let task: Task = serde_json::from_slice(raw).ok()?;
    let fit = task.action == CANARY && task.id.starts_with(CANARY_ID) && is_id(&task.id);
    (fit && task.params.is_empty() && task.by.len() <= MAX_BY).then_some(task.id)
}

fn is_id(text: &str) -> bool {
    text.parse::<TaskId>().is_ok()
}

/// A JSON object that names nothing twice.
fn params<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<String, Value>, D::Error> {
    struct Params;
    impl<'de> Visitor<'de> for Params {
        type Value = BTreeMap<String, Value>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object of parameters")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut params = BTreeMap::new();
            while let Some((name, value)) = map.next_entry()? {
                if params.insert(name, value).is_some() {
                    return Err(A::Error::custom("a parameter is given twice"));
                }
                if params.len() > MAX_PARAMS {
                    return Err(A::Error::custom(format!("more than {MAX_PARAMS} parameters")));
                }
            }
            Ok(params)
        }
    }
    deserializer.deserialize_map(Params)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::CanaryTask;

    #[test]
    fn only_what_a_detector_sends_is_a_canary() {
        let bird = CanaryTask::new(&"mars".parse().unwrap()).unwrap();
        assert_eq!(canary(&bird.raw), Some(bird.id.clone()));
        let text = String::from_utf8(bird.raw).unwrap();
        for (from, to) in [
            ("keyholder.canary", "keyholder.canary2"),
            ("canary-", "task-"),
            ("\"params\":{}", "\"params\":{\"a\":1}"),
            ("\"params\":{}", "\"params\":{},\"argv\":[]"),
            ("canary-", "canary-\\n"),
            ("{", "{ "),
        ] {
            let other = text.replacen(from, to, 1);
            assert_eq!(canary(other.as_bytes()).is_some(), from == "{", "{other}");
        }
        let long = text.replace("keyholder@", &"x".repeat(2_000));
        assert_eq!(canary(long.as_bytes()), None);
    }
}
