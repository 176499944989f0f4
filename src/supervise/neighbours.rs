//! The nodes that this one watches, as their supervisors describe them, or as their silence does.

use std::collections::BTreeMap;
use std::time::Duration;

use super::worker::rungs;
use crate::fleet::{Fleet, Right};
use crate::judge::{Errand, Pulse, Reading, Sight, Sign, Signs, backoff, errand};
use crate::peer::watch::PeerHandle;
use crate::peer::wire::{Class, Hello, NodeReport, NodeState, Rehearsal, Sighting, WorkerReport};
use crate::vocabulary::{BootNonce, FailureClass, FleetHash, Moment, NodeName, Remedy, Target, WorkerName};

/// One watched node.
pub(super) struct Neighbour {
    pub(super) handle: PeerHandle,
    state: NodeState,
    since: Moment,
    why: String,
    version: Option<String>,
    fleet_hash: Option<FleetHash>,
    /// The run of its supervisor that was heard from last, and since when.
    run: Option<BootNonce>,
    greeted: Moment,
    degraded: Vec<String>,
    /// How it sees the nodes that it watches.
    sees: Vec<Sighting>,
    /// What it rehearsed with them, and when it said so.
    rehearsed: (Vec<Rehearsal>, Moment),
    workers: BTreeMap<WorkerName, Seen>,
    /// What its silence would mean had it not said goodbye.
    excused: Option<(NodeState, String)>,
    /// When its `power` command was run from here last.
    pub(super) powered: Option<Moment>,
    /// When another watcher last said that it reaches it. Its word goes on to count when it falls silent itself: who follows
    /// it hears of a change, not of each moment that goes by.
    reached: Option<Moment>,
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
    /// Since when its node leaves it to its watchers.
    left: Option<Moment>,
    /// What this watcher has ordered for it and not heard back from, or when it may order again.
    errand: Run,
    /// What this watcher's own detectors see of it.
    signs: Signs,
    /// What that means, and since when.
    outside: Option<((FailureClass, String), Moment)>,
}

/// How many watchers of a node come before `me`: those with an earlier name that may relaunch the worker.
fn rank(fleet: &Fleet, me: &NodeName, node: &NodeName, worker: &WorkerName) -> u32 {
    let watchers = fleet.nodes.get(node).into_iter().flat_map(|node| &node.watched_by);
    let before = watchers.filter(|other| *other < me && fleet.allows(other, node, worker, Right::Relaunch));
    u32::try_from(before.count()).unwrap_or(u32::MAX)
}

/// The state of a watcher's own orders for one worker.
#[derive(Clone, Copy)]
enum Run {
    Idle,
    /// By `shows` the worker has to show that it helped, if that is seen from here and not by its own node.
    InFlight {
        failures: u32,
        shows: Option<Moment>,
    },
    NotBefore {
        at: Moment,
        failures: u32,
    },
}

impl Seen {
    /// Whether it ails as seen from here while its own node calls it healthy, or cannot tell. A node that sees more than
    /// that is right about its own worker.
    fn ails(&self) -> bool {
        match self.report.class {
            Class::Healthy | Class::Unknown => self.outside.is_some(),
            Class::Starting | Class::Held | Class::Dead | Class::Stuck | Class::DeliveryGap => false,
        }
    }

    /// The report as it reads now.
    fn now(&self, now: Moment) -> WorkerReport {
        let mut report = self.report.clone();
        report.age_by(now.since(self.at));
        if let (true, Some(((class, evidence), since))) = (self.ails(), &self.outside) {
            report.class = match class {
                FailureClass::Stuck => Class::Stuck,
                FailureClass::DeliveryGap => Class::DeliveryGap,
                FailureClass::Dead | FailureClass::SupervisorDead | FailureClass::Unreachable => {
                    Class::Unknown
                }
            };
            report.for_ms = u64::try_from(now.since(*since).as_millis()).unwrap_or(u64::MAX);
            report.why = format!("seen in Redis from outside, not by its own node: {evidence}");
        }
        report
    }

    /// What is kept of it when its node reports anew.
    fn replaced(self, report: WorkerReport, now: Moment) -> Self {
        let healthy = report.class == Class::Healthy;
        let another_run = report.invocation != self.report.invocation;
        let left = report.left_to_peers.then(|| self.left.unwrap_or(now));
        let errand = match self.errand {
            // Whatever was ordered, it is up: the next fall is a new story.
            Run::NotBefore { .. } if healthy && (another_run || self.outside.is_none()) => Run::Idle,
            kept @ (Run::Idle | Run::InFlight { .. } | Run::NotBefore { .. }) => kept,
        };
        if another_run {
            return Self { report, at: now, left, errand, signs: Signs::default(), outside: None };
        }
        Self { report, at: now, left, errand, ..self }
    }

