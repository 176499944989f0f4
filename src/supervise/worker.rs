//! One worker of this node: what was seen of it, what is in hand, and who waits for that.

mod words;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::drill::kept::Kept;
use super::drill::state::Rehearsing;
use super::loops::Loops;
use super::waiters::{ANSWERED_WITHIN, Waiters};
use crate::fleet::Worker as Spec;
use crate::judge::tape::Tape;
use crate::judge::{
    ActiveState, Crowd, Death, Health, Host, Observation, Phase, Proof, Rungs, Signs, Terms, Timeouts,
    UnitSnapshot, Wait, WorkerState, classify, hangs_at, hung, remembered,
};
use crate::peer::wire::{Class, LaneReport, RelaunchFailed, WorkerReport};
use crate::vocabulary::{
    FailureClass, InvocationId, LaneStatus, Moment, NodeName, Policy, WorkerName, human,
};

/// A worker as the supervisor's loop owns it.
pub(super) struct Worker {
    pub(super) spec: Arc<Spec>,
    pub(super) state: WorkerState,
    pub(super) seen: Observation,
    /// Whether systemd was asked about it since this supervisor started.
    pub(super) looked_at: bool,
    /// What systemd does about it itself.
    pub(super) loops: Loops,
    /// Signs of progress beside the unit's state.
    pub(super) signs: Signs,
    pub(super) health: Health,
    /// What watchers were last shown of it.
    pub(super) shown: Shown,
    /// Since when it has been in its present class.
    pub(super) since: Moment,
    /// The class it was in before it was started or stopped, and since when.
    fell: Option<(Class, Moment)>,
    pub(super) last_act: Option<(Moment, String)>,
    /// What it says of itself, if it is a lane, and whether it has fallen silent since.
    pub(super) lane: Option<(LaneStatus, bool)>,
    /// Who asked for the relaunch that is in flight or settling.
    pub(super) because: String,
    /// Those who ordered something about it, and what they are told.
    pub(super) waiters: Waiters,
    /// It is broken on purpose at the moment.
    pub(super) rehearsing: Option<Rehearsing>,
    /// The last rehearsal of each class.
    pub(super) rehearsed: BTreeMap<FailureClass, Kept>,
    /// What its judge was told lately.
    pub(super) tape: Tape,
    /// What keeps its unit from getting on, while it hangs.
    pub(super) hindrance: Option<String>,
}

/// What a watcher is shown again as soon as it changes.
#[derive(PartialEq, Eq)]
pub(super) struct Shown {
    pub(super) class: Class,
    invocation: Option<InvocationId>,
    why: String,
    loops: bool,
}

impl Worker {
    pub(super) fn new(spec: Arc<Spec>, state: WorkerState, now: Moment) -> Self {
        let blind = "not looked at yet".to_owned();
        Self {
            spec,
            state,
            seen: Observation::Failed(blind.clone()),
            looked_at: false,
            loops: Loops::default(),
            signs: Signs::default(),
            health: Health::Unknown(blind.clone()),
            shown: Shown { class: Class::Unknown, invocation: None, why: blind, loops: false },
            since: now,
            fell: None,
            last_act: None,
            lane: None,
            because: String::new(),
            waiters: Waiters::default(),
            rehearsing: None,
            rehearsed: BTreeMap::new(),
            tape: Tape::default(),
            hindrance: None,
        }
    }

    /// A look, completed by what is known already of how the worker fell. An order resets systemd's failure, and with it goes
    /// what systemd knew of the run that ended; for the moment until the start the unit reads as stopped.
    pub(super) fn completed(&self, look: &Observation) -> Observation {
        let down = |unit: &UnitSnapshot| {
            matches!(unit.active, ActiveState::Inactive | ActiveState::Failed) && !unit.job
        };
        match (&self.state.phase, &self.seen, look) {
            (Phase::Repairing { .. }, Observation::Unit(known), Observation::Unit(seen))
                if down(known) && down(seen) && known.invocation == seen.invocation =>
            {
                let UnitSnapshot { active, sub, result, stop, exit, .. } = known.clone();
                Observation::Unit(UnitSnapshot { active, sub, result, stop, exit, ..seen.clone() })
            }
            _ => look.clone(),
        }
    }

