//! The frames of `keyholder/1`: a length (u32, big endian) and that many bytes of JSON. Both sides of the door and
//! the local command line speak them.
//!
//! Everything is strict: an unknown field, an unknown verb, a duplicate key or a trailing byte makes a frame malformed.

use serde::{Deserialize, Serialize};

mod lane;
mod report;

pub use lane::{LaneReport, LastReport, TaskReport};
pub use report::{AuditLine, Class, Explanation, NodeReport, NodeState, Rehearsal, Sighting, WorkerReport};

pub use super::codec::{decode_client, decode_server, encode};
use crate::fleet::Right;
pub use crate::journal::EventLine;
use crate::journal::Proof;
use crate::vocabulary::{
    BootNonce, FailureClass, FleetHash, InvocationId, Mode, NodeName, Remedy, ReqId, TaskId, UnitName,
    WorkerName,
};

/// The application protocol, negotiated by ALPN. Another version is another name.
pub const ALPN: &[u8] = b"keyholder/1";
/// The largest frame that a supervisor reads from a client, in bytes.
pub const MAX_REQUEST: usize = 4096;
/// The largest frame that a client reads from a supervisor, in bytes: a snapshot of a node with 1,000 workers fits.
pub const MAX_REPLY: usize = 1 << 20;
/// The longest reason (`because`) that a request may give, in characters.
pub const MAX_BECAUSE: usize = 200;

/// What a client (a peer or the command line) sends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum ClientFrame {
    /// The first frame of each connection.
    Hello(Hello),
    /// An order or a question.
    Request(Request),
}

/// What a supervisor sends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum ServerFrame {
    /// The answer to the client's hello.
    Hello(Hello),
    /// To a watcher: everything, once after the hello and again when it was too slow to follow.
    Snapshot(NodeReport),
    /// To a watcher: one worker changed.
    Change(WorkerReport),
    /// To a watcher, each second without other traffic: still here.
    Keepalive,
    /// The host shuts down or reboots; its silence is not a failure.
    Leaving,
    /// To whoever follows the events: one record, as it happens.
    Event(EventLine),
    /// To the same: so many records passed by, because the reader was too slow. The audit has them.
    Missed {
        /// How many.
        count: u64,
    },
    /// The answer to one request.
    Reply(Reply),
}

/// Who is speaking.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hello {
    /// The speaker's node. The key decides who it is; another name here is refused.
    pub node: NodeName,
    /// The speaker's version of keyholder.
    pub version: String,
    /// The speaker's present run. Requests to it must name this.
    pub boot_nonce: BootNonce,
    /// The speaker's fleet file.
    pub fleet_hash: FleetHash,
}

/// An order or a question.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// The run of the supervisor that the request is made for, from its hello.
    pub boot_nonce: BootNonce,
    /// The request's own id.
    pub req_id: ReqId,
    /// The node that is meant. A peer's supervisor accepts only itself; the local one passes orders on.
    pub target_node: NodeName,
    /// The worker that is meant; none means the node with all of them, which only `status` knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<WorkerName>,
    /// What is to be done.
    pub verb: Verb,
    /// Why, for the audit: at most [`MAX_BECAUSE`] printable characters.
    pub because: String,
}

/// What can be asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Verb {
    /// The state of a worker, or of the node and all its workers.
    Status {},
    /// Restart the worker's unit.
    Relaunch(RelaunchOrder),
    /// Wake the worker's loop.
    Nudge(GentleOrder),
    /// Build the worker's receive pipe anew.
    Repipe(GentleOrder),
    /// Run the node's `power` command here, on a watcher of it. Only over the local socket.
    Power {
        /// Also when other watchers still reach the node.
        force: bool,
    },
    /// Break the worker (or the node's supervisor) on purpose and see it repaired.
    Drill(DrillOrder),
    /// Leave the worker alone for this long.
    Hold {
        /// How long, in milliseconds.
        for_ms: u64,
    },
    /// End a hold or a quarantine.
    Release {},
    /// Observation, class, decision and why.
    Explain {},
    /// The last lines of the audit trail. Only over the local socket.
    Audit {
        /// How many lines, newest last.
        last: u32,
    },
    /// The whole fleet as this node sees it. Only over the local socket.
    Fleet {},
    /// Who ran a task on the node: the journal is searched.
    Prove {
        /// The task.
        task: TaskId,
        /// The lane that should have run it, if one in particular should have.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        lane: Option<Mode>,
    },
    /// Take down that somebody is about to give a dead-lettered task anew. Only over the local socket.
    Requeue(Box<DeadLetter>),
    /// Take down that somebody is about to throw a dead-lettered task away. Only over the local socket.
    Drop(Box<DeadLetter>),
    /// From here on push every change that this node learns of: a [`ServerFrame::Snapshot`] per node first, then each
    /// [`ServerFrame::Change`]. Only over the local socket.
    Watch {},
    /// From here on push every record of this node as a [`ServerFrame::Event`], as it happens. Only over the local
    /// socket.
    Events {},
}