    fn new(report: WorkerReport, now: Moment) -> Self {
        let left = report.left_to_peers.then_some(now);
        Self { report, at: now, left, errand: Run::Idle, signs: Signs::default(), outside: None }
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
            greeted: now,
            degraded: Vec::new(),
            sees: Vec::new(),
            rehearsed: (Vec::new(), now),
            workers: BTreeMap::new(),
            excused: None,
            powered: None,
            reached: None,
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

    /// How it sees another node, if it watches that one.
    pub(super) fn sees(&self, node: &NodeName) -> Option<NodeState> {
        self.sees.iter().find(|sight| sight.node == *node).map(|sight| sight.state)
    }

    pub(super) fn state(&self) -> NodeState {
        self.state
    }

    /// Takes a hello in; true if it is by another run of the supervisor than the one before.
    pub(super) fn hello(&mut self, hello: Hello, now: Moment) -> bool {
        self.version = Some(hello.version);
        self.greeted = now;
        self.fleet_hash = Some(hello.fleet_hash);
        self.run.replace(hello.boot_nonce).is_some_and(|before| before != hello.boot_nonce)
    }

    pub(super) fn snapshot(&mut self, report: NodeReport, now: Moment) {
        self.degraded = report.degraded;
        self.sees = report.sees;
        self.rehearsed = (report.rehearsed, now);
        // It may have taken another fleet file since its hello.
        self.fleet_hash = report.fleet_hash.or(self.fleet_hash);
        let mut before = std::mem::take(&mut self.workers);
        for report in report.workers {
            let seen = match before.remove(&report.worker) {
                Some(seen) => (report.worker.clone(), seen.replaced(report, now)),
                None => (report.worker.clone(), Seen::new(report, now)),
            };
            self.workers.insert(seen.0, seen.1);
        }
    }

    pub(super) fn change(&mut self, report: WorkerReport, now: Moment) {
        let name = report.worker.clone();
        let seen = match self.workers.remove(&name) {
            Some(seen) => seen.replaced(report, now),
            None => Seen::new(report, now),
        };
        self.workers.insert(name, seen);
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
            rehearsed: self.rehearsed(now),
            workers: self.workers.values().map(|seen| seen.now(now)).collect(),
        }
    }

    /// Takes in what a detector of this node read of one of its workers: queues and heartbeats in Redis are seen from
    /// anywhere. Returns what there is to tell if that changes how the worker looks from here.
    pub(super) fn read(
        &mut self,
        fleet: &Fleet,
        target: &Target,
        sign: Sign,
        reading: Reading,
        now: Moment,
    ) -> Option<WorkerReport> {
        let spec = fleet.nodes.get(&target.node)?.workers.get(&target.worker)?;
        let seen = self.workers.get_mut(&target.worker)?;
        seen.signs.take(sign, reading, spec.stuck.as_ref(), spec.delivery_gap.as_ref(), now);
        let vitals = seen.signs.vitals();
        let outside = match (vitals.beat, vitals.flow) {
            (Pulse::Still(evidence), _) => Some((FailureClass::Stuck, evidence)),
            (Pulse::Unwatched | Pulse::Moving, Pulse::Still(evidence)) => {
                Some((FailureClass::DeliveryGap, evidence))
            }
            (Pulse::Unseen(_), _) | (Pulse::Unwatched | Pulse::Moving, _) => None,
        };
        if seen.outside.as_ref().map(|(found, _)| found) == outside.as_ref() {
            return None;
        }
        seen.outside = outside.map(|found| (found, now));
        if let (None, Run::NotBefore { .. }, Class::Healthy | Class::Unknown) =
            (&seen.outside, seen.errand, seen.report.class)
        {
            // What was ordered has helped: the next fall is a new story.
            seen.errand = Run::Idle;
        }
        seen.ails().then(|| seen.now(now))
    }

