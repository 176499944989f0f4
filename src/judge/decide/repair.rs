//! A remedy: when it begins, what comes of it, and what is done when it does not help.

use super::decision::{Ailment, Decision, backoff};
use crate::judge::classify::{Cause, Death, Health, StartBlocker};
use crate::judge::state::{Action, Ending, Episode, LOST_AFTER, Phase, Say, Wait};
use crate::vocabulary::{InvocationId, Moment, Remedy, RepairBy};

impl Decision<'_> {
    /// The time for a repair has come: it is done, or left to the peers, or put off because it was done too often.
    pub(super) fn repair(&mut self, episode: Episode) {
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

    pub(super) fn start(&mut self, remedy: Remedy, episode: Episode) {
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
    pub(super) fn spent(&self) -> bool {
        self.state.relaunches.len() >= self.limit()
    }

    pub(super) fn limit(&self) -> usize {
        usize::try_from(self.terms.policy.relaunches).unwrap_or(usize::MAX)
    }

    pub(super) fn done(&mut self, ending: Ending) {
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

    pub(super) fn settle(&mut self, invocation: InvocationId, episode: Episode) {
        let until = self.now + self.terms.policy.settle;
        let awaits = episode.ails.is_some() || episode.quarantined;
        let sign_by = awaits.then(|| until + self.terms.proof.within);
        self.go(Phase::Settling { until, invocation, episode, sign_by });
    }

    pub(super) fn failed(&mut self, episode: Episode) {
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

    pub(super) fn settling(
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
    pub(super) fn stayed_up(
        &mut self,
        health: &Health,
        run: InvocationId,
        episode: Episode,
        sign_by: Moment,
    ) {
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

    pub(super) fn give_up(&mut self, obstacle: StartBlocker) {
        if self.state.phase != Phase::Stranded {
            self.say(Say::Stranded(obstacle));
            self.go(Phase::Stranded);
        }
    }
}
