//! The validated fleet: whatever holds one of these values may rely on it without a further check.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::vocabulary::{
    BlastRadius, DeliveryGap, FleetHash, Mode, NodeName, Pin, Policy, Power, Stuck, TaskKey, UnitName,
    WorkerName,
};

/// The whole fleet, as one `fleet.yaml` describes it; the same file lies on every node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fleet {
    /// Hash of the file's bytes, exchanged between peers to show drift.
    pub hash: FleetHash,
    /// Where the lanes' Redis is (`redis://`, `rediss://`, or through sentinels `redis-sentinel://`), if the fleet has one.
    /// Relaunching never needs it.
    pub redis: Option<String>,
    /// Who may sign tasks, by the name that a task gives for its key.
    pub task_keys: BTreeMap<String, TaskKey>,
    /// Who may approve tasks, by the name that an approval gives for its key. None of these keys is a task key.
    pub approver_keys: BTreeMap<String, TaskKey>,
    /// How tasks get to the lanes.
    pub lanes: Lanes,
    /// Every node by its name, the disabled ones included.
    pub nodes: BTreeMap<NodeName, Node>,
    /// Who may do what where. What is not granted is refused.
    pub grants: Vec<Grant>,
}

/// How tasks get to the lanes, on all nodes alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Lanes {
    /// Whether what only reads is pushed to the read lane. While it is false everything goes to the write lane, as it
    /// always did, and nothing waits for a read lane that is not up yet.
    pub read_routing: bool,
}

/// One host of the fleet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Where its door listens. An address, never a host name: the relaunch path depends on no DNS.
    pub address: SocketAddr,
    /// Its keys. A list, so that a key can be replaced without a moment at which nobody accepts the node.
    pub pins: BTreeSet<Pin>,
    /// The peers that follow this node and act for it when it cannot.
    pub watched_by: BTreeSet<NodeName>,
    /// A disabled node's keys are accepted nowhere and its connections are cut.
    pub disabled: bool,
    /// Whether its write lane takes tasks that nobody has signed: whoever reaches Redis may then give it orders.
    pub insecure_unsigned_write: bool,
    /// How its watchers may switch it on again.
    pub power: Option<Power>,
    /// What is to be kept alive on it. Shared, since the supervisor keeps its own workers in two places, and since a map
    /// makes room for eleven values where one is: every node knows the workers of the whole fleet.
    pub workers: BTreeMap<WorkerName, Arc<Worker>>,
}

/// A unit that keyholder looks after.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Worker {
    /// The systemd unit.
    pub unit: UnitName,
    /// Which of the node's lanes it is, if it is one.
    pub lane: Option<Mode>,
    /// How much depends on it. It decides urgency, never how closely it is watched.
    pub blast_radius: BlastRadius,
    /// When and how often it is repaired.
    pub policy: Policy,
    /// How it is seen to be stuck.
    pub stuck: Option<Stuck>,
    /// How it is seen to be cut off from its work.
    pub delivery_gap: Option<DeliveryGap>,
}

/// One line of the grants: `from` may use `rights` on `workers` of node `on`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// The node that asks.
    pub from: NodeName,
    /// The node that obeys.
    pub on: NodeName,
    /// For which of its workers.
    pub workers: Scope,
    /// What it may do with them.
    pub rights: BTreeSet<Right>,
}

/// Which workers a grant covers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
    /// All of the node's workers, written `"*"`.
    All,
    /// These.
    Only(BTreeSet<WorkerName>),
}

/// What can be granted to a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Right {
    /// See the workers' state and its explanation.
    Status,
    /// Have a worker relaunched.
    Relaunch,
    /// Hold a worker, or end a hold or quarantine.
    Hold,
    /// Have a stuck worker nudged.
    Nudge,
    /// Have a worker's receive pipe built again.
    Repipe,
    /// Switch the node on again when it cannot be reached.
    Power,
    /// Break a worker on purpose and repair it, to see that it works.
    Drill,
    /// Have the node's journal searched for who ran a task.
    Prove,
}

impl Right {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Status,
        Self::Relaunch,
        Self::Hold,
        Self::Nudge,
        Self::Repipe,
        Self::Drill,
        Self::Power,
        Self::Prove,
    ];

    /// Its name, as among the verbs of a grant.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Status => "status",
            Self::Relaunch => "relaunch",
            Self::Hold => "hold",
            Self::Nudge => "nudge",
            Self::Repipe => "repipe",
            Self::Power => "power",
            Self::Drill => "drill",
            Self::Prove => "prove",
        }
    }
}

impl Fleet {
    /// The enabled node that owns a key, or `None`: the only way from a key to a name.
    pub fn node_of(&self, pin: &Pin) -> Option<&NodeName> {
        self.nodes.iter().find(|(_, node)| !node.disabled && node.pins.contains(pin)).map(|(name, _)| name)
    }

    /// Whether `from` may use `right` on a worker of node `on`. Deny by default; a disabled node has no rights.
    pub fn allows(&self, from: &NodeName, on: &NodeName, worker: &WorkerName, right: Right) -> bool {
        self.nodes.get(from).is_some_and(|node| !node.disabled)
            && self.grants.iter().any(|grant| {
                grant.from == *from
                    && grant.on == *on
                    && grant.rights.contains(&right)
                    && match &grant.workers {
                        Scope::All => true,
                        Scope::Only(names) => names.contains(worker),
                    }
            })
    }

    /// Whether `from` may use `right` on node `on` as a whole: its power, its supervisor. Only a grant for all of its
    /// workers says that. Deny by default; a disabled node has no rights.
    pub fn allows_node(&self, from: &NodeName, on: &NodeName, right: Right) -> bool {
        self.nodes.get(from).is_some_and(|node| !node.disabled)
            && self.grants.iter().any(|grant| {
                grant.from == *from
                    && grant.on == *on
                    && grant.rights.contains(&right)
                    && grant.workers == Scope::All
            })
    }

    /// The enabled nodes that `watcher` follows.
    pub fn watched_by<'a>(&'a self, watcher: &'a NodeName) -> impl Iterator<Item = (&'a NodeName, &'a Node)> {
        self.nodes.iter().filter(move |(name, node)| {
            *name != watcher && !node.disabled && node.watched_by.contains(watcher)
        })
    }
}
