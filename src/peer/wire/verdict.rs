//! What a supervisor answers: what was done, or why nothing was.

use serde::{Deserialize, Serialize};

#[cfg(doc)]
use super::MAX_REQUEST;
use super::{AuditLine, Explanation, NodeExplanation, NodeReport};
use crate::journal::Proof;
use crate::vocabulary::{FailureClass, InvocationId, NodeName, Remedy, UnitName, WorkerName};

/// What came of a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
// There is one per request under way; a box would be an allocation for nothing.
#[allow(clippy::large_enum_variant)]
pub enum Verdict {
    /// It was carried out; the outcome may still be a failure of the worker.
    Outcome(Outcome),
    /// It was not carried out, and nothing was touched.
    Refused(Refusal),
}

/// What was done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Outcome {
    /// The worker runs under a new invocation.
    Relaunched(Relaunched),
    /// It runs under another invocation than the one expected; nothing was touched.
    AlreadyRecovered {
        /// The invocation it runs under.
        invocation: InvocationId,
    },
    /// A nudge or repipe was carried out; whether it helped is in it.
    Remedied(Remedied),
    /// The node's `power` command was run.
    Powered {
        /// Whether it ended well. Whether the host comes back is seen by its answering.
        done: bool,
        /// How it ended, in words.
        how: String,
        /// How long it took, in microseconds.
        took_us: u64,
    },
    /// The rehearsal is over, passed or not.
    Drilled(DrillReport),
    /// The relaunch was tried and the worker is not back.
    Failed(RelaunchFailed),
    /// The node and its workers, as asked.
    Status(NodeReport),
    /// The whole fleet as this node sees it.
    Fleet(Vec<NodeReport>),
    /// The hold's full length was taken down.
    Held {
        /// How long it lasts from now, in milliseconds.
        for_ms: u64,
    },
    /// What was released: a hold, a quarantine, both or neither.
    Released {
        /// Whether a hold ended.
        hold: bool,
        /// Whether a quarantine ended.
        quarantine: bool,
    },
    /// Why a worker is in the state it is in and what is (not) done about it.
    Explained(Explanation),
    /// The same about a node, as its watcher sees it. Only on the local socket.
    ExplainedNode(NodeExplanation),
    /// Lines of the audit trail, newest last.
    Audit(Vec<AuditLine>),
    /// What the journal says about a task.
    Proof(Proof),
    /// It was taken down.
    Noted,
    /// The watch begins: frames follow.
    Watching,
}

/// A successful relaunch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Relaunched {
    /// The unit that was restarted.
    pub unit: UnitName,
    /// Its run before, if it had one.
    pub before: Option<InvocationId>,
    /// Its run now.
    pub invocation: InvocationId,
    /// How long systemd's job took, in microseconds.
    pub took_us: u64,
    /// Whether the settle time has passed with the worker up.
    pub settled: bool,
    /// Whether another request's relaunch served this one too.
    pub shared: bool,
    /// Whether the bus was gone and `systemctl` had to do it.
    pub break_glass: bool,
    /// What on the node is degraded (bus, state directory, journal), one sentence each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub degraded: Vec<String>,
}

/// A nudge or repipe that was carried out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Remedied {
    /// Which of the two.
    pub remedy: Remedy,
    /// The worker's unit.
    pub unit: UnitName,
    /// Whether the worker makes progress since; none if nothing watches its progress or it could not be seen.
    pub helped: Option<bool>,
    /// What was seen, in words.
    pub why: String,
    /// How long that took, in microseconds.
    pub took_us: u64,
}

/// What came of a rehearsal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DrillReport {
    /// The node.
    pub node: NodeName,
    /// The worker; none if the node's supervisor was rehearsed.
    pub worker: Option<WorkerName>,
    /// How it fell.
    pub class: FailureClass,
    /// Whether the real detector found it and the real actuator repaired it from outside, in time.
    pub passed: bool,
    /// What happened, in a sentence.
    pub why: String,
    /// Who repaired it.
    pub by: Option<String>,
    /// From the break until its detector found it, in microseconds.
    pub detect_us: Option<u64>,
    /// From then until it was verified to be well again, in microseconds.
    pub repair_us: Option<u64>,
    /// What was seen on the way, a line per fact.
    pub evidence: Vec<String>,
}

/// A relaunch that did not bring the worker back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RelaunchFailed {
    /// The unit.
    pub unit: UnitName,
    /// What went wrong and what to do, in a sentence.
    pub why: String,
    /// systemd's job result (`done`, `failed`, `timeout`, …) if there was a job.
    pub job: Option<String>,
    /// How long it took, in microseconds.
    pub took_us: u64,
    /// The unit's last journal lines, newest last.
    pub log: Vec<String>,
    /// It has not failed: systemd is still at it, within the unit's own timeouts.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub under_way: bool,
}

/// A typed refusal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{text}")]
#[serde(deny_unknown_fields)]
pub struct Refusal {
    /// The kind, for programs.
    pub code: RefusalCode,
    /// The reason and the way out, for people.
    pub text: String,
}

/// The kinds of refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RefusalCode {
    /// The frame is not one of this protocol (unknown verb or field, bad name, bad JSON).
    Malformed,
    /// The frame is longer than [`MAX_REQUEST`].
    TooLarge,
    /// A verb is wanted before the hello, or a second hello.
    OutOfOrder,
    /// The body names another node than the key does, or the request is for another node.
    WrongNode,
    /// The request was made for an earlier run of the supervisor: replayed, or simply too late.
    StaleNonce,
    /// The fleet file grants this to nobody, or not to this peer.
    NoGrant,
    /// The verb is served on the local socket only.
    LocalOnly,
    /// Only root may act.
    NotRoot,
    /// No such worker on this node.
    UnknownWorker,
    /// The verb needs a worker.
    NoWorker,
    /// No such node in the fleet file.
    UnknownNode,
    /// The worker is on hold.
    Held,
    /// The worker is in quarantine, and only root on the node overrides that.
    Quarantined,
    /// The unit cannot be started: not found, masked, it refuses manual starts, or it would stop another one.
    NotStartable,
    /// The worker does not run: what is dead cannot be nudged.
    NotRunning,
    /// The fleet file names no such remedy for it.
    NotConfigured,
    /// The fleet is degraded, or the worker is in the middle of something: not the time for a rehearsal.
    NotNow,
    /// The worker is critical; a rehearsal of it has to be asked for with --yes.
    Critical,
    /// The node is shutting down.
    Leaving,
    /// Too much is under way on this connection or node.
    Busy,
    /// The peer that must do it cannot be reached.
    Unreachable,
    /// It did not answer in time; whether it acted is unknown.
    NoAnswer,
    /// Something on the node itself is broken; the text says what.
    Internal,
}

impl Refusal {
    /// A refusal of this kind.
    pub fn new(code: RefusalCode, text: impl Into<String>) -> Self {
        Self { code, text: text.into() }
    }
}
