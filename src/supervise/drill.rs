//! Rehearsals on this node: whether there is one now, what it waits for, and what comes of it. What it has shown is decided
//! by the judge; how a worker is broken and restored is in [`act`], what is kept of it in [`kept`] and [`saved`], and the death of a
//! neighbour's supervisor in [`node`].

mod act;
pub(super) mod kept;
mod node;
mod saved;
pub(super) mod state;
mod terms;

use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use super::core::{Core, Done};
use super::refusals::refused;
use super::worker::Worker;
use crate::fleet::Right;
use crate::journal::{Event as Kind, Priority, Record};
use crate::judge::{
    Alert, Drill, DrillEffect, DrillEnd, Event, Ground, Health, Host, Phase, Stage, Trigger, rehearsable,
};
use crate::peer::inbox::Asker;
use crate::peer::wire::{
    Class, DrillOrder, DrillReport, NodeReport, NodeState, Outcome, RefusalCode, Verdict,
};
use crate::vocabulary::{FailureClass, Moment, WorkerName, human};
use kept::Kept;
use state::{DrillDone, Drills, NoCanary, Rehearsing, UnderWay};
use terms::{code, lease};

/// How often a rehearsal is looked at once its lease has ended and a remedy is under way.
const AGAIN: Duration = Duration::from_millis(100);

impl Core {
    /// Somebody orders a rehearsal with a worker of this node.
    pub(super) fn serve_drill(
        &mut self,
        asker: &Asker,
        name: WorkerName,
        order: DrillOrder,
        because: &str,
        reply: oneshot::Sender<Verdict>,
        now: Moment,
    ) {
        if let Err((code, text)) = self.may_drill(asker, &name, order, now) {
            let text = format!("no rehearsal of {} with {}: {text}", order.class, self.target(&name));
            let record = Record::local(Kind::Refused, Priority::Notice, self.target(&name), text.clone());
            self.handles.recorder.record(Record { by: asker.to_string(), verb: Some("drill"), ..record });
            let _ = reply.send(refused(code, text));
            return;
        }
        let target = self.target(&name);
        let Some(worker) = self.workers.get_mut(&name) else { return };
        let lease = lease(worker, order, asker);
        let by = (asker.to_string(), asker.peer().is_some());
        let drill = Drill::new(order.class, by, lease, worker.invocation(), &worker.state, now);
        worker.tape.rewind();
        worker.rehearsing =
            Some(Rehearsing { class: order.class, policy: Some(drill.policy(&worker.spec.policy)) });
        let unit = worker.spec.unit.clone();
        let text = format!(
            "rehearsal of {} for {asker}: {unit} is broken on purpose and left to its watchers, at most for {}: {because}",
            order.class,
            human(lease)
        );
        self.handles.recorder.record(Record::local(Kind::Acting, Priority::Notice, target, text));
        if asker.peer().is_some() {
            self.peer_rehearses(Some(name.clone()), lease, now);
        }
        self.drills.under_way = Some(UnderWay {
            worker: name.clone(),
            unit,
            drill,
            inherited: false,
            reply: Some(reply),
            evidence: Vec::new(),
            began: Instant::now(),
            found: None,
            well: None,
            deafened: Instant::now(),
        });
        self.save_lease();
        self.publish(&name, now);
        self.break_worker(&name, order.class);
    }

    /// Whether there may be one now.
    fn may_drill(
        &self,
        asker: &Asker,
        name: &WorkerName,
        order: DrillOrder,
        now: Moment,
    ) -> Result<(), (RefusalCode, String)> {
        let Some(worker) = self.workers.get(name) else { return Ok(()) };
        let ground = Ground {
            class: order.class,
            host: self.host.state(),
            under_way: self.rehearsed_now(now),
            degraded: self.what_is_amiss(Some(name), now),
            health: &worker.health,
            state: &worker.state,
            policy: &worker.spec.policy,
            blast_radius: worker.spec.blast_radius,
            by_peer: asker.peer().is_some(),
            asked: asker.peer().and_then(|_| {
                self.drills.asked.get(&Some(name.clone()))?.may(lease(worker, order, asker), now).err()
            }),
            yes: order.yes,
            not_configured: worker.spec.no_rehearsal(order.class),
            helper: self.helper(asker, name),
            write: worker.uninterruptible(),
        };
        rehearsable(&ground, now).map_err(|hindrance| (code(&hindrance), hindrance.to_string()))
    }

