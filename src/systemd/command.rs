//! Commands that PID 1 runs as transient units, under limits that it enforces. They are never children of the
//! supervisor: what they eat, fork or leave behind is PID 1's to end.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{Semaphore, oneshot};
use zbus::Variant;

use super::act::{Operation, OperationOrder};
use super::raw::Raw;
use super::{ActError, Ask, Systemd, stop};
use crate::vocabulary::{Command, ReqId, UnitName};

/// How many commands may run at once: a heartbeat command per worker must not become a storm of processes.
pub(super) const AT_ONCE: usize = 8;
/// How long a command that was told to end may take before it is killed.
const STOP: Duration = Duration::from_secs(2);
/// What PID 1 may need around the command.
const AROUND: Duration = Duration::from_secs(5);
/// Bytes of memory that one command may use.
const MEMORY: u64 = 64 << 20;
/// Threads and processes of one command.
const TASKS: u64 = 32;

/// How a command ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandEnd {
    /// In which way.
    pub exit: CommandExit,
    /// How long it took in all, the wait for its turn included.
    pub took: Duration,
}

/// In which way a command ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommandExit {
    /// It ended by itself, with this exit code.
    Exited(i32),
    /// A signal ended it; also the kernel's, for want of memory.
    Killed(i32),
    /// It was ended because its time was up.
    TimedOut,
    /// It did not run; the text says why.
    NotStarted(String),
    /// It was started and its end was not seen; the text says why.
    Unseen(String),
}

/// What is fixed about a command's unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Properties {
    pub(super) command: Command,
    pub(super) purpose: String,
}

impl Properties {
    /// The properties of `StartTransientUnit`, see org.freedesktop.systemd1(5).
    pub(super) fn variants(&self) -> Vec<(&'static str, Variant<'_>)> {
        let Command { argv, user, timeout } = &self.command;
        let limit = u64::try_from(timeout.as_micros()).unwrap_or(u64::MAX).max(1);
        let stop = u64::try_from(STOP.as_micros()).unwrap_or(u64::MAX);
        let program = argv.first().map_or("", String::as_str);
        // With the plain ExecStart, `$HOME` in an argument would become root's.
        let exec =
            vec![(program, argv.iter().map(String::as_str).collect::<Vec<_>>(), vec!["no-env-expand"])];
        let field = format!("KEYHOLDER_PURPOSE={}", self.purpose).into_bytes();
        vec![
            ("Description", format!("keyholder: {}", self.purpose).into()),
            // Its start fails if the program cannot be executed.
            ("Type", "exec".into()),
            ("ExecStartEx", exec.into()),
            ("User", user.as_str().into()),
            // One counts from the start on, the other from when the program runs.
            ("TimeoutStartUSec", limit.into()),
            ("RuntimeMaxUSec", limit.into()),
            ("TimeoutStopUSec", stop.into()),
            ("MemoryMax", MEMORY.into()),
            ("MemorySwapMax", 0_u64.into()),
            ("TasksMax", TASKS.into()),
            ("LimitCORE", 0_u64.into()),
            ("NoNewPrivileges", true.into()),
            ("PrivateTmp", true.into()),
            ("ProtectSystem", "strict".into()),
            ("StandardInput", "null".into()),
            ("LogExtraFields", vec![field].into()),
            // Without the reference it is forgotten the moment it ends, and how it ended with it; with it, it stays
            // for as long as this connection, even if it failed.
            ("CollectMode", "inactive-or-failed".into()),
            ("AddRef", true.into()),
        ]
    }
}

impl Systemd {
    /// Runs the command as a transient unit and waits for its end: at most twice its own time limit, for its turn among
    /// the eight that may run at once and for itself, and seven seconds. `purpose` says in the journal what it was for
    /// (`KEYHOLDER_PURPOSE`).
    ///
    /// It has no environment of ours, no input, its user's rights and no more; to it everything but `/dev`, `/proc`,
    /// `/sys` and a private `/tmp` is read-only. While the bus is gone nothing is run.
    pub async fn run(&self, command: &Command, purpose: &str) -> CommandEnd {
        let began = Instant::now();
        let exit = match self.ended(command, purpose).await {
            Ok(raw) => exit(&raw),
            Err(
                error @ (ActError::Timeout
                | ActError::Lost(_)
                | ActError::JobFailed { .. }
                | ActError::NotRunning),
            ) => CommandExit::Unseen(error.to_string()),
            Err(
                error @ (ActError::Refused(_)
                | ActError::NotStartable(_)
                | ActError::Bus(_)
                | ActError::NotWatched),
            ) => CommandExit::NotStarted(error.to_string()),
        };
        CommandEnd { exit, took: began.elapsed() }
    }

    async fn ended(&self, command: &Command, purpose: &str) -> Result<Box<Raw>, ActError> {
        let turn = tokio::time::timeout(command.timeout, Arc::clone(&self.places).acquire_owned()).await;
        let Ok(Ok(place)) = turn else {
            return Err(ActError::Refused(format!("{AT_ONCE} other commands are still running")));
        };
        let deed = Operation::Run(Properties { command: command.clone(), purpose: purpose.to_owned() });
        let timeout = command.timeout + STOP + AROUND;
        let (reply, answer) = oneshot::channel();
        let wish = OperationOrder { unit: unit()?, deed, timeout, reply, place: Some(place) };
        self.wish(wish, answer).await
    }

    pub(super) async fn wish(
        &self,
        wish: OperationOrder,
        answer: oneshot::Receiver<super::act::Done>,
    ) -> Result<Box<Raw>, ActError> {
        let ended = || ActError::Bus("the task that follows systemd has ended".to_owned());
        // The task has its own, shorter deadline; this one is for a task that hangs.
        let within = wish.timeout + AROUND;
        let all = async {
            self.asks.send(Ask::Act(Box::new(wish))).await.map_err(|_| ended())?;
            answer.await.map_err(|_| ended())?
        };
        tokio::time::timeout(within, all).await.unwrap_or(Err(ActError::Timeout))
    }
}

/// A room for [`AT_ONCE`] commands.
pub(super) fn places() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(AT_ONCE))
}

/// A name that no other unit has.
fn unit() -> Result<UnitName, ActError> {
    let id = ReqId::random().map_err(|error| ActError::Refused(error.to_string()))?;
    format!("keyholder-run-{id}.service").parse().map_err(|error| ActError::Refused(format!("{error}")))
}

fn exit(raw: &Raw) -> CommandExit {
    let status = raw.main_status;
    match (raw.result.as_str(), raw.main_code) {
        ("timeout", _) => CommandExit::TimedOut,
        (result, 0) => CommandExit::NotStarted(format!("systemd could not run it ({result})")),
        // systemd's own codes for a process that it could not set up: systemd.exec(5).
        (_, stop::EXITED) if (200..=245).contains(&status) => {
            CommandExit::NotStarted(stop::exit(raw).unwrap_or_default())
        }
        (_, stop::EXITED) => CommandExit::Exited(status),
        (_, _) => CommandExit::Killed(status),
    }
}

#[cfg(test)]
mod tests;