    /// The workers that something is to be ordered for now, with what and how they look; and when to look again.
    pub(super) fn errands(
        &mut self,
        me: &NodeName,
        node: &NodeName,
        fleet: &Fleet,
        now: Moment,
    ) -> (Vec<(WorkerName, Remedy, String)>, Option<Moment>) {
        let (mut go, mut wake) = (Vec::new(), None::<Moment>);
        let mut wake_at = |at: Moment| wake = Some(wake.map_or(at, |earlier| earlier.min(at)));
        let Some(known) = fleet.nodes.get(node) else { return (go, None) };
        // Orders go to a supervisor that answers; a silent one is knocked at by reconnecting.
        if self.state != NodeState::Up {
            return (go, None);
        }
        // Nobody could do anything about a worker while its supervisor was not there. The watchers' turns are counted from its
        // return, or all of them would come at once then, and before the node itself.
        let there = now.since(self.since.max(self.greeted));
        for (name, seen) in &mut self.workers {
            let Some(spec) = known.workers.get(name) else { continue };
            let report = seen.now(now);
            let (class, for_, own) = match (report.class, &seen.outside) {
                (Class::Dead, _) => (FailureClass::Dead, report.age(), true),
                (Class::Stuck | Class::DeliveryGap, Some((found, since))) if seen.ails() => {
                    (found.0, now.since(*since), false)
                }
                (Class::Stuck, _) => (FailureClass::Stuck, report.age(), true),
                (Class::DeliveryGap, _) => (FailureClass::DeliveryGap, report.age(), true),
                (Class::Healthy | Class::Starting | Class::Held | Class::Unknown, _) => continue,
            };
            let failures = match seen.errand {
                Run::InFlight { .. } => continue,
                Run::NotBefore { at, .. } if now < at => {
                    wake_at(at);
                    continue;
                }
                Run::NotBefore { failures, .. } => failures,
                Run::Idle => 0,
            };
            // Whoever acted last, this has to show first whether it helped.
            let acted = report.last_act_ms.map_or(Duration::MAX, Duration::from_millis);
            let sight = Sight {
                class,
                for_: seen.left.map_or(for_, |left| now.since(left)).min(there).min(acted),
                attended: !report.doing.is_empty() || report.due_in_ms.is_some(),
                left_to_peers: report.left_to_peers,
                spared: report.held_for_ms.is_some() || report.quarantined,
                startable: report.startable,
                failures,
                rank: rank(fleet, me, node, name),
            };
            match errand(sight, &spec.policy, rungs(spec)) {
                Errand::None => {}
                Errand::LookIn(left) => wake_at(now + left),
                Errand::Order(remedy) => {
                    let shows = rungs(spec).shows(remedy).filter(|_| !own).map(|time| now + time);
                    seen.errand = Run::InFlight { failures, shows };
                    let saw = if own {
                        class.name().to_owned()
                    } else {
                        format!("{} as seen from {me}", class.name())
                    };
                    go.push((name.clone(), remedy, saw));
                }
            }
        }
        (go, wake)
    }

    /// An order was answered.
    pub(super) fn errand_done(&mut self, target: &Target, served: bool, now: Moment) {
        if let Some(seen) = self.workers.get_mut(&target.worker)
            && let Run::InFlight { failures, shows } = seen.errand
        {
            let more = failures.saturating_add(1);
            seen.errand = match (served, shows) {
                // It was done, and its node sees nothing wrong, as before. What is still seen from here then asks for the
                // next rung.
                (true, Some(at)) => Run::NotBefore { at, failures: more },
                (true, None) => Run::NotBefore { at: now + Duration::from_secs(1), failures: 0 },
                // The node's own flap guard bounds what is carried out; this bounds what is asked.
                (false, _) => {
                    Run::NotBefore { at: now + Duration::from_secs(1) + backoff(more, 0), failures: more }
                }
            };
        }
    }

    /// What is known of the node, for somebody whose order could not be passed on.
    pub(super) fn in_words(&self, node: &NodeName) -> String {
        let way_out = match self.state {
            NodeState::Unreachable => format!("; if it is down: keyholder power {node}"),
            NodeState::SupervisorDead => "; it is being knocked at: ask again in a moment".to_owned(),
            NodeState::Up | NodeState::Starting | NodeState::Leaving | NodeState::Unknown => String::new(),
        };
        format!("{node} was last seen {}: {}{way_out}", self.state.name(), self.why)
    }

    /// What it rehearsed with the nodes that it watches, with their ages as they are now.
    fn rehearsed(&self, now: Moment) -> Vec<Rehearsal> {
        let (said, at) = &self.rehearsed;
        let since = u64::try_from(now.since(*at).as_millis()).unwrap_or(u64::MAX);
        let older =
            |last: &Rehearsal| Rehearsal { ago_ms: last.ago_ms.saturating_add(since), ..last.clone() };
        said.iter().map(older).collect()
    }

    /// Its state is as old as this moment, however long this watcher has not listened.
    pub(super) fn count_anew(&mut self, now: Moment) {
        self.since = now;
    }

    /// The worker of it that is broken on purpose at the moment, if one is.
    pub(super) fn rehearsed_now(&self) -> Option<&WorkerReport> {
        self.workers.values().map(|seen| &seen.report).find(|report| report.drill.is_some())
    }

    /// For how long nobody has reached it, neither this watcher nor another that told it.
    pub(super) fn unreached_for(&mut self, reached_by_others: bool, now: Moment) -> Duration {
        if reached_by_others {
            self.reached = Some(now);
        }
        now.since(self.reached.map_or(self.since, |reached| reached.max(self.since)))
    }

    pub(super) fn since(&self) -> Moment {
        self.since
    }
}

#[cfg(test)]
#[path = "neighbours/tests.rs"]
mod tests;
