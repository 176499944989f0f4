//! The replay's words.

use std::mem::discriminant;

use crate::judge::classify::{Health, Host};
use crate::judge::log::Absence;
use crate::judge::observation::{Observation, StopCause, UnitSnapshot};
use crate::judge::state::{Ending, Hold, Phase, Say, Wait};
use crate::judge::vitals::Pulse;
use crate::vocabulary::{InvocationId, Moment, human};

/// Enough of a run's name to tell it from the one before.
fn short(run: InvocationId) -> String {
    run.to_string().chars().take(8).collect()
}

pub(super) fn observation(seen: &Observation) -> String {
    match seen {
        Observation::Failed(why) => format!("not observed: {why}"),
        Observation::Unit(unit) => self::unit(unit),
    }
}

fn unit(unit: &UnitSnapshot) -> String {
    let UnitSnapshot { load, active, sub, result, job, stop, exit, .. } = unit;
    let mut text = format!("{active:?} ({sub})").to_lowercase();
    let loaded = format!("{load:?}").to_lowercase();
    if loaded != "loaded" {
        text.push_str(&format!(", {loaded}"));
    }
    if result != "success" {
        text.push_str(&format!(", result {result}"));
    }
    match (stop, exit) {
        (_, Some(exit)) => text.push_str(&format!(", {exit}")),
        (StopCause::Ordered, None) => text.push_str(", stopped on an order"),
        (StopCause::Never | StopCause::ByItself, None) => {}
    }
    if *job {
        text.push_str(", a job is queued");
    }
    let unmet = unit.context.unmet.iter().chain(&unit.context.unasserted);
    for condition in unmet {
        text.push_str(&format!(", {condition} is not met"));
    }
    for other in &unit.context.others {
        text.push_str(&format!(", {} {}", other.unit, other.why));
    }
    match unit.invocation {
        Some(run) => text.push_str(&format!(", run {}", short(run))),
        None => text.push_str(", no run"),
    }
    text
}

pub(super) fn host(host: Host) -> String {
    match host {
        Host::Starting => "the host boots",
        Host::Running => "the host is up",
        Host::Stopping => "the host shuts down",
    }
    .to_owned()
}

pub(super) fn absence(absence: Absence, now: Moment) -> String {
    format!(
        "the supervisor was away for {}; it decides nothing for {}",
        human(now.since(absence.since_ms)),
        human(absence.until_ms.since(now))
    )
}

pub(super) fn pulse(what: &str, pulse: &Pulse) -> String {
    match pulse {
        Pulse::Unwatched => format!("{what}: nobody looks"),
        Pulse::Moving => format!("{what}: it moves"),
        Pulse::Still(evidence) => format!("{what}: {evidence}"),
        Pulse::Unseen(why) => format!("{what}: not observed: {why}"),
    }
}

pub(super) fn health(health: &Health) -> String {
    match health {
        Health::Healthy => "healthy".to_owned(),
        Health::Blind(why) => format!("unknown, though it is up: {why}"),
        Health::Stuck(why) => format!("stuck: {why}"),
        Health::DeliveryGap(why) => format!("delivery-gap: {why}"),
        Health::InTransition(what) => format!("in transition: {what}"),
        Health::Dead(death) => format!("dead: {death}"),
        Health::Idle(idle) => format!("down by design: {idle}"),
        Health::Unknown(why) => format!("unknown: {why}"),
    }
}

pub(super) fn ending(ending: Ending) -> String {
    match ending {
        Ending::Started(run) => format!("it runs under {}", short(run)),
        Ending::Failed => "it failed".to_owned(),
        Ending::Refused(obstacle) => format!("systemd refused: {obstacle}"),
        Ending::Untouched => "systemd refused to stop it; it runs on".to_owned(),
        Ending::Sent => "it was carried out; what it does has to be seen".to_owned(),
    }
}

pub(super) fn hold(hold: &Hold, now: Moment) -> String {
    format!("{} holds it for {}: {}", hold.by, human(hold.until.since(now)), hold.why)
}

