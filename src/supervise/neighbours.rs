//! The nodes that this one watches, as their supervisors describe them, or as their silence does.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::fleet::Fleet;
use crate::judge::{Errand, Sight, backoff, errand};
use crate::peer::watch::PeerHandle;
use crate::peer::wire::{Class, Hello, NodeReport, NodeState, Rehearsal, Sighting, WorkerReport};
use crate::vocabulary::{BootNonce, FleetHash, Moment, NodeName, Target, WorkerName};

/// One watched node.
pub(super) struct Neighbour {
    pub(super) handle: PeerHandle,
    state: NodeState,
    since: Moment,
    why: String,
    version: Option<String>,
    fleet_hash: Option<FleetHash>,
    /// The run of its supervisor that was heard from last.
    run: Option<BootNonce>,
    degraded: Vec<String>,
    /// How it sees the nodes that it watches.
    sees: Vec<Sighting>,
    /// What it rehearsed with them.
    rehearsed: Vec<Rehearsal>,
    workers: BTreeMap<WorkerName, Seen>,
    /// What its silence would mean had it not said goodbye.
    excused: Option<(NodeState, String)>,
}

/// How long a node that said goodbye may stay away before its silence counts: a reboot with a long file system check.
const AWAY_AT_MOST: Duration = Duration::from_secs(600);

/// Whether a node that said goodbye is waited for.
pub(super) enum Return {
    /// No.
    NotAwaited,
    /// Until then.
    Due(Moment),
    /// It has stayed away too long; its silence means this.
    Overdue(NodeState, String),
}

/// A worker of a watched node.
struct Seen {
    report: WorkerReport,
    at: Moment,
    /// What this watcher has ordered for it and not heard back from, or when it may order again.
    errand: Run,
}

/// The state of a watcher's own orders for one worker.
#[derive(Clone, Copy)]
enum Run {
    Idle,
    InFlight { failures: u32 },
    NotBefore { at: Moment, failures: u32 },
}

impl Seen {
    /// The report as it reads now.
    fn now(&self, now: Moment) -> WorkerReport {
        let mut report = self.report.clone();
        report.age_by(now.since(self.at));
        report
    }
}

impl Neighbour {
    pub(super) fn new(handle: PeerHandle, now: Moment) -> Self {
        Self {
            handle,
            state: NodeState::Unknown,
            since: now,
            why: "not heard from yet".to_owned(),
            version: None,
            fleet_hash: None,
            run: None,
            degraded: Vec::new(),
            sees: Vec::new(),
            rehearsed: Vec::new(),
            workers: BTreeMap::new(),
            excused: None,
        }
    }

    /// It is silent after its goodbye.
    pub(super) fn silent_since_goodbye(&mut self, state: NodeState, why: String) {
        self.excused = Some((state, why));
    }

    /// Whether its goodbye still excuses its silence.
    pub(super) fn overdue(&self, now: Moment) -> Return {
        let due = self.since + AWAY_AT_MOST;
        match (self.state, &self.excused) {
            (NodeState::Leaving, Some(_)) if now < due => Return::Due(due),
            (NodeState::Leaving, Some((state, why))) => Return::Overdue(*state, why.clone()),
            (
                NodeState::Up
                | NodeState::Starting
                | NodeState::Leaving
                | NodeState::SupervisorDead
                | NodeState::Unreachable
                | NodeState::Unknown,
                _,
            ) => Return::NotAwaited,
        }
    }

    /// Takes a new state; true if it differs from the one before.
    pub(super) fn turn(&mut self, state: NodeState, why: String, now: Moment) -> bool {
        let changed = self.state != state;
        if changed {
            self.since = now;
            self.excused = None;
        }
        self.state = state;
        self.why = why;
        changed
    }

    pub(super) fn state(&self) -> NodeState {
        self.state
    }

    /// Takes a hello in; true if it is by another run of the supervisor than the one before.
    pub(super) fn hello(&mut self, hello: Hello) -> bool {
        self.version = Some(hello.version);
        self.fleet_hash = Some(hello.fleet_hash);
        self.run.replace(hello.boot_nonce).is_some_and(|before| before != hello.boot_nonce)
    }

    pub(super) fn snapshot(&mut self, report: NodeReport, now: Moment) {
        self.degraded = report.degraded;
        self.sees = report.sees;
        self.rehearsed = report.rehearsed;
        // It may have taken another fleet file since its hello.
        self.fleet_hash = report.fleet_hash.or(self.fleet_hash);
        let mut before = std::mem::take(&mut self.workers);
        for report in report.workers {
            let errand = before.remove(&report.worker).map_or(Run::Idle, |seen| seen.errand);
            self.workers.insert(report.worker.clone(), Seen { report, at: now, errand });
        }
    }

