//! From what was seen to what it means. Pure and total: each state of systemd has its own meaning.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::idle::{Idle, by_design, hollow};
use super::observation::{
    ActiveState, LoadState, Observation, Other, Standing, StopCause, Tie, UnitSnapshot,
};
use super::transit::Hang;
use super::vitals::{Pulse, Vitals};
use crate::vocabulary::FailureClass;

/// What the host itself is doing (the manager's `SystemState`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Host {
    /// It boots: systemd is still starting what it was told to start.
    Starting,
    /// It is up, possibly with failed units.
    Running,
    /// It shuts down or reboots.
    Stopping,
}

/// What an observation means for a worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Health {
    /// It is up, and whatever else is watched of it moves.
    Healthy,
    /// It is up, but a detector could not see whether it makes progress; the text says why. Nothing is done about it.
    Blind(String),
    /// It is up and its loop makes no progress; the text is the evidence.
    Stuck(String),
    /// It is up and well, and nothing reaches it; the text is the evidence.
    DeliveryGap(String),
    /// systemd or the host is in the middle of something; the text says what. Not a death.
    InTransition(&'static str),
    /// It is down, and that is how it is to be.
    Idle(Idle),
    /// It is down.
    Dead(Death),
    /// It could not be observed; the text says why. Nothing is ever done about it.
    Unknown(String),
}

impl Health {
    /// The class of a worker that runs and makes no progress.
    pub(super) fn ails(&self) -> Option<FailureClass> {
        match self {
            Self::Stuck(_) => Some(FailureClass::Stuck),
            Self::DeliveryGap(_) => Some(FailureClass::DeliveryGap),
            Self::Healthy
            | Self::Blind(_)
            | Self::InTransition(_)
            | Self::Idle(_)
            | Self::Dead(_)
            | Self::Unknown(_) => None,
        }
    }
}

/// The ways of being dead; they differ in what may be done and when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Death {
    /// It ended by itself: exit, signal, a start that failed, systemd's start limit.
    Crashed {
        /// Whether systemd may be about to restart it itself.
        systemd_may_restart: bool,
    },
    /// Somebody had it stopped.
    Stopped,
    /// A unit that it needs or is part of is down and has taken it along, or keeps it from starting.
    TakenDown(Cause),
    /// It was not started since the host came up.
    NeverStarted,
    /// It is down and systemd would refuse to start it.
    NotStartable(StartBlocker),
    /// systemd is at it, and gets nowhere.
    Hung(Hang),
}

/// How it is with the unit that has taken a worker down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// It is brought back without this worker's doing: it is a worker, too, or systemd is at it.
    Mended,
    /// Somebody has stopped it.
    Stopped,
    /// It has failed, and nobody is at it.
    Failed,
}

/// Why systemd would refuse.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StartBlocker {
    /// No unit file of that name.
    NotFound,
    /// The unit is masked.
    Masked,
    /// The unit file is unreadable or wrong.
    BadUnitFile,
    /// `RefuseManualStart=yes`.
    RefusesManualStart,
}

impl fmt::Display for StartBlocker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotFound => "systemd finds no such unit; install it, or correct `unit` in fleet.yaml",
            Self::Masked => "the unit is masked; `systemctl unmask` it",
            Self::BadUnitFile => "the unit file has an error; `systemctl status` shows it",
            Self::RefusesManualStart => {
                "the unit has RefuseManualStart=yes, so only a dependency can start it; take that out or name another unit"
            }
        })
    }
}

impl fmt::Display for Death {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Crashed { .. } => f.write_str("ended by itself"),
            Self::Stopped => f.write_str("stopped by an operator or a program"),
            Self::TakenDown(_) => f.write_str("taken down by a unit that it needs or is part of"),
            Self::NeverStarted => f.write_str("not started since the host booted"),
            Self::NotStartable(obstacle) => obstacle.fmt(f),
            Self::Hung(hang) => hang.fmt(f),
        }
    }
}

