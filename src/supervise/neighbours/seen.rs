//! A worker of a watched node: what its node says of it, what is seen of it from here, and what this watcher orders for it.

use std::time::Duration;

use crate::fleet::{Fleet, Right, Worker as Spec};
use crate::judge::{Pulse, Reading, Sight, Sign, Signs, WatcherJob, backoff, watcher_job};
use crate::peer::wire::{Class, WorkerReport};
use crate::supervise::worker::rungs;
use crate::vocabulary::{FailureClass, Moment, NodeName, Remedy, WorkerName};

/// How long a node's word counts that it rehearses with a worker: the longest lease, and the repair and the proof after it.
const REHEARSED_AT_MOST: Duration = Duration::from_secs(600 + 30 + 60 + 60);

/// A worker of a watched node.
#[derive(Debug, Clone)]
pub(in crate::supervise) struct Seen {
    pub(in crate::supervise) report: WorkerReport,
    at: Moment,
    /// Since when its node leaves it to its watchers.
    left: Option<Moment>,
    /// Since when its node says that it rehearses with it.
    drill: Option<Moment>,
    /// What this watcher has ordered for it and not heard back from, or when it may order again.
    watcher_job: Run,
    /// Whether its unit was up in this run, so that signs are to be expected of it.
    was_up: bool,
    /// What this watcher's own detectors see of it, and when they looked last.
    signs: Signs,
    looked: Option<Moment>,
    /// What that means, and since when.
    outside: Option<((FailureClass, String), Moment)>,
}

/// How many watchers of a node come before `me`: those with an earlier name that may relaunch the worker.
pub(super) fn rank(fleet: &Fleet, me: &NodeName, node: &NodeName, worker: &WorkerName) -> u32 {
    let watchers = fleet.nodes.get(node).into_iter().flat_map(|node| &node.watched_by);
    let before = watchers.filter(|other| *other < me && fleet.allows(other, node, worker, Right::Relaunch));
    u32::try_from(before.count()).unwrap_or(u32::MAX)
}

/// Whether its unit runs.
fn up(class: Class) -> bool {
    match class {
        Class::Healthy | Class::Stuck | Class::DeliveryGap | Class::Unknown => true,
        Class::Starting | Class::Held | Class::Dead => false,
    }
}

/// The state of a watcher's own orders for one worker.
#[derive(Debug, Clone, Copy)]
enum Run {
    Idle,
    /// By `shows` the worker has to show that it helped, if that is seen from here and not by its own node.
    InFlight {
        failures: u32,
        shows: Option<Moment>,
        served: u32,
    },
    NotBefore {
        at: Moment,
        failures: u32,
        /// How many orders its node has carried out since it was last well.
        served: u32,
    },
}

