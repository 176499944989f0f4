//! One worker of this node: what was seen of it, what is in hand, and how both read to a person.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use super::acts::journal_of;
use super::drill::Rehearsing;
use super::drill::kept::Kept;
use super::loops::Loops;
use crate::fleet::Worker as Spec;
use crate::judge::tape::Tape;
use crate::judge::{
    ActiveState, Crowd, Death, Health, Host, Observation, Phase, Proof, Pulse, Rungs, Signs, Terms, Tie,
    Timeouts, UnitSnapshot, Vitals, Wait, WorkerState, classify, hangs_at, hung, remembered,
};
use crate::peer::wire::{
    Class, Explanation, LaneReport, Outcome, RelaunchFailed, Relaunched, Verdict, WorkerReport,
};
use crate::vocabulary::{
    FailureClass, InvocationId, LaneStatus, Moment, NodeName, Remedy, RepairBy, WorkerName, human,
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
    /// The relaunch that is settling, for those who wait for its verification.
    pub(super) relaunched: Option<Relaunched>,
    pub(super) waiters: Vec<Waiter>,
    /// Those who ordered the nudge or repipe that is in flight or being verified.
    pub(super) gentle: Vec<oneshot::Sender<Verdict>>,
    /// When that began, and which of the two it is.
    pub(super) gentle_since: Moment,
    pub(super) gentle_remedy: Remedy,
    /// It is broken on purpose at the moment.
    pub(super) rehearsing: Option<Rehearsing>,
    /// The last rehearsal of each class.
    pub(super) rehearsed: BTreeMap<FailureClass, Kept>,
    /// What its judge was told lately.
    pub(super) tape: Tape,
    /// What keeps its unit from getting on, while it hangs.
    pub(super) hindrance: Option<String>,
}

/// What a watcher is shown anew as soon as it changes.
#[derive(PartialEq, Eq)]
pub(super) struct Shown {
    pub(super) class: Class,
    invocation: Option<InvocationId>,
    why: String,
    loops: bool,
}

/// How many orders may wait on one worker; each holds memory until it is answered.
pub(super) const WAITERS_AT_MOST: usize = 64;
/// How long an order is kept waiting. A unit may be allowed much longer, which nobody who asks from far can know: the answer is
/// then that systemd is still at it.
pub(super) const ANSWERED_WITHIN: Duration = Duration::from_secs(90);

