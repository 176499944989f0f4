//! The command line's own connection to the supervisor on this host.
//!
//! Blocking and without a runtime: a `keyholder relaunch` is one connect, two writes and two reads, and whoever waits
//! for it would pay for anything more.

mod error;
mod frames;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

pub use error::{LinkError, Stage};

use crate::peer::wire::{ClientFrame, Hello, Request, ServerFrame, Verb, Verdict};
use crate::vocabulary::{BootNonce, FleetHash, NodeName, ReqId, WorkerName};
use frames::Frames;

/// Where the supervisor listens for the command line.
pub const SOCKET: &str = "/run/keyholder/keyholder.sock";
/// How long connect and hello may take each. A supervisor that its socket has to start first needs about a tenth of
/// a second; the door's own limit for a hello is 5 s as well.
pub const HELLO_DEADLINE: Duration = Duration::from_secs(5);
/// How long the answer to a question may take. It may have to come from a peer.
pub const QUESTION_DEADLINE: Duration = Duration::from_secs(10);

/// Which supervisor a command talks to.
#[derive(Debug, Clone, clap::Args)]
pub struct LinkArgs {
    /// The supervisor's socket on this host
    #[arg(long, value_name = "PATH", default_value = SOCKET)]
    pub socket: PathBuf,
}

impl LinkArgs {
    /// Connects and greets.
    pub fn open(&self) -> Result<Link, LinkError> {
        Link::open(&self.socket, HELLO_DEADLINE)
    }
}

/// A connection to the supervisor on this host, past the hellos.
#[derive(Debug)]
pub struct Link {
    frames: Frames,
    server: Hello,
    /// Records that came while an answer was waited for; not more than come within that question's deadline.
    followed: VecDeque<ServerFrame>,
}

impl Link {
    /// Connects to the socket at `path` and exchanges hellos; connect and hello may take `deadline` each.
    ///
    /// The kernel tells the supervisor which user this is, so the hello says nothing that anybody relies on.
    pub fn open(path: &Path, deadline: Duration) -> Result<Self, LinkError> {
        let mut frames = Frames::connect(path, deadline)?;
        frames.send(&ClientFrame::Hello(Hello {
            node: "local".parse()?,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            boot_nonce: BootNonce::from_bytes([0; 16]),
            fleet_hash: FleetHash::from_bytes([0; 32]),
        }))?;
        let until = Instant::now() + deadline;
        loop {
            match frames.next(until)? {
                Some(ServerFrame::Hello(server)) => {
                    frames.stage = Stage::Waiting;
                    return Ok(Self { frames, server, followed: VecDeque::new() });
                }
                Some(ServerFrame::Reply(reply)) => match reply.result {
                    Verdict::Refused(refusal) => return Err(LinkError::Refused(refusal)),
                    Verdict::Outcome(_) => {}
                },
                Some(
                    ServerFrame::Snapshot(_)
                    | ServerFrame::Change(_)
                    | ServerFrame::Keepalive
                    | ServerFrame::Leaving
                    | ServerFrame::Event(_)
                    | ServerFrame::Missed { .. },
                ) => {}
                None => {
                    return Err(LinkError::Silent { path: frames.path().to_owned(), waited: deadline });
                }
            }
        }
    }

    /// The supervisor's hello: its node, version, present run and fleet file.
    pub fn server(&self) -> &Hello {
        &self.server
    }

    /// Asks for `verb` on a worker (or the whole) of `node`, and waits up to `deadline` for the answer.
    pub fn ask(
        &mut self,
        node: &NodeName,
        worker: Option<&WorkerName>,
        verb: Verb,
        because: &str,
        deadline: Duration,
    ) -> Result<Verdict, LinkError> {
        let (name, acts) = (verb.name(), verb.acts());
        let req_id = ReqId::random()?;
        self.frames.send(&ClientFrame::Request(Request {
            boot_nonce: self.server.boot_nonce,
            req_id,
            target_node: node.clone(),
            worker: worker.cloned(),
            verb,
            because: because.to_owned(),
        }))?;
        let until = Instant::now() + deadline;
        loop {
            match self.frames.next(until)? {
                Some(ServerFrame::Reply(reply)) => {
                    // There is one request on this connection, so a refusal is meant for it even if the door could
                    // not read its id.
                    let mine = reply.req_id == req_id || matches!(reply.result, Verdict::Refused(_));
                    if mine {
                        return Ok(reply.result);
                    }
                }
                Some(
                    ServerFrame::Hello(_)
                    | ServerFrame::Snapshot(_)
                    | ServerFrame::Change(_)
                    | ServerFrame::Keepalive
                    | ServerFrame::Leaving,
                ) => {}
                // What was followed before this question goes on: nothing of it may get lost.
                Some(record @ (ServerFrame::Event(_) | ServerFrame::Missed { .. })) => {
                    self.followed.push_back(record);
                }
                None => return Err(LinkError::NoAnswer { verb: name, waited: deadline, acts }),
            }
        }
    }

    /// The next frame of a watch, or none if none is complete by `until`.
    pub fn next(&mut self, until: Instant) -> Result<Option<ServerFrame>, LinkError> {
        self.frames.stage = Stage::Following;
        match self.followed.pop_front() {
            Some(record) => Ok(Some(record)),
            None => self.frames.next(until),
        }
    }
}
