//! What stands between the door and the supervisor: the door puts authenticated orders on the inbox, the supervisor's
//! loop takes them off. The door never touches worker state, the loop never touches a socket.

use std::fmt;
use std::sync::Arc;

use tokio::sync::{broadcast, mpsc, oneshot, watch};

use super::wire::{NodeReport, Request, Verdict, WorkerReport};
use crate::fleet::Fleet;
use crate::journal::Recorder;
use crate::vocabulary::{BootNonce, NodeName, Pin};

/// What the door knows of the supervisor behind it.
#[derive(Debug, Clone)]
pub struct Inbox {
    /// This node.
    pub me: NodeName,
    /// This run of the supervisor.
    pub nonce: BootNonce,
    /// The fleet as of the last good reload.
    pub fleet: watch::Receiver<Arc<Fleet>>,
    /// The supervisor's inbox for orders. Bounded: a full one is answered `busy`, never waited for.
    pub orders: mpsc::Sender<InboxMessage>,
    /// Where evidence goes.
    pub recorder: Recorder,
}

/// What the door asks of the supervisor.
#[derive(Debug)]
pub enum InboxMessage {
    /// A request that has passed every check of the door.
    Request {
        /// Who asks.
        asker: Asker,
        /// What for.
        request: Request,
        /// Where the answer goes. If the asker is gone by then, so be it.
        reply: oneshot::Sender<Verdict>,
    },
    /// A watcher wants the state now and every change from now on, without a gap between the two.
    Subscribe {
        /// This node only (a peer), or all nodes that this one sees (the local socket).
        view: View,
        /// Where they go.
        reply: oneshot::Sender<Subscription>,
    },
}

/// How much a subscriber sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum View {
    /// This node's own workers.
    Node,
    /// Every node, as seen from here.
    Fleet,
}

/// The present state, and the changes that follow it.
#[derive(Debug)]
pub struct Subscription {
    /// One report per node in view.
    pub first: Vec<NodeReport>,
    /// What happens from now on; a subscriber that lags is told so by the channel and subscribes again.
    pub changes: broadcast::Receiver<Arc<Update>>,
}

/// A change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Update {
    /// One worker changed; of this node or of one seen from here.
    Worker(WorkerReport),
    /// A node changed as a whole.
    Node(NodeReport),
    /// This host shuts down or reboots.
    Leaving,
}

/// Who is behind a request, as established by key or by the kernel, never by what they say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Asker {
    /// A peer, known by its key.
    Peer {
        /// The name that the fleet file gives to the key.
        node: NodeName,
        /// The key.
        pin: Pin,
    },
    /// Somebody on this host, known by the kernel.
    Local {
        /// The user; 0 may act, others may look.
        uid: u32,
    },
}

impl Asker {
    /// The peer's node, if it is one.
    pub fn peer(&self) -> Option<&str> {
        match self {
            Self::Peer { node, .. } => Some(node.as_str()),
            Self::Local { .. } => None,
        }
    }
}

impl fmt::Display for Asker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Peer { node, .. } => f.write_str(node.as_str()),
            Self::Local { uid: 0 } => f.write_str("root"),
            Self::Local { uid } => write!(f, "uid {uid}"),
        }
    }
}
