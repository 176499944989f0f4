//! How a worker reads to a person: why it is in its class, what is being done, and the whole story for `explain`.

use super::Worker;
use crate::judge::{Death, Health, Observation, Phase, Pulse, Tie, UnitSnapshot, Vitals, Wait};
use crate::peer::wire::Explanation;
use crate::vocabulary::{Moment, NodeName, Remedy, RepairBy, WorkerName, human};

impl Worker {
    /// The evidence for its present health, in words.
    pub(in crate::supervise) fn why(&self) -> String {
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
    pub(super) fn doing(&self, now: Moment) -> String {
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

    /// Why somebody should look at it although its class says that it is well.
    pub(super) fn alert(&self, now: Moment) -> Option<String> {
        let often = self.loops.told(self.policy(), now).filter(|_| self.loops_now(now));
        let often = often
            .map(|often| format!("it falls again and again, lastly after {}: {often}", self.loops.last()));
        often.or_else(|| self.no_tasks().map(str::to_owned))
    }

    pub(in crate::supervise) fn explain(
        &self,
        node: &NodeName,
        name: &WorkerName,
        now: Moment,
    ) -> Explanation {
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

    /// The text of its present health, for records.
    pub(in crate::supervise) fn health_text(&self) -> String {
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
