//! The one owner of worker state. Everything that happens comes in through a method here, is judged, and leaves as
//! effects that nobody waits for.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};

use super::assignments::Assignments;
use super::drill::state::{DrillDone, Drills};
use super::lanes::LaneNews;
use super::neighbours::Neighbour;
use super::own_host::OwnHost;
use super::publisher::Publisher;
use super::worker::{Worker, salt};
use crate::detect::{Check, Vital};
use crate::fleet::Fleet;
use crate::journal::{Event as Kind, Priority, Record, Recorder};
use crate::judge::log::Happened;
use crate::judge::{
    Action, Alert, Alerts, Event, Hang, Host, Observation, Phase, Probe, Say, WorkerState, crowd, decide,
};
use crate::peer::inbox::Update;
use crate::peer::wire::{DrillReport, Refusal, Sighting, Verdict};
use crate::store::StoreHandle;
use crate::systemd::{Relaunch, Systemd};
use crate::vocabulary::{Moment, NodeName, Remedy, Target, UnitName, WorkerName};

/// For how long a relaunch keeps the status text from being renewed.
const ACTING: Duration = Duration::from_secs(5);

/// What ended in a task of its own and comes back to the loop.
pub(super) enum Done {
    /// A relaunch of a worker of this node.
    Relaunch { worker: WorkerName, end: Box<Relaunch>, log: Vec<String> },
    /// An order that this node gave to a neighbour as its watcher.
    WatcherJob { target: Target, verdict: Box<Result<Verdict, String>> },
    /// A nudge or repipe of a worker of this node.
    Gentle { worker: WorkerName, remedy: Remedy, result: Result<(), String>, took: Duration },
    /// A step of a rehearsal with a worker of this node.
    Drill { worker: WorkerName, ended: Box<DrillDone> },
    /// The rehearsal with a neighbour's supervisor.
    DrillNode { node: NodeName, came: Box<Result<DrillReport, Refusal>>, reply: oneshot::Sender<Verdict> },
    /// What keeps a worker's unit from getting on, in words.
    Hindrance { worker: WorkerName, hang: Hang, hindrance: String },
    /// What people want to know of an alert is known.
    Alert { about: String, alert: Alert },
    /// This supervisor was to be killed and is not; why.
    Alive(String),
    /// What was found out about a neighbour that is silent.
    Probed { node: NodeName, probe: Box<Probe> },
    /// How a neighbour sees the nodes that it watches; none if it did not say.
    Sees { node: NodeName, sees: Option<Vec<Sighting>> },
    /// The `power` command of a neighbour.
    Power {
        node: NodeName,
        how: Result<String, String>,
        reply: Option<oneshot::Sender<Verdict>>,
        took: Duration,
    },
}

/// The supervisor's state, by owner, and its handles to the outside.
pub(super) struct Core {
    pub(super) me: NodeName,
    pub(super) fleet: Arc<Fleet>,
    /// Boxed: a map makes room for eleven values where six are, and these are large.
    pub(super) workers: BTreeMap<WorkerName, Box<Worker>>,
    pub(super) neighbours: BTreeMap<NodeName, Neighbour>,
    /// This host, as far as the supervisor depends on it.
    pub(super) host: OwnHost,
    pub(super) drills: Drills,
    /// Whom people were called for, or will be.
    pub(super) alerts: Alerts,
    /// Whoever follows this node.
    pub(super) publisher: Publisher,
    /// What the tasks beside the loop are to follow.
    pub(super) assignments: Assignments,
    pub(super) handles: Handles,
    /// When this supervisor began.
    pub(super) started: Moment,
}

/// The way to everything that the loop has done by others: systemd, the disk, the journal, tasks that end later.
pub(super) struct Handles {
    pub(super) systemd: Systemd,
    pub(super) store: StoreHandle,
    pub(super) recorder: Recorder,
    /// Where a task says that it has ended.
    pub(super) done: mpsc::Sender<Done>,
}

impl Core {
    /// Takes a look at a unit that systemd or the fallback observer reports.
    pub(super) fn observed(&mut self, unit: &UnitName, seen: &Observation, now: Moment) {
        let ours = self.with_ours(seen);
        let seen = ours.as_ref().unwrap_or(seen);
        let names: Vec<WorkerName> = self
            .workers
            .iter()
            .filter(|(_, worker)| worker.spec.unit == *unit)
            .map(|(name, _)| name.clone())
            .collect();
        for name in names {
            let mut loops = false;
            if let Some(worker) = self.workers.get_mut(&name) {
                worker.looked_at = true;
                loops = worker.loops.take(seen, &worker.spec.policy, now);
                let seen = worker.completed(seen);
                if seen != worker.seen || !matches!(worker.state.phase, Phase::Repairing { .. }) {
                    worker.take_in(seen, self.host.state(), now);
                }
            }
            self.look(&name, now);
            if loops {
                self.say_loops(&name, now);
            }
        }
    }

