//! What one decision works on: the state before it, what it depends on, and what it has come to so far.

use std::time::Duration;

use crate::judge::classify::{Death, Health};
use crate::judge::crowd::Crowd;
use crate::judge::observation::Observation;
use crate::judge::state::{Action, Phase, Say, WorkerState};
use crate::judge::transit::{Timeouts, Transit};
use crate::judge::vitals::Proof;
use crate::vocabulary::{BlastRadius, InvocationId, Moment, Policy, Remedy};

/// How long a crashed unit with `Restart=` is left to systemd, which passes through `failed` on its way to
/// `auto-restart` within one turn of its loop (measured on systemd 252; a busy host gets some room).
pub(super) const SYSTEMD_FIRST: Duration = Duration::from_millis(200);
/// The first wait after a failed repair; it doubles with each further one.
pub(super) const BACKOFF_FIRST: Duration = Duration::from_millis(200);
/// The longest such wait.
pub(super) const BACKOFF_MOST: Duration = Duration::from_secs(30);

/// From how many dead workers on they are brought back one after the other, spread over [`CROWD_SPREAD`].
pub(super) const CROWD: usize = 5;
/// Over how long a crowd's repairs are spread.
pub(super) const CROWD_SPREAD: Duration = Duration::from_secs(2);
/// How long a worker that runs and makes no progress is left, to see whether the others do not either.
pub(super) const LOOK_AROUND: Duration = Duration::from_secs(1);
/// How often the brake is looked at again.
pub(super) const BRAKE_AGAIN: Duration = Duration::from_secs(10);

/// The rungs below the relaunch that a worker's ladder has, each with the time in which progress has to be seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Rungs {
    /// For a stuck worker.
    pub nudge: Option<Duration>,
    /// For one that nothing reaches.
    pub repipe: Option<Duration>,
}

impl Rungs {
    /// How long a worker has after this remedy to show progress; none if the ladder has no such rung below the relaunch.
    pub fn shows(&self, remedy: Remedy) -> Option<Duration> {
        match remedy {
            Remedy::Nudge => self.nudge,
            Remedy::Repipe => self.repipe,
            Remedy::Relaunch => None,
        }
    }
}

/// What a decision depends on besides the state.
#[derive(Debug, Clone, Copy)]
pub struct Terms<'a> {
    /// The worker's times and limits.
    pub policy: &'a Policy,
    /// A number that differs from worker to worker, so that many that fell together do not retry together.
    pub salt: u64,
    /// What depends on the worker.
    pub blast_radius: BlastRadius,
    /// Its gentle remedies.
    pub rungs: Rungs,
    /// The node's other workers at this moment.
    pub crowd: Crowd,
    /// What was seen of its signs in this run.
    pub proof: Proof,
    /// What was last seen of its unit.
    pub seen: &'a Observation,
}

impl Terms<'_> {
    /// How long a relaunch is waited for.
    pub(super) fn relaunch(&self) -> Duration {
        match self.seen {
            Observation::Unit(unit) => unit.timeouts.relaunch(self.policy),
            Observation::Failed(_) => Timeouts::default().relaunch(self.policy),
        }
    }
}

/// A part of `full` that differs from worker to worker.
pub(super) fn spread(full: Duration, salt: u64) -> Duration {
    // Knuth's multiplicative hash; quality does not matter, difference does.
    let part = salt.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 54;
    full.mul_f64(f64::from(u16::try_from(part).unwrap_or(0)) / 1024.0)
}

/// How long to wait after `failures` failed tries: doubling, and spread over the upper half by `salt`.
pub fn backoff(failures: u32, salt: u64) -> Duration {
    let full = BACKOFF_FIRST.saturating_mul(1 << failures.saturating_sub(1).min(16)).min(BACKOFF_MOST);
    // A cheap mixing step (Knuth's multiplicative hash); quality does not matter, difference does.
    let spread = salt.wrapping_add(u64::from(failures)).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 54;
    let half = full / 2;
    half + half.mul_f64(f64::from(u16::try_from(spread).unwrap_or(0)) / 1024.0)
}

/// How a worker that runs ails.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Ailment {
    Stuck,
    DeliveryGap,
}

pub(super) struct Decision<'a> {
    pub(super) state: WorkerState,
    pub(super) actions: Vec<Action>,
    pub(super) terms: Terms<'a>,
    pub(super) now: Moment,
    /// The run that was looked at.
    pub(super) run: Option<InvocationId>,
}

impl Decision<'_> {
    pub(super) fn say(&mut self, say: Say) {
        self.actions.push(Action::Say(say));
    }

    pub(super) fn go(&mut self, phase: Phase) {
        self.state.phase = phase;
    }

    /// Drops what no longer counts: an ended hold, relaunches that left the flap guard's window.
    pub(super) fn forget(&mut self) {
        if self.state.hold.is_some() && self.state.held(self.now).is_none() {
            self.state.hold = None;
            self.say(Say::HoldEnded);
        }
        let (per, now) = (self.terms.policy.per, self.now);
        self.state.relaunches.retain(|at| now.since(*at) < per);
        self.state.gentle.retain(|at| now.since(*at) < per);
    }

    /// Notes how far the unit has got, and says once that it gets nowhere.
    pub(super) fn on_its_way(&mut self, health: &Health) {
        self.state.transit = Transit::after(self.state.transit, self.terms.seen, self.now);
        let held = self.state.held(self.now).is_some();
        if let (Health::Dead(Death::Hung(hang)), Some(transit)) = (health, &mut self.state.transit)
            && !held
            && !std::mem::replace(&mut transit.told, true)
        {
            self.say(Say::Hangs(*hang));
        }
    }
}