    pub(super) fn change(&mut self, report: WorkerReport, now: Moment) {
        let errand = match self.workers.get(&report.worker) {
            // Whatever was ordered, it is up: the next fall is a new story.
            Some(Seen { errand: Run::NotBefore { .. }, .. }) if report.class == Class::Healthy => Run::Idle,
            Some(seen) => seen.errand,
            None => Run::Idle,
        };
        self.workers.insert(report.worker.clone(), Seen { report, at: now, errand });
    }

    pub(super) fn invocation(&self, worker: &WorkerName) -> Option<crate::vocabulary::InvocationId> {
        self.workers.get(worker).and_then(|seen| seen.report.invocation)
    }

    pub(super) fn report(&self, node: &NodeName, now: Moment) -> NodeReport {
        NodeReport {
            node: node.clone(),
            state: self.state,
            why: self.why.clone(),
            version: self.version.clone(),
            fleet_hash: self.fleet_hash,
            degraded: self.degraded.clone(),
            sees: self.sees.clone(),
            rehearsed: self.rehearsed.clone(),
            workers: self.workers.values().map(|seen| seen.now(now)).collect(),
        }
    }

    /// The workers that a relaunch is to be ordered for now, each with its last run; and when to look again.
    pub(super) fn errands(
        &mut self,
        node: &NodeName,
        fleet: &Fleet,
        now: Moment,
    ) -> (Vec<WorkerName>, Option<Moment>) {
        let (mut go, mut wake) = (Vec::new(), None::<Moment>);
        let mut wake_at = |at: Moment| wake = Some(wake.map_or(at, |earlier| earlier.min(at)));
        let specs = fleet.nodes.get(node).map(|node| &node.workers);
        // Orders go to a supervisor that answers; a silent one is knocked at by reconnecting.
        if self.state != NodeState::Up {
            return (go, None);
        }
        for (name, seen) in &mut self.workers {
            let Some(spec) = specs.and_then(|specs| specs.get(name)) else { continue };
            if seen.report.class != Class::Dead {
                continue;
            }
            let report = seen.now(now);
            let sight = Sight {
                dead_for: report.age(),
                attended: !report.doing.is_empty() || report.due_in_ms.is_some(),
                left_to_peers: report.left_to_peers,
                spared: report.held_for_ms.is_some() || report.quarantined,
                startable: report.startable,
            };
            match (errand(sight, &spec.policy), seen.errand) {
                (Errand::None, _) | (_, Run::InFlight { .. }) => {}
                (Errand::LookIn(left), _) => wake_at(now + left),
                (Errand::Relaunch, Run::NotBefore { at, .. }) if now < at => wake_at(at),
                (Errand::Relaunch, Run::Idle) => {
                    seen.errand = Run::InFlight { failures: 0 };
                    go.push(name.clone());
                }
                (Errand::Relaunch, Run::NotBefore { failures, .. }) => {
                    seen.errand = Run::InFlight { failures };
                    go.push(name.clone());
                }
            }
        }
        (go, wake)
    }

    /// An order was answered.
    pub(super) fn errand_done(&mut self, target: &Target, served: bool, now: Moment) {
        if let Some(seen) = self.workers.get_mut(&target.worker)
            && let Run::InFlight { failures } = seen.errand
        {
            seen.errand = if served {
                Run::NotBefore { at: now + Duration::from_secs(1), failures: 0 }
            } else {
                // The node's own flap guard bounds what is carried out; this bounds what is asked.
                let failures = failures.saturating_add(1);
                Run::NotBefore { at: now + Duration::from_secs(1) + backoff(failures, 0), failures }
            };
        }
    }

    /// What is known of the node, for somebody whose order could not be passed on.
    pub(super) fn in_words(&self, node: &NodeName) -> String {
        format!("{node} was last seen {}: {}", self.state.name(), self.why)
    }

    pub(super) fn since(&self) -> Moment {
        self.since
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_goodbye_excuses_silence_for_a_while_and_not_for_ever() {
        let mut mars = Neighbour::new(PeerHandle::idle(), Moment::from_millis(0));
        let at = |secs: u64| Moment::from_millis(secs * 1000);
        mars.turn(NodeState::Leaving, "goodbye".to_owned(), at(10));
        assert!(matches!(mars.overdue(at(10_000)), Return::NotAwaited), "it still answers");
        mars.silent_since_goodbye(NodeState::Unreachable, "no answer".to_owned());
        assert!(matches!(mars.overdue(at(11)), Return::Due(due) if due == at(610)));
        assert!(matches!(mars.overdue(at(610)), Return::Overdue(NodeState::Unreachable, _)));
        mars.turn(NodeState::Up, "back".to_owned(), at(700));
        assert!(matches!(mars.overdue(at(10_000)), Return::NotAwaited));
    }
}