    /// The same look, with those among the units that it hangs together with marked that are workers of this node, too.
    fn with_ours(&self, seen: &Observation) -> Option<Observation> {
        let Observation::Unit(unit) = seen else { return None };
        if unit.context.others.is_empty() {
            return None;
        }
        let mut unit = unit.clone();
        for other in &mut unit.context.others {
            other.ours = self.workers.values().any(|worker| worker.spec.unit.as_str() == other.unit);
        }
        Some(Observation::Unit(unit))
    }

    /// Takes in what a detector read of a worker of this node, or of one that this node watches.
    pub(super) fn read(&mut self, vital: Vital, now: Moment) {
        let Vital { target, sign, reading } = vital;
        if target.node != self.me {
            let neighbour = self.neighbours.get_mut(&target.node);
            if let Some(report) =
                neighbour.and_then(|neighbour| neighbour.read(&self.fleet, &target, sign, reading, now))
            {
                let text = format!("{}: {}", report.class.name(), report.why);
                self.handles.recorder.record(Record::local(
                    Kind::Observed,
                    Priority::Warning,
                    target.to_string(),
                    text,
                ));
                self.publisher.neighbour(Update::Worker(report));
            }
            return;
        }
        let Some(worker) = self.workers.get_mut(&target.worker) else { return };
        worker.note(Happened::read(sign, reading.clone()), self.host.state(), now);
        let before = worker.signs.vitals();
        let (stuck, gap) = (worker.spec.stuck.as_ref(), worker.spec.delivery_gap.as_ref());
        worker.signs.take(sign, reading, stuck, gap, now);
        // Most readings say what the one before has said.
        if worker.signs.vitals() != before {
            self.look(&target.worker, now);
        }
    }

    /// Whether every worker of this node has been looked at since this supervisor started, if only to find that it cannot be
    /// observed.
    pub(super) fn has_looked_at_all(&self) -> bool {
        self.workers.values().all(|worker| worker.looked_at)
    }

    /// Judges a worker by what was last seen of it.
    pub(super) fn look(&mut self, name: &WorkerName, now: Moment) {
        let host = self.host.state();
        let Some(worker) = self.workers.get_mut(name) else { return };
        worker.judge_health(host, now);
        self.inherit(name, now);
        let Some(worker) = self.workers.get_mut(name) else { return };
        let event = Event::Seen { health: worker.health.clone(), invocation: worker.invocation() };
        let shown = worker.shown(now);
        // Also a new run or another reason within the same class: a watcher's order is about the run it was shown.
        let news = shown != worker.shown;
        if news {
            let (before, class) = (worker.shown.class, shown.class);
            worker.shown = shown;
            if class != before {
                worker.turn(before, class, now);
                self.record_class(name, before, now);
            }
        }
        // One frame for what was seen and what follows from it: a fall without its remedy is half the news.
        if self.decide(name, &event, now) || news {
            self.publish(name, now);
        }
        self.look_for_end(name, now);
        self.cue_seen(name, now);
    }

    /// Judges every worker again, after the host's own state changed.
    pub(super) fn look_at_all(&mut self, now: Moment) {
        let names: Vec<WorkerName> = self.workers.keys().cloned().collect();
        for name in names {
            self.look(&name, now);
        }
    }

    /// Feeds an event to the judge, carries out what it decides, and publishes what that has changed.
    pub(super) fn judge(&mut self, name: &WorkerName, event: &Event, now: Moment) {
        if self.decide(name, event, now) {
            self.publish(name, now);
        }
    }

    /// Feeds an event to the judge and carries out what it decides; true if that has changed the worker's state.
    fn decide(&mut self, name: &WorkerName, event: &Event, now: Moment) -> bool {
        if let (true, Event::Seen { .. }) = (self.host.is_catching_up(), event) {
            return false;
        }
        let (crowd, host) = (crowd(self.workers.values().map(|worker| &worker.health)), self.host.state());
        let Some(worker) = self.workers.get_mut(name) else { return false };
        worker.note_event(event, crowd, host, now);
        let terms = worker.terms(salt(name.as_str()), crowd);
        let (state, actions) = decide(&worker.state, event, terms, now);
        let changed = state != worker.state;
        if changed {
            worker.note_time(host, now);
        }
        worker.state = state;
        if changed {
            self.save(name);
        }
        for action in actions {
            if let (Action::Act(remedy), Some(worker)) = (action, self.workers.get_mut(name)) {
                worker.note(Happened::Acted(remedy), host, now);
            }
            match action {
                Action::Act(Remedy::Relaunch) => self.relaunch(name, now),
                Action::Act(remedy @ (Remedy::Nudge | Remedy::Repipe)) => self.gentle(name, remedy, now),
                Action::Say(Say::Hangs(hang)) => self.ask_hindrance(name, hang),
                Action::Say(say) => self.say(name, say, now),
            }
        }
        if let Some(worker) = self.workers.get_mut(name) {
            worker.fail_waiters(now);
        }
        changed
    }

