//! What is known of rehearsals: the one that is under way, and what is remembered of others.

use std::collections::BTreeMap;
use std::time::Instant;

use tokio::sync::oneshot;

use super::kept::Kept;
use crate::judge::{Asked, Drill};
use crate::peer::wire::Verdict;
use crate::vocabulary::{FailureClass, NodeName, Policy, UnitName, WorkerName};

/// What this node knows of rehearsals, beside what hangs on its workers.
#[derive(Default)]
pub(in crate::supervise) struct Drills {
    /// The one that is under way with a worker of this node.
    pub(in crate::supervise) under_way: Option<UnderWay>,
    /// The watched node whose supervisor is being rehearsed from here.
    pub(in crate::supervise) with: Option<NodeName>,
    /// Whether this supervisor itself is to die at the next stop, without a word.
    pub(in crate::supervise) to_die: bool,
    /// What peers had of each worker, and of this supervisor (none).
    pub(in crate::supervise) asked: BTreeMap<Option<WorkerName>, Asked>,
    /// The last ones with the supervisors of watched nodes.
    pub(in crate::supervise) nodes: BTreeMap<NodeName, Kept>,
}

/// A rehearsal with a worker.
pub(in crate::supervise) struct UnderWay {
    pub(in crate::supervise) worker: WorkerName,
    pub(in crate::supervise) unit: UnitName,
    pub(in crate::supervise) drill: Drill,
    /// Of an earlier run of this supervisor; nothing is done before the worker has been looked at.
    pub(in crate::supervise) inherited: bool,
    pub(in crate::supervise) reply: Option<oneshot::Sender<Verdict>>,
    pub(in crate::supervise) evidence: Vec<String>,
    pub(in crate::supervise) began: Instant,
    pub(in crate::supervise) found: Option<Instant>,
    pub(in crate::supervise) well: Option<Instant>,
    /// When a lane was last told to be deaf.
    pub(in crate::supervise) deafened: Instant,
}

/// What hangs on a worker while it is rehearsed.
pub(in crate::supervise) struct Rehearsing {
    pub(in crate::supervise) class: FailureClass,
    /// In force instead of its own while it is left to its watchers.
    pub(in crate::supervise) policy: Option<Policy>,
}

/// What ended in a task of its own.
pub(in crate::supervise) enum DrillDone {
    /// The worker was broken, in these words, or was not.
    Break(Result<String, String>),
    /// The worker was restored as far as that goes without a look at it.
    Restore(Result<String, String>),
    /// A task was sent through the lane.
    Canary(Result<String, NoCanary>),
}

impl Drills {
    /// The unit that must be reachable whatever the fleet file says meanwhile.
    pub(in crate::supervise) fn unit(&self) -> Option<UnitName> {
        self.under_way.as_ref().map(|under_way| under_way.unit.clone())
    }
}

/// Why a task through a lane has shown nothing.
pub(in crate::supervise) enum NoCanary {
    /// None was sent; the text says why.
    NotSent(String),
    /// It was sent, and what it did, after "a task …".
    NotProved(String),
}
