//! What people are told of a worker: how loudly, and in which words.

use std::time::Duration;

use super::core::{Core, Done};
use crate::fleet::BlastRadius;
use crate::journal::{Event as Kind, Priority, Record};
use crate::judge::{ALERT_SETTLE, Alert, Cause, Death, Hang, Health, Idle, Say};
use crate::peer::wire::Class;
use crate::vocabulary::{Moment, WorkerName, human};

impl Core {
    /// A worker's class changed.
    pub(super) fn record_class(&mut self, name: &WorkerName, before: Class, now: Moment) {
        let Some(worker) = self.workers.get(name) else { return };
        let report = worker.report(&self.me, name, now);
        // Nobody is woken for what was done on purpose.
        let critical = worker.spec.blast_radius == BlastRadius::Critical && !worker.is_rehearsed();
        let loud = worker.spec.blast_radius != BlastRadius::Auxiliary && !worker.is_rehearsed();
        let priority = match report.class {
            Class::Dead | Class::Stuck | Class::DeliveryGap | Class::Unknown => Priority::Warning,
            Class::Healthy | Class::Starting | Class::Held => Priority::Info,
        };
        let wait = match &worker.health {
            // What systemd restarts itself has mostly passed by the time that anybody could look.
            Health::Dead(Death::Crashed { systemd_may_restart: true } | Death::NeverStarted) => {
                Some(ALERT_SETTLE)
            }
            Health::Dead(Death::TakenDown(Cause::Mended | Cause::Failed)) => Some(ALERT_SETTLE),
            Health::Dead(Death::Crashed { systemd_may_restart: false }) => Some(Duration::ZERO),
            Health::Stuck(_) | Health::DeliveryGap(_) => Some(Duration::ZERO),
            // The judge has words of its own for these.
            Health::Dead(
                Death::Stopped | Death::TakenDown(Cause::Stopped) | Death::NotStartable(_) | Death::Hung(_),
            ) => None,
            Health::Healthy
            | Health::Blind(_)
            | Health::InTransition(_)
            | Health::Idle(_)
            | Health::Unknown(_) => None,
        };
        let unit = &worker.spec.unit;
        let alert = match (&worker.health, wait) {
            // An exit after which its unit file wants no restart may be one that somebody has to look at.
            (Health::Idle(Idle::Agreed(_)), _) if loud => {
                let text = format!("{unit} is down: {}", report.why);
                Some((Alert { cause: "agreed exit".to_owned(), text, urgent: false }, Duration::ZERO))
            }
            (_, Some(wait)) if critical => {
                let text = format!("{unit} fell, and is {}: {}", report.class.name(), report.why);
                Some((Alert { cause: "fall".to_owned(), text, urgent: true }, wait))
            }
            (_, _) => None,
        };
        let (was, is) = (before.name(), report.word());
        self.handles.recorder.record(Record::local(
            Kind::Observed,
            priority,
            self.target(name),
            format!("{was} -> {is}: {}", report.why),
        ));
        if let Some((alert, wait)) = alert {
            self.raise(&self.target(name), alert, wait, now);
        }
    }

    /// A worker falls again and again, and systemd restarts it each time: it is never down for long enough to be anybody else's.
    pub(super) fn say_loops(&mut self, name: &WorkerName, now: Moment) {
        let Some(worker) = self.workers.get(name) else { return };
        // Nobody is woken for what was done on purpose.
        if worker.is_rehearsed() || worker.state.held(now).is_some() {
            return;
        }
        let loud = worker.spec.blast_radius != BlastRadius::Auxiliary;
        let (unit, target) = (&worker.spec.unit, self.target(name));
        let often = worker.loops.told(&worker.spec.policy, now).unwrap_or_default();
        let text = format!(
            "{unit} falls again and again, lastly after {}; it is left to systemd, which has restarted it {often}: journalctl -u {unit}; keyholder explain {target}",
            worker.loops.last()
        );
        if loud {
            let alert = Alert { cause: "loop".to_owned(), text, urgent: true };
            return self.raise(&target, alert, Duration::ZERO, now);
        }
        self.handles.recorder.record(Record::local(Kind::Observed, Priority::Warning, target, text));
    }

