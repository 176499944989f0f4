//! From what it means to what is done. Pure and total; the supervisor is only the loop around it.

mod ailing;
mod fallen;

use std::time::Duration;

use ailing::Ailment;

use super::alerts::ALERT_SETTLE;
use super::classify::{Cause, Death, Health, StartBlocker};
use super::crowd::Crowd;
use super::observation::Observation;
use super::state::{Action, Ending, Episode, Event, Hold, Phase, Say, Wait, WorkerState};
use super::transit::{Timeouts, Transit};
use super::vitals::Proof;
use crate::vocabulary::{BlastRadius, InvocationId, Moment, Policy, Remedy, RepairBy};

/// How long a crashed unit with `Restart=` is left to systemd, which passes through `failed` on its way to
/// `auto-restart` within one turn of its loop (measured on systemd 252; a busy host gets some room).
const SYSTEMD_FIRST: Duration = Duration::from_millis(200);
/// The first wait after a failed repair; it doubles with each further one.
const BACKOFF_FIRST: Duration = Duration::from_millis(200);
/// The longest such wait.
const BACKOFF_MOST: Duration = Duration::from_secs(30);
/// How much longer than its own timeout a relaunch may stay silent before it counts as failed.
pub const LOST_AFTER: Duration = Duration::from_secs(10);

/// From how many dead workers on they are brought back one after the other, spread over [`CROWD_SPREAD`].
const CROWD: usize = 5;
/// Over how long a crowd's repairs are spread.
const CROWD_SPREAD: Duration = Duration::from_secs(2);
/// How long a worker that runs and makes no progress is left, to see whether the others do not either.
const LOOK_AROUND: Duration = Duration::from_secs(1);
/// How often the brake is looked at again.
const BRAKE_AGAIN: Duration = Duration::from_secs(10);

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
    fn relaunch(&self) -> Duration {
        match self.seen {
            Observation::Unit(unit) => unit.timeouts.relaunch(self.policy),
            Observation::Failed(_) => Timeouts::default().relaunch(self.policy),
        }
    }
}

/// When a remedy that began at `since` counts as lost. What a supervisor of another version has begun has no such time.
pub(super) fn lost_at(since: Moment, until: Option<Moment>, policy: &Policy) -> Moment {
    until.unwrap_or_else(|| since + Timeouts::default().relaunch(policy) + LOST_AFTER)
}

/// A part of `full` that differs from worker to worker.
fn spread(full: Duration, salt: u64) -> Duration {
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

/// Answers an event with the new state and what is to be done, in this order.
pub fn decide(
    state: &WorkerState,
    event: &Event,
    terms: Terms<'_>,
    now: Moment,
) -> (WorkerState, Vec<Action>) {
    let mut turn = Turn { state: state.clone(), actions: Vec::new(), terms, now, run: None };
    turn.forget();
    match event {
        Event::Seen { health, invocation } => {
            turn.on_its_way(health);
            turn.seen(health, *invocation);
        }
        Event::Done(ending) => turn.done(*ending),
        Event::Ordered(remedy) => turn.ordered(*remedy),
        Event::Hold(hold) => turn.hold(hold),
        Event::Release => turn.release(),
    }
    (turn.state, turn.actions)
}

struct Turn<'a> {
    state: WorkerState,
    actions: Vec<Action>,
    terms: Terms<'a>,
    now: Moment,
    /// The run that was looked at.
    run: Option<InvocationId>,
}

