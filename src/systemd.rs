//! The edge to PID 1: what it says of the watched units, and the one act, the relaunch.
//!
//! One task (`hub`) owns a connection to the system bus and everything that is known. It reads signals and replies
//! from one stream, so their order is the order in which PID 1 sent them, and a state built from both is never older
//! than it looks. It waits on nobody: calls are written in one go, their answers come by the stream, and news for the
//! supervisor wait in a table that holds one item per unit. systemd's signals carry all that changes, so a death is known
//! when its signal arrives, without a question. While the bus is gone, `systemctl` (which reaches PID 1 without it)
//! observes and relaunches.

mod act;
mod command;
mod facts;
mod hindrance;
mod hub;
mod message;
mod order;
mod path;
mod raw;
mod session;
mod stop;
mod systemctl;
mod table;
mod ties;

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{Semaphore, mpsc, oneshot, watch};

use crate::judge::{Observation, UnitSnapshot};
use crate::vocabulary::{InvocationId, UnitName};

use act::{Operation, OperationOrder};
pub use command::{CommandEnd, CommandExit};
pub use facts::Facts;
pub(crate) use facts::stray;

/// How many questions may wait for the task; more than there are workers on a node.
const ASKS: usize = 1024;
/// What a relaunch may take beyond its own timeout: a last look, or the way through `systemctl`.
const BOUND: Duration = Duration::from_secs(10);
/// How long PID 1 may take to deliver a signal or to tell a property.
const ANSWER: Duration = Duration::from_secs(5);

/// What the supervisor learns from PID 1.
#[derive(Debug, Clone, PartialEq, Eq)]
// Nearly every event is a look; a box would be an allocation for each.
#[allow(clippy::large_enum_variant)]
pub enum SystemdEvent {
    /// A unit changed, or a fresh look was asked for.
    Observed {
        /// The unit, as it was given to [`start`].
        unit: UnitName,
        /// What was seen.
        observation: Observation,
    },
    /// The host boots, is up, or goes down.
    Host(HostState),
    /// The system bus was reached or lost.
    Bus(BusState),
    /// Whether PID 1 still holds our socket, by which it starts the supervisor for whoever knocks. It does, unless told.
    Door {
        /// `keyholder.socket` is stopped or has failed.
        shut: bool,
    },
}

/// The state of the host as a whole, from the manager's SystemState.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HostState {
    /// It boots ("initializing", "starting"): jobs of the boot are still under way.
    Starting,
    /// It is up ("running", "degraded", or "maintenance", where somebody is at work in rescue mode).
    Running,
    /// It shuts down or reboots.
    Stopping,
}

/// The connection to the system bus.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BusState {
    /// PID 1 is heard over the bus.
    Connected,
    /// It is not, and why. Meanwhile `systemctl` is asked every second, and relaunches go through it.
    Lost(String),
}

/// What came of a relaunch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Relaunch {
    /// The new run, or why there is none.
    pub result: Result<InvocationId, RelaunchError>,
    /// How systemd's job ended ("done", "failed", "timeout", "canceled", …), if its end was seen.
    pub job: Option<String>,
    /// The run before.
    pub before: Option<InvocationId>,
    /// How long it took in all.
    pub took: Duration,
    /// Whether the bus was of no use and `systemctl` did it.
    pub break_glass: bool,
    /// The unit right afterwards, if it could be seen.
    pub snapshot: Option<UnitSnapshot>,
}

/// Why a relaunch did not bring the unit back.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RelaunchError {
    /// Nothing was touched, and trying again does not help.
    #[error(transparent)]
    NotStartable(#[from] NotStartable),
    /// PID 1 refused the order for another reason, in its own words.
    #[error("systemd refused the restart: {0}")]
    Refused(String),
    /// The job was carried out and failed.
    #[error("systemd's restart job ended with {result:?}; the unit's journal says more")]
    JobFailed {
        /// systemd's job result.
        result: String,
    },
    /// The job was not finished in time. It may still be running.
    #[error("systemd's restart job did not finish in time; it may still be under way")]
    Timeout,
    /// The job is done, yet the unit is not up under a new run.
    #[error(
        "systemd's restart job is done, but the unit is not running: it ended at once, or a condition of it is not met; its journal says more"
    )]
    NotRunning,
    /// Neither the bus nor `systemctl` led to PID 1.
    #[error("systemd cannot be reached: {0}")]
    Bus(String),
    /// The unit is not one of those given to [`start`].
    #[error("the unit is not a worker of this node's fleet file")]
    NotWatched,
}