    /// Finds out what keeps a worker's unit from getting on, in a task of its own; [`Done::Hindrance`] follows.
    pub(super) fn ask_hindrance(&self, name: &WorkerName, hang: Hang) {
        let Some(worker) = self.workers.get(name) else { return };
        let (unit, systemd, done) =
            (worker.spec.unit.clone(), self.handles.systemd.clone(), self.handles.done.clone());
        let worker = name.clone();
        tokio::spawn(async move {
            let hindrance = systemd.hindrance(&unit).await;
            // The loop's inbox closes only with the loop itself.
            let _ = done.send(Done::Hindrance { worker, hang, hindrance }).await;
        });
    }

    /// A worker's unit hangs, and it is known what keeps it.
    pub(super) fn hangs(&mut self, name: &WorkerName, hang: Hang, hindrance: String, now: Moment) {
        let Some(worker) = self.workers.get_mut(name) else { return };
        // It may have got on meanwhile, which is no reason to keep quiet: it took too long.
        worker.hindrance = Some(hindrance);
        self.say(name, Say::Hangs(hang), now);
        self.look(name, now);
    }

    /// Says what the judge wants said, and answers those who waited for it.
    pub(super) fn say(&mut self, name: &WorkerName, say: Say, now: Moment) {
        // What they have in common is told once, and is the node's.
        let braked_before = self.braked() > usize::from(say == Say::Braked);
        let target = if say == Say::Braked { self.me.to_string() } else { self.target(name) };
        let Some(worker) = self.workers.get_mut(name) else { return };
        let rehearsed = worker.is_rehearsed();
        // Nobody has to declare what was done on purpose.
        if rehearsed && matches!(say, Say::UndeclaredStop(_)) {
            return;
        }
        let loud = worker.spec.blast_radius != BlastRadius::Auxiliary;
        let unit = &worker.spec.unit;
        let act = if loud { Priority::Notice } else { Priority::Info };
        let alert = if loud { Priority::Error } else { Priority::Warning };
        // What nothing depends on is in the trail, and nobody is called for it.
        let alarm = if loud { Kind::Alert } else { Kind::Observed };
        let (kind, priority, text) = match say {
            Say::UndeclaredStop(wait) => (
                alarm,
                Priority::Warning,
                format!(
                    "{unit} was stopped and no hold was declared: it is brought back in {}. To prevent that: keyholder hold {target} --for 30m --why \"...\"",
                    human(wait)
                ),
            ),
            Say::Follows => {
                (Kind::Observed, act, format!("{unit} is brought back: what took it down is up again"))
            }
            Say::TakenDown(None) => {
                (Kind::Observed, act, format!("{unit} was {}; it comes back with that", worker.why()))
            }
            Say::TakenDown(Some(wait)) => (
                alarm,
                Priority::Warning,
                format!(
                    "{unit} was {}; it comes back with that, and is tried without it in {}. To prevent that: keyholder hold {target} --for 30m --why \"...\"",
                    worker.why(),
                    human(wait)
                ),
            ),
            Say::RepairingAtOnce => {
                (Kind::Observed, act, format!("{unit} is repaired at once; dead: {}", worker.why()))
            }
            Say::LeftToPeers => (
                alarm,
                Priority::Warning,
                format!("{unit} is {} and left to its watchers", worker.shown.class.name()),
            ),
            Say::LeftToPeople => {
                (Kind::Acted, Priority::Warning, format!("{unit} is not back, and nobody is to act unasked"))
            }
            Say::TryAgain(wait) => {
                (Kind::Acted, Priority::Warning, format!("{unit} is not back; next try in {}", human(wait)))
            }
            Say::Quarantined(wait) => (
                alarm,
                alert,
                format!(
                    "{unit} fell too often and is in quarantine: next try in {}. When the cause is fixed: keyholder release {target}",
                    human(wait)
                ),
            ),
            Say::StillQuarantined(wait) => (
                Kind::Acted,
                Priority::Warning,
                format!(
                    "{unit} is still {} in quarantine; next try in {}",
                    worker.shown.class.name(),
                    human(wait)
                ),
            ),
            Say::Ailing(remedy) => (
                Kind::Observed,
                act,
                format!("{unit} makes no progress and gets a {remedy}: {}", worker.why()),
            ),
            Say::Resumed(remedy) => {
                (Kind::Acted, act, format!("{unit} makes progress again after a {remedy}"))
            }
            Say::NoHelp(remedy, wait) => (
                Kind::Acted,
                Priority::Warning,
                format!("the {remedy} did not help {unit}; the next step follows in {}", human(wait)),
            ),
            Say::Unverified(remedy) => (
                Kind::Acted,
                Priority::Warning,
                format!("the {remedy} of {unit} was carried out; whether it helped cannot be seen"),
            ),
            Say::Braked => (
                Kind::Observed,
                if braked_before { Priority::Info } else { Priority::Warning },
                format!(
                    "most workers of this node make no progress at once, so the cause is a common one and nothing is restarted: {unit}: {}",
                    worker.why()
                ),
            ),
            Say::SignBack(class) => {
                (Kind::Acted, act, format!("{unit} stayed up and is no longer {class}: recovered"))
            }
            Say::Recovered => (Kind::Acted, act, format!("{unit} stayed up: recovered")),
            Say::CameBack => (Kind::Observed, act, format!("{unit} is up again without our doing")),
            Say::Stranded(obstacle) => {
                (alarm, alert, format!("{unit} is down and cannot be started: {obstacle}"))
            }
            Say::Hangs(hang) => (alarm, alert, {
                let hindrance = worker.hindrance.as_deref().unwrap_or("what it waits for is not known");
                format!("{unit} hangs: {hang}: {hindrance}")
            }),
            Say::HoldEnded => (Kind::Observed, Priority::Notice, format!("the hold on {target} is over")),
        };
        match say {
            Say::Resumed(_) => worker.waiters.remedy_ended(&worker.spec.unit, Some(true), &text, now),
            Say::NoHelp(..) => worker.waiters.remedy_ended(&worker.spec.unit, Some(false), &text, now),
            Say::Unverified(_) => worker.waiters.remedy_ended(&worker.spec.unit, None, &text, now),
            Say::UndeclaredStop(_)
            | Say::TakenDown(_)
            | Say::Follows
            | Say::RepairingAtOnce
            | Say::LeftToPeers
            | Say::LeftToPeople
            | Say::TryAgain(_)
            | Say::Quarantined(_)
            | Say::StillQuarantined(_)
            | Say::Recovered
            | Say::SignBack(_)
            | Say::Ailing(_)
            | Say::Braked
            | Say::CameBack
            | Say::Stranded(_)
            | Say::Hangs(_)
            | Say::HoldEnded => {}
        }
        let recovered = matches!(say, Say::Recovered | Say::SignBack(_));
        if recovered {
            worker.waiters.settled();
        }
        // That it stayed up is no act of its own: the relaunch before it is what people look for.
        if kind == Kind::Acted && !recovered {
            worker.last_act = Some((now, text.clone()));
        }
        // Nobody is woken for what was done on purpose.
        let (kind, priority, text) = if rehearsed && kind == Kind::Alert {
            (Kind::Observed, Priority::Notice, format!("{text} (a rehearsal)"))
        } else {
            (kind, priority, text)
        };
        if kind != Kind::Alert {
            self.handles.recorder.record(Record::local(kind, priority, target, text));
            return;
        }
        let (cause, wait) = cause(say);
        if !wait.is_zero() {
            // It may pass by itself, and is in the trail all the same.
            self.handles.recorder.record(Record::local(
                Kind::Observed,
                Priority::Warning,
                target.clone(),
                text.clone(),
            ));
        }
        let alert = Alert { cause: cause.to_owned(), text, urgent: priority == Priority::Error };
        self.raise(&target, alert, wait, now);
    }
}

/// What people are called for when this is said, as one word, and after which time in which it may pass by itself.
fn cause(say: Say) -> (&'static str, Duration) {
    match say {
        // A package upgrade stops units, and takes their files away for a moment.
        Say::UndeclaredStop(_) => ("stop", ALERT_SETTLE),
        Say::TakenDown(_) => ("taken down", ALERT_SETTLE),
        Say::Stranded(_) => ("not startable", ALERT_SETTLE),
        Say::LeftToPeers => ("left to its watchers", Duration::ZERO),
        Say::Quarantined(_) => ("quarantine", Duration::ZERO),
        Say::Hangs(_) => ("hangs", Duration::ZERO),
        Say::RepairingAtOnce
        | Say::LeftToPeople
        | Say::TryAgain(_)
        | Say::StillQuarantined(_)
        | Say::Recovered
        | Say::SignBack(_)
        | Say::Follows
        | Say::Resumed(_)
        | Say::Ailing(_)
        | Say::NoHelp(..)
        | Say::Unverified(_)
        | Say::Braked
        | Say::CameBack
        | Say::HoldEnded => ("fall", Duration::ZERO),
    }
}
