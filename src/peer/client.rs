//! The calling side: a connection to a peer's door, or to the supervisor on this host, over which requests go out and
//! verdicts and news come back.

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use tokio::net::UnixStream;
use tokio::time::{Instant, timeout_at};

use super::channel::Channel;
use super::codec::{WireError, decode_server, encode};
use super::identity::Identity;
use super::reach::{self, NoWay};
use super::socket::tune;
use super::tls::{self, Distrust};
use super::wire::{ClientFrame, Hello, MAX_REPLY, MAX_REQUEST, NodeState, Refusal, ServerFrame, Verdict};
use crate::fleet::Fleet;
use crate::vocabulary::{BootNonce, FleetHash, IdError, NodeName, Pin};

mod link;

pub use link::{Events, Link, LinkError};

/// Whom to call, and what proves that it is them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// The node that is expected there.
    pub node: NodeName,
    /// Its door.
    pub address: SocketAddr,
    /// Its keys.
    pub pins: BTreeSet<Pin>,
    /// Our own address, which the other side's door has seats reserved for. Where this host does not have it (address
    /// translation), the kernel chooses.
    pub from: Option<IpAddr>,
}

impl Endpoint {
    /// How node `me` calls `node`; `None` if the fleet has no such node or has it disabled.
    pub fn of(fleet: &Fleet, me: &NodeName, node: &NodeName) -> Option<Self> {
        let peer = fleet.nodes.get(node).filter(|peer| !peer.disabled)?;
        let from = fleet.nodes.get(me).map(|own| own.address.ip());
        Some(Self { node: node.clone(), address: peer.address, pins: peer.pins.clone(), from })
    }
}