/// Why an act short of a relaunch did not work.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ActError {
    /// The unit is not one of those given to [`start`].
    #[error("the unit is not a worker of this node's fleet file")]
    NotWatched,
    /// Nothing was touched, and trying again does not help.
    #[error(transparent)]
    NotStartable(#[from] NotStartable),
    /// PID 1 refused it for another reason, in its own words.
    #[error("systemd refused: {0}")]
    Refused(String),
    /// The job was carried out and failed.
    #[error("systemd's job ended with {result:?}; the unit's journal says more")]
    JobFailed {
        /// systemd's job result.
        result: String,
    },
    /// It was not finished in time. It may still be under way.
    #[error("systemd was not done in time; it may still be at it")]
    Timeout,
    /// The job is done, yet the unit is not up under a new run.
    #[error("systemd's job is done, but the unit is not running; its journal says more")]
    NotRunning,
    /// Nothing was done, because the bus does not lead to PID 1.
    #[error("systemd cannot be reached: {0}")]
    Bus(String),
    /// The connection broke under way: it may have been done or not.
    #[error("systemd was lost sight of under way: {0}")]
    Lost(String),
}

/// A unit that cannot be started in its present state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum NotStartable {
    /// There is no unit file.
    #[error("there is no such unit on this host; install it, then `systemctl daemon-reload`")]
    NotFound,
    /// It is masked.
    #[error("the unit is masked; `systemctl unmask` it if it is to run")]
    Masked,
    /// Its unit file is broken or could not be read.
    #[error("the unit file is not usable; `systemctl status` and `systemd-analyze verify` say why")]
    BadSetting,
    /// It has RefuseManualStart=yes or RefuseManualStop=yes.
    #[error("the unit refuses to be started or stopped by hand (RefuseManualStart=, RefuseManualStop=)")]
    RefusesManualStart,
}

/// A question to the task.
enum Ask {
    Look(UnitName),
    Relaunch { unit: UnitName, timeout: Duration, reply: oneshot::Sender<RelaunchReply> },
    Act(Box<OperationOrder>),
    Watchdog { unit: UnitName, reply: oneshot::Sender<Result<u64, String>> },
    Host { reply: oneshot::Sender<Result<HostState, String>> },
    Facts { unit: UnitName, reply: oneshot::Sender<Result<Facts, String>> },
}

/// The answer to a relaunch.
enum RelaunchReply {
    Done(Box<Relaunch>),
    /// The bus is gone; whether PID 1 got the order is unknown.
    Gone {
        why: String,
        before: Option<InvocationId>,
    },
}

fn not_watched() -> RelaunchReply {
    RelaunchReply::Done(Box::new(Relaunch {
        result: Err(RelaunchError::NotWatched),
        job: None,
        before: None,
        took: Duration::ZERO,
        break_glass: false,
        snapshot: None,
    }))
}

/// The handle to the task. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Systemd {
    asks: mpsc::Sender<Ask>,
    place: hub::Endpoints,
    places: Arc<Semaphore>,
}

/// Follows `units` (as they are now and whenever the list changes) and sends what is learnt to `events`. Spawns its task
/// on the current runtime; the task ends when `events` is closed.
///
/// The first look at each unit, the host's state and the bus's come without being asked for.
pub fn start(units: watch::Receiver<Vec<UnitName>>, events: mpsc::Sender<SystemdEvent>) -> Systemd {
    start_at(hub::Endpoints::default(), units, events)
}

fn start_at(
    place: hub::Endpoints,
    units: watch::Receiver<Vec<UnitName>>,
    events: mpsc::Sender<SystemdEvent>,
) -> Systemd {
    let (asks, inbox) = mpsc::channel(ASKS);
    tokio::spawn(hub::run(place.clone(), units, events, inbox));
    Systemd { asks, place, places: command::places() }
}

impl Systemd {
    /// Restarts the unit, its failure counters reset, and waits until systemd's job has ended; at most `timeout` and ten
    /// seconds. Restart and not start, because a start waits out RestartSec= and does nothing to a unit that is up; only a
    /// unit that is down is started, since it may refuse to be stopped by hand.
    ///
    /// Whether the unit then stays up is not known yet: a simple service whose command is missing is up for a moment.
    pub async fn relaunch(&self, unit: &UnitName, timeout: Duration) -> Relaunch {
        let began = Instant::now();
        let answer = tokio::time::timeout(timeout + BOUND / 2, self.by_bus(unit, timeout)).await;
        let (why, before) = match answer {
            Ok(RelaunchReply::Done(relaunch)) => return Relaunch { took: began.elapsed(), ..*relaunch },
            Ok(RelaunchReply::Gone { why, before }) => (why, before),
            Err(_) => ("the order was not answered in time".to_owned(), None),
        };
        let left = timeout.saturating_sub(began.elapsed());
        let relaunch = systemctl::relaunch(&self.place.systemctl, unit, before, left, &why).await;
        self.look(unit);
        Relaunch { took: began.elapsed(), ..relaunch }
    }

    async fn by_bus(&self, unit: &UnitName, timeout: Duration) -> RelaunchReply {
        let (reply, answer) = oneshot::channel();
        let gone = || RelaunchReply::Gone {
            why: "the task that follows systemd has ended".to_owned(),
            before: None,
        };
        if self.asks.send(Ask::Relaunch { unit: unit.clone(), timeout, reply }).await.is_err() {
            return gone();
        }
        answer.await.unwrap_or_else(|_| gone())
    }

