//! Workers that run and are of no use: the ladder from the gentle remedy to the relaunch.

use super::decision::{Ailment, BRAKE_AGAIN, Decision, LOOK_AROUND, backoff};
use crate::judge::classify::Health;
use crate::judge::state::{Episode, Phase, Say, Wait};
use crate::vocabulary::{FailureClass, Moment, Remedy, RepairBy};

impl Decision<'_> {
    /// It runs and makes no progress.
    pub(super) fn ailing(&mut self, phase: &Phase, ailment: Ailment) {
        if self.state.held(self.now).is_some() || self.terms.policy.repair_by == RepairBy::Nobody {
            if !matches!(phase, Phase::Quarantined { .. }) {
                self.go(Phase::Watching);
            }
            return;
        }
        match *phase {
            Phase::Watching | Phase::Stranded => {
                let (wait, why) = match self.terms.policy.repair_by {
                    RepairBy::Node | RepairBy::Nobody => self.in_its_window(LOOK_AROUND, Wait::LookAround),
                    RepairBy::Peer => (self.terms.policy.grace, Wait::Grace),
                };
                self.go(Phase::Waiting { due: self.now + wait, why, failures: 0 });
            }
            Phase::Waiting { due, why, failures } if self.now >= due => {
                if self.terms.crowd.brake {
                    if why != Wait::Brake {
                        self.say(Say::Braked);
                    }
                    self.go(Phase::Waiting { due: self.now + BRAKE_AGAIN, why: Wait::Brake, failures });
                } else {
                    self.treat(ailment, Episode { failures, ..Episode::default() });
                }
            }
            Phase::Quarantined { retry, failures } if self.now >= retry => {
                self.treat(ailment, Episode { failures, quarantined: true, ails: None });
            }
            Phase::Waiting { .. } | Phase::Quarantined { .. } | Phase::LeftToPeers => {}
            // `seen` handles these before it asks.
            Phase::Repairing { .. } | Phase::Settling { .. } | Phase::Verifying { .. } => {}
        }
    }

    /// The next rung of the ladder: the gentle remedy once, then the relaunch.
    fn treat(&mut self, ailment: Ailment, episode: Episode) {
        let gentle = match ailment {
            Ailment::Stuck => self.terms.rungs.nudge.map(|_| Remedy::Nudge),
            Ailment::DeliveryGap => self.terms.rungs.repipe.map(|_| Remedy::Repipe),
        };
        let fresh = episode.failures == 0 && !episode.quarantined && self.state.gentle.len() < self.limit();
        match gentle.filter(|_| fresh && self.terms.policy.repair_by == RepairBy::Node) {
            Some(remedy) => {
                self.say(Say::Ailing(remedy));
                self.start(remedy, episode);
            }
            None => self.repair(episode),
        }
    }

    /// A nudge or repipe was done: does it move again?
    pub(super) fn verifying(&mut self, health: &Health, until: Moment, remedy: Remedy, episode: Episode) {
        let class = match remedy {
            Remedy::Nudge => FailureClass::Stuck,
            Remedy::Repipe => FailureClass::DeliveryGap,
            Remedy::Relaunch => FailureClass::Dead,
        };
        match health {
            // A new run, which the remedy may have brought about, has to give its first sign.
            Health::Healthy if !self.terms.proof.shows(class) => {
                if self.now >= until {
                    self.say(Say::Unverified(remedy));
                    self.go(Phase::Watching);
                }
            }
            Health::Healthy => {
                self.say(Say::Resumed(remedy));
                self.go(Phase::Watching);
            }
            Health::Idle(idle) => self.by_design(idle),
            Health::Dead(death) => {
                self.go(Phase::Watching);
                self.down(&Phase::Watching, *death);
            }
            Health::Stuck(_) | Health::DeliveryGap(_) if self.now >= until => self.no_help(remedy, episode),
            Health::Blind(_) | Health::InTransition(_) | Health::Unknown(_) if self.now >= until => {
                self.say(Say::Unverified(remedy));
                self.go(Phase::Watching);
            }
            Health::Stuck(_)
            | Health::DeliveryGap(_)
            | Health::Blind(_)
            | Health::InTransition(_)
            | Health::Unknown(_) => {}
        }
    }

    /// A gentle remedy failed or changed nothing: the ladder goes on, or ends where nobody is to act unasked.
    pub(super) fn no_help(&mut self, remedy: Remedy, episode: Episode) {
        let failures = episode.failures.saturating_add(1);
        let wait = backoff(failures, self.terms.salt);
        self.say(Say::NoHelp(remedy, wait));
        match self.terms.policy.repair_by {
            RepairBy::Node => self.go(Phase::Waiting { due: self.now + wait, why: Wait::Backoff, failures }),
            // Somebody ordered it, and the next step is theirs.
            RepairBy::Peer | RepairBy::Nobody => self.go(Phase::Watching),
        }
    }
}
