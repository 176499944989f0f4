//! Signed tasks: Ed25519 over the task's bytes, bound to one lane of one node.

use std::collections::BTreeMap;

use ring::signature::{ED25519, Ed25519KeyPair, UnparsedPublicKey};

use super::task::Envelope;
use crate::catalog::Mode;
use crate::vocabulary::{NodeName, TaskKey, clipped, hex, printable};

/// What a signature is for. A task signed for one lane is worth nothing in another.
#[derive(Debug, Clone, Copy)]
pub struct Context<'a> {
    /// The node.
    pub node: &'a NodeName,
    /// Its lane.
    pub lane: Mode,
}

impl Context<'_> {
    /// What is signed. The separator is in no name, so no two contexts give the same bytes.
    pub(super) fn message(&self, task: &[u8]) -> Vec<u8> {
        let head = format!("keyholder-task/1\n{}\n{}\n", self.node, self.lane.name());
        [head.as_bytes(), task].concat()
    }
}

/// Of lower-case hexadecimal digits, exactly so many.
pub(super) fn bytes<const N: usize>(text: &str) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    let digits = text.len() == 2 * N && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    digits.then_some(bytes)
}

/// The keys that may sign tasks, by name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TaskKeys(BTreeMap<String, TaskKey>);

impl FromIterator<(String, TaskKey)> for TaskKeys {
    fn from_iter<I: IntoIterator<Item = (String, TaskKey)>>(keys: I) -> Self {
        Self(keys.into_iter().collect())
    }
}

impl TaskKeys {
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether one of these keys signed the envelope's task for this lane.
    ///
    /// # Errors
    /// Why its signature does not count, in one sentence fit for a terminal.
    pub fn verify(&self, envelope: &Envelope, context: &Context<'_>) -> Result<(), String> {
        let Some(key) = self.0.get(&envelope.key) else {
            return Err(format!("no key \"{}\" is known here", clipped(&printable(&envelope.key), 80)));
        };
        let verified = bytes::<64>(&envelope.sig).is_some_and(|sig| {
            let message = context.message(envelope.task.as_bytes());
            UnparsedPublicKey::new(&ED25519, key.as_bytes()).verify(&message, &sig).is_ok()
        });
        if verified {
            return Ok(());
        }
        Err(format!(
            "the signature is not one of {} for the {} lane of {}",
            envelope.key, context.lane, context.node
        ))
    }
}

/// Signs a task's JSON text for one lane.
pub fn seal(task: String, key: impl Into<String>, pair: &Ed25519KeyPair, context: &Context<'_>) -> Envelope {
    let sig = hex(pair.sign(&context.message(task.as_bytes())).as_ref());
    Envelope { task, key: key.into(), sig, approval: None }
}