    /// What decisions about it depend on.
    pub(super) fn terms(&self, salt: u64, crowd: Crowd) -> Terms<'_> {
        let Spec { blast_radius, .. } = &*self.spec;
        let proof =
            Proof::of(&self.health, &self.signs, self.spec.stuck.as_ref(), self.spec.delivery_gap.as_ref());
        let (policy, rungs) = (self.policy(), rungs(&self.spec));
        Terms { policy, salt, blast_radius: *blast_radius, rungs, crowd, proof, seen: &self.seen }
    }

    /// The policy in force.
    pub(super) fn policy(&self) -> &Policy {
        let rehearsed = self.rehearsing.as_ref().and_then(|rehearsing| rehearsing.policy.as_ref());
        rehearsed.unwrap_or(&self.spec.policy)
    }

    /// Whether it is broken on purpose at the moment.
    pub(super) fn is_rehearsed(&self) -> bool {
        self.rehearsing.is_some()
    }

    /// Judges what was last seen of it.
    pub(super) fn judge_health(&mut self, host: Host, now: Moment) {
        let health = classify(&self.seen, &self.signs.vitals(), host, self.policy().ends_clean);
        let health = remembered(health, self.state.skipped.as_deref());
        self.health = hung(health, self.state.transit, &self.seen, self.policy(), now);
        if !matches!(self.health, Health::Dead(Death::Hung(_))) {
            self.hindrance = None;
        }
    }

    /// How long a relaunch of it is waited for.
    pub(super) fn relaunch_within(&self) -> Duration {
        match &self.seen {
            Observation::Unit(unit) => unit.timeouts.relaunch(self.policy()),
            Observation::Failed(_) => Timeouts::default().relaunch(self.policy()),
        }
    }

    pub(super) fn invocation(&self) -> Option<InvocationId> {
        match &self.seen {
            Observation::Unit(unit) => unit.invocation,
            Observation::Failed(_) => None,
        }
    }

    pub(super) fn class(&self, now: Moment) -> Class {
        match &self.health {
            Health::Healthy => Class::Healthy,
            Health::InTransition(_) => Class::Starting,
            // Its unit file says that it may be down.
            Health::Idle(_) => Class::Held,
            Health::Dead(_) if self.state.held(now).is_some() => Class::Held,
            Health::Dead(_) => Class::Dead,
            Health::Stuck(_) => Class::Stuck,
            Health::DeliveryGap(_) => Class::DeliveryGap,
            Health::Blind(_) | Health::Unknown(_) => Class::Unknown,
        }
    }

    /// What a watcher is shown, and told again when it changes.
    pub(super) fn shown(&self, now: Moment) -> Shown {
        Shown {
            class: self.class(now),
            invocation: self.invocation(),
            why: self.why(),
            loops: self.loops.too_many(self.policy(), now),
        }
    }

    /// When it has to be looked at again even if nothing happens.
    pub(super) fn wake(&self) -> Option<Moment> {
        let loops = self.shown.loops.then(|| self.loops.wake(self.policy())).flatten();
        let hangs = hangs_at(self.state.transit, &self.seen, self.policy());
        let answer = self.waiters.due();
        self.state.wake(self.policy()).into_iter().chain(loops).chain(hangs).chain(answer).min()
    }

    pub(super) fn report(&self, node: &NodeName, name: &WorkerName, now: Moment) -> WorkerReport {
        let ms = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        let due = match &self.state.phase {
            // No time is set for what waits for another unit.
            Phase::Waiting { why: Wait::Cause, .. } => None,
            Phase::Waiting { due, .. } => Some(*due),
            Phase::Quarantined { retry, .. } => Some(*retry),
            Phase::Watching
            | Phase::LeftToPeers
            | Phase::Repairing { .. }
            | Phase::Settling { .. }
            | Phase::Verifying { .. }
            | Phase::Stranded => None,
        };
        WorkerReport {
            node: node.clone(),
            worker: name.clone(),
            unit: self.spec.unit.clone(),
            blast_radius: self.spec.blast_radius,
            class: self.class(now),
            why: self.why(),
            for_ms: ms(now.since(self.since)),
            invocation: self.invocation(),
            doing: self.doing(now),
            due_in_ms: due.map(|due| ms(due.since(now))),
            last_act: self.last_act.as_ref().map(|(_, act)| act.clone()),
            last_act_ms: self.last_act.as_ref().map(|(at, _)| ms(now.since(*at))),
            held_for_ms: self.state.held(now).map(|hold| ms(hold.until.since(now))),
            quarantined: self.state.quarantined(),
            left_to_peers: self.state.phase == Phase::LeftToPeers,
            drill: self.rehearsing.as_ref().map(|rehearsing| rehearsing.class),
            rehearsed: self.rehearsed.values().map(|kept| kept.report(None, now)).collect(),
            startable: !matches!(self.health, Health::Dead(Death::NotStartable(_))),
            lane: self.lane(now).map(Box::new),
            alert: self.alert(now),
        }
    }

    /// Whether there is nothing to explain of it.
    pub(super) fn is_well(&self, now: Moment) -> bool {
        self.health == Health::Healthy && self.state.phase == Phase::Watching && self.alert(now).is_none()
    }

    /// It is in another class. Whoever stops what is down already, or starts it in vain, has not changed since when it is so.
    pub(super) fn turn(&mut self, before: Class, class: Class, now: Moment) {
        let since = std::mem::replace(&mut self.since, now);
        match (class, self.fell) {
            (Class::Starting, None) => self.fell = Some((before, since)),
            (Class::Starting, Some(_)) => {}
            (_, Some((fallen, at))) if fallen == class => {
                self.since = at;
                self.fell = None;
            }
            (_, _) => self.fell = None,
        }
    }

    /// Whether it falls again and again.
    pub(super) fn loops_now(&self, now: Moment) -> bool {
        self.loops.too_many(self.policy(), now)
    }

    /// Why it has taken no tasks for a while, if it is a lane. A rehearsal takes them away on purpose.
    fn no_tasks(&self) -> Option<&str> {
        self.lane_status().filter(|_| !self.is_rehearsed())?.0.no_tasks.as_deref()
    }

    /// What its lane says of itself, if that is the word of the run that is up.
    pub(super) fn lane(&self, now: Moment) -> Option<LaneReport> {
        self.lane_status().map(|(status, silent)| LaneReport::of(status, silent, now))
    }

    fn lane_status(&self) -> Option<(&LaneStatus, bool)> {
        let (status, silent) = self.lane.as_ref()?;
        // A job for its next start is no sign that the last run is still there.
        let gone = match &self.seen {
            Observation::Unit(unit) => matches!(unit.active, ActiveState::Inactive | ActiveState::Failed),
            Observation::Failed(_) => false,
        };
        let up = !gone && !matches!(self.health, Health::Dead(_) | Health::Idle(_));
        (up && status.invocation.is_some() && status.invocation == self.invocation())
            .then_some((status, *silent))
    }

    /// Answers those who have waited for long that it is still under way.
    pub(super) fn answer_late(&mut self, now: Moment) {
        if self.waiters.due().is_none_or(|due| due > now) {
            return;
        }
        let (waited, most) = (human(ANSWERED_WITHIN), human(self.relaunch_within()));
        let why = match self.waiters.relaunched() {
            Some(_) => format!(
                "still under way: it runs again and has to stay up for its settle time, {waited} so far"
            ),
            None => format!(
                "still under way: systemd has taken {waited} so far, of {most} that the unit's own timeouts allow; {}",
                self.why()
            ),
        };
        let took_us = u64::try_from(ANSWERED_WITHIN.as_micros()).unwrap_or(u64::MAX);
        self.waiters.late(&RelaunchFailed { under_way: true, ..self.failed(why, None, took_us) }, now);
    }

    /// Answers those who still wait although neither what they ordered nor its verification is under way any more: whatever came
    /// between, what they wait for does not come.
    pub(super) fn fail_waiters(&mut self, now: Moment) {
        let (repairing, settling, verifying) = match self.state.phase {
            Phase::Repairing { .. } => (true, false, false),
            Phase::Settling { .. } => (false, true, false),
            Phase::Verifying { .. } => (false, false, true),
            Phase::Watching
            | Phase::Waiting { .. }
            | Phase::LeftToPeers
            | Phase::Quarantined { .. }
            | Phase::Stranded => (false, false, false),
        };
        if self.waiters.wait_for_relaunch() && !(repairing || settling || verifying) {
            self.fail_relaunch();
        }
        if self.waiters.remedy_is_waited_for() && !(repairing || verifying) {
            let why = format!("it did not come to that: {}", self.health_text());
            self.waiters.remedy_ended(&self.spec.unit, Some(false), &why, now);
        }
    }

    fn fail_relaunch(&mut self) {
        let failed = match self.waiters.relaunched() {
            Some(done) => {
                let up = matches!(self.health, Health::Stuck(_) | Health::DeliveryGap(_) | Health::Blind(_));
                let what = if up {
                    "it was started, and the sign that was missing did not come"
                } else {
                    "it was started and did not stay up"
                };
                let why = format!("{what}: {}", self.health_text());
                self.failed(why, Some("done".to_owned()), done.took_us)
            }
            None => self.failed("systemd did not say in time what came of the order".to_owned(), None, 0),
        };
        self.waiters.give_up(failed);
    }

    fn failed(&self, why: String, job: Option<String>, took_us: u64) -> RelaunchFailed {
        let unit = self.spec.unit.clone();
        RelaunchFailed { unit, why, job, took_us, log: Vec::new(), under_way: false }
    }
}

/// The gentle remedies that the fleet file names for a worker.
pub(super) fn rungs(spec: &Spec) -> Rungs {
    let nudge = spec.stuck.as_ref().filter(|stuck| stuck.nudge.is_some()).map(|stuck| stuck.older_than);
    let gap = spec.delivery_gap.as_ref().filter(|gap| gap.repipe.is_some());
    Rungs { nudge: nudge.map(time_to_show), repipe: gap.map(|gap| gap.not_draining_for).map(time_to_show) }
}

/// How long a worker has after a gentle remedy to show progress: a detector looks four times within `limit`, so half of
/// it is two looks.
fn time_to_show(limit: Duration) -> Duration {
    (limit / 2).clamp(Duration::from_secs(1), Duration::from_secs(60))
}

/// A number that differs from name to name (FNV-1a), for the spread of retries.
pub(super) fn salt(name: &str) -> u64 {
    name.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests;
