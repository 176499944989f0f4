//! The frames of `keyholder/1`: a length (u32, big endian) and that many bytes of JSON. Both sides of the door and
//! the local command line speak them.
//!
//! Everything is strict: an unknown field, an unknown verb, a duplicate key or a trailing byte makes a frame malformed.

use serde::{Deserialize, Serialize};

mod lane;
mod report;
mod verb;
mod verdict;

pub use lane::{LaneReport, LastReport, TaskReport};
pub use report::{
    AuditLine, Class, Explanation, NodeExplanation, NodeReport, NodeState, Rehearsal, Sighting, WorkerReport,
};
pub use verb::{DeadLetter, DrillOrder, GentleOrder, RelaunchOrder, Verb};
pub use verdict::{
    DrillReport, Outcome, Refusal, RefusalCode, RelaunchFailed, Relaunched, Remedied, Verdict,
};

pub use super::codec::{decode_client, decode_server, encode};
pub use crate::journal::EventLine;
use crate::vocabulary::{BootNonce, FleetHash, NodeName, ReqId, WorkerName};

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

/// The answer to a request: never silence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reply {
    /// The request that is answered.
    pub req_id: ReqId,
    /// What came of it.
    pub result: Verdict,
}
