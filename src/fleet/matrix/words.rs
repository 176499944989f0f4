//! Detectors and remedies in words.

use std::time::Duration;

use crate::fleet::{Fleet, Worker};
use crate::vocabulary::{
    Command, DeliveryGap, FailureClass, Flow, Heartbeat, Nudge, Power, Remedy, Repipe, Stuck,
};

/// What sees a worker fall this way, if anything does.
pub(super) fn detector(worker: &Worker, class: FailureClass) -> Option<String> {
    match class {
        FailureClass::Dead => Some("systemd: not active".to_owned()),
        FailureClass::Stuck => worker.stuck.as_ref().map(heartbeat),
        FailureClass::DeliveryGap => worker.delivery_gap.as_ref().map(flow),
        FailureClass::SupervisorDead | FailureClass::Unreachable => None,
    }
}

fn heartbeat(stuck: &Stuck) -> String {
    let what = match &stuck.heartbeat {
        Heartbeat::File(path) => path.display().to_string(),
        Heartbeat::Redis(key) => format!("key {key}"),
        Heartbeat::Journal => "journal".to_owned(),
        Heartbeat::Command(command) => line(command),
        Heartbeat::Watchdog => "watchdog".to_owned(),
        Heartbeat::Lane(_) => "lane loop".to_owned(),
    };
    format!("{what} silent {}", written(stuck.older_than))
}

fn flow(gap: &DeliveryGap) -> String {
    let what = match &gap.flow {
        Flow::Queue { key, .. } => format!("queue {key}"),
        Flow::Lane(_) => "lane queue".to_owned(),
    };
    let queue = format!("{what} waits {}", written(gap.not_draining_for));
    if gap.canary.is_some() { format!("{queue} + canary") } else { queue }
}

/// Why nothing sees it.
pub(super) fn unseen(fleet: &Fleet, worker: &Worker, class: FailureClass) -> String {
    match class {
        FailureClass::Stuck => "no heartbeat is named: add `stuck`".to_owned(),
        FailureClass::DeliveryGap if worker.lane.is_some() && fleet.redis.is_none() => {
            "the file names no `redis` to look into".to_owned()
        }
        FailureClass::DeliveryGap => "no queue is named: add `delivery_gap`".to_owned(),
        FailureClass::Dead | FailureClass::SupervisorDead | FailureClass::Unreachable => {
            "nothing looks".to_owned()
        }
    }
}

/// What is done about it, and how.
pub(super) fn rungs(worker: &Worker, class: FailureClass) -> Vec<(Remedy, String)> {
    let gentle = match class {
        FailureClass::Stuck => worker.stuck.as_ref().and_then(|stuck| stuck.nudge.as_ref()).map(nudge),
        FailureClass::DeliveryGap => {
            worker.delivery_gap.as_ref().and_then(|gap| gap.repipe.as_ref()).map(repipe)
        }
        FailureClass::Dead | FailureClass::SupervisorDead | FailureClass::Unreachable => None,
    };
    let relaunch = (Remedy::Relaunch, format!("restart {}", worker.unit));
    gentle.into_iter().chain([relaunch]).collect()
}

fn nudge(nudge: &Nudge) -> (Remedy, String) {
    let how = match nudge {
        Nudge::Signal(signal) => signal.name().to_owned(),
        Nudge::Reload => "systemctl reload".to_owned(),
        Nudge::Command(command) => line(command),
    };
    (Remedy::Nudge, how)
}

fn repipe(repipe: &Repipe) -> (Remedy, String) {
    let how = match repipe {
        Repipe::Restart(unit) => format!("restart {unit}"),
        Repipe::Hangup => "SIGHUP".to_owned(),
    };
    (Remedy::Repipe, how)
}

/// What sees a node fall this way.
pub(super) fn node_detector(class: FailureClass) -> &'static str {
    match class {
        FailureClass::SupervisorDead => "host up, door silent",
        FailureClass::Unreachable => "no answer to anybody",
        FailureClass::Dead | FailureClass::Stuck | FailureClass::DeliveryGap => "",
    }
}

/// What a watcher runs.
pub(super) fn power(power: &Power) -> String {
    let witness = power.witness.map(|witness| format!(", if {witness} answers")).unwrap_or_default();
    format!("{}, after {}{witness}", line(&power.command), written(power.after))
}

/// A duration as somebody would write it into the file: `90s`, `2m`, `1h`.
pub fn written(duration: Duration) -> String {
    let ms = duration.as_millis();
    let units = [(86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1_000, "s")];
    let unit = units.into_iter().find(|(size, _)| ms >= *size && ms.is_multiple_of(*size));
    unit.map_or_else(|| format!("{ms}ms"), |(size, unit)| format!("{}{unit}", ms / size))
}

/// A command as a line to read; nobody runs it from here.
fn line(command: &Command) -> String {
    command.argv.join(" ")
}