/// Somebody who ordered a relaunch and waits for its outcome.
pub(super) struct Waiter {
    pub(super) reply: oneshot::Sender<Verdict>,
    /// PingReply only when the worker has stayed up for its settle time.
    pub(super) settled: bool,
    /// Whether the relaunch was under way already when this order came.
    pub(super) shared: bool,
    /// When it is answered whatever has come of it by then.
    pub(super) due: Moment,
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
            relaunched: None,
            waiters: Vec::new(),
            gentle: Vec::new(),
            gentle_since: now,
            gentle_remedy: Remedy::Nudge,
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
        let answer = self.waiters.iter().map(|waiter| waiter.due).min();
        self.state.wake(self.policy()).into_iter().chain(loops).chain(hangs).chain(answer).min()
    }

    /// The evidence for its present health, in words.
    pub(super) fn why(&self) -> String {
        match (&self.health, &self.seen) {
            (Health::Healthy, Observation::Unit(unit)) => match self.no_tasks() {
                Some(why) => format!("{}; {why}", unit.sub),
                None => unit.sub.clone(),
            },
            (Health::Healthy, Observation::Failed(_)) => "running".to_owned(),
            (Health::InTransition(what), Observation::Unit(UnitSnapshot { status: Some(says), .. })) => {
                format!("{what}; it says: {says}")
            }
            (Health::InTransition(what), _) => (*what).to_owned(),
            (Health::Dead(death @ Death::Hung(_)), _) => match &self.hindrance {
                Some(hindrance) => format!("{death}: {hindrance}"),
                None => death.to_string(),
            },
            (Health::Dead(death), Observation::Unit(unit)) => ended(*death, unit),
            (Health::Dead(death), Observation::Failed(_)) => death.to_string(),
            (Health::Stuck(why) | Health::DeliveryGap(why) | Health::Unknown(why), _) => why.clone(),
            (Health::Idle(idle), _) => idle.to_string(),
            (Health::Blind(why), Observation::Unit(unit)) => format!("{}; {why}", unit.sub),
            (Health::Blind(why), Observation::Failed(_)) => format!("running; {why}"),
        }
    }

    /// What is being done, in words; empty when nothing is. No times: they would stand still where the report is kept, and
    /// `due_in_ms` says when.
    fn doing(&self, now: Moment) -> String {
        match &self.state.phase {
            Phase::Watching => match self.loops.told(self.policy(), now) {
                Some(often) if self.loops.too_many(self.policy(), now) => {
                    format!("left to systemd, which restarts it again and again: {often}")
                }
                Some(_) | None => match (&self.health, self.policy().repair_by) {
                    (Health::Dead(_) | Health::Stuck(_) | Health::DeliveryGap(_), RepairBy::Nobody) => {
                        "nothing, because repair_by is nobody in fleet.yaml; `keyholder relaunch` starts it"
                            .to_owned()
                    }
                    (
                        Health::Healthy
                        | Health::Blind(_)
                        | Health::Stuck(_)
                        | Health::DeliveryGap(_)
                        | Health::InTransition(_)
                        | Health::Idle(_)
                        | Health::Dead(_)
                        | Health::Unknown(_),
                        RepairBy::Node | RepairBy::Peer | RepairBy::Nobody,
                    ) => String::new(),
                },
            },
            Phase::Waiting { why: Wait::SystemdFirst, .. } => "systemd may restart it itself".to_owned(),
            Phase::Waiting { why: Wait::UndeclaredStop, .. } => {
                "no hold was declared for this stop".to_owned()
            }
            Phase::Waiting { why: Wait::Grace, .. } => "its watchers repair it after the grace".to_owned(),
            Phase::Waiting { why: Wait::Cause, .. } => match &self.seen {
                Observation::Unit(UnitSnapshot { context, .. }) if context.cause().is_some() => {
                    format!("it comes back with {}", context.cause().map_or("", |other| other.unit.as_str()))
                }
                Observation::Unit(_) | Observation::Failed(_) => {
                    "it comes back with the unit that took it down".to_owned()
                }
            },
            Phase::Waiting { why: Wait::Crowd, .. } => {
                "many fell at once; they come back one by one".to_owned()
            }
            Phase::Waiting { why: Wait::NotYet, .. } => "not started yet; it gets a moment".to_owned(),
            Phase::Waiting { why: Wait::Window, .. } => {
                "nothing depends on it; its repair window runs".to_owned()
            }
            Phase::Waiting { why: Wait::LookAround, .. } => "a look at the others first".to_owned(),
            Phase::Waiting { why: Wait::Brake, .. } => {
                "nothing: most workers of this node stand still, so the cause is a common one".to_owned()
            }
            Phase::Verifying { remedy, .. } => format!("after a {remedy}; it has to make progress now"),
            Phase::Waiting { why: Wait::Hold, .. } => "back when the hold ends".to_owned(),
            Phase::Waiting { failures, why: Wait::Backoff, .. } => {
                format!("try {failures} failed; the next follows")
            }
            Phase::LeftToPeers => "left to its watchers".to_owned(),
            Phase::Repairing { remedy: remedy @ (Remedy::Nudge | Remedy::Repipe), .. } => {
                format!("{remedy} under way")
            }
            Phase::Repairing { remedy: Remedy::Relaunch, episode, .. } => match episode.failures {
                0 => "relaunching".to_owned(),
                failures => format!("relaunching, try {}", failures + 1),
            },
            Phase::Settling { episode, .. } => match episode.ails {
                Some(class) => {
                    format!("relaunched because it was {class}; the sign that was missing has to come now")
                }
                None => "relaunched; it has to stay up now".to_owned(),
            },
            Phase::Quarantined { .. } => "it fell too often and is tried again slowly".to_owned(),
            Phase::Stranded => "nothing: systemd would refuse to start it".to_owned(),
        }
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

    /// Why somebody should look at it although its class says that it is well.
    fn alert(&self, now: Moment) -> Option<String> {
        let often = self.loops.told(self.policy(), now).filter(|_| self.loops_now(now));
        let often = often
            .map(|often| format!("it falls again and again, lastly after {}: {often}", self.loops.last()));
        often.or_else(|| self.no_tasks().map(str::to_owned))
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

    pub(super) fn explain(&self, node: &NodeName, name: &WorkerName, now: Moment) -> Explanation {
        let report = self.report(node, name, now);
        let observed = match &self.seen {
            Observation::Unit(unit) => facts(unit).into_iter().chain(signs(&self.signs.vitals())).collect(),
            Observation::Failed(why) => vec![format!("could not be observed: {why}")],
        };
        let policy = &self.spec.policy;
        let mut decided = vec![match &self.health {
            Health::Healthy => "it is up, so nothing is done".to_owned(),
            Health::InTransition(what) => format!("{what}: that is no death, so nothing is done"),
            Health::Idle(_) => {
                "down by design, so nothing is done; `keyholder relaunch` starts it all the same".to_owned()
            }
            Health::Dead(death) => format!("dead: {death}"),
            Health::Stuck(_) => "stuck: it runs and its loop makes no progress".to_owned(),
            Health::DeliveryGap(_) => "delivery gap: it is well and nothing reaches it".to_owned(),
            Health::Blind(_) | Health::Unknown(_) => {
                "unknown never acts: nothing is done until it can be observed".to_owned()
            }
        }];
        if let Some(hold) = self.state.held(now) {
            let left = human(hold.until.since(now));
            decided.push(format!("held by {} for another {left}: {}", hold.by, hold.why));
        }
        if let Some(class) = report.drill {
            decided.push(format!("a rehearsal of {class} is under way: it was broken on purpose, and its watchers have to repair it"));
        }
        if !report.doing.is_empty() {
            decided.push(report.doing.clone());
        }
        if let Some(often) = self.loops.told(policy, now) {
            decided.push(format!(
                "systemd itself (Restart=) has restarted it {often}, lastly after {}: it is repaired, or put in quarantine, only \
                 if it stays down, as at a start limit (StartLimitIntervalSec=, StartLimitBurst=)",
                self.loops.last()
            ));
        }
        decided.push(format!(
            "flap guard: {} of {} relaunches within {} are spent",
            self.state.recent(policy, now),
            policy.relaunches,
            human(policy.per)
        ));
        decided.push(format!("repair_by is {:?} in fleet.yaml", policy.repair_by).to_lowercase());
        Explanation { report, observed, decided, log: self.log(node, name) }
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

/// How a dead worker ended, for one line.
fn ended(death: Death, unit: &UnitSnapshot) -> String {
    if let (Death::TakenDown(_), Some(cause)) = (death, unit.context.cause()) {
        return format!("taken down by {}, which {}", cause.unit, cause.why);
    }
    if let Some(assertion) = &unit.context.unasserted {
        return format!("not started: {assertion} is not met");
    }
    match (death, &unit.exit) {
        (Death::Crashed { .. }, Some(exit)) => exit.clone(),
        (Death::Crashed { .. }, None) if unit.result != "success" => unit.result.clone(),
        (
            Death::Crashed { .. }
            | Death::Stopped
            | Death::TakenDown(_)
            | Death::NeverStarted
            | Death::NotStartable(_)
            | Death::Hung(_),
            Some(_) | None,
        ) => death.to_string(),
    }
}

fn facts(unit: &UnitSnapshot) -> Vec<String> {
    let mut facts = vec![
        format!("load state {:?}, active state {:?} ({})", unit.load, unit.active, unit.sub).to_lowercase(),
        format!("result {}", unit.result),
        match unit.invocation {
            Some(invocation) => format!("invocation {invocation}"),
            None => "no invocation yet".to_owned(),
        },
    ];
    facts.extend(unit.exit.as_ref().map(|exit| format!("its main process ended with {exit}")));
    if unit.job {
        facts.push("systemd has a job queued for it".to_owned());
    }
    let unmet = unit.context.unmet.iter().chain(&unit.context.unasserted);
    facts.extend(unmet.map(|condition| format!("at its last start {condition} was not met")));
    facts.extend(unit.context.others.iter().map(|other| {
        let tie = match other.tie {
            Tie::Conflicts => "it cannot run beside",
            Tie::Needs => "it needs",
            Tie::PartOf => "it is stopped with",
            Tie::Trigger => "it is started by",
            Tie::UpheldBy => "it is kept up by",
            Tie::Instance => "part of it is",
        };
        format!("{tie} {}, which {}", other.unit, other.why)
    }));
    facts.push(
        if unit.restarts_itself { "its unit has Restart=" } else { "its unit has no Restart=" }.to_owned(),
    );
    facts
}

/// What is watched of it beside its unit, a line per sign.
fn signs(vitals: &Vitals) -> Vec<String> {
    [("heartbeat", &vitals.beat), ("flow of its work", &vitals.flow)]
        .into_iter()
        .filter_map(|(sign, pulse)| match pulse {
            Pulse::Unwatched => None,
            Pulse::Moving => Some(format!("{sign}: it moves")),
            Pulse::Still(evidence) => Some(format!("{sign}: {evidence}")),
            Pulse::Unseen(why) => Some(format!("{sign}: could not be observed: {why}")),
        })
        .collect()
}

impl Worker {
    /// Answers everybody who waits.
    pub(super) fn answer(&mut self, verdict: &Verdict) {
        for waiter in self.waiters.drain(..) {
            // Whoever has gone meanwhile reads the outcome in the status.
            let _ = waiter.reply.send(verdict.clone());
        }
    }

    /// The unit runs again: answers those who do not wait for it to settle.
    pub(super) fn answer_started(&mut self) {
        self.answer_some(|waiter| !waiter.settled);
    }

    /// It stayed up: answers the others.
    pub(super) fn answer_settled(&mut self) {
        self.answer_some(|_| true);
    }

    fn answer_some(&mut self, which: impl Fn(&Waiter) -> bool) {
        let Some(result) = &self.relaunched else { return };
        let (now, later): (Vec<_>, Vec<_>) = std::mem::take(&mut self.waiters).into_iter().partition(which);
        self.waiters = later;
        for waiter in now {
            let result = Relaunched { shared: waiter.shared, ..result.clone() };
            let _ = waiter.reply.send(Verdict::Outcome(Outcome::Relaunched(result)));
        }
    }

    /// Answers those who have waited for long that it is still under way.
    pub(super) fn answer_late(&mut self, now: Moment) {
        let (late, rest): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.waiters).into_iter().partition(|waiter| waiter.due <= now);
        self.waiters = rest;
        if late.is_empty() {
            return;
        }
        let (waited, most) = (human(ANSWERED_WITHIN), human(self.relaunch_within()));
        let why = match &self.relaunched {
            Some(_) => format!(
                "still under way: it runs again and has to stay up for its settle time, {waited} so far"
            ),
            None => format!(
                "still under way: systemd has taken {waited} so far, of {most} that the unit's own timeouts allow; {}",
                self.why()
            ),
        };
        let failed = RelaunchFailed {
            unit: self.spec.unit.clone(),
            why,
            job: None,
            took_us: u64::try_from(ANSWERED_WITHIN.as_micros()).unwrap_or(u64::MAX),
            log: Vec::new(),
            under_way: true,
        };
        for waiter in late {
            // Whoever has gone meanwhile reads the outcome in the status.
            let _ = waiter.reply.send(Verdict::Outcome(Outcome::Failed(failed.clone())));
        }
    }

    /// Answers those who still wait although neither a relaunch nor its verification is under way any more: whatever came
    /// between, what they wait for does not come.
    pub(super) fn fail_waiters(&mut self) {
        match self.state.phase {
            Phase::Repairing { .. } | Phase::Settling { .. } | Phase::Verifying { .. } => return,
            Phase::Watching
            | Phase::Waiting { .. }
            | Phase::LeftToPeers
            | Phase::Quarantined { .. }
            | Phase::Stranded => {}
        }
        if self.waiters.is_empty() {
            return;
        }
        let waiters = std::mem::take(&mut self.waiters);
        let (why, job, took_us) = match &self.relaunched {
            Some(done) => {
                let up = matches!(self.health, Health::Stuck(_) | Health::DeliveryGap(_) | Health::Blind(_));
                let what = if up {
                    "it was started, and the sign that was missing did not come"
                } else {
                    "it was started and did not stay up"
                };
                let why = format!("{what}: {}", self.health_text());
                (why, Some("done".to_owned()), done.took_us)
            }
            None => ("systemd did not say in time what came of the order".to_owned(), None, 0),
        };
        let unit = self.spec.unit.clone();
        tokio::spawn(async move {
            let log = journal_of(&unit).await;
            let verdict = Verdict::Outcome(Outcome::Failed(RelaunchFailed {
                unit,
                why,
                job,
                took_us,
                log,
                under_way: false,
            }));
            for waiter in waiters {
                // Whoever has gone meanwhile reads the outcome in the status.
                let _ = waiter.reply.send(verdict.clone());
            }
        });
    }

    /// The text of its present health, for records.
    pub(super) fn health_text(&self) -> String {
        match &self.health {
            Health::Dead(death) => death.to_string(),
            Health::Healthy => "it runs".to_owned(),
            Health::InTransition(what) => (*what).to_owned(),
            Health::Idle(idle) => idle.to_string(),
            Health::Stuck(why) | Health::DeliveryGap(why) | Health::Blind(why) | Health::Unknown(why) => {
                why.clone()
            }
        }
    }
}