pub(super) fn say(say: Say) -> String {
    match say {
        Say::UndeclaredStop(wait) => {
            format!("stopped, and no hold was declared: it is brought back in {}", human(wait))
        }
        Say::Follows => "what took it down is up again: it follows".to_owned(),
        Say::TakenDown(None) => "taken down by another unit: it comes back with that".to_owned(),
        Say::TakenDown(Some(wait)) => {
            format!("taken down by another unit: it comes back with that, or is tried in {}", human(wait))
        }
        Say::RepairingAtOnce => "dead, and repaired at once".to_owned(),
        Say::LeftToPeers => "dead, and left to its watchers".to_owned(),
        Say::LeftToPeople => "not back, and nobody is to act unasked".to_owned(),
        Say::TryAgain(wait) => format!("not back; the next try is in {}", human(wait)),
        Say::Quarantined(wait) => {
            format!("it fell too often and is in quarantine; the next try is in {}", human(wait))
        }
        Say::StillQuarantined(wait) => {
            format!("still down in quarantine; the next try is in {}", human(wait))
        }
        Say::Recovered => "it stayed up: recovered".to_owned(),
        Say::SignBack(class) => format!("it stayed up and is no longer {class}: recovered"),
        Say::Resumed(remedy) => format!("it makes progress again after a {remedy}"),
        Say::Ailing(remedy) => format!("it makes no progress and gets a {remedy}"),
        Say::NoHelp(remedy, wait) => {
            format!("the {remedy} did not help; the next step is in {}", human(wait))
        }
        Say::Unverified(remedy) => format!("whether the {remedy} helped cannot be seen"),
        Say::Braked => "most workers make no progress at once: nothing is restarted".to_owned(),
        Say::CameBack => "it is up again without our doing".to_owned(),
        Say::Stranded(obstacle) => format!("down, and it cannot be started: {obstacle}"),
        Say::Hangs(hang) => format!("it hangs: {hang}"),
        Say::HoldEnded => "the hold is over".to_owned(),
    }
}

/// Whether a change of phase is worth a line.
pub(super) fn differ(before: &Phase, after: &Phase) -> bool {
    match (before, after) {
        (Phase::Waiting { why: before, .. }, Phase::Waiting { why: after, .. }) => before != after,
        // What is done is a line of its own.
        (_, Phase::Repairing { .. }) => false,
        (before, after) => discriminant(before) != discriminant(after),
    }
}

/// What is in hand and, where the rule is not in the words, by which rule.
pub(super) fn plan(phase: &Phase, now: Moment) -> String {
    let within = |at: &Moment| human(at.since(now));
    match phase {
        Phase::Watching => "nothing is in hand".to_owned(),
        Phase::Waiting { due, why, .. } => {
            let why = match why {
                Wait::SystemdFirst => "systemd may restart it itself",
                Wait::UndeclaredStop => "whoever stopped it gets time (undeclared_stop)",
                Wait::Grace => "its watchers act after the grace",
                Wait::Backoff => "the last try failed (backoff)",
                Wait::Hold => "it is on hold",
                Wait::Crowd => "many fell at once; they come back one by one",
                Wait::NotYet => "it has not been started yet, and may be about to",
                Wait::Window => "nothing depends on it (repair_window)",
                Wait::LookAround => "a look at the others first",
                Wait::Cause => "it comes back with the unit that took it down",
                Wait::Brake => "most of the others stand still, too (brake)",
            };
            format!("wait {}: {why}", within(due))
        }
        Phase::LeftToPeers => "left to its watchers".to_owned(),
        Phase::Repairing { remedy, .. } => format!("a {remedy} is under way"),
        Phase::Settling { until, invocation, .. } => {
            format!("run {} has to stay up for {}", short(*invocation), within(until))
        }
        Phase::Verifying { until, remedy, .. } => {
            format!("after the {remedy} it has to make progress within {}", within(until))
        }
        Phase::Quarantined { retry, .. } => format!("quarantine; the next try is in {}", within(retry)),
        Phase::Stranded => "nothing: systemd would refuse to start it".to_owned(),
    }
}
