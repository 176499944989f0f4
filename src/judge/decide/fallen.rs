//! How a worker came to be down: an operator's stop, another unit, or by design; and what is remembered of it.

use super::decision::{CROWD, CROWD_SPREAD, Decision, spread};
use crate::judge::classify::{Death, Health};
use crate::judge::idle::Idle;
use crate::judge::state::{Episode, Phase, Say, Stopped, Wait};

impl Decision<'_> {
    /// What a look means in the light of what is known already: that the run which has ended was stopped by an operator or a program
    /// holds also when systemd or a new connection to it does not show it any more.
    pub(super) fn recalled(&mut self, health: &Health) -> Option<Health> {
        match health {
            Health::Healthy | Health::Blind(_) | Health::Stuck(_) | Health::DeliveryGap(_) => {
                (self.state.stopped, self.state.skipped, self.state.taken_down) = (None, None, false);
                None
            }
            Health::Dead(Death::Crashed { .. }) => self
                .state
                .stopped
                .filter(|stopped| stopped.run == self.run)
                .map(|_| Health::Dead(Death::Stopped)),
            // A unit that systemd has dropped from its memory shows no run.
            Health::Dead(Death::NeverStarted) => self.state.stopped.map(|_| Health::Dead(Death::Stopped)),
            Health::Dead(Death::Stopped | Death::TakenDown(_) | Death::NotStartable(_) | Death::Hung(_))
            | Health::Idle(_)
            | Health::InTransition(_)
            | Health::Unknown(_) => None,
        }
    }

    /// It is down and is to be down: whatever was planned is not.
    pub(super) fn by_design(&mut self, idle: &Idle) {
        self.state.taken_down = false;
        if let Idle::Skipped(condition) = idle {
            self.state.skipped = Some(condition.clone());
        }
        self.go(Phase::Watching);
    }

    /// Takes note of a death; true if it is a stop by an operator or a program that was not known yet.
    pub(super) fn is_new_stop(&mut self, death: Death) -> bool {
        match death {
            Death::Stopped => {
                // A run that systemd has forgotten is still the one that was known.
                let known =
                    self.state.stopped.is_some_and(|stopped| self.run.is_none() || stopped.run == self.run);
                if !known {
                    self.state.stopped = Some(Stopped { run: self.run, passed_on: self.state.taken_down });
                }
                !known && !self.state.taken_down
            }
            Death::Crashed { .. }
            | Death::TakenDown(_)
            | Death::NeverStarted
            | Death::NotStartable(_)
            | Death::Hung(_) => false,
        }
    }

    /// Whether the stop that has ended its last run was passed on to it from another unit.
    pub(super) fn stop_was_passed_on(&self) -> bool {
        self.state.stopped.is_some_and(|stopped| stopped.passed_on)
    }

    /// Another unit keeps it down. Its start would pull that one up, against its own judge or an operator: it waits.
    pub(super) fn taken_down(&mut self, phase: &Phase, cause_is_fixed: bool) {
        self.state.taken_down = true;
        let wait = self.terms.policy.undeclared_stop;
        let due = self.now + wait;
        match *phase {
            Phase::Waiting { why: Wait::Cause, due: before, failures } => {
                if self.now >= before && cause_is_fixed {
                    self.go(Phase::Waiting { why: Wait::Cause, due, failures });
                } else if self.now >= before {
                    self.repair(Episode { failures, ..Episode::default() });
                }
            }
            Phase::Quarantined { retry, failures } => {
                if self.now >= retry && cause_is_fixed {
                    self.go(Phase::Quarantined { retry: due, failures });
                } else if self.now >= retry {
                    self.repair(Episode { failures, quarantined: true, ails: None });
                }
            }
            Phase::LeftToPeers => {}
            Phase::Waiting { failures, .. } => {
                self.say(Say::TakenDown((!cause_is_fixed).then_some(wait)));
                self.go(Phase::Waiting { due, why: Wait::Cause, failures });
            }
            Phase::Watching | Phase::Stranded => {
                self.say(Say::TakenDown((!cause_is_fixed).then_some(wait)));
                self.go(Phase::Waiting { due, why: Wait::Cause, failures: 0 });
            }
            // `seen` handles these before it asks.
            Phase::Repairing { .. } | Phase::Settling { .. } | Phase::Verifying { .. } => {}
        }
    }

    /// What kept it down does so no longer: it comes with that one, in quarantine, too.
    pub(super) fn follows(&mut self, phase: &Phase) {
        self.say(Say::Follows);
        if let Phase::Quarantined { failures, .. } = *phase {
            return self.repair(Episode { failures, quarantined: true, ails: None });
        }
        if self.terms.crowd.dead < CROWD {
            return self.repair(Episode::default());
        }
        let due = self.now + spread(CROWD_SPREAD, self.terms.salt);
        self.go(Phase::Waiting { due, why: Wait::Crowd, failures: 0 });
    }
}
