//! What is in hand for one worker, and the words for what happens to it.

use std::time::Duration;

/// How much longer than its own timeout a relaunch may stay silent before it counts as failed.
pub const LOST_AFTER: Duration = Duration::from_secs(10);

/// When a remedy that began at `since` counts as lost. What a supervisor of another version has begun has no such time.
pub(super) fn lost_at(since: Moment, until: Option<Moment>, policy: &Policy) -> Moment {
    until.unwrap_or_else(|| since + Timeouts::default().relaunch(policy) + LOST_AFTER)
}

use serde::{Deserialize, Serialize};

use super::classify::{Health, StartBlocker};
use super::transit::{Hang, Timeouts, Transit};
use crate::vocabulary::{FailureClass, InvocationId, Moment, Policy, Remedy};

/// Everything that the judge remembers of one worker. It is saved at each change, so that a restart of the supervisor
/// forgets neither holds nor the flap guard.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct WorkerState {
    /// What is being done.
    pub phase: Phase,
    /// The lease that says "leave it alone until".
    pub hold: Option<Hold>,
    /// The relaunches of the flap guard's window, oldest first, whoever ordered them.
    pub relaunches: Vec<Moment>,
    /// The nudges and repipes of the same window. One that is needed again and again is no remedy.
    #[serde(default)]
    pub gentle: Vec<Moment>,
    /// Its unit is on its way up or down, and since when.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transit: Option<Transit>,
    /// The stop that somebody ordered, for as long as it is down. systemd and the bus may show it only once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped: Option<Stopped>,
    /// The condition that was not met at its last start. systemd forgets that with a unit that does not run and that nobody
    /// needs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skipped: Option<String>,
    /// Whether another unit has taken it down, or keeps it down.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub taken_down: bool,
}

/// A stop that somebody ordered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stopped {
    /// The run that it ended; none if there was none, or if systemd had forgotten it by then.
    #[serde(default)]
    pub run: Option<InvocationId>,
    /// Whether it was the stop of another unit that was passed on to this one: nobody stopped this one itself.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub passed_on: bool,
}

/// What is being done about a worker. Counters live inside the phases that need them.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Nothing.
    #[default]
    Watching,
    /// Seen dead; it is repaired at `due` unless it comes back before.
    Waiting {
        /// When.
        due: Moment,
        /// Why not now.
        why: Wait,
        /// Repairs of this episode that failed so far.
        failures: u32,
    },
    /// Dead, and left to the watchers by the fleet file.
    LeftToPeers,
    /// A remedy is in flight; it is the only one.
    Repairing {
        /// Since when.
        since: Moment,
        /// Which.
        #[serde(default)]
        remedy: Remedy,
        /// The episode so far.
        episode: Episode,
        /// When it counts as lost if it has not ended by then.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        until: Option<Moment>,
    },
    /// The relaunch is done; the worker has to stay up until `until`.
    Settling {
        /// Until when.
        until: Moment,
        /// The run that has to stay up.
        invocation: InvocationId,
        /// By when it has to give the sign that was missing; nothing if only to stay up was wanted.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        sign_by: Option<Moment>,
        /// The episode so far.
        episode: Episode,
    },
    /// A nudge or repipe is done; progress has to be seen until `until`.
    Verifying {
        /// Until when.
        until: Moment,
        /// Which it was.
        remedy: Remedy,
        /// The episode so far.
        episode: Episode,
    },
    /// It fell too often: it is retried slowly and loudly until it stays up or somebody releases it.
    Quarantined {
        /// The next try.
        retry: Moment,
        /// Tries that failed in quarantine so far.
        failures: u32,
    },
    /// Down, and systemd would refuse to start it: nothing is tried until that changes.
    Stranded,
}

/// Why a repair waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Wait {
    /// systemd may be about to restart it itself.
    SystemdFirst,
    /// Somebody stopped it and did not say why; they get time.
    UndeclaredStop,
    /// The fleet file leaves it to the watchers, after the grace.
    Grace,
    /// The last try failed.
    Backoff,
    /// It is on hold; it is brought back when the hold ends, or is released.
    Hold,
    /// Many fell at once; they are brought back one after the other.
    Crowd,
    /// Another unit has taken it down: it is brought back with that one.
    Cause,
    /// Nothing depends on it: its repair window.
    Window,
    /// It has not been started yet, and whoever installs it or boots the host may be about to.
    NotYet,
    /// It runs and makes no progress; a moment is left to see whether others do not either.
    LookAround,
    /// Most of the node's workers make no progress at once: the cause is common, and restarting them would not fix it.
    Brake,
}

/// An episode of trouble, from the first relaunch until the worker stays up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Episode {
    /// Tries that failed.
    pub failures: u32,
    /// Whether the worker is in quarantine.
    pub quarantined: bool,
    /// What it ailed from when it was relaunched although it ran: the sign that was missing has to come back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ails: Option<FailureClass>,
}

/// A lease: "leave it alone until". It ends by itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hold {
    /// Its end.
    pub until: Moment,
    /// Why, in the holder's words.
    pub why: String,
    /// Who holds.
    pub by: String,
    /// Whether that is a peer. What root on the node has declared, only root there ends; a hold that does not say is root's.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub by_peer: bool,
}

/// What happened; [`super::decide()`] answers it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The worker was looked at, or time has passed since it was.
    Seen {
        /// What the look means.
        health: Health,
        /// The run that was looked at.
        invocation: Option<InvocationId>,
    },
    /// The remedy in flight ended.
    Done(Ending),
    /// A remedy was ordered, and [`super::admit`] let it pass.
    Ordered(Remedy),
    /// Somebody declares that the worker may be down for a while.
    Hold(Hold),
    /// Somebody ends a hold or a quarantine.
    Release,
}

