//! What follows from a look at the worker.

use std::time::Duration;

use super::decision::{Ailment, CROWD, CROWD_SPREAD, Decision, SYSTEMD_FIRST, spread};
use crate::judge::alerts::ALERT_SETTLE;
use crate::judge::classify::{Cause, Death, Health};
use crate::judge::state::{Ending, Episode, Phase, Say, Wait, lost_at};
use crate::vocabulary::{BlastRadius, InvocationId, Moment, RepairBy};

impl Decision<'_> {
    pub(super) fn seen(&mut self, health: &Health, invocation: Option<InvocationId>) {
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

    pub(super) fn up(&mut self, phase: &Phase, invocation: Option<InvocationId>) {
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

    pub(super) fn down(&mut self, phase: &Phase, death: Death) {
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
    pub(super) fn in_its_window(&self, wait: Duration, why: Wait) -> (Duration, Wait) {
        let window = self.terms.policy.repair_window;
        if self.terms.blast_radius == BlastRadius::Auxiliary && window > wait {
            (window, Wait::Window)
        } else {
            (wait, why)
        }
    }

    /// Whoever holds it has said until when it may be down. However it was taken down, it is brought back then.
    pub(super) fn skip_for_hold(&mut self, until: Moment) {
        self.go(Phase::Waiting { due: until, why: Wait::Hold, failures: 0 });
    }

    /// The worker was just found dead and may be started: who acts, and when?
    pub(super) fn found_dead(&mut self, death: Death) {
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
}
