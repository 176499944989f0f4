//! One record of the evidence, and the handle through which everybody writes it without ever waiting.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError};

use crate::vocabulary::{Pin, ReqId};

/// What happened. Each kind has a MESSAGE_ID of its own, so that it can be found in the journal for good.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Event {
    /// The supervisor started, reloaded its configuration or stops.
    Supervisor,
    /// A worker's class changed.
    Observed,
    /// A request was accepted and is about to be carried out.
    Ordered,
    /// A request was refused; nothing was touched.
    Refused,
    /// The supervisor is about to act on a worker.
    Acting,
    /// An act ended, and how.
    Acted,
    /// A person should look: quarantine, a critical worker down, an undeclared stop, an unreachable node.
    Alert,
    /// A peer came, went or cannot be reached.
    Peer,
    /// Something of our own is degraded or whole again: bus, state directory, journal.
    Degraded,
}

/// How urgent a record is, as syslog priorities.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Priority {
    /// 3: somebody must look.
    Error,
    /// 4: somebody should know.
    Warning,
    /// 5: a normal but significant act.
    Notice,
    /// 6: for the trail.
    Info,
}

/// One record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// What happened.
    pub event: Event,
    /// How urgent it is.
    pub priority: Priority,
    /// Who caused it: `local` for the supervisor itself, else a peer's name, `root` or `uid N`, or a source address.
    pub by: String,
    /// The key that proved it, for peers.
    pub pin: Option<Pin>,
    /// The request, if there was one.
    pub req_id: Option<ReqId>,
    /// The verb, if there was one.
    pub verb: Option<&'static str>,
    /// What it is about: `node/worker`, a node, or empty.
    pub subject: String,
    /// One clear sentence.
    pub text: String,
}

impl Record {
    /// A record of the supervisor's own doing.
    pub fn local(
        event: Event,
        priority: Priority,
        subject: impl Into<String>,
        text: impl Into<String>,
    ) -> Self {
        Self {
            event,
            priority,
            by: "local".to_owned(),
            pin: None,
            req_id: None,
            verb: None,
            subject: subject.into(),
            text: text.into(),
        }
    }
}

/// The writing end. Cheap to clone; recording never blocks, and what had to be dropped is counted.
#[derive(Debug, Clone)]
pub struct Recorder {
    to: SyncSender<Record>,
    dropped: Arc<AtomicU64>,
}

impl Recorder {
    /// A recorder that feeds `to`.
    pub fn new(to: SyncSender<Record>) -> Self {
        Self { to, dropped: Arc::default() }
    }

    /// Takes a record down, or counts it as dropped if the writer is that far behind.
    pub fn record(&self, record: Record) {
        match self.to.try_send(record) {
            Ok(()) => {}
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {
                self.dropped.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// How many records were dropped since the start.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}