    /// Whether a relaunch is in flight.
    pub(super) fn is_acting(&self, now: Moment) -> bool {
        let acting = |worker: &Worker| match worker.state.phase {
            // One that takes long leaves PID 1 time for everything else.
            Phase::Repairing { since, .. } => now.since(since) < ACTING,
            Phase::Watching
            | Phase::Waiting { .. }
            | Phase::LeftToPeers
            | Phase::Settling { .. }
            | Phase::Verifying { .. }
            | Phase::Quarantined { .. }
            | Phase::Stranded => false,
        };
        self.workers.values().any(|worker| acting(worker))
    }

    pub(super) fn save(&self, name: &WorkerName) {
        let Some(worker) = self.workers.get(name) else { return };
        match serde_json::to_string(&worker.state) {
            Ok(json) => self.handles.store.save_worker(name, json),
            Err(error) => self.handles.recorder.record(Record::local(
                Kind::Degraded,
                Priority::Error,
                self.target(name),
                format!("its state cannot be saved: {error}"),
            )),
        }
    }

    /// Publishes a worker's present state to whoever follows this node.
    pub(super) fn publish(&self, name: &WorkerName, now: Moment) {
        let Some(worker) = self.workers.get(name) else { return };
        self.publisher.worker(worker.report(&self.me, name, now));
    }

    /// A lane has said something new, or nothing for too long.
    pub(super) fn lane(&mut self, news: LaneNews, now: Moment) {
        let LaneNews { worker: name, said, silent } = news;
        let lane = match said {
            Ok(status) => status.map(|status| (status, silent)),
            Err(why) => {
                let text = format!("what this lane says of itself is not believed: {why}");
                let record = Record::local(Kind::Degraded, Priority::Warning, self.target(&name), text);
                self.handles.recorder.record(record);
                None
            }
        };
        // It may have been taken out of the fleet meanwhile.
        let Some(worker) = self.workers.get_mut(&name) else { return };
        let shows = |worker: &Worker| worker.lane(now).is_some();
        let showed = shows(worker);
        worker.lane = lane;
        // What nobody was shown and nobody will be is no news.
        if showed || shows(worker) {
            self.publish(&name, now);
        }
    }

    pub(super) fn target(&self, name: &WorkerName) -> String {
        format!("{}/{name}", self.me)
    }

    /// The host itself changed.
    pub(super) fn host(&mut self, host: Host, now: Moment) {
        let before = self.host.state();
        if !self.host.enter(host, now) {
            return;
        }
        for worker in self.workers.values_mut() {
            worker.note(Happened::Host(host), before, now);
        }
        if host == Host::Stopping {
            let text = "the host shuts down: nothing is repaired from here on";
            self.handles.recorder.record(Record::local(Kind::Supervisor, Priority::Notice, "", text));
            self.publisher.leaving();
        }
        self.publish_node(now);
        self.look_at_all(now);
    }

    /// Publishes the node as a whole.
    pub(super) fn publish_node(&mut self, now: Moment) {
        self.publisher.node(self.node_report(now), now);
    }

    /// The bus came or went.
    pub(super) fn bus(&mut self, lost: Option<String>, now: Moment) {
        if let Some((priority, text)) = self.host.bus(lost) {
            self.handles.recorder.record(Record::local(Kind::Degraded, priority, "", text));
            self.publish_node(now);
        }
    }

    /// For how long PID 1 has not read what this supervisor tells it. A PID 1 that hangs knows nothing and does nothing: what was
    /// last seen of the workers counts no more.
    pub(super) fn pid1(&mut self, unread_for: Option<Duration>, now: Moment) {
        let Some(hangs) = self.host.pid1(unread_for) else { return };
        let units: Vec<UnitName> = self.workers.values().map(|worker| worker.spec.unit.clone()).collect();
        let me = self.me.to_string();
        if let Some(trouble) = self.host.pid1_trouble() {
            self.handles.recorder.record(Record::local(Kind::Degraded, Priority::Warning, me, trouble));
        } else {
            self.handles.recorder.record(Record::local(
                Kind::Degraded,
                Priority::Notice,
                me,
                "PID 1 answers again",
            ));
        }
        for unit in &units {
            if hangs {
                self.observed(unit, &Observation::Failed("PID 1 does not answer".to_owned()), now);
            } else {
                self.handles.systemd.look(unit);
            }
        }
        self.publish_node(now);
    }

