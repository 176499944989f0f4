//! Units on their way up or down: every step of systemd's has a deadline, taken from the unit's own timeouts.

use std::fmt;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::classify::{Death, Health};
use super::observation::{ActiveState, Observation, UnitSnapshot};
use crate::vocabulary::{InvocationId, Moment, Policy};

/// systemd's own default for a start and for a stop (`DefaultTimeoutStartSec=`, `DefaultTimeoutStopSec=`).
const DEFAULT_MS: u64 = 90_000;
/// systemd's own default for the wait before a restart.
const DEFAULT_RESTART_MS: u64 = 100;
/// How much later than a timeout of its own systemd may be: it ends what is late itself, on a busy host a little later.
const SLACK: Duration = Duration::from_secs(5);

/// A unit's own timeouts, in milliseconds; none is `infinity`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Timeouts {
    /// `TimeoutStartSec=`
    pub start_ms: Option<u64>,
    /// `TimeoutStopSec=`
    pub stop_ms: Option<u64>,
    /// `TimeoutAbortSec=`, after a watchdog's signal
    pub abort_ms: Option<u64>,
    /// `RestartSec=`, or the longest that `RestartSteps=` lets it become
    pub restart_ms: Option<u64>,
    /// `JobTimeoutSec=`, for a job that waits
    pub job_ms: Option<u64>,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            start_ms: Some(DEFAULT_MS),
            stop_ms: Some(DEFAULT_MS),
            abort_ms: Some(DEFAULT_MS),
            restart_ms: Some(DEFAULT_RESTART_MS),
            job_ms: None,
        }
    }
}

impl Timeouts {
    /// How long the start may take: what the fleet file says, else what the unit says, else the cap on `infinity`; none if
    /// the start of this worker may take for ever.
    fn start(&self, policy: &Policy) -> Option<Duration> {
        policy.start_timeout.or(self.start_ms.map(Duration::from_millis)).or(policy.endless)
    }

    fn finite(ms: Option<u64>, policy: &Policy) -> Option<Duration> {
        ms.map(Duration::from_millis).or(policy.endless)
    }

    /// How long a relaunch is waited for: systemd may spend all of the stop, of the wait and of the start on it. A start that
    /// may take for ever is waited for as long as systemd's default.
    pub fn relaunch(&self, policy: &Policy) -> Duration {
        let default = Duration::from_millis(DEFAULT_MS);
        let start = self.start(policy).unwrap_or(default);
        let stop = Self::finite(self.stop_ms, policy).unwrap_or(default);
        let restart = Self::finite(self.restart_ms, policy).unwrap_or_default();
        start.saturating_add(stop).saturating_add(restart).saturating_add(SLACK)
    }

    /// How long systemd may be at one step; none for as long as it likes.
    fn step(&self, step: Step, policy: &Policy) -> Option<Duration> {
        let limit = match step {
            Step::Starting => self.start(policy),
            Step::Stopping => Self::finite(self.stop_ms, policy),
            Step::Aborting => Self::finite(self.abort_ms, policy),
            Step::Restarting => Self::finite(self.restart_ms, policy),
            Step::Waiting => self.job_ms.map(Duration::from_millis).or_else(|| self.start(policy)),
            Step::Cleaning => policy.endless,
        };
        limit.map(|limit| limit.saturating_add(SLACK))
    }
}

/// What systemd is at with a unit that is neither up nor simply down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// It is being started.
    Starting,
    /// It is being stopped.
    Stopping,
    /// Its watchdog has fired, and it is being stopped.
    Aborting,
    /// systemd waits before it restarts the unit itself.
    Restarting,
    /// A job for it waits for something else.
    Waiting,
    /// A maintenance operation is under way.
    Cleaning,
}

impl Step {
    /// What a unit is at; none if it is up, or down with nobody at it.
    pub fn of(unit: &UnitSnapshot) -> Option<Self> {
        match &unit.active {
            ActiveState::Activating if unit.sub == "auto-restart-queued" => Some(Self::Waiting),
            ActiveState::Activating if unit.sub == "auto-restart" => Some(Self::Restarting),
            ActiveState::Activating => Some(Self::Starting),
            ActiveState::Deactivating if unit.sub == "stop-watchdog" => Some(Self::Aborting),
            ActiveState::Deactivating => Some(Self::Stopping),
            ActiveState::Maintenance => Some(Self::Cleaning),
            ActiveState::Inactive | ActiveState::Failed => unit.job.then_some(Self::Waiting),
            ActiveState::Active
            | ActiveState::Reloading
            | ActiveState::Refreshing
            | ActiveState::Other(_) => None,
        }
    }
}

/// How a unit hangs: systemd is at it for longer than the unit's own timeouts allow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Hang {
    /// One step takes too long.
    In(Step),
    /// Several attempts to start it have failed, none has brought it up, and together they take too long.
    NeverUp,
}