/// Judges one observation of a unit and the signs of progress beside it. The signs say nothing of a unit that is not up.
/// `ends_clean` is what the fleet file says: that the unit's process may end well.
pub fn classify(seen: &Observation, vitals: &Vitals, host: Host, ends_clean: bool) -> Health {
    let unit = match seen {
        Observation::Failed(why) => return Health::Unknown(why.clone()),
        Observation::Unit(unit) => unit,
    };
    match &unit.active {
        // A unit that reloads is up meanwhile.
        ActiveState::Active | ActiveState::Reloading | ActiveState::Refreshing => {
            let alive = ends_clean || vitals.beat == Pulse::Moving;
            match (up(vitals), hollow(unit).filter(|_| !alive)) {
                (Health::Healthy, Some(why)) => Health::Blind(why),
                (health, _) => health,
            }
        }
        ActiveState::Activating if unit.sub == "auto-restart" => {
            Health::InTransition("systemd restarts it itself")
        }
        ActiveState::Activating => Health::InTransition("starting"),
        ActiveState::Deactivating => Health::InTransition("stopping"),
        ActiveState::Maintenance => Health::InTransition("systemd cleans up behind it"),
        ActiveState::Inactive | ActiveState::Failed => down(unit, host, ends_clean),
        ActiveState::Other(state) => Health::Unknown(format!("systemd calls its state {state:?}")),
    }
}

/// A unit that is up: does it make progress? A loop that stands still explains a queue that does; while the loop cannot be
/// seen, a queue that stands still is not explained.
fn up(vitals: &Vitals) -> Health {
    match (&vitals.beat, &vitals.flow) {
        (Pulse::Still(evidence), _) => Health::Stuck(evidence.clone()),
        (Pulse::Unseen(why), _) => Health::Blind(why.clone()),
        (Pulse::Unwatched | Pulse::Moving, Pulse::Still(evidence)) => Health::DeliveryGap(evidence.clone()),
        (Pulse::Unwatched | Pulse::Moving, Pulse::Unseen(why)) => Health::Blind(why.clone()),
        (Pulse::Unwatched | Pulse::Moving, Pulse::Unwatched | Pulse::Moving) => Health::Healthy,
    }
}