    /// The rehearsal that is under way anywhere in view, in words.
    fn rehearsed_now(&self, now: Moment) -> Option<String> {
        let own = self.drills.under_way.as_ref().map(|under_way| self.target(&under_way.worker));
        let of_node = || self.drills.with.as_ref().map(ToString::to_string);
        let elsewhere = || {
            self.neighbours.values().find_map(|neighbour| {
                let report = neighbour.rehearsed_now(now)?;
                Some(format!("{}/{}", report.node, report.worker))
            })
        };
        own.or_else(of_node).or_else(elsewhere)
    }

    /// The first thing in view that is not as it should be, `except` for one worker of this node.
    fn what_is_amiss(&self, except: Option<&WorkerName>, now: Moment) -> Option<String> {
        if let Some(what) = self.degraded().into_iter().next() {
            return Some(format!("{}: {what}", self.me));
        }
        let own = self.workers.iter().filter(|(name, _)| Some(*name) != except);
        let own = own.map(|(name, worker)| (name, worker.class(now)));
        let mut own = own.filter(|(_, class)| amiss(*class));
        if let Some((name, class)) = own.next() {
            return Some(format!("{} is {}", self.target(name), class.name()));
        }
        let reports = self.neighbours.iter().map(|(node, neighbour)| neighbour.report(node, now));
        reports.into_iter().find_map(|report| node_amiss(&report))
    }

    /// Whether a watcher that may repair the worker is there: the one who asks, or one that follows this node.
    fn helper(&self, asker: &Asker, name: &WorkerName) -> bool {
        let Some(node) = self.fleet.nodes.get(&self.me) else { return false };
        let followed = self.publisher.is_watched();
        node.watched_by.iter().any(|watcher| {
            let asks = matches!(asker, Asker::Peer { node, .. } if node == watcher);
            let seen = self.neighbours.get(watcher).is_none_or(|watcher| watcher.state() == NodeState::Up);
            self.fleet.allows(watcher, &self.me, name, Right::Relaunch) && (asks || (followed && seen))
        })
    }

    /// Something has happened that a rehearsal may wait for.
    pub(super) fn cue(&mut self, name: &WorkerName, cue: Trigger<'_>, now: Moment) {
        let Some(under_way) = self.drills.under_way.as_mut().filter(|drill| drill.worker == *name) else {
            return;
        };
        let (stage, found) = (under_way.drill.stage.clone(), under_way.drill.found);
        let helped = under_way.drill.helped.is_some();
        let outside = match &cue {
            Trigger::Remedy(by) => by.map(str::to_owned),
            Trigger::Break(_) | Trigger::Seen { .. } | Trigger::Inherited => None,
        };
        let deed = under_way.drill.take(cue, now);
        if under_way.drill.found && !found {
            under_way.found = Some(Instant::now());
            let took = human(under_way.began.elapsed());
            let why = self.workers.get(name).map(|worker| worker.why()).unwrap_or_default();
            under_way.evidence.push(match outside {
                Some(by) => format!("{by} found it from outside after {took}"),
                None => format!("its detector found it after {took}: {why}"),
            });
        }
        if let Some(by) = under_way.drill.helped.as_ref().filter(|_| !helped) {
            let took = human(under_way.began.elapsed());
            under_way.evidence.push(format!("after {took} {by} ordered its repair"));
        }
        if under_way.drill.stage != stage || under_way.drill.found != found {
            self.save_lease();
        }
        match deed {
            Some(DrillEffect::Restore) => self.restore(name, now),
            Some(DrillEffect::Report) => self.seen_through(name, now),
            None => {}
        }
    }

    /// The worker was looked at; the rehearsal with it may have waited for that.
    pub(super) fn cue_seen(&mut self, name: &WorkerName, now: Moment) {
        let Some(worker) = self.workers.get(name) else { return };
        if self.drills.under_way.as_ref().is_none_or(|drill| drill.worker != *name) {
            return;
        }
        let (health, phase) = (worker.health.clone(), worker.state.phase.clone());
        let cue = Trigger::Seen { health: &health, invocation: worker.invocation(), phase: &phase };
        self.cue(name, cue, now);
    }

    /// The worker was looked at for the first time since this supervisor has found an earlier one's rehearsal with it.
    pub(super) fn inherit(&mut self, name: &WorkerName, now: Moment) {
        let known = |worker: &Worker| !matches!(worker.health, Health::Unknown(_));
        let Some(drill) = self.drills.under_way.as_mut() else { return };
        if drill.inherited
            && drill.worker == *name
            && self.workers.get(name).is_some_and(|worker| known(worker))
        {
            drill.inherited = false;
            self.cue(name, Trigger::Inherited, now);
        }
    }