impl fmt::Display for Hang {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::In(Step::Starting) => "its start takes longer than its start timeout",
            Self::In(Step::Stopping) => "its stop takes longer than its stop timeout",
            Self::In(Step::Aborting) => "its stop after the watchdog takes longer than its abort timeout",
            Self::In(Step::Restarting) => "systemd has not restarted it within its restart delay",
            Self::In(Step::Waiting) => "systemd has a job queued for it that does not begin",
            Self::In(Step::Cleaning) => "systemd's maintenance of it does not end",
            Self::NeverUp => "systemd starts it again and again, and no attempt has brought it up in time",
        })
    }
}

/// Since when a unit has been on its way, kept for as long as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transit {
    /// When it was last seen to get on: another step, another command, another run.
    since: Moment,
    /// Stands for where it was then.
    mark: u64,
    /// Since when it has not been up.
    begun: Moment,
    /// How many runs were seen since, the first included.
    runs: u32,
    run: Option<InvocationId>,
    /// It is down for the moment: systemd passes through that before it restarts a unit itself.
    #[serde(default)]
    down: bool,
    /// People have been told that it hangs.
    pub(super) told: bool,
}

/// Stands for where the unit is. Where systemd itself ends what is late, the text by which a service asks for more time
/// (`EXTEND_TIMEOUT_USEC=`, which systemd does not show) counts as well.
fn mark(unit: &UnitSnapshot) -> u64 {
    let mut hasher = DefaultHasher::new();
    (Step::of(unit), &unit.sub, unit.job, unit.invocation, unit.control).hash(&mut hasher);
    if unit.timeouts.start_ms.is_some() {
        unit.status.hash(&mut hasher);
    }
    hasher.finish()
}

impl Transit {
    /// What is known of a unit after a look at it. A look that failed changes nothing.
    pub fn after(before: Option<Self>, seen: &Observation, now: Moment) -> Option<Self> {
        let Observation::Unit(unit) = seen else { return before };
        let (mark, run) = (mark(unit), unit.invocation);
        if Step::of(unit).is_none() {
            let down = matches!(unit.active, ActiveState::Inactive | ActiveState::Failed);
            return before.filter(|_| down && unit.restarts_itself).map(|known| match known.down {
                true => known,
                false => Self { since: now, mark, down, ..known },
            });
        }
        // One that was down for longer is another story.
        Some(match before.filter(|known| !known.down || now.since(known.since) < SLACK) {
            None => Self { since: now, mark, begun: now, runs: 1, run, down: false, told: false },
            Some(known) if known.mark == mark => known,
            Some(known) => {
                let more = run.is_some() && run != known.run;
                let runs = known.runs.saturating_add(more.into());
                Self { since: now, mark, runs, run: run.or(known.run), down: false, ..known }
            }
        })
    }

    /// Nobody looked until `now`, and perhaps nothing ran: the time counts again from there.
    pub(super) fn count_again(&mut self, now: Moment) {
        (self.since, self.begun) = (now, now);
    }

    /// When it hangs, if nothing happens until then, and how.
    fn deadline(&self, unit: &UnitSnapshot, policy: &Policy) -> Option<(Moment, Hang)> {
        let step = Step::of(unit)?;
        let one = unit.timeouts.step(step, policy).map(|limit| (self.since + limit, Hang::In(step)));
        // One whole attempt may take as long as its timeouts say. A start that may take for ever is no failed attempt.
        let all = (self.runs > 1 && unit.timeouts.start(policy).is_some())
            .then(|| (self.begun + unit.timeouts.relaunch(policy), Hang::NeverUp));
        one.into_iter().chain(all).min_by_key(|(at, _)| *at)
    }
}

/// The health of a unit at `now`, with what was known of its way before this look: what gets nowhere is dead.
pub fn hung(
    health: Health,
    known: Option<Transit>,
    seen: &Observation,
    policy: &Policy,
    now: Moment,
) -> Health {
    let hang = || {
        let Observation::Unit(unit) = seen else { return None };
        let transit = Transit::after(known, seen, now)?;
        transit.deadline(unit, policy).filter(|(at, _)| *at <= now).map(|(_, hang)| hang)
    };
    match health {
        Health::InTransition(_) => hang().map_or(health, |hang| Health::Dead(Death::Hung(hang))),
        Health::Healthy
        | Health::Blind(_)
        | Health::Stuck(_)
        | Health::DeliveryGap(_)
        | Health::Idle(_)
        | Health::Dead(_)
        | Health::Unknown(_) => health,
    }
}

/// When a unit that gets nowhere is to be looked at again, because it hangs from then on.
pub fn hangs_at(known: Option<Transit>, seen: &Observation, policy: &Policy) -> Option<Moment> {
    let Observation::Unit(unit) = seen else { return None };
    known.filter(|transit| !transit.told)?.deadline(unit, policy).map(|(at, _)| at)
}

#[cfg(test)]
#[path = "transit/tests.rs"]
mod tests;