/// A unit that is down: is anybody on it already, can it be started, and how did it get there?
fn down(unit: &UnitSnapshot, host: Host, ends_clean: bool) -> Health {
    match host {
        Host::Stopping => return Health::InTransition("the host shuts down"),
        Host::Starting => return Health::InTransition("the host boots"),
        Host::Running => {}
    }
    if unit.job {
        return Health::InTransition("systemd has a job queued for it");
    }
    let obstacle = match &unit.load {
        LoadState::Loaded | LoadState::Stub | LoadState::Merged => {
            unit.refuse_manual_start.then_some(StartBlocker::RefusesManualStart)
        }
        LoadState::NotFound => Some(StartBlocker::NotFound),
        LoadState::Masked => Some(StartBlocker::Masked),
        LoadState::BadSetting | LoadState::Error => Some(StartBlocker::BadUnitFile),
        LoadState::Other(state) => return Health::Unknown(format!("systemd calls its load state {state:?}")),
    };
    if let Some(obstacle) = obstacle {
        return Health::Dead(Death::NotStartable(obstacle));
    }
    if let Some(idle) = by_design(unit, ends_clean) {
        return Health::Idle(idle);
    }
    if unit.context.first(Tie::Conflicts, Standing::Busy).is_some() {
        return Health::InTransition("a unit that it conflicts with is starting or stopping");
    }
    if let Some(Other { ours, standing, .. }) = unit.context.cause() {
        return Health::Dead(Death::TakenDown(match standing {
            Standing::Busy => Cause::Mended,
            Standing::Up | Standing::Down | Standing::Failed if *ours => Cause::Mended,
            Standing::Up | Standing::Down => Cause::Stopped,
            Standing::Failed => Cause::Failed,
        }));
    }
    let upheld = unit.context.first(Tie::UpheldBy, Standing::Up).is_some();
    Health::Dead(match unit.stop {
        StopCause::Ordered => Death::Stopped,
        StopCause::Never => Death::NeverStarted,
        StopCause::ByItself => Death::Crashed { systemd_may_restart: unit.restarts_itself || upheld },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unit(active: ActiveState, sub: &str) -> UnitSnapshot {
        UnitSnapshot { stop: StopCause::ByItself, ..UnitSnapshot::plain(active, sub) }
    }

    fn health(unit: UnitSnapshot) -> Health {
        classify(&Observation::Unit(unit), &Vitals::default(), Host::Running, false)
    }

    #[test]
    fn what_systemd_is_busy_with_is_not_dead() {
        for (active, sub) in [
            (ActiveState::Active, "exited"),
            (ActiveState::Active, "running"),
            (ActiveState::Reloading, "reload"),
            (ActiveState::Activating, "auto-restart"),
            (ActiveState::Activating, "start-pre"),
            (ActiveState::Deactivating, "stop-sigterm"),
            (ActiveState::Maintenance, "cleaning"),
        ] {
            assert!(!matches!(health(unit(active.clone(), sub)), Health::Dead(_)), "{active:?} {sub}");
        }
        let queued = UnitSnapshot { job: true, ..unit(ActiveState::Inactive, "dead") };
        assert!(matches!(health(queued), Health::InTransition(_)));
    }

    #[test]
    fn the_ways_of_being_dead_are_told_apart() {
        let dead = |unit: UnitSnapshot| {
            let Health::Dead(death) = health(unit) else { panic!("it is down") };
            death
        };
        let failed = unit(ActiveState::Failed, "failed");
        assert_eq!(dead(failed.clone()), Death::Crashed { systemd_may_restart: false });
        assert_eq!(dead(UnitSnapshot { stop: StopCause::Ordered, ..failed.clone() }), Death::Stopped);
        let inactive = unit(ActiveState::Inactive, "dead");
        assert_eq!(dead(UnitSnapshot { stop: StopCause::Never, ..inactive.clone() }), Death::NeverStarted);
        for (load, obstacle) in [
            (LoadState::NotFound, StartBlocker::NotFound),
            (LoadState::Masked, StartBlocker::Masked),
            (LoadState::BadSetting, StartBlocker::BadUnitFile),
        ] {
            assert_eq!(dead(UnitSnapshot { load, ..inactive.clone() }), Death::NotStartable(obstacle));
        }
        let refuses = UnitSnapshot { refuse_manual_start: true, ..inactive };
        assert_eq!(dead(refuses), Death::NotStartable(StartBlocker::RefusesManualStart));
    }

    #[test]
    fn stuck_and_cut_off_are_told_apart_and_a_blind_detector_says_neither() {
        let still = || Pulse::Still("x".to_owned());
        let blind = || Pulse::Unseen("y".to_owned());
        let cases = [
            (Pulse::Moving, Pulse::Moving, Health::Healthy),
            (still(), Pulse::Moving, Health::Stuck("x".to_owned())),
            (still(), still(), Health::Stuck("x".to_owned())),
            (Pulse::Moving, still(), Health::DeliveryGap("x".to_owned())),
            (Pulse::Unwatched, still(), Health::DeliveryGap("x".to_owned())),
            (blind(), still(), Health::Blind("y".to_owned())),
            (Pulse::Moving, blind(), Health::Blind("y".to_owned())),
        ];
        for (beat, flow, health) in cases {
            let vitals = Vitals { beat, flow };
            let seen = Observation::Unit(unit(ActiveState::Active, "running"));
            assert_eq!(classify(&seen, &vitals, Host::Running, false), health);
            let down = Observation::Unit(unit(ActiveState::Failed, "failed"));
            assert!(matches!(classify(&down, &vitals, Host::Running, false), Health::Dead(_)));
        }
    }

    #[test]
    fn a_masked_unit_that_still_runs_is_healthy() {
        assert_eq!(
            health(UnitSnapshot { load: LoadState::Masked, ..unit(ActiveState::Active, "running") }),
            Health::Healthy
        );
    }

    #[test]
    fn nothing_is_dead_while_the_host_comes_or_goes() {
        for host in [Host::Starting, Host::Stopping] {
            let seen = Observation::Unit(unit(ActiveState::Failed, "failed"));
            assert!(
                matches!(classify(&seen, &Vitals::default(), host, false), Health::InTransition(_)),
                "{host:?}"
            );
        }
    }

    #[test]
    fn what_was_not_seen_is_unknown() {
        let seen = Observation::Failed("the bus does not answer".to_owned());
        assert_eq!(
            classify(&seen, &Vitals::default(), Host::Running, false),
            Health::Unknown("the bus does not answer".to_owned())
        );
        assert!(matches!(health(unit(ActiveState::Other("odd".to_owned()), "")), Health::Unknown(_)));
    }
}