    /// PID 1 holds the door no longer, or again.
    pub(super) fn door(&mut self, shut: bool, now: Moment) {
        if let Some((priority, text)) = self.host.door(shut) {
            self.handles.recorder.record(Record::local(Kind::Degraded, priority, self.me.to_string(), text));
            self.publish_node(now);
        }
    }

    /// The fleet file was read again and adopted, or refused for this reason.
    pub(super) fn reloaded(&mut self, refused: Option<String>, now: Moment) {
        let was_refused = refused.is_some();
        self.host.reloaded(refused);
        if was_refused {
            self.publish_node(now);
        }
    }

    /// What is due at `now`, and when to come back.
    pub(super) fn tick(&mut self, now: Moment) -> Option<Moment> {
        if self.host.boots_for_too_long(now) {
            let text =
                "the host is still starting after 5 minutes; its workers are looked after all the same";
            self.handles.recorder.record(Record::local(Kind::Degraded, Priority::Warning, "", text));
            self.host(Host::Running, now);
        }
        if let Some(until) = self.catch_up(now) {
            return Some(until);
        }
        let due: Vec<WorkerName> = self
            .workers
            .iter()
            .filter(|(_, worker)| worker.wake().is_some_and(|at| at <= now))
            .map(|(name, _)| name.clone())
            .collect();
        for name in due {
            self.look(&name, now);
            if let Some(worker) = self.workers.get_mut(&name) {
                worker.answer_late(now);
            }
        }
        // The disk and the journal fail in threads of their own, which do not wake this loop.
        if self.publisher.is_news(|| self.degraded(), now) {
            self.publish_node(now);
        }
        let drill = self.drill_due(now);
        let troubles = self.look_at_troubles(now);
        let watcher_jobs = self.watcher_jobs(now);
        let returns = self.await_return(now);
        let counted = self.tell_counted(now);
        let blackouts = self.blackouts(now);
        self.workers
            .values()
            .filter_map(|worker| worker.wake())
            .filter(|at| *at > now)
            .chain(watcher_jobs)
            .chain(drill)
            .chain(returns)
            .chain(counted)
            .chain(blackouts)
            .chain(troubles.filter(|at| *at > now))
            .min()
    }

    /// What there is to look at: this node's workers, and of those that it watches what can be seen from here.
    fn looks(&self) -> Vec<Check> {
        let target =
            |node: &NodeName, worker: &WorkerName| Target { node: node.clone(), worker: worker.clone() };
        let own = self.workers.iter().flat_map(|(name, worker)| {
            let spec = &worker.spec;
            Check::at(&target(&self.me, name), &spec.unit, spec.stuck.as_ref(), spec.delivery_gap.as_ref())
        });
        let outside = self.fleet.watched_by(&self.me).flat_map(|(node, known)| {
            known.workers.iter().flat_map(move |(name, spec)| {
                Check::from_outside(&target(node, name), spec.stuck.as_ref(), spec.delivery_gap.as_ref())
            })
        });
        own.chain(outside).collect()
    }

    /// Has systemd's units followed that there are workers of, and the one that is broken on purpose whatever the file says.
    pub(super) fn watch_units(&self) {
        let units = self.workers.values().map(|worker| worker.spec.unit.clone());
        self.assignments.units(units.chain(self.drills.unit()).collect());
    }

    /// Adopts a fleet: new workers are looked at, removed ones are forgotten, the others keep their state.
    pub(super) fn adopt(&mut self, fleet: Arc<Fleet>, now: Moment) {
        let specs = fleet.nodes.get(&self.me).map(|node| node.workers.clone()).unwrap_or_default();
        let mut before = std::mem::take(&mut self.workers);
        for (name, spec) in specs {
            let worker = match before.remove(&name) {
                Some(mut worker) if worker.spec.unit == spec.unit => {
                    // What it said as another lane, or as a lane at all, is not said of what it is now.
                    worker.lane = worker.lane.take().filter(|_| worker.spec.lane == spec.lane);
                    worker.adopt(spec);
                    worker
                }
                Some(_) | None => Box::new(Worker::new(spec, WorkerState::default(), now)),
            };
            self.workers.insert(name, worker);
        }
        self.fleet = fleet;
        self.watch_units();
        let lanes = self.workers.iter().filter_map(|(name, worker)| Some((name.clone(), worker.spec.lane?)));
        self.assignments.lanes(lanes.collect());
        self.assignments.checks(self.looks(), self.fleet.redis.as_ref());
        for worker in self.workers.values() {
            self.handles.systemd.look(&worker.spec.unit);
        }
        self.forget_troubles(now);
        self.publish_node(now);
    }
}
