//! What the supervisor is given, and why it may be unable to start.

use std::path::PathBuf;

use super::kernel;
use crate::fleet::Problems;
use crate::peer::identity::IdentityError;
use crate::vocabulary::{IdError, NodeName};

/// What the supervisor is started with.
#[derive(Debug, Clone)]
pub struct Setup {
    /// This node.
    pub node: NodeName,
    /// The fleet file.
    pub fleet: PathBuf,
    /// The node's key.
    pub key: PathBuf,
    /// Where state and evidence are kept.
    pub state_dir: PathBuf,
    /// Another address of Redis than the fleet file's, with a user and a password. Only detectors use it.
    pub redis: Option<String>,
}

/// Why the supervisor cannot start.
#[derive(Debug, thiserror::Error)]
pub enum SuperviseError {
    /// The fleet file is not valid.
    #[error("the fleet file is not valid; `keyholder check` shows it in full")]
    Fleet(#[source] Problems),
    /// The fleet file does not know this node.
    #[error("{} has no node {node}; correct /etc/keyholder/node or add the node", path.display())]
    NotInFleet {
        /// This node.
        node: NodeName,
        /// The file.
        path: PathBuf,
    },
    /// The node's key cannot be used.
    #[error("this node's key cannot be used")]
    Identity(#[source] IdentityError),
    /// PID 1 holds no socket for us.
    #[error("no socket was passed: start keyholder.socket, whose sockets outlive the supervisor")]
    NoSockets,
    /// The passed sockets cannot be taken over.
    #[error("the sockets cannot be taken over")]
    Inherit(#[from] kernel::InheritError),
    /// The door cannot be opened.
    #[error("the door cannot be opened")]
    Door(#[source] crate::peer::listener::DoorError),
    /// The door's task ended although nobody asked it to.
    #[error("the listener ended unexpectedly")]
    DoorEnded,
    /// The kernel gives no randomness.
    #[error("no nonce for this run")]
    Random(#[source] IdError),
    /// Signals cannot be caught.
    #[error("signals cannot be caught")]
    Signals(#[source] std::io::Error),
    /// The runtime cannot start.
    #[error("the runtime cannot start")]
    Runtime(#[source] std::io::Error),
}
