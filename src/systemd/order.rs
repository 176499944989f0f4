//! Relaunch orders on their way through PID 1.

use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;
use zbus::Message;

use super::raw::Raw;
use super::{NotStartable, Relaunch, RelaunchError, RelaunchReply};
use crate::vocabulary::{InvocationId, UnitName};

/// The first look at a unit whose job's end has not been heard; each further one waits twice as long. Signals are not
/// lost on a sound connection: this is for one that is not.
const FIRST_POLL: Duration = Duration::from_secs(1);
const LAST_POLL: Duration = Duration::from_secs(10);
/// How long PID 1 may take to accept an order (it takes 1 ms) before the other way is tried. It is not counted while PID 1
/// reloads, when no way leads to it.
const ACCEPT: Duration = Duration::from_secs(2);
/// How long the last look after the timeout may take.
const LAST_LOOK: Duration = Duration::from_secs(2);

/// One relaunch.
pub(super) struct RelaunchJob {
    pub(super) unit: UnitName,
    reply: Option<oneshot::Sender<RelaunchReply>>,
    /// The run before; the outer `None` while it has not been read.
    before: Option<Option<InvocationId>>,
    step: RelaunchStep,
    accept: Instant,
    deadline: Instant,
    poll: Instant,
    poll_after: Duration,
}

enum RelaunchStep {
    /// RestartUnit is on its way. The job may end before its answer comes: ends seen meanwhile are kept.
    Calling(Vec<(String, String)>),
    /// The job runs.
    Running(String),
    /// The job is done, but what is known of the unit does not show it up: a fresh look decides.
    Checking(String),
    /// Time is up: a last look decides.
    Late,
}

/// What the session is to do for an order.
pub(super) enum Next {
    Wait,
    Look,
    Finished,
}

impl RelaunchJob {
    pub(super) fn new(
        unit: UnitName,
        raw: Option<&Raw>,
        timeout: Duration,
        reply: oneshot::Sender<RelaunchReply>,
    ) -> Self {
        let now = Instant::now();
        Self {
            unit,
            reply: Some(reply),
            before: raw.map(|raw| raw.invocation),
            step: RelaunchStep::Calling(Vec::new()),
            accept: now + ACCEPT,
            deadline: now + timeout,
            poll: now + FIRST_POLL,
            poll_after: FIRST_POLL,
        }
    }

    /// When the order wants to be called again.
    pub(super) fn due(&self) -> Instant {
        let next = self.poll.min(self.deadline);
        match self.step {
            RelaunchStep::Calling(_) => next.min(self.accept),
            RelaunchStep::Running(_) | RelaunchStep::Checking(_) | RelaunchStep::Late => next,
        }
    }

    /// PID 1 took the order and named its job.
    pub(super) fn accepted(&mut self, job: String, raw: Option<&Raw>) -> Next {
        let RelaunchStep::Calling(ended) = &mut self.step else { return Next::Wait };
        let ended = std::mem::take(ended);
        self.step = RelaunchStep::Running(job);
        for (job, result) in &ended {
            match self.job_ended(job, result, raw) {
                Next::Wait => {}
                next @ (Next::Look | Next::Finished) => return next,
            }
        }
        Next::Wait
    }

    /// PID 1 or the bus answered with an error.
    pub(super) fn refused(&mut self, message: &Message, raw: Option<&Raw>) -> Next {
        let error = match refusal(message) {
            Ok(error) => error,
            Err(why) => {
                self.gone(&why);
                return Next::Finished;
            }
        };
        self.finish(Err(error), None, raw)
    }

    /// A job has ended; perhaps this order's.
    pub(super) fn job_ended(&mut self, job: &str, result: &str, raw: Option<&Raw>) -> Next {
        match &mut self.step {
            RelaunchStep::Calling(ended) => {
                ended.push((job.to_owned(), result.to_owned()));
                Next::Wait
            }
            RelaunchStep::Running(own) if own == job => {
                if result != "done" {
                    let error = RelaunchError::JobFailed { result: result.to_owned() };
                    return self.finish(Err(error), Some(result), raw);
                }
                // systemd sends a unit's pending changes before it tells of the job's end, so what is known is
                // up to date and a look is only needed if it does not please.
                if let Some(run) = raw.and_then(|raw| self.up(raw)) {
                    return self.finish(Ok(run), Some(result), raw);
                }
                self.step = RelaunchStep::Checking(result.to_owned());
                Next::Look
            }
            RelaunchStep::Running(_) | RelaunchStep::Checking(_) | RelaunchStep::Late => Next::Wait,
        }
    }

