//! Who waits for what comes of an order about one worker. Answers are sent from here and from nowhere else.

use std::time::Duration;

use tokio::sync::oneshot;

use super::evidence::journal_of;
use crate::peer::wire::{Outcome, RelaunchFailed, Relaunched, Remedied, Verdict};
use crate::vocabulary::{Moment, Remedy, UnitName};

/// How many orders of a kind may wait on one worker; each holds memory until it is answered.
pub(super) const WAITERS_AT_MOST: usize = 64;
/// How long an order to relaunch is kept waiting. A unit may be allowed much longer, which nobody who asks from far can know: the
/// answer is then that systemd is still at it.
pub(super) const ANSWERED_WITHIN: Duration = Duration::from_secs(90);

/// Where a verdict goes.
pub(super) type Reply = oneshot::Sender<Verdict>;

/// Those who wait. Whoever has gone meanwhile reads the outcome in the status.
#[derive(Default)]
pub(super) struct Waiters {
    relaunch: Vec<Waiter>,
    /// The relaunch that is settling, for those who wait for its verification.
    relaunched: Option<Relaunched>,
    /// Those who ordered the nudge or repipe that is in flight or being verified.
    remedy: Vec<Reply>,
    /// Which of the two it is, and since when.
    remedy_order: Option<(Remedy, Moment)>,
}

/// Somebody who ordered a relaunch and waits for its outcome.
struct Waiter {
    reply: Reply,
    /// Answered only when the worker has stayed up for its settle time.
    settled: bool,
    /// Whether the relaunch was under way already when this order came.
    shared: bool,
    /// When it is answered whatever has come of it by then.
    due: Moment,
}

impl Waiters {
    /// Whether no more orders to relaunch can wait.
    pub(super) fn is_full(&self) -> bool {
        self.relaunch.len() >= WAITERS_AT_MOST
    }

    /// Somebody waits for a relaunch from here on: until the worker has started, or with `settled` until it has stayed up.
    pub(super) fn wait(&mut self, reply: Reply, settled: bool, shared: bool, now: Moment) {
        self.relaunch.push(Waiter { reply, settled, shared, due: now + ANSWERED_WITHIN });
    }

    /// When somebody has waited for long enough.
    pub(super) fn due(&self) -> Option<Moment> {
        self.relaunch.iter().map(|waiter| waiter.due).min()
    }

    pub(super) fn wait_for_relaunch(&self) -> bool {
        !self.relaunch.is_empty()
    }

    /// The relaunch that is settling.
    pub(super) fn relaunched(&self) -> Option<&Relaunched> {
        self.relaunched.as_ref()
    }

    /// Another relaunch is under way; what came of the one before is no answer any more.
    pub(super) fn begun(&mut self) {
        self.relaunched = None;
    }

    /// The unit runs again: answers those who do not wait for it to settle.
    pub(super) fn started(&mut self, relaunched: Relaunched) {
        self.relaunched = Some(relaunched);
        self.answer(|waiter| !waiter.settled);
    }

    /// It stayed up: answers the others.
    pub(super) fn settled(&mut self) {
        if let Some(relaunched) = &mut self.relaunched {
            relaunched.settled = true;
        }
        self.answer(|_| true);
    }

    fn answer(&mut self, which: impl Fn(&Waiter) -> bool) {
        let Some(relaunched) = &self.relaunched else { return };
        for waiter in self.relaunch.extract_if(.., |waiter| which(waiter)) {
            let relaunched = Relaunched { shared: waiter.shared, ..relaunched.clone() };
            let _ = waiter.reply.send(Verdict::Outcome(Outcome::Relaunched(relaunched)));
        }
    }

    /// The relaunch failed: answers everybody.
    pub(super) fn failed(&mut self, failed: &RelaunchFailed) {
        send(self.relaunch.drain(..), failed);
    }

    /// Answers those who have waited for long enough.
    pub(super) fn late(&mut self, failed: &RelaunchFailed, now: Moment) {
        send(self.relaunch.extract_if(.., |waiter| waiter.due <= now), failed);
    }

    /// What everybody waits for does not come: answers with the unit's last journal lines, in a task of its own.
    pub(super) fn give_up(&mut self, failed: RelaunchFailed) {
        let waiters = std::mem::take(&mut self.relaunch);
        tokio::spawn(async move {
            let log = journal_of(&failed.unit).await;
            send(waiters.into_iter(), &RelaunchFailed { log, ..failed });
        });
    }

    /// Whether no more orders to nudge or repipe can wait.
    pub(super) fn is_full_for_remedies(&self) -> bool {
        self.remedy.len() >= WAITERS_AT_MOST
    }

    /// Somebody waits for the nudge or repipe.
    pub(super) fn wait_for_remedy(&mut self, reply: Reply) {
        self.remedy.push(reply);
    }

    pub(super) fn remedy_is_waited_for(&self) -> bool {
        !self.remedy.is_empty()
    }

    pub(super) fn remedy_begun(&mut self, remedy: Remedy, now: Moment) {
        self.remedy_order = Some((remedy, now));
    }

    /// The nudge or repipe was verified, or will not be: answers everybody who waits for it.
    pub(super) fn remedy_ended(&mut self, unit: &UnitName, helped: Option<bool>, why: &str, now: Moment) {
        let (remedy, since) = self.remedy_order.unwrap_or((Remedy::Nudge, now));
        let took_us = u64::try_from(now.since(since).as_micros()).unwrap_or(u64::MAX);
        let done = Remedied { remedy, unit: unit.clone(), helped, why: why.to_owned(), took_us };
        for reply in self.remedy.drain(..) {
            let _ = reply.send(Verdict::Outcome(Outcome::Remedied(done.clone())));
        }
    }
}

fn send(waiters: impl Iterator<Item = Waiter>, failed: &RelaunchFailed) {
    for waiter in waiters {
        let _ = waiter.reply.send(Verdict::Outcome(Outcome::Failed(failed.clone())));
    }
}