impl Turn<'_> {
    fn say(&mut self, say: Say) {
        self.actions.push(Action::Say(say));
    }

    fn go(&mut self, phase: Phase) {
        self.state.phase = phase;
    }

    /// Drops what no longer counts: an ended hold, relaunches that left the flap guard's window.
    fn forget(&mut self) {
        if self.state.hold.is_some() && self.state.held(self.now).is_none() {
            self.state.hold = None;
            self.say(Say::HoldEnded);
        }
        let (per, now) = (self.terms.policy.per, self.now);
        self.state.relaunches.retain(|at| now.since(*at) < per);
        self.state.gentle.retain(|at| now.since(*at) < per);
    }

    /// Notes how far the unit has got, and says once that it gets nowhere.
    fn on_its_way(&mut self, health: &Health) {
        self.state.transit = Transit::after(self.state.transit, self.terms.seen, self.now);
        let held = self.state.held(self.now).is_some();
        if let (Health::Dead(Death::Hung(hang)), Some(transit)) = (health, &mut self.state.transit)
            && !held
            && !std::mem::replace(&mut transit.told, true)
        {
            self.say(Say::Hangs(*hang));
        }
    }

    fn seen(&mut self, health: &Health, invocation: Option<InvocationId>) {
        self.run = invocation;
        let recalled = self.recalled(health);
        let health = recalled.as_ref().unwrap_or(health);
        match self.state.phase.clone() {
            // One act at a time: whatever is seen meanwhile may be its own doing.
            Phase::Repairing { since, until, .. } => {
                if self.now >= lost_at(since, until, self.terms.policy) {
                    self.done(Ending::Failed);
                }
            }
            Phase::Settling { until, invocation: run, episode, sign_by } => {
                self.settling(health, invocation, (until, sign_by), run, episode);
            }
            Phase::Verifying { until, remedy, episode } => self.verifying(health, until, remedy, episode),
            phase @ (Phase::Watching
            | Phase::Waiting { .. }
            | Phase::LeftToPeers
            | Phase::Quarantined { .. }
            | Phase::Stranded) => match health {
                Health::Healthy => self.up(&phase, invocation),
                // It is up, which is all that was waited for, unless the wait was about its progress.
                Health::Blind(_) => match phase {
                    Phase::Waiting { why: Wait::LookAround | Wait::Brake, .. } => {}
                    Phase::Watching
                    | Phase::Waiting { .. }
                    | Phase::LeftToPeers
                    | Phase::Repairing { .. }
                    | Phase::Settling { .. }
                    | Phase::Verifying { .. }
                    | Phase::Quarantined { .. }
                    | Phase::Stranded => self.up(&phase, invocation),
                },
                Health::Stuck(_) => self.ailing(&phase, Ailment::Stuck),
                Health::DeliveryGap(_) => self.ailing(&phase, Ailment::DeliveryGap),
                Health::Dead(death) => self.down(&phase, *death),
                Health::Idle(idle) => self.by_design(idle),
                // Systemd is at it, or nothing is known: neither is a reason to act or to forget.
                Health::InTransition(_) | Health::Unknown(_) => {}
            },
        }
    }

    fn up(&mut self, phase: &Phase, invocation: Option<InvocationId>) {
        match (phase, invocation) {
            (Phase::Quarantined { failures, .. }, Some(invocation)) => {
                let episode = Episode { failures: *failures, quarantined: true, ails: None };
                self.settle(invocation, episode);
            }
            (Phase::Watching, _) => {}
            (Phase::Waiting { .. } | Phase::LeftToPeers | Phase::Stranded, _)
            | (Phase::Quarantined { .. }, None) => {
                self.say(Say::CameBack);
                self.go(Phase::Watching);
            }
            // `seen` handles these two before it asks.
            (Phase::Repairing { .. } | Phase::Settling { .. } | Phase::Verifying { .. }, _) => {}
        }
    }

    fn down(&mut self, phase: &Phase, death: Death) {
        let new_stop = self.is_new_stop(death);
        if let Some(until) = self.state.held(self.now).map(|hold| hold.until) {
            // The hold is respected also by what was planned before it; quarantine outlives it.
            if !matches!(phase, Phase::Quarantined { .. }) {
                self.skip_for_hold(until);
            }
            return;
        }
        if let Death::NotStartable(obstacle) = death {
            return self.give_up(obstacle);
        }
        if self.terms.policy.repair_by == RepairBy::Nobody {
            return self.go(Phase::Watching);
        }
        match death {
            Death::TakenDown(Cause::Mended) => return self.taken_down(phase, true),
            Death::TakenDown(Cause::Stopped) => return self.taken_down(phase, false),
            // Its own start is what brings that one up.
            Death::TakenDown(Cause::Failed) => self.state.taken_down = true,
            Death::Crashed { .. } | Death::Stopped | Death::NeverStarted | Death::NotStartable(_) => {
                if std::mem::take(&mut self.state.taken_down) {
                    return self.follows(phase);
                }
            }
            Death::Hung(_) => {}
        }
        match *phase {
            Phase::Watching | Phase::Stranded => self.found_dead(death),
            // Whatever was planned: somebody has stopped it since.
            Phase::Waiting { .. } | Phase::LeftToPeers if new_stop => self.found_dead(death),
            Phase::Quarantined { retry, failures } if new_stop => {
                let wait = self.terms.policy.undeclared_stop.max(retry.since(self.now));
                self.say(Say::UndeclaredStop(wait));
                self.go(Phase::Quarantined { retry: self.now + wait, failures });
            }
            Phase::Waiting { why: Wait::UndeclaredStop, .. } if death != Death::Stopped => {
                self.found_dead(death)
            }
            // It was waited for while it ran; it does not any more, and that is another story.
            Phase::Waiting { why: Wait::LookAround | Wait::Brake, .. } => self.found_dead(death),
            Phase::Waiting { due, failures, .. } if self.now >= due => {
                self.repair(Episode { failures, ..Episode::default() });
            }
            Phase::Quarantined { retry, failures } if self.now >= retry => {
                self.repair(Episode { failures, quarantined: true, ails: None });
            }
            Phase::Waiting { .. } | Phase::Quarantined { .. } | Phase::LeftToPeers => {}
            // `seen` handles these before it asks.
            Phase::Repairing { .. } | Phase::Settling { .. } | Phase::Verifying { .. } => {}
        }
    }

    /// What nothing depends on may wait for its window; everything else does not.
    fn in_its_window(&self, wait: Duration, why: Wait) -> (Duration, Wait) {
        let window = self.terms.policy.repair_window;
        if self.terms.blast_radius == BlastRadius::Auxiliary && window > wait {
            (window, Wait::Window)
        } else {
            (wait, why)
        }
    }

    /// Whoever holds it has said until when it may be down. However it was taken down, it is brought back then.
    fn skip_for_hold(&mut self, until: Moment) {
        self.go(Phase::Waiting { due: until, why: Wait::Hold, failures: 0 });
    }

    /// The worker was just found dead and may be started: who acts, and when?
    fn found_dead(&mut self, death: Death) {
        let policy = self.terms.policy;
        let (wait, why) = match (policy.repair_by, death) {
            (RepairBy::Nobody, _) | (_, Death::NotStartable(_)) => return self.go(Phase::Watching),
            (_, Death::TakenDown(Cause::Mended)) => return self.taken_down(&Phase::Watching, true),
            (_, Death::TakenDown(Cause::Stopped)) => return self.taken_down(&Phase::Watching, false),
            (_, Death::Stopped) if !self.stop_was_passed_on() => {
                self.say(Say::UndeclaredStop(policy.undeclared_stop));
                (policy.undeclared_stop, Wait::UndeclaredStop)
            }
            (RepairBy::Peer, _) => (policy.grace, Wait::Grace),
            (RepairBy::Node, Death::Crashed { systemd_may_restart: true }) => {
                self.in_its_window(SYSTEMD_FIRST, Wait::SystemdFirst)
            }
            (RepairBy::Node, Death::NeverStarted) => self.in_its_window(ALERT_SETTLE, Wait::NotYet),
            (
                RepairBy::Node,
                Death::Crashed { .. } | Death::Stopped | Death::TakenDown(Cause::Failed) | Death::Hung(_),
            ) => {
                let (wait, why) = self.in_its_window(Duration::ZERO, Wait::Crowd);
                if wait.is_zero() && self.terms.crowd.dead < CROWD {
                    if !self.spent() {
                        self.say(Say::RepairingAtOnce);
                    }
                    return self.repair(Episode::default());
                }
                (wait.max(spread(CROWD_SPREAD, self.terms.salt)), why)
            }
        };
        self.go(Phase::Waiting { due: self.now + wait, why, failures: 0 });
    }

    /// The time for a repair has come: it is done, or left to the peers, or put off because it was done too often.
    fn repair(&mut self, episode: Episode) {
        // Attempts that take long never fill the guard's window: those of one episode count however long they take.
        // A nudge or repipe that did not help is one of them, and no relaunch.
        let failures = usize::try_from(episode.failures).unwrap_or(usize::MAX);
        let failed = failures.saturating_sub(self.state.gentle.len()) >= self.limit();
        if (self.spent() || failed) && !episode.quarantined {
            let wait = self.terms.policy.quarantine_retry;
            self.say(Say::Quarantined(wait));
            self.go(Phase::Quarantined { retry: self.now + wait, failures: episode.failures });
        } else if self.terms.policy.repair_by == RepairBy::Peer {
            self.say(Say::LeftToPeers);
            self.go(Phase::LeftToPeers);
        } else {
            self.start(Remedy::Relaunch, episode);
        }
    }

    fn start(&mut self, remedy: Remedy, episode: Episode) {
        let limit = self.limit().max(1);
        let acts = match remedy {
            Remedy::Relaunch => &mut self.state.relaunches,
            Remedy::Nudge | Remedy::Repipe => &mut self.state.gentle,
        };
        acts.push(self.now);
        // Retries in quarantine must not let the list grow beyond what the guard needs to know.
        let surplus = acts.len().saturating_sub(limit);
        acts.drain(..surplus);
        self.actions.push(Action::Act(remedy));
        let episode = Episode { ails: self.terms.proof.ails, ..episode };
        let until = Some(self.now + self.terms.relaunch() + LOST_AFTER);
        self.go(Phase::Repairing { since: self.now, remedy, episode, until });
    }

    /// Whether the flap guard allows no more.
    fn spent(&self) -> bool {
        self.state.relaunches.len() >= self.limit()
    }

    fn limit(&self) -> usize {
        usize::try_from(self.terms.policy.relaunches).unwrap_or(usize::MAX)
    }

    fn done(&mut self, ending: Ending) {
        let Phase::Repairing { remedy, episode, .. } = self.state.phase else {
            return; // The answer of a remedy that was given up as lost.
        };
        match ending {
            Ending::Started(invocation) => self.settle(invocation, episode),
            Ending::Sent => match self.terms.rungs.shows(remedy) {
                Some(time) => self.go(Phase::Verifying { until: self.now + time, remedy, episode }),
                // Nothing watches its progress, or the fleet file has changed meanwhile.
                None => {
                    self.say(Say::Unverified(remedy));
                    self.go(Phase::Watching);
                }
            },
            Ending::Failed if remedy != Remedy::Relaunch => self.no_help(remedy, episode),
            Ending::Failed => self.failed(episode),
            Ending::Refused(obstacle) => self.give_up(obstacle),
            Ending::Untouched => self.go(Phase::Watching),
        }
    }

    fn settle(&mut self, invocation: InvocationId, episode: Episode) {
        let until = self.now + self.terms.policy.settle;
        let awaits = episode.ails.is_some() || episode.quarantined;
        let sign_by = awaits.then(|| until + self.terms.proof.within);
        self.go(Phase::Settling { until, invocation, episode, sign_by });
    }

    fn failed(&mut self, episode: Episode) {
        let failures = episode.failures.saturating_add(1);
        if self.terms.policy.repair_by == RepairBy::Nobody {
            // Somebody ordered it, and it is theirs to order again.
            self.say(Say::LeftToPeople);
            self.go(Phase::Watching);
        } else if episode.quarantined {
            let wait = self.terms.policy.quarantine_retry;
            self.say(Say::StillQuarantined(wait));
            self.go(Phase::Quarantined { retry: self.now + wait, failures });
        } else {
            let wait = backoff(failures, self.terms.salt);
            let ails = episode.ails.is_some() && self.terms.proof.ails.is_some();
            self.say(if ails { Say::NoHelp(Remedy::Relaunch, wait) } else { Say::TryAgain(wait) });
            self.go(Phase::Waiting { due: self.now + wait, why: Wait::Backoff, failures });
        }
    }

    fn settling(
        &mut self,
        health: &Health,
        seen: Option<InvocationId>,
        (until, sign_by): (Moment, Option<Moment>),
        run: InvocationId,
        episode: Episode,
    ) {
        match health {
            // That it stays up is what the relaunch of a dead worker has to show; any other one, that the missing sign is there.
            Health::Healthy | Health::Blind(_) | Health::Stuck(_) | Health::DeliveryGap(_) => match seen {
                Some(other) if other != run => self.settle(other, episode), // Restarted meanwhile: the time starts again.
                _ if self.now >= until => self.stayed_up(health, run, episode, sign_by.unwrap_or(until)),
                _ => {}
            },
            // A look at the run before may arrive late; it does not count against the one that has to stay up.
            Health::Dead(_) if seen.is_some_and(|seen| seen != run) && self.now < until => {}
            Health::Dead(death) if self.state.held(self.now).is_some() && !episode.quarantined => {
                self.go(Phase::Watching);
                self.down(&Phase::Watching, *death);
            }
            Health::Dead(Death::NotStartable(obstacle)) => self.give_up(*obstacle),
            Health::Dead(Death::Stopped) => {
                self.is_new_stop(Death::Stopped);
                self.found_dead(Death::Stopped);
            }
            Health::Dead(death @ Death::TakenDown(Cause::Mended | Cause::Stopped)) => self.found_dead(*death),
            Health::Dead(_) => self.failed(episode),
            Health::Idle(idle) => self.by_design(idle),
            Health::InTransition(_) | Health::Unknown(_) if self.now >= until => self.settle(run, episode),
            Health::InTransition(_) | Health::Unknown(_) => {}
        }
    }

    /// The run has stayed up for its settle time: is that all that was wanted?
    fn stayed_up(&mut self, health: &Health, run: InvocationId, episode: Episode, sign_by: Moment) {
        let proof = self.terms.proof;
        let shown = match episode.ails {
            Some(class) => proof.shows(class),
            None => !episode.quarantined || (proof.beat && proof.flow),
        };
        match (health, episode.ails) {
            (Health::Stuck(_) | Health::DeliveryGap(_), Some(_)) => self.failed(episode),
            (Health::Stuck(_) | Health::DeliveryGap(_), None) if episode.quarantined => self.failed(episode),
            // It came back, and what ails it now is another story.
            (Health::Stuck(_), None) => self.ailing(&Phase::Watching, Ailment::Stuck),
            (Health::DeliveryGap(_), None) => self.ailing(&Phase::Watching, Ailment::DeliveryGap),
            (Health::Healthy, Some(class)) if shown => {
                self.say(Say::SignBack(class));
                self.go(Phase::Watching);
            }
            (Health::Healthy, None) if shown => {
                self.say(Say::Recovered);
                self.go(Phase::Watching);
            }
            (Health::Blind(_), None) if !episode.quarantined => {
                self.say(Say::Recovered);
                self.go(Phase::Watching);
            }
            _ if self.now < sign_by => {
                let until = sign_by.min(self.now + self.terms.policy.settle);
                self.go(Phase::Settling { until, invocation: run, episode, sign_by: Some(sign_by) });
            }
            // Whether it helped cannot be seen. A quarantine ends only by what is seen.
            _ if episode.quarantined => {
                let retry = self.now + self.terms.policy.quarantine_retry;
                self.go(Phase::Quarantined { retry, failures: episode.failures });
            }
            _ => {
                self.say(Say::Unverified(Remedy::Relaunch));
                self.go(Phase::Watching);
            }
        }
    }

    fn give_up(&mut self, obstacle: StartBlocker) {
        if self.state.phase != Phase::Stranded {
            self.say(Say::Stranded(obstacle));
            self.go(Phase::Stranded);
        }
    }

    fn ordered(&mut self, remedy: Remedy) {
        let episode = match self.state.phase {
            Phase::Repairing { .. } => return, // It is in flight already; `admit` lets the order join it.
            Phase::Quarantined { failures, .. } => Episode { failures, quarantined: true, ails: None },
            Phase::Settling { episode, .. } | Phase::Verifying { episode, .. } => episode,
            Phase::Watching | Phase::Waiting { .. } | Phase::LeftToPeers | Phase::Stranded => {
                Episode::default()
            }
        };
        self.start(remedy, episode);
    }

    fn hold(&mut self, hold: &Hold) {
        self.state.hold = Some(hold.clone());
        if matches!(self.state.phase, Phase::Waiting { .. } | Phase::LeftToPeers) {
            self.go(Phase::Watching);
        }
    }

    fn release(&mut self) {
        self.state.hold = None;
        match self.state.phase {
            Phase::Quarantined { .. } => {
                self.state.relaunches.clear();
                self.go(Phase::Watching);
            }
            Phase::Waiting { why: Wait::Hold, failures, .. } => {
                self.go(Phase::Waiting { due: self.now, why: Wait::Hold, failures });
            }
            Phase::Watching
            | Phase::Waiting { .. }
            | Phase::LeftToPeers
            | Phase::Repairing { .. }
            | Phase::Settling { .. }
            | Phase::Verifying { .. }
            | Phase::Stranded => {}
        }
    }
}

#[cfg(test)]
#[path = "decide/tests.rs"]
mod tests;