    /// Sends a signal to a watched unit's main process, or with `whole` to all its processes. Done when PID 1 has sent it,
    /// which says nothing of what the process makes of it.
    pub async fn signal(&self, unit: &UnitName, number: i32, whole: bool) -> Result<(), ActError> {
        self.act(unit, Operation::Signal { number, whole }, ANSWER).await.map(drop)
    }

    /// Has a watched unit reload (`systemctl reload`) and waits for the end of that, at most `timeout`.
    pub async fn reload(&self, unit: &UnitName, timeout: Duration) -> Result<(), ActError> {
        self.act(unit, Operation::Reload, timeout).await.map(drop)
    }

    /// Stops a watched unit and waits until it is down, at most `timeout`. For rehearsals.
    pub async fn stop(&self, unit: &UnitName, timeout: Duration) -> Result<(), ActError> {
        self.act(unit, Operation::Stop { other: false }, timeout).await.map(drop)
    }

    /// The same for a unit that need not be watched: a worker's receive pipe, our own.
    pub async fn stop_other(&self, unit: &UnitName, timeout: Duration) -> Result<(), ActError> {
        self.act(unit, Operation::Stop { other: true }, timeout).await.map(drop)
    }

    /// Restarts a unit that need not be watched (a worker's receive pipe), its start counter cleared, and waits until it
    /// is up under a new run, at most `timeout`. A oneshot counts as up only with `RemainAfterExit=yes`.
    pub async fn restart_other(&self, unit: &UnitName, timeout: Duration) -> Result<InvocationId, ActError> {
        self.act(unit, Operation::Restart, timeout).await?.invocation.ok_or(ActError::NotRunning)
    }

    async fn act(
        &self,
        unit: &UnitName,
        deed: Operation,
        timeout: Duration,
    ) -> Result<Box<raw::Raw>, ActError> {
        let (reply, answer) = oneshot::channel();
        self.wish(OperationOrder { unit: unit.clone(), deed, timeout, reply, place: None }, answer).await
    }

    /// When the unit last pinged systemd's watchdog: microseconds of `CLOCK_MONOTONIC`, 0 if it has no watchdog or does
    /// not run. The text says why it could not be read; it takes five seconds at most.
    pub async fn watchdog(&self, unit: &UnitName) -> Result<u64, String> {
        self.question(|reply| Ask::Watchdog { unit: unit.clone(), reply }).await
    }

    /// What a unit, which need not be watched, is run by and how it is connected to the journal. The text says why it could not be read; it takes
    /// five seconds at most.
    pub async fn facts(&self, unit: &UnitName) -> Result<Facts, String> {
        self.question(|reply| Ask::Facts { unit: unit.clone(), reply }).await
    }

    /// What the host is doing, asked again: [`SystemdEvent::Host`] comes when systemd says so by itself, which SIGTERM may
    /// overtake. The text says why it could not be read; it takes five seconds at most.
    pub async fn host_state(&self) -> Result<HostState, String> {
        self.question(|reply| Ask::Host { reply }).await
    }

    async fn question<T>(
        &self,
        ask: impl FnOnce(oneshot::Sender<Result<T, String>>) -> Ask,
    ) -> Result<T, String> {
        let (reply, answer) = oneshot::channel();
        let all = async {
            self.asks.send(ask(reply)).await.ok()?;
            answer.await.ok()
        };
        match tokio::time::timeout(ANSWER, all).await {
            Ok(Some(answer)) => answer,
            Ok(None) => Err("the connection to systemd was lost".to_owned()),
            Err(_) => Err("systemd did not answer in time".to_owned()),
        }
    }

    /// Has a unit started that is no worker and that nobody waits for, within this time. By `systemctl`, which needs no
    /// bus: that the bus is gone is one of the things that such a unit is for.
    ///
    /// # Errors
    /// systemd's refusal, or that it could not be asked, in words.
    pub async fn start_quietly(&self, unit: &UnitName, within: Duration) -> Result<(), String> {
        systemctl::start(&self.place.systemctl, unit, within).await
    }

    /// Names the job, process or command that systemd waits for before it gets on with the unit, in words. It takes some
    /// milliseconds, and six seconds at most.
    pub async fn hindrance(&self, unit: &UnitName) -> String {
        hindrance::of(&self.place.systemctl, unit).await
    }

    /// Asks for a fresh [`SystemdEvent::Observed`] of the unit soon, also if nothing has changed. Never waits.
    pub fn look(&self, unit: &UnitName) {
        if self.asks.try_send(Ask::Look(unit.clone())).is_err() {
            tracing::debug!(%unit, "the look was dropped: too many questions are waiting");
        }
    }
}

#[cfg(test)]
mod tests;
