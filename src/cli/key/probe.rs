//! Does a key open the peers' doors? Asked of all of them at once.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::Context;
use serde::Serialize;
use tokio::task::JoinSet;

use crate::fleet::Fleet;
use crate::peer::client::{ConnectError, Endpoint, connect};
use crate::peer::identity::Identity;
use crate::peer::tls::Distrust;
use crate::peer::wire::Hello;
use crate::vocabulary::{BootNonce, NodeName, human};

/// How long a peer may take to answer. A supervisor that the knock has to start first needs about a tenth of it.
const DEADLINE: Duration = Duration::from_secs(3);

/// What came of trying one peer.
#[derive(Debug, Serialize)]
pub struct Probe {
    /// The peer.
    pub node: NodeName,
    /// Its door, if the fleet file has it.
    pub address: Option<SocketAddr>,
    /// What it answered.
    #[serde(flatten)]
    pub result: Outcome,
}

/// An answer or the reason why there is none.
#[derive(Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Both sides accept each other.
    Answered(KeyProbeReply),
    /// They do not, or it was not there.
    Failed(ProbeFailure),
}

/// A peer that accepts our key and holds its own.
#[derive(Debug, Serialize)]
pub struct KeyProbeReply {
    /// Its version of keyholder.
    pub version: String,
    /// Whether its fleet file is the same as ours.
    pub same_fleet: bool,
    /// How long connection, handshake and its answer took together, in microseconds.
    pub took_us: u64,
}

/// Why a peer did not answer.
#[derive(Debug, Serialize)]
pub struct ProbeFailure {
    /// The reason, in a sentence.
    pub why: String,
    /// Whether the host answered at all.
    pub reachable: bool,
    /// Whether we accept its key; `None` if it came to no handshake.
    pub we_accept: Option<bool>,
    /// Whether it accepts ours; `None` if it came to no handshake.
    pub accepts_us: Option<bool>,
    /// What to do about it.
    pub way_out: Option<String>,
}

impl Probe {
    /// Whether both sides accept each other.
    pub fn passed(&self) -> bool {
        match &self.result {
            Outcome::Answered(_) => true,
            Outcome::Failed(_) => false,
        }
    }

    /// The result in words.
    pub fn said(&self) -> String {
        match &self.result {
            Outcome::Answered(answer) => format!(
                "accepts us and is accepted; version {}, {}, answered in {}",
                answer.version,
                if answer.same_fleet { "same fleet.yaml" } else { "ANOTHER fleet.yaml" },
                human(Duration::from_micros(answer.took_us))
            ),
            Outcome::Failed(trouble) => trouble.why.clone(),
        }
    }

    /// What to do if it failed.
    pub fn way_out(&self) -> Option<&str> {
        match &self.result {
            Outcome::Answered(_) => None,
            Outcome::Failed(trouble) => trouble.way_out.as_deref(),
        }
    }
}

/// Tries `identity` on the doors of `nodes`, all at once, and waits at most three seconds.
///
/// # Errors
/// Only what keeps the trial from being made: no runtime, no random numbers.
pub fn probe(
    fleet: &Fleet,
    me: &NodeName,
    identity: &Identity,
    nodes: &[NodeName],
) -> anyhow::Result<Vec<Probe>> {
    let hello = Hello {
        node: me.clone(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        boot_nonce: BootNonce::random()?,
        fleet_hash: fleet.hash,
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime that connects to peers")?;
    let mut probes = runtime.block_on(async {
        let mut trials = JoinSet::new();
        for node in nodes {
            let to = Endpoint::of(fleet, me, node);
            trials.spawn(try_one(node.clone(), to, identity.clone(), hello.clone()));
        }
        trials.join_all().await
    });
    probes.sort_by(|a, b| a.node.cmp(&b.node));
    Ok(probes)
}

async fn try_one(node: NodeName, to: Option<Endpoint>, identity: Identity, hello: Hello) -> Probe {
    let Some(to) = to else {
        let why = format!("{node} is not in fleet.yaml, or is disabled there");
        let trouble =
            ProbeFailure { why, reachable: false, we_accept: None, accepts_us: None, way_out: None };
        return Probe { node, address: None, result: Outcome::Failed(trouble) };
    };
    let (begun, ours) = (Instant::now(), hello.fleet_hash);
    let me = hello.node.clone();
    let result = match connect(&to, &identity, hello, DEADLINE).await {
        Ok((link, _events)) => {
            let took_us = u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX);
            let theirs = link.server();
            Outcome::Answered(KeyProbeReply {
                version: theirs.version.clone(),
                same_fleet: theirs.fleet_hash == ours,
                took_us,
            })
        }
        Err(error) => Outcome::Failed(trouble(&error, &node, &me, &identity)),
    };
    Probe { node, address: Some(to.address), result }
}

fn trouble(error: &ConnectError, node: &NodeName, me: &NodeName, identity: &Identity) -> ProbeFailure {
    let pin = identity.pin();
    let (reachable, we_accept, accepts_us, way_out) = match error {
        ConnectError::Unreachable { .. } | ConnectError::Random(_) | ConnectError::Local { .. } => {
            (false, None, None, None)
        }
        ConnectError::CutOff { .. } => {
            (false, None, None, Some("look at this host's interfaces, routes and firewall first".to_owned()))
        }
        ConnectError::Rejected { .. } => {
            (true, None, None, Some(format!("on {node}: let this host in at the firewall")))
        }
        ConnectError::NothingListens(_) | ConnectError::Silent(_) | ConnectError::HungUp(_) => (
            true,
            None,
            None,
            Some(format!("on {node}: systemctl status keyholder.socket keyholder.service")),
        ),
        ConnectError::Handshake { why, .. } => match why {
            Distrust::TurnedAway(_) => (
                true,
                Some(true),
                Some(false),
                Some(format!(
                    "on {node}: add {pin} to the pins of {me} in fleet.yaml, then systemctl reload keyholder"
                )),
            ),
            Distrust::Unpinned(theirs) => (
                true,
                Some(false),
                None,
                Some(format!(
                    "if `keyholder key show` on {node} prints {theirs}, add it to the pins of {node} here"
                )),
            ),
            Distrust::NoCertificate
            | Distrust::WrongKey
            | Distrust::OldTls
            | Distrust::WrongProtocol
            | Distrust::NotTls
            | Distrust::HungUp
            | Distrust::Other(_) => (true, Some(false), None, None),
        },
        ConnectError::WrongNode { .. } | ConnectError::Protocol(..) => (true, Some(true), None, None),
        ConnectError::Refused(_) => (true, Some(true), Some(false), None),
    };
    let why = match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    };
    ProbeFailure { why, reachable, we_accept, accepts_us, way_out }
}