    /// When a rehearsal wants to be looked at again; what is due is looked at here.
    pub(super) fn drill_due(&mut self, now: Moment) -> Option<Moment> {
        let due = |drills: &Drills| drills.under_way.as_ref().and_then(|drill| drill.drill.wake());
        let name = self.drills.under_way.as_ref().map(|drill| drill.worker.clone())?;
        self.keep_deaf();
        if due(&self.drills).is_some_and(|due| due <= now) {
            if self.workers.contains_key(&name) {
                self.cue_seen(&name, now);
            } else {
                // Taken out of the fleet meanwhile: nobody will look at it any more.
                let gone = Health::Unknown("no worker of this node any more".to_owned());
                let cue = Trigger::Seen { health: &gone, invocation: None, phase: &Phase::Watching };
                self.cue(&name, cue, now);
            }
        }
        due(&self.drills).map(|due| due.max(now + AGAIN))
    }

    /// Nobody came, or it is to end early: the node restores the worker by itself, under the worker's own policy.
    fn restore(&mut self, name: &WorkerName, now: Moment) {
        let Some(under_way) = &self.drills.under_way else { return };
        let Stage::Restoring { why, .. } = &under_way.drill.stage else { return };
        let (class, unit, why) = (under_way.drill.class, under_way.unit.clone(), why.to_string());
        let text = format!("the rehearsal with {unit} ends, and this node restores it by itself: {why}");
        self.handles.recorder.record(Record::local(Kind::Acting, Priority::Warning, self.target(name), text));
        if let Some(worker) = self.workers.get_mut(name) {
            if let Some(rehearsing) = &mut worker.rehearsing {
                rehearsing.policy = None;
            }
            // What was left to the watchers is the node's own again.
            if matches!(worker.state.phase, Phase::LeftToPeers | Phase::Waiting { .. }) {
                worker.state.phase = Phase::Watching;
            }
            let dead = matches!(worker.health, Health::Dead(_));
            if class == FailureClass::Dead && dead && self.host.state() != Host::Stopping {
                worker.because = "its rehearsal is over".to_owned();
                self.judge(name, &Event::Ordered(crate::vocabulary::Remedy::Relaunch), now);
            }
        }
        self.restore_worker(name, class);
    }

    /// What ended in a task of its own.
    pub(super) fn drill_done(&mut self, name: &WorkerName, done: DrillDone, now: Moment) {
        let Some(under_way) = self.drills.under_way.as_mut().filter(|drill| drill.worker == *name) else {
            return;
        };
        match done {
            DrillDone::Break(Ok(how)) => {
                under_way.evidence.push(how);
                self.cue(name, Trigger::Break(Ok(())), now);
                self.cue_seen(name, now);
            }
            DrillDone::Break(Err(why)) => self.cue(name, Trigger::Break(Err(why)), now),
            DrillDone::Restore(how) => {
                under_way.evidence.push(how.unwrap_or_else(|why| format!("restoring it failed: {why}")));
                self.look(name, now);
            }
            DrillDone::Canary(Ok(text)) => {
                under_way.evidence.push(text);
                self.conclude(name, None, now);
            }
            DrillDone::Canary(Err(NoCanary::NotSent(why))) => {
                under_way.evidence.push(format!("no task was sent through it to see: {why}"));
                self.conclude(name, None, now);
            }
            DrillDone::Canary(Err(NoCanary::NotProved(why))) => self.conclude(name, Some(why), now),
        }
    }

    /// The worker is well again, or is not: what is left is to send a task through a lane that came back.
    fn seen_through(&mut self, name: &WorkerName, now: Moment) {
        let Some(under_way) = &mut self.drills.under_way else { return };
        under_way.well = Some(Instant::now());
        let passed = matches!(under_way.drill.stage, Stage::Over { end: DrillEnd::Passed, .. });
        if let Some(worker) = self.workers.get_mut(name) {
            if let Some(rehearsing) = &mut worker.rehearsing {
                rehearsing.policy = None;
            }
            // A fall on purpose is no fall, and its repair no repair.
            worker.state.relaunches.clone_from(&under_way.drill.relaunches);
            worker.state.gentle.clone_from(&under_way.drill.gentle);
            self.save(name);
        }
        let lane = self.workers.get(name).is_some_and(|worker| worker.spec.lane.is_some());
        if lane && passed { self.send_canary(name) } else { self.conclude(name, None, now) }
    }