/// A task that could not be done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeadLetter {
    /// The node that it was for.
    pub node: NodeName,
    /// Which of its lanes.
    pub lane: Mode,
    /// Its id, or the hash of its bytes.
    pub task: TaskId,
}

/// How a relaunch is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RelaunchOrder {
    /// Only if the worker still runs (or last ran) under this invocation; otherwise the answer is `already_recovered`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expect: Option<InvocationId>,
    /// Answer only when the settle time has shown whether it stays up; otherwise when systemd's job is done.
    #[serde(default)]
    pub settled: bool,
    /// Override a hold or a quarantine. Root on the node itself may, a peer may not.
    #[serde(default)]
    pub force: bool,
}

/// How a nudge or a repipe is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GentleOrder {
    /// Only if the worker still runs under this invocation; otherwise the answer is `already_recovered`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expect: Option<InvocationId>,
    /// Override a hold or a quarantine. Root on the node itself may, a peer may not.
    #[serde(default)]
    pub force: bool,
}

/// A rehearsal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DrillOrder {
    /// How it is to fall.
    pub class: FailureClass,
    /// After how many milliseconds the node restores the worker by itself if nobody else has. 0: as long as its
    /// detector and its remedies may take.
    pub lease_ms: u64,
    /// Also a worker that is `critical`.
    #[serde(default)]
    pub yes: bool,
}

impl Verb {
    /// The right that a peer needs for it; `None` means that it is for the local socket only.
    pub fn right(&self) -> Option<Right> {
        match self {
            Self::Status {} | Self::Explain {} => Some(Right::Status),
            Self::Relaunch(_) => Some(Right::Relaunch),
            Self::Nudge(_) => Some(Right::Nudge),
            Self::Repipe(_) => Some(Right::Repipe),
            Self::Drill(_) => Some(Right::Drill),
            Self::Hold { .. } | Self::Release {} => Some(Right::Hold),
            Self::Prove { .. } => Some(Right::Prove),
            Self::Power { .. }
            | Self::Audit { .. }
            | Self::Fleet {}
            | Self::Requeue(_)
            | Self::Drop(_)
            | Self::Watch {}
            | Self::Events {} => None,
        }
    }

    /// Whether it changes anything. What changes something is for root on the local socket, and is audited twice.
    pub fn acts(&self) -> bool {
        match self {
            Self::Relaunch(_)
            | Self::Nudge(_)
            | Self::Repipe(_)
            | Self::Power { .. }
            | Self::Drill(_)
            | Self::Hold { .. }
            | Self::Release {}
            | Self::Requeue(_)
            | Self::Drop(_) => true,
            Self::Status {}
            | Self::Explain {}
            | Self::Audit { .. }
            | Self::Fleet {}
            | Self::Prove { .. }
            | Self::Watch {}
            | Self::Events {} => false,
        }
    }

    /// Its name, as on the wire, in the audit and on the command line.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Status {} => "status",
            Self::Relaunch(_) => "relaunch",
            Self::Nudge(_) => "nudge",
            Self::Repipe(_) => "repipe",
            Self::Power { .. } => "power",
            Self::Drill(_) => "drill",
            Self::Hold { .. } => "hold",
            Self::Release {} => "release",
            Self::Explain {} => "explain",
            Self::Audit { .. } => "audit",
            Self::Fleet {} => "fleet",
            Self::Prove { .. } => "prove",
            Self::Requeue(_) => "requeue",
            Self::Drop(_) => "drop",
            Self::Watch {} => "watch",
            Self::Events {} => "events",
        }
    }
}

/// The answer to a request: never silence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reply {
    /// The request that is answered.
    pub req_id: ReqId,
    /// What came of it.
    pub result: Verdict,
}

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
    /// The unit cannot be started: not found, masked, or it refuses manual starts.
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