/// What a watcher is to order for a worker.
pub(in crate::supervise) enum WatcherOrder {
    /// Nothing.
    Nothing,
    /// Nothing before this moment.
    At(Moment),
    /// This now; the text says how the worker looks.
    Now(Remedy, String),
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
    pub(in crate::supervise) fn now(&self, now: Moment) -> WorkerReport {
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

    /// What is kept of it when its node reports again.
    pub(in crate::supervise) fn replaced(self, report: WorkerReport, now: Moment) -> Self {
        let healthy = report.class == Class::Healthy;
        let another_run = report.invocation != self.report.invocation;
        let left = report.left_to_peers.then(|| self.left.unwrap_or(now));
        let drill = report.drill.map(|_| self.drill.unwrap_or(now));
        let watcher_job = match self.watcher_job {
            // Whatever was ordered, it is up: the next fall is a new story.
            Run::NotBefore { .. } if healthy && (another_run || self.outside.is_none()) => Run::Idle,
            kept @ (Run::Idle | Run::InFlight { .. } | Run::NotBefore { .. }) => kept,
        };
        // Nor does what was read while it was being started: times count from when it is up.
        let up_now = up(report.class);
        if another_run || (!self.was_up && up_now) {
            return Self {
                report,
                at: now,
                left,
                drill,
                watcher_job,
                was_up: up_now,
                signs: Signs::default(),
                looked: None,
                outside: None,
            };
        }
        Self { report, at: now, left, drill, watcher_job, ..self }
    }

    /// Whether it is broken on purpose at the moment: so its node says, and not for longer than a rehearsal may take.
    pub(super) fn is_rehearsed(&self, now: Moment) -> bool {
        self.drill.is_some_and(|since| now.since(since) < REHEARSED_AT_MOST)
    }

    pub(in crate::supervise) fn new(report: WorkerReport, now: Moment) -> Self {
        let left = report.left_to_peers.then_some(now);
        let drill = report.drill.map(|_| now);
        Self {
            was_up: up(report.class),
            report,
            at: now,
            left,
            drill,
            watcher_job: Run::Idle,
            signs: Signs::default(),
            looked: None,
            outside: None,
        }
    }

    /// Takes in what a detector of this node read of it. Returns what there is to tell if that changes how it looks from here.
    pub(super) fn read(
        &mut self,
        spec: &Spec,
        sign: Sign,
        reading: Reading,
        now: Moment,
    ) -> Option<WorkerReport> {
        if !self.was_up {
            return None;
        }
        self.looked = Some(now);
        self.signs.take(sign, reading, spec.stuck.as_ref(), spec.delivery_gap.as_ref(), now);
        let vitals = self.signs.vitals();
        let outside = match (vitals.beat, vitals.flow) {
            (Pulse::Still(evidence), _) => Some((FailureClass::Stuck, evidence)),
            (Pulse::Unwatched | Pulse::Moving, Pulse::Still(evidence)) => {
                Some((FailureClass::DeliveryGap, evidence))
            }
            (Pulse::Unseen(_), _) | (Pulse::Unwatched | Pulse::Moving, _) => None,
        };
        if self.outside.as_ref().map(|(found, _)| found) == outside.as_ref() {
            return None;
        }
        self.outside = outside.map(|found| (found, now));
        if let (None, Run::NotBefore { .. }, Class::Healthy | Class::Unknown) =
            (&self.outside, self.watcher_job, self.report.class)
        {
            // What was ordered has helped: the next fall is a new story.
            self.watcher_job = Run::Idle;
        }
        self.ails().then(|| self.now(now))
    }

    /// What is to be ordered for it now. `there` is for how long its supervisor has been there: nobody could do anything before.
    pub(in crate::supervise) fn ask(
        &mut self,
        me: &NodeName,
        spec: &Spec,
        rank: impl FnOnce() -> u32,
        there: Duration,
        now: Moment,
    ) -> WatcherOrder {
        let age = || self.report.age() + now.since(self.at);
        let (class, for_, own) = match (self.report.class, &self.outside) {
            (Class::Dead, _) => (FailureClass::Dead, age(), true),
            (Class::Stuck, _) => (FailureClass::Stuck, age(), true),
            (Class::DeliveryGap, _) => (FailureClass::DeliveryGap, age(), true),
            (Class::Healthy | Class::Unknown, Some(((class, _), since))) => {
                (*class, now.since(*since), false)
            }
            (Class::Healthy | Class::Unknown, None) | (Class::Starting | Class::Held, _) => {
                return WatcherOrder::Nothing;
            }
        };
        let report = self.now(now);
        // Whoever acted last, this has to show first whether it helped.
        let acted = report.last_act_ms.map_or(Duration::MAX, Duration::from_millis);
        let looked = self.looked.map_or(Duration::MAX, |looked| now.since(looked));
        let (failures, served, shown) = match self.watcher_job {
            Run::InFlight { .. } => return WatcherOrder::Nothing,
            Run::NotBefore { at, .. } if now < at => return WatcherOrder::At(at),
            Run::NotBefore { failures, served, at } => (failures, served, acted.min(now.since(at))),
            Run::Idle => (0, 0, acted),
        };
        // What was seen from here before that says nothing; the next look is on its way and brings us here again.
        if !own && looked > shown {
            return WatcherOrder::Nothing;
        }
        let sight = Sight {
            class,
            for_: self.left.map_or(for_, |left| now.since(left)).min(there).min(acted),
            attended: !report.doing.is_empty() || report.due_in_ms.is_some(),
            left_to_peers: report.left_to_peers,
            spared: report.held_for_ms.is_some() || report.quarantined,
            startable: report.startable,
            failures,
            rank: rank(),
        };
        match watcher_job(sight, &spec.policy, rungs(spec)) {
            WatcherJob::None => WatcherOrder::Nothing,
            WatcherJob::LookIn(left) => WatcherOrder::At(now + left),
            WatcherJob::Order(remedy) => {
                let shows = rungs(spec).shows(remedy).filter(|_| !own).map(|time| now + time);
                self.watcher_job = Run::InFlight { failures, shows, served };
                let saw = class.name();
                WatcherOrder::Now(
                    remedy,
                    if own { saw.to_owned() } else { format!("{saw} as seen from {me}") },
                )
            }
        }
    }

    /// The order was answered.
    pub(in crate::supervise) fn answered(&mut self, served: bool, now: Moment) {
        let Run::InFlight { failures, shows, served: before } = self.watcher_job else { return };
        let (more, again) = (failures.saturating_add(1), before.saturating_add(1));
        let second = Duration::from_secs(1);
        self.watcher_job = match (served, shows) {
            // It was done, and its node sees nothing wrong, as before. What is still seen from here then asks for the next
            // rung.
            (true, Some(at)) => Run::NotBefore { at, failures: more, served: again },
            // A node that says each time that it was done, and is never well, gets the same order more and more rarely.
            (true, None) => {
                let wait = if before == 0 { second } else { second + backoff(before, 0) };
                Run::NotBefore { at: now + wait, failures: 0, served: again }
            }
            // The node's own flap guard bounds what is carried out; this bounds what is asked.
            (false, _) => {
                Run::NotBefore { at: now + second + backoff(more, 0), failures: more, served: before }
            }
        };
    }
}