    /// The end: it is recorded, kept, shown and answered.
    fn conclude(&mut self, name: &WorkerName, canary: Option<String>, now: Moment) {
        let Some(under_way) = self.drills.under_way.take() else { return };
        self.save_lease();
        let UnderWay { drill, evidence, began, found, well, reply, .. } = under_way;
        let Stage::Over { end, well: is_well } = drill.stage else { return };
        if drill.by_peer {
            let took_place = !matches!(end, DrillEnd::NotBroken(_));
            self.peer_rehearsed(name, drill.began, took_place, now);
        }
        if let DrillEnd::NotBroken(why) = &end {
            // Nothing was shown, so nothing is kept of it; what was begun of it is undone.
            let text = format!("no rehearsal of {} with {}: {why}", drill.class, self.target(name));
            let record = Record::local(Kind::Refused, Priority::Notice, self.target(name), text.clone());
            self.handles.recorder.record(Record { by: drill.by, verb: Some("drill"), ..record });
            if let Some(worker) = self.workers.get_mut(name) {
                worker.rehearsing = None;
            }
            self.publish(name, now);
            if let Some(reply) = reply {
                let _ = reply.send(refused(RefusalCode::NotNow, text));
            }
            return;
        }
        let us = |from: Instant, to: Instant| u64::try_from((to - from).as_micros()).unwrap_or(u64::MAX);
        let passed = end == DrillEnd::Passed && canary.is_none();
        let why = match (&canary, is_well) {
            (Some(why), _) => format!("{end}, but a task that was sent through it afterwards {why}"),
            (None, true) => end.to_string(),
            (None, false) => format!("{end}; and it is not well yet"),
        };
        let report = DrillReport {
            node: self.me.clone(),
            worker: Some(name.clone()),
            class: drill.class,
            passed,
            why,
            by: drill.helped,
            detect_us: found.map(|found| us(began, found)),
            repair_us: (end == DrillEnd::Passed)
                .then(|| found.zip(well).map(|(found, well)| us(found, well)))
                .flatten(),
            evidence,
        };
        let kept = Kept::new(&report, now);
        self.keep(&kept::key(&self.target(name), drill.class), &kept);
        self.tell_drilled(&report, now);
        if let Some(worker) = self.workers.get_mut(name) {
            worker.rehearsing = None;
            // What its judge was told meanwhile was judged by another policy than its own.
            worker.tape.rewind();
            worker.rehearsed.insert(drill.class, kept);
        }
        self.publish(name, now);
        self.look(name, now);
        if let Some(reply) = reply {
            // Whoever has gone meanwhile reads it in the matrix.
            let _ = reply.send(Verdict::Outcome(Outcome::Drilled(report)));
        }
    }

    /// Takes down what came of a rehearsal.
    fn tell_drilled(&mut self, report: &DrillReport, now: Moment) {
        let subject = match &report.worker {
            Some(worker) => format!("{}/{worker}", report.node),
            None => report.node.to_string(),
        };
        let by = report.by.as_deref().map(|by| format!(" by {by}")).unwrap_or_default();
        let evidence = report.evidence.join("; ");
        let word = if report.passed { "passed" } else { "FAILED" };
        let text = format!("rehearsal of {} {word}{by}: {} ({evidence})", report.class, report.why);
        let about = format!("{subject} rehearsal of {}", report.class);
        if report.passed {
            self.handles.recorder.record(Record::local(Kind::Acted, Priority::Notice, subject, text));
            self.end(&about, "it passed", now);
        } else if self.alerts.is_open(&about) {
            self.handles.recorder.record(Record::local(Kind::Acted, Priority::Warning, subject, text));
        } else {
            // Found out on purpose that nobody would come: that is what people have to know.
            let alert = Alert { cause: "rehearsal".to_owned(), text, urgent: true };
            self.raise(&about, alert, Duration::ZERO, now);
        }
    }

    /// Has a task of the rehearsal with `name` come back to the loop.
    fn when_done(&self, name: &WorkerName, task: impl Future<Output = DrillDone> + Send + 'static) {
        let (done, worker) = (self.handles.done.clone(), name.clone());
        tokio::spawn(async move {
            let ended = Box::new(task.await);
            // The loop's inbox closes only with the loop itself.
            let _ = done.send(Done::Drill { worker, ended }).await;
        });
    }
}

/// Whether a worker in this class speaks against breaking another one.
fn amiss(class: Class) -> bool {
    match class {
        Class::Healthy | Class::Held => false,
        Class::Starting | Class::Dead | Class::Stuck | Class::DeliveryGap | Class::Unknown => true,
    }
}

fn node_amiss(report: &NodeReport) -> Option<String> {
    if report.state != NodeState::Up {
        return Some(format!("{} is {}", report.node, report.state.name()));
    }
    if let Some(what) = report.degraded.first() {
        return Some(format!("{}: {what}", report.node));
    }
    let worker = report.workers.iter().find(|worker| amiss(worker.class))?;
    Some(format!("{}/{} is {}", worker.node, worker.worker, worker.class.name()))
}
