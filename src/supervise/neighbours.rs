//! The nodes that this one watches, as their supervisors describe them, or as their silence does.

pub(in crate::supervise) mod seen;
mod told;

use std::collections::BTreeMap;
use std::time::Duration;

use self::seen::{Seen, WatcherOrder, rank};
use self::told::Announcements;
use crate::fleet::Fleet;
use crate::journal::Record;
use crate::judge::{Probe, Reading, Sign};
use crate::peer::watch::PeerHandle;
use crate::peer::wire::{Hello, NodeReport, NodeState, Rehearsal, Sighting, WorkerReport};
use crate::vocabulary::{Allowance, BootNonce, FleetHash, Moment, NodeName, Remedy, Target, WorkerName};

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
    /// How it sees the nodes that it watches, and when it said so.
    sees: (Vec<Sighting>, Moment),
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
    /// How many entries of its reports were dropped, because the fleet file in force has no such worker or node.
    dropped: usize,
    told: Announcements,
    /// What may still be ordered of it: a node that says again and again that a worker fell does not decide how much is done.
    orders: Allowance,
    /// What was found out when it was silent, and when.
    pub(super) probe: Option<(Moment, Probe)>,
    /// Whether that is being found out.
    pub(super) probing: bool,
    /// When it was asked last how it sees the nodes that it watches.
    pub(super) asked: Option<Moment>,
}

/// How many orders a watcher gives to one node at once, and how soon it may give another.
const ORDERS: (u32, Duration) = (1024, Duration::from_secs(30));
/// How long a watcher's word about another node counts. It is asked again before that.
const WORD_COUNTS: Duration = Duration::from_secs(15);
/// How long it counts what was found out about a silent node.
const PROBE_COUNTS: Duration = Duration::from_secs(6);

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

/// What is said of reports about what nobody knows.
pub(super) fn dropped_in_words(node: &NodeName, entries: usize) -> String {
    format!(
        "{entries} entries in reports of {node} were dropped: they name a worker or a node that fleet.yaml here does not have, or repeat one; put the same fleet.yaml on both nodes"
    )
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
            sees: (Vec::new(), now),
            rehearsed: (Vec::new(), now),
            workers: BTreeMap::new(),
            excused: None,
            powered: None,
            reached: None,
            dropped: 0,
            told: Announcements::default(),
            orders: Allowance::new(ORDERS.0, ORDERS.1),
            probe: None,
            probing: false,
            asked: None,
        }
    }

    /// It came, went or turned: what to record of that now.
    pub(super) fn tell(&mut self, record: Record, now: Moment) -> Option<Record> {
        self.told.change(record, now)
    }

    /// What was counted of its changes and may be recorded by now, or when to ask again.
    pub(super) fn told(&mut self, now: Moment) -> Result<Record, Option<Moment>> {
        self.told.due(now)
    }

    /// So many entries of its last report were dropped; true if these are the first.
    pub(super) fn dropped(&mut self, entries: usize) -> bool {
        let first = self.dropped == 0;
        self.dropped = self.dropped.saturating_add(entries);
        first
    }

    /// Another fleet file is in force, which may know what the one before did not.
    pub(super) fn another_fleet(&mut self, handle: PeerHandle) {
        self.handle = handle;
        self.dropped = 0;
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
                | NodeState::CutOff
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
            self.probe = None;
        }
        self.state = state;
        self.why = why;
        changed
    }

    /// How it sees another node, and how old that word is; nothing if it is too old to count.
    pub(super) fn sees(&self, node: &NodeName, now: Moment) -> Option<(NodeState, Duration)> {
        let (said, at) = &self.sees;
        let sight = said.iter().find(|sight| sight.node == *node)?;
        let age = Duration::from_millis(sight.ago_ms).saturating_add(now.since(*at));
        (age < WORD_COUNTS).then_some((sight.state, age))
    }

    /// It was asked how it sees the nodes that it watches.
    pub(super) fn says(&mut self, sees: Vec<Sighting>, now: Moment) {
        self.sees = (sees, now);
    }

    /// What was found out about it lately.
    pub(super) fn probed(&self, now: Moment) -> Option<&Probe> {
        self.probe.as_ref().filter(|(at, _)| now.since(*at) < PROBE_COUNTS).map(|(_, probe)| probe)
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
        self.sees = (report.sees, now);
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
            degraded: self.degraded.iter().cloned().chain(self.dropped_in_words(node)).collect(),
            sees: self.sees.0.clone(),
            rehearsed: self.rehearsed(now),
            workers: self.workers.values().map(|seen| seen.now(now)).collect(),
        }
    }

    fn dropped_in_words(&self, node: &NodeName) -> Option<String> {
        (self.dropped > 0).then(|| dropped_in_words(node, self.dropped))
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
        seen.read(spec, sign, reading, now)
    }

    /// The workers that something is to be ordered for now, with what and how they look; and when to look again.
    pub(super) fn watcher_jobs(
        &mut self,
        me: &NodeName,
        node: &NodeName,
        fleet: &Fleet,
        now: Moment,
    ) -> (Vec<(WorkerName, Remedy, String)>, Option<Moment>) {
        let (mut go, mut wake) = (Vec::new(), None::<Moment>);
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
            let age = Duration::from_millis(now.as_millis());
            let wait = self.orders.wait(age);
            if !wait.is_zero() {
                wake = Some(wake.map_or(now + wait, |earlier: Moment| earlier.min(now + wait)));
                break;
            }
            match seen.ask(me, spec, || rank(fleet, me, node, name), there, now) {
                WatcherOrder::Nothing => {}
                WatcherOrder::At(at) => wake = Some(wake.map_or(at, |earlier: Moment| earlier.min(at))),
                WatcherOrder::Now(remedy, saw) => {
                    self.orders.take(age);
                    go.push((name.clone(), remedy, saw));
                }
            }
        }
        (go, wake)
    }

    /// An order was answered.
    pub(super) fn errand_done(&mut self, target: &Target, served: bool, now: Moment) {
        if let Some(seen) = self.workers.get_mut(&target.worker) {
            seen.answered(served, now);
        }
    }

    /// What is known of the node, for somebody whose order could not be passed on.
    pub(super) fn in_words(&self, node: &NodeName) -> String {
        let way_out = match self.state {
            NodeState::Unreachable => format!("; if it is down: keyholder power {node}"),
            NodeState::SupervisorDead => "; it is being knocked at: ask again in a moment".to_owned(),
            NodeState::CutOff => "; look at the interfaces, routes and firewall of this host".to_owned(),
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
    pub(super) fn rehearsed_now(&self, now: Moment) -> Option<&WorkerReport> {
        self.workers.values().find(|seen| seen.is_rehearsed(now)).map(|seen| &seen.report)
    }

    /// For how long nobody has reached it, neither this watcher nor another that told it.
    pub(super) fn unreached_for(&mut self, reached_by_others: bool, now: Moment) -> Duration {
        if reached_by_others {
            self.reached = Some(now);
        }
        now.since(self.reached.map_or(self.since, |reached| reached.max(self.since)))
    }

    /// The same, without taking anything in.
    pub(super) fn dark_for(&self, now: Moment) -> Duration {
        now.since(self.reached.map_or(self.since, |reached| reached.max(self.since)))
    }

    pub(super) fn since(&self) -> Moment {
        self.since
    }

    pub(super) fn why(&self) -> &str {
        &self.why
    }
}

#[cfg(test)]
#[path = "neighbours/tests.rs"]
mod tests;