/// How a relaunch ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// The unit runs under this new invocation.
    Started(InvocationId),
    /// It does not run.
    Failed,
    /// systemd refused to start it.
    Refused(StartBlocker),
    /// systemd refused to stop it first, and it runs on.
    Untouched,
    /// The nudge or repipe was carried out; what it does has to be seen.
    Sent,
}

/// What is to be done; the supervisor carries it out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Do this to the worker now. A [`Event::Done`] must follow.
    Act(Remedy),
    /// Tell people.
    Say(Say),
}

/// What people are told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Say {
    /// Somebody stopped it; it comes back in this time unless somebody declares a hold or starts it.
    UndeclaredStop(Duration),
    /// Another unit has taken it down, and it comes back with that one; in this time without it, if there is one.
    TakenDown(Option<Duration>),
    /// What took it down does so no longer, and it is brought back.
    Follows,
    /// It is dead for this reason, and repaired at once.
    RepairingAtOnce,
    /// The fleet file leaves it to its watchers, and they are asked now.
    LeftToPeers,
    /// An ordered relaunch brought it back for a moment or not at all, and the fleet file says that nobody acts unasked.
    LeftToPeople,
    /// The relaunch failed or the worker did not stay up; the next try is in this time.
    TryAgain(Duration),
    /// It fell too often; the next try is in this time.
    Quarantined(Duration),
    /// Still down in quarantine; the next try is in this time.
    StillQuarantined(Duration),
    /// It stayed up.
    Recovered,
    /// It stayed up after a relaunch, and the sign is back whose absence was this.
    SignBack(FailureClass),
    /// It makes progress again after this.
    Resumed(Remedy),
    /// It makes no progress, and this is tried first.
    Ailing(Remedy),
    /// This did not help; the next rung of the ladder is tried in this time.
    NoHelp(Remedy, Duration),
    /// Whether this helped cannot be seen.
    Unverified(Remedy),
    /// Most workers of the node fell into the same class at once: nothing is done until that changes.
    Braked,
    /// Somebody else brought it back before the repair was due.
    CameBack,
    /// Down, and systemd would refuse to start it.
    Stranded(StartBlocker),
    /// systemd is at it for longer than its own timeouts allow.
    Hangs(Hang),
    /// The hold is over.
    HoldEnded,
}

impl WorkerState {
    /// The supervisor was away until `now`: how long the unit has been on its way counts again from there.
    pub fn count_again(&mut self, now: Moment) {
        if let Some(transit) = &mut self.transit {
            transit.count_again(now);
        }
    }

    /// The hold that is in force at `now`.
    pub fn held(&self, now: Moment) -> Option<&Hold> {
        self.hold.as_ref().filter(|hold| hold.until > now)
    }

    /// Whether the worker is in quarantine.
    pub fn quarantined(&self) -> bool {
        match &self.phase {
            Phase::Quarantined { .. } => true,
            Phase::Repairing { episode, .. } | Phase::Settling { episode, .. } => episode.quarantined,
            Phase::Watching
            | Phase::Waiting { .. }
            | Phase::LeftToPeers
            | Phase::Verifying { .. }
            | Phase::Stranded => false,
        }
    }

    /// How many relaunches the flap guard counts at `now`.
    pub fn recent(&self, policy: &Policy, now: Moment) -> usize {
        self.relaunches.iter().filter(|at| now.since(**at) < policy.per).count()
    }

    /// When [`super::decide()`] has to be asked again even if nothing happens.
    pub fn wake(&self, policy: &Policy) -> Option<Moment> {
        let phase = match &self.phase {
            Phase::Waiting { due, .. } => Some(*due),
            Phase::Settling { until, .. } | Phase::Verifying { until, .. } => Some(*until),
            Phase::Quarantined { retry, .. } => Some(*retry),
            Phase::Repairing { since, until, .. } => Some(lost_at(*since, *until, policy)),
            Phase::Watching | Phase::LeftToPeers | Phase::Stranded => None,
        };
        let hold = self.hold.as_ref().map(|hold| hold.until);
        [phase, hold].into_iter().flatten().min()
    }

    /// The state as a new supervisor of the same boot takes it over: whatever was in flight is looked at afresh.
    #[must_use]
    pub fn taken_over(mut self) -> Self {
        self.phase = match self.phase {
            Phase::Repairing { since, episode: Episode { failures, quarantined: true, .. }, .. } => {
                Phase::Quarantined { retry: since, failures }
            }
            Phase::Repairing { .. } | Phase::Verifying { .. } => Phase::Watching,
            kept @ (Phase::Watching
            | Phase::Waiting { .. }
            | Phase::LeftToPeers
            | Phase::Settling { .. }
            | Phase::Quarantined { .. }
            | Phase::Stranded) => kept,
        };
        self
    }

    /// The state after a reboot. Moments of the earlier boot mean nothing, so only the hold stays, for what was left
    /// of it when it was saved less the time `away` that the wall clock says has passed since.
    #[must_use]
    pub fn after_reboot(self, saved_at: Moment, away: Duration, now: Moment) -> Self {
        let hold = self.hold.and_then(|hold| {
            let left = hold.until.since(saved_at).saturating_sub(away);
            (!left.is_zero()).then(|| Hold { until: now + left, ..hold })
        });
        Self { hold, ..Self::default() }
    }
}
