//! Why there is no answer from the supervisor on this host: each with the place and the way out.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use crate::peer::wire::{MAX_REPLY, Refusal};
use crate::vocabulary::{IdError, NameError, human};

/// Why there is no answer from the supervisor on this host.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// Nobody listens there.
    #[error(
        "the supervisor does not answer on {}: is keyholder.socket active? \
         try: systemctl status keyholder.socket keyholder.service", path.display()
    )]
    Absent {
        /// The socket.
        path: PathBuf,
    },
    /// The socket is not for this user.
    #[error("only root and the group keyholder may use {}: try sudo", path.display())]
    Forbidden {
        /// The socket.
        path: PathBuf,
    },
    /// It listens, and says nothing.
    #[error(
        "the supervisor takes connections on {} but said nothing for {}: \
         try: systemctl status keyholder.service; journalctl -u keyholder.service -n 20",
        path.display(), human(*waited)
    )]
    Silent {
        /// The socket.
        path: PathBuf,
        /// How long it was waited for.
        waited: Duration,
    },
    /// It greeted, and then did not answer the request.
    #[error("no answer to {verb} within {}{}", human(*waited), if *acts {
        "; whether it acted is unknown: look with keyholder status, and with keyholder audit"
    } else { "" })]
    NoAnswer {
        /// What was asked.
        verb: &'static str,
        /// How long it was waited for.
        waited: Duration,
        /// Whether it may have changed something.
        acts: bool,
    },
    /// It hung up.
    #[error(
        "the supervisor closed the connection {when}: \
         try: systemctl status keyholder.service; journalctl -u keyholder.service -n 20"
    )]
    Closed {
        /// At which point.
        when: Stage,
    },
    /// What it said is not the protocol.
    #[error("what answers on {} does not speak keyholder/1: is it another program, or another version?", path.display())]
    Garbage {
        /// The socket.
        path: PathBuf,
        /// What is wrong with it.
        source: serde_json::Error,
    },
    /// A frame longer than any that the protocol knows.
    #[error(
        "what answers on {} announced a frame of {length} bytes, more than the {MAX_REPLY} of keyholder/1: \
         is it another program?", path.display()
    )]
    TooLong {
        /// The socket.
        path: PathBuf,
        /// What it announced.
        length: usize,
    },
    /// It refused the connection itself.
    #[error("the supervisor refused the connection")]
    Refused(#[source] Refusal),
    /// Another error of the socket.
    #[error("talking to the supervisor on {} failed", path.display())]
    Io {
        /// The socket.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// The kernel has no random numbers.
    #[error(transparent)]
    Random(#[from] IdError),
    /// The name under which the command line greets is no name: a fault of keyholder itself.
    #[error(transparent)]
    Name(#[from] NameError),
}

/// How far a connection had come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Before its hello.
    Greeting,
    /// Before the answer to a request; it may have acted.
    Waiting,
    /// While it was followed.
    Following,
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Greeting => "instead of greeting",
            Self::Waiting => "before it answered",
            Self::Following => "while it was followed",
        })
    }
}
