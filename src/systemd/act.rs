//! What is done to a unit short of a relaunch, on its way through PID 1: a signal, a reload, a stop, the restart of a
//! unit that is no worker, and a command that runs as a unit of its own.

use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio::time::Instant;
use zbus::Message;

use super::message;
use super::order::refusal;
use super::path;
use super::raw::Raw;
use super::{ActError, RelaunchError};
use crate::vocabulary::{InvocationId, UnitName};

/// The first look at a unit of which nothing has been heard; each further one waits twice as long.
const FIRST_POLL: Duration = Duration::from_secs(1);
const LAST_POLL: Duration = Duration::from_secs(10);

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Operation {
    Signal {
        number: i32,
        whole: bool,
    },
    Reload,
    Stop {
        /// Also a unit that is not watched.
        other: bool,
    },
    Restart,
    /// Starts the unit, which is made for it, and waits for its end.
    Run(super::command::Properties),
}

/// The unit as it was seen at the end; nothing is known of it after a signal.
pub(super) type Done = Result<Box<Raw>, ActError>;

/// What is asked of the task.
pub(super) struct OperationOrder {
    pub(super) unit: UnitName,
    pub(super) deed: Operation,
    pub(super) timeout: Duration,
    pub(super) reply: oneshot::Sender<Done>,
    /// A command's place among those that may run at once, free again when PID 1 is done with it.
    pub(super) place: Option<OwnedSemaphorePermit>,
}

impl OperationOrder {
    pub(super) fn refuse(self, why: ActError) {
        // Whoever asked may have given up.
        let _ = self.reply.send(Err(why));
    }
}

/// One act under way.
pub(super) struct Act {
    pub(super) unit: UnitName,
    pub(super) path: String,
    deed: Operation,
    reply: Option<oneshot::Sender<Done>>,
    _place: Option<OwnedSemaphorePermit>,
    /// The run before; the outer `None` while it has not been read.
    before: Option<Option<InvocationId>>,
    /// What signals told of a command's unit.
    raw: Raw,
    step: Step,
    deadline: Instant,
    poll: Instant,
    poll_after: Duration,
}

enum Step {
    /// The call is on its way. The job may end before its answer comes: ends seen meanwhile are kept.
    Calling(Vec<(String, String)>),
    /// The job runs, or the command.
    Running(String),
    /// The job is done; a fresh look decides.
    Checking,
}

/// What the session is to do for an act.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    Wait,
    Look,
    Finished,
}

impl Act {
    pub(super) fn new(wish: OperationOrder) -> Self {
        let now = Instant::now();
        Self {
            path: path::of(&wish.unit),
            unit: wish.unit,
            deed: wish.deed,
            reply: Some(wish.reply),
            _place: wish.place,
            before: None,
            raw: Raw::default(),
            step: Step::Calling(Vec::new()),
            deadline: now + wish.timeout,
            poll: now + FIRST_POLL,
            poll_after: FIRST_POLL,
        }
    }

    /// The message that does it.
    pub(super) fn call(&self) -> zbus::Result<Message> {
        match &self.deed {
            Operation::Signal { number, whole } => message::kill(&self.unit, *number, *whole),
            Operation::Reload => message::reload(&self.unit),
            Operation::Stop { .. } => message::stop(&self.unit),
            Operation::Restart => message::restart(&self.unit),
            Operation::Run(properties) => message::start_transient(&self.unit, &properties.variants()),
        }
    }

    /// Whether the unit's present run has to be known, and its start counter be cleared.
    pub(super) fn restarts(&self) -> bool {
        self.deed == Operation::Restart
    }

    /// Whether a unit that need not be watched is to be stopped.
    pub(super) fn stops_another(&self) -> bool {
        self.deed == Operation::Stop { other: true }
    }

    /// Whether PID 1 holds the unit for us (`AddRef=`) until it is told that it may go.
    pub(super) fn holds(&self) -> bool {
        matches!(self.deed, Operation::Run(_))
    }

    /// When the act wants to be called again.
    pub(super) fn due(&self) -> Instant {
        self.poll.min(self.deadline)
    }

    /// PID 1 took the call; the body of its answer names the job, if there is one.
    pub(super) fn accepted(&mut self, message: &Message) -> Next {
        let Step::Calling(ended) = &mut self.step else { return Next::Wait };
        if matches!(self.deed, Operation::Signal { .. }) {
            return self.finish(Ok(Raw::default()));
        }
        let job = match message::job(message) {
            Ok(job) => job,
            Err(error) => {
                return self.finish(Err(ActError::Lost(format!("its answer is unreadable: {error}"))));
            }
        };
        let ended = std::mem::take(ended);
        self.step = Step::Running(job);
        for (job, result) in &ended {
            match self.job_ended(job, result) {
                Next::Wait => {}
                next @ (Next::Look | Next::Finished) => return next,
            }
        }
        Next::Wait
    }