/// Why there is no connection. The sentence is about the other side.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The host answers, and nothing listens there.
    #[error("{0} answers, but nothing listens there: is keyholder.socket active on it?")]
    NothingListens(SocketAddr),
    /// The host does not answer.
    #[error("{address} does not answer ({why}): the host is down or cut off")]
    Unreachable {
        /// Where it was looked for.
        address: SocketAddr,
        /// What the network said.
        why: String,
    },
    /// The host answers with an ICMP message of its own: its firewall rejects the call.
    #[error("{address} answers: {why}; the host is up, and its firewall does not let this host in")]
    Rejected {
        /// Where.
        address: SocketAddr,
        /// What it answered.
        why: String,
    },
    /// The call did not leave this host, or a firewall on the way rejects it. It says nothing about the other side.
    #[error("this host is cut off from {address}: {why}; that says nothing about the host there")]
    CutOff {
        /// Where.
        address: SocketAddr,
        /// What is in the way.
        why: String,
    },
    /// The host took the connection, and no supervisor spoke within the deadline.
    #[error("{0} takes connections, but no supervisor answers: it is dead or hangs")]
    Silent(SocketAddr),
    /// The connection was closed before a word.
    #[error(
        "{0} closed the connection without a word: its supervisor has just ended, or has too many connections"
    )]
    HungUp(SocketAddr),
    /// One side does not trust the other.
    #[error("{address} is not the peer that was expected, or does not take us for one: {why}")]
    Handshake {
        /// Where.
        address: SocketAddr,
        /// Who distrusts whom, and why.
        why: Distrust,
    },
    /// It proved the right key and says that it is another node.
    #[error(
        "{address} holds the key of {expected} and calls itself {said}: correct /etc/keyholder/node there"
    )]
    WrongNode {
        /// Where.
        address: SocketAddr,
        /// Whose key it is.
        expected: NodeName,
        /// Who it says it is.
        said: NodeName,
    },
    /// It refused the connection as such, in its own words.
    #[error("refused: {0}")]
    Refused(Refusal),
    /// It does not speak the protocol.
    #[error("{0} does not speak keyholder/1 as this version does")]
    Protocol(String, #[source] WireError),
    /// The kernel has no random numbers.
    #[error(transparent)]
    Random(#[from] IdError),
    /// The local socket cannot be used.
    #[error("cannot connect to the supervisor's socket {path}")]
    Local {
        /// The socket.
        path: String,
        /// The system's reason.
        source: io::Error,
    },
}

impl ConnectError {
    /// What this says about the node. Who answers and cannot be asked is not dead but unknown.
    pub fn state(&self) -> NodeState {
        match self {
            Self::NothingListens(_) | Self::Silent(_) | Self::HungUp(_) | Self::Rejected { .. } => {
                NodeState::SupervisorDead
            }
            Self::CutOff { .. } => NodeState::CutOff,
            Self::Unreachable { .. } => NodeState::Unreachable,
            Self::Handshake { .. }
            | Self::WrongNode { .. }
            | Self::Refused(_)
            | Self::Protocol(..)
            | Self::Random(_)
            | Self::Local { .. } => NodeState::Unknown,
        }
    }
}

/// Calls a peer. The connection counts only once the peer has answered our hello with its own: a handshake that
/// succeeds on our side says nothing about whether the other side lets us in.
///
/// # Errors
/// [`ConnectError`], within `deadline` in any case.
pub async fn connect(
    to: &Endpoint,
    identity: &Identity,
    hello: Hello,
    deadline: Duration,
) -> Result<(Link, Events), ConnectError> {
    let by = Instant::now() + deadline;
    let address = to.address;
    let tcp = reach::dial(address, to.from, by).await.map_err(|why| not_connected(address, why))?;
    tune(&tcp);
    let spoken = async {
        let carrier = tls::connect(identity.credentials(), &to.pins, tcp, address.ip())
            .await
            .map_err(|why| distrusted(address, why))?;
        greet(Channel::new(carrier, MAX_REPLY), hello, address).await
    };
    let (channel, theirs) = timeout_at(by, spoken).await.unwrap_or(Err(ConnectError::Silent(address)))?;
    if theirs.node != to.node {
        return Err(ConnectError::WrongNode { address, expected: to.node.clone(), said: theirs.node });
    }
    Ok(link::start(channel, theirs))
}

/// Connects to the supervisor on this host. Who we are, the kernel tells it.
///
/// # Errors
/// [`ConnectError`], within `deadline` in any case.
pub async fn connect_local(path: &Path, deadline: Duration) -> Result<(Link, Events), ConnectError> {
    let local = |source| ConnectError::Local { path: path.display().to_string(), source };
    let silent = || local(io::Error::new(io::ErrorKind::TimedOut, "no supervisor answers on it"));
    let spoken = async {
        let stream = UnixStream::connect(path).await.map_err(local)?;
        let hello = Hello {
            node: "local".parse().map_err(|_| local(io::ErrorKind::InvalidInput.into()))?,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            boot_nonce: BootNonce::random()?,
            fleet_hash: FleetHash::of(b""),
        };
        let channel = Channel::new(Box::new(stream), MAX_REPLY);
        // The address is for messages about the network only.
        greet(channel, hello, SocketAddr::from(([127, 0, 0, 1], 0))).await.map_err(|error| match error {
            ConnectError::HungUp(_) => local(io::ErrorKind::ConnectionAborted.into()),
            other @ (ConnectError::NothingListens(_)
            | ConnectError::Unreachable { .. }
            | ConnectError::Rejected { .. }
            | ConnectError::CutOff { .. }
            | ConnectError::Silent(_)
            | ConnectError::Handshake { .. }
            | ConnectError::WrongNode { .. }
            | ConnectError::Refused(_)
            | ConnectError::Protocol(..)
            | ConnectError::Random(_)
            | ConnectError::Local { .. }) => other,
        })
    };
    let (channel, theirs) =
        timeout_at(Instant::now() + deadline, spoken).await.unwrap_or_else(|_| Err(silent()))?;
    Ok(link::start(channel, theirs))
}

/// What the peer's host says when it is called, until `by`: its kernel takes connections for a supervisor that hangs, and refuses
/// them where there is none. The text is why it cannot be reached, if that is so.
pub(super) async fn host(to: &Endpoint, by: Instant) -> (NodeState, Option<String>) {
    match reach::dial(to.address, to.from, by).await.map_err(|why| not_connected(to.address, why)) {
        Ok(_) => (NodeState::SupervisorDead, None),
        Err(error) => (error.state(), Some(error.to_string())),
    }
}

fn not_connected(address: SocketAddr, why: NoWay) -> ConnectError {
    match why {
        NoWay::Refused => ConnectError::NothingListens(address),
        NoWay::Rejected(why) => ConnectError::Rejected { address, why },
        NoWay::CutOff(why) => ConnectError::CutOff { address, why },
        NoWay::Silent(why) => ConnectError::Unreachable { address, why },
    }
}

fn distrusted(address: SocketAddr, why: Distrust) -> ConnectError {
    if why == Distrust::HungUp {
        ConnectError::HungUp(address)
    } else {
        ConnectError::Handshake { address, why }
    }
}

async fn greet(
    mut channel: Channel,
    hello: Hello,
    address: SocketAddr,
) -> Result<(Channel, Hello), ConnectError> {
    let protocol = |error| ConnectError::Protocol(address.to_string(), error);
    let bytes = encode(&ClientFrame::Hello(hello), MAX_REQUEST).map_err(protocol)?;
    // If it cannot be written, the other side has closed, and what it said before tells why.
    let written = channel.write(&bytes).await;
    let frame = match channel.read().await {
        Ok(Some(frame)) => frame,
        Ok(None) | Err(WireError::Truncated) => return Err(ConnectError::HungUp(address)),
        Err(WireError::Io(error)) => {
            let why = tls::distrust_in(&error).unwrap_or(Distrust::HungUp);
            return Err(distrusted(address, why));
        }
        Err(error) => return Err(protocol(error)),
    };
    match decode_server(&frame).map_err(protocol)? {
        ServerFrame::Hello(theirs) => {
            written.map_err(|_| ConnectError::HungUp(address))?;
            Ok((channel, theirs))
        }
        ServerFrame::Reply(reply) => match reply.result {
            Verdict::Refused(refusal) => Err(ConnectError::Refused(refusal)),
            Verdict::Outcome(_) => Err(protocol(unexpected())),
        },
        ServerFrame::Snapshot(_)
        | ServerFrame::Change(_)
        | ServerFrame::Keepalive
        | ServerFrame::Leaving
        | ServerFrame::Event(_)
        | ServerFrame::Missed { .. } => Err(protocol(unexpected())),
    }
}

fn unexpected() -> WireError {
    WireError::Malformed("something else came before its hello".to_owned())
}