    /// The unit was read afresh.
    pub(super) fn looked(&mut self, raw: &Raw) -> Next {
        let up = self.up(raw);
        match (&self.step, up) {
            (RelaunchStep::Calling(_), _) => {
                self.before.get_or_insert(raw.invocation);
                Next::Wait
            }
            // A job that is gone without our having heard of its end.
            (RelaunchStep::Running(_), Some(run)) if raw.job == 0 => self.finish(Ok(run), None, Some(raw)),
            (RelaunchStep::Running(_), None) if raw.job == 0 => {
                self.finish(Err(RelaunchError::NotRunning), None, Some(raw))
            }
            (RelaunchStep::Running(_), _) => Next::Wait,
            (RelaunchStep::Checking(result), _) => {
                let result = result.clone();
                self.finish(up.ok_or(RelaunchError::NotRunning), Some(&result), Some(raw))
            }
            (RelaunchStep::Late, _) => {
                let up = up.filter(|_| raw.job == 0);
                self.finish(up.ok_or(RelaunchError::Timeout), None, Some(raw))
            }
        }
    }

    /// Time has passed.
    pub(super) fn tick(&mut self, now: Instant, reloading: bool, raw: Option<&Raw>) -> Next {
        if matches!(self.step, RelaunchStep::Calling(_)) && now >= self.accept {
            if reloading {
                self.accept = now + ACCEPT;
            } else {
                self.gone("systemd does not take orders over the bus");
                return Next::Finished;
            }
        }
        if now >= self.deadline {
            return match self.step {
                RelaunchStep::Late => self.finish(Err(RelaunchError::Timeout), None, raw),
                RelaunchStep::Calling(_) | RelaunchStep::Running(_) | RelaunchStep::Checking(_) => {
                    self.step = RelaunchStep::Late;
                    self.deadline = now + LAST_LOOK;
                    self.poll = self.deadline;
                    Next::Look
                }
            };
        }
        if now < self.poll {
            return Next::Wait;
        }
        self.poll_after = (self.poll_after * 2).min(LAST_POLL);
        self.poll = now + self.poll_after;
        Next::Look
    }

    /// The connection is gone.
    pub(super) fn gone(&mut self, why: &str) {
        let before = self.before.flatten();
        if let Some(reply) = self.reply.take() {
            // Whoever asked may have given up.
            let _ = reply.send(RelaunchReply::Gone { why: why.to_owned(), before });
        }
    }

    fn up(&self, raw: &Raw) -> Option<InvocationId> {
        raw.invocation.filter(|run| raw.up() && self.before.flatten() != Some(*run))
    }

    fn finish(
        &mut self,
        result: Result<InvocationId, RelaunchError>,
        job: Option<&str>,
        raw: Option<&Raw>,
    ) -> Next {
        if let Some(reply) = self.reply.take() {
            let _ = reply.send(RelaunchReply::Done(Box::new(Relaunch {
                result,
                job: job.map(str::to_owned),
                before: self.before.flatten(),
                took: Duration::ZERO,
                break_glass: false,
                snapshot: raw.map(Raw::snapshot),
            })));
        }
        Next::Finished
    }
}

/// What an error says: systemd's own refusal, or (as `Err`) that something is wrong with the bus.
pub(super) fn refusal(message: &Message) -> Result<RelaunchError, String> {
    let header = message.header();
    let name = header.error_name().map_or("", |name| name.as_str());
    let text = message.body().deserialize::<&str>().map_or_else(|_| String::new(), str::to_owned);
    match name.strip_prefix("org.freedesktop.systemd1.") {
        Some("NoSuchUnit") => Ok(NotStartable::NotFound.into()),
        Some("UnitMasked") => Ok(NotStartable::Masked.into()),
        Some("BadUnitSetting" | "LoadFailed") => Ok(NotStartable::BadSetting.into()),
        Some("OnlyByDependency") => Ok(NotStartable::RefusesManualStart.into()),
        Some(_) => Ok(RelaunchError::Refused(super::systemctl::one_line(&text))),
        // Everything else speaks of the bus: no reply, no owner, no access, too much at once.
        None => Err(super::systemctl::one_line(&format!("{name}: {text}"))),
    }
}

#[cfg(test)]
mod tests;