    /// PID 1 or the bus answered with an error.
    pub(super) fn refused(&mut self, message: &Message) -> Next {
        self.finish(Err(match refusal(message) {
            Ok(RelaunchError::NotStartable(why)) => ActError::NotStartable(why),
            Ok(RelaunchError::Refused(why)) => ActError::Refused(why),
            Ok(other) => ActError::Refused(other.to_string()),
            Err(why) => ActError::Bus(why),
        }))
    }

    /// A job has ended; perhaps this act's.
    pub(super) fn job_ended(&mut self, job: &str, result: &str) -> Next {
        match &mut self.step {
            Step::Calling(ended) => {
                ended.push((job.to_owned(), result.to_owned()));
                Next::Wait
            }
            Step::Running(own) if own == job => match (&self.deed, result) {
                (Operation::Run(_), "done") => Next::Wait,
                // Its end is told by the unit.
                (Operation::Run(_), _) => Next::Look,
                (Operation::Restart, "done") => {
                    self.step = Step::Checking;
                    Next::Look
                }
                (Operation::Signal { .. } | Operation::Reload | Operation::Stop { .. }, "done") => {
                    self.finish(Ok(Raw::default()))
                }
                (
                    Operation::Signal { .. }
                    | Operation::Reload
                    | Operation::Stop { .. }
                    | Operation::Restart,
                    _,
                ) => self.finish(Err(ActError::JobFailed { result: result.to_owned() })),
            },
            Step::Running(_) | Step::Checking => Next::Wait,
        }
    }

    /// A signal told a change of the unit.
    pub(super) fn changed(&mut self, signal: &Message) -> Next {
        if !self.holds() {
            return Next::Wait;
        }
        match message::changed(signal, &mut self.raw) {
            Ok(true) if self.raw.down() && self.raw.main_code != 0 => {
                let raw = std::mem::take(&mut self.raw);
                self.finish(Ok(raw))
            }
            // Down without a process that ended: what happened is read.
            Ok(true) if self.raw.down() => Next::Look,
            Ok(_) => Next::Wait,
            Err(_) => Next::Look,
        }
    }

    /// The unit was read afresh.
    pub(super) fn looked(&mut self, raw: Raw) -> Next {
        let running = match self.step {
            Step::Calling(_) => {
                self.before.get_or_insert(raw.invocation);
                return Next::Wait;
            }
            Step::Running(_) => true,
            Step::Checking => false,
        };
        if running && raw.job != 0 {
            return Next::Wait;
        }
        let new_run = raw.up() && raw.invocation.is_some() && raw.invocation != self.before.flatten();
        let done = match &self.deed {
            Operation::Run(_) if raw.load == "not-found" => {
                return self.finish(Err(ActError::Lost("systemd has forgotten its unit".to_owned())));
            }
            Operation::Run(_) if !raw.down() => return Next::Wait,
            Operation::Run(_) | Operation::Signal { .. } => true,
            Operation::Reload => raw.up(),
            Operation::Stop { .. } => raw.down(),
            Operation::Restart => new_run,
        };
        let error = || match running {
            // A job that is gone without our having heard of its end.
            true => ActError::JobFailed { result: "unknown".to_owned() },
            false => ActError::NotRunning,
        };
        self.finish(if done { Ok(raw) } else { Err(error()) })
    }

    /// Time has passed.
    pub(super) fn tick(&mut self, now: Instant) -> Next {
        if now >= self.deadline {
            return self.finish(Err(ActError::Timeout));
        }
        if now < self.poll {
            return Next::Wait;
        }
        self.poll_after = (self.poll_after * 2).min(LAST_POLL);
        self.poll = now + self.poll_after;
        match self.step {
            Step::Calling(_) => Next::Wait,
            Step::Running(_) | Step::Checking => Next::Look,
        }
    }

    /// The connection is gone.
    pub(super) fn gone(&mut self, why: &str) {
        self.finish(Err(ActError::Lost(why.to_owned())));
    }

    /// It is not even tried.
    pub(super) fn refuse(mut self, why: ActError) {
        self.finish(Err(why));
    }

    fn finish(&mut self, done: Result<Raw, ActError>) -> Next {
        if let Some(reply) = self.reply.take() {
            // Whoever asked may have given up.
            let _ = reply.send(done.map(Box::new));
        }
        Next::Finished
    }
}

#[cfg(test)]
mod tests;
