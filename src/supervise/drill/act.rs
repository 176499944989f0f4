//! How a worker is broken on purpose, how it is restored, and how a lane shows that it does its work again.

use std::time::{Duration, Instant};

use super::{Core, DrillDone};
use crate::fleet::Worker as Spec;
use crate::supervise::worker::Worker;
use crate::systemd::Systemd;
use crate::vocabulary::{FailureClass, Flow, Mode, Repipe, UnitName, WorkerName, human};

/// SIGHUP, SIGUSR2, SIGCONT and SIGSTOP on Linux (signal(7)).
const HUP: i32 = 1;
const USR2: i32 = 12;
const CONT: i32 = 18;
const STOP: i32 = 19;
/// How long a unit may take to stop. A lane that runs a task finishes it first, and is not rehearsed while it does.
const STOPPED: Duration = Duration::from_secs(60);
/// How long a pipe may take to start.
const STARTED: Duration = Duration::from_secs(30);

/// Why a task through a lane has shown nothing.
pub(in super::super) enum NoCanary {
    /// None was sent; the text says why.
    NotSent(String),
    /// It was sent, and what it did, after "a task …".
    NotProved(String),
}

/// How a fall is brought about.
enum Way {
    /// The unit is stopped.
    Stop(UnitName),
    /// All its processes are halted.
    Halt(UnitName),
    /// The lane is told to be deaf.
    Deafen(UnitName),
    /// The unit that feeds it is stopped.
    StopPipe(UnitName),
}

impl Way {
    fn of(spec: &Spec, class: FailureClass) -> Option<Self> {
        let unit = spec.unit.clone();
        match class {
            FailureClass::Dead => Some(Self::Stop(unit)),
            FailureClass::Stuck => Some(Self::Halt(unit)),
            FailureClass::DeliveryGap => {
                let gap = spec.delivery_gap.as_ref()?;
                match (&gap.repipe, &gap.flow) {
                    (Some(Repipe::Restart(pipe)), _) => Some(Self::StopPipe(pipe.clone())),
                    (Some(Repipe::Hangup) | None, Flow::Lane(_)) => Some(Self::Deafen(unit)),
                    (Some(Repipe::Hangup) | None, Flow::Queue(_)) => None,
                }
            }
            FailureClass::SupervisorDead | FailureClass::Unreachable => None,
        }
    }

    async fn go(&self, systemd: &Systemd) -> Result<String, String> {
        let began = Instant::now();
        let (what, done) = match self {
            Self::Stop(unit) => (format!("{unit} was stopped"), systemd.stop(unit, STOPPED).await),
            Self::Halt(unit) => {
                (format!("{unit} was halted (SIGSTOP)"), systemd.signal(unit, STOP, true).await)
            }
            Self::Deafen(unit) => {
                (format!("{unit} was told to be deaf (SIGUSR2)"), systemd.signal(unit, USR2, false).await)
            }
            Self::StopPipe(pipe) => {
                (format!("{pipe}, which feeds it, was stopped"), systemd.stop_other(pipe, STOPPED).await)
            }
        };
        done.map(|()| format!("{what}, which took {}", human(began.elapsed())))
            .map_err(|error| error.to_string())
    }

    /// What undoes it, for a worker that was not relaunched meanwhile. Harmless if it was.
    async fn back(&self, systemd: &Systemd) -> Result<String, String> {
        let (what, done) = match self {
            // The judge's own order brings it back.
            Self::Stop(unit) => return Ok(format!("this node has {unit} started again if it is down")),
            Self::Halt(unit) => {
                (format!("{unit} was let go on (SIGCONT)"), systemd.signal(unit, CONT, true).await)
            }
            Self::Deafen(unit) => {
                (format!("{unit} was told to hear (SIGHUP)"), systemd.signal(unit, HUP, false).await)
            }
            Self::StopPipe(pipe) => (
                format!("{pipe}, which feeds it, was started"),
                systemd.restart_other(pipe, STARTED).await.map(drop),
            ),
        };
        done.map(|()| what).map_err(|error| error.to_string())
    }
}

impl Worker {
    /// The task that a lane runs and that must not be interrupted, if there is one.
    pub(super) fn uninterruptible(&self) -> Option<String> {
        if self.spec.lane != Some(Mode::Write) {
            return None;
        }
        match &self.lane {
            Some((status, _)) => {
                let task = status.in_flight.iter().find(|task| !task.idempotent)?;
                Some(format!("{} {}", task.action, task.id))
            }
            None => Some("the lane does not say what it runs".to_owned()),
        }
    }
}

impl Core {
    /// Breaks the worker in a task of its own.
    pub(super) fn break_worker(&self, name: &WorkerName, class: FailureClass) {
        let way = self.workers.get(name).and_then(|worker| Way::of(&worker.spec, class));
        let systemd = self.systemd.clone();
        self.when_done(name, async move {
            DrillDone::Break(match way {
                Some(way) => way.go(&systemd).await,
                None => Err("the fleet file no longer says how".to_owned()),
            })
        });
    }

    /// Undoes the break in a task of its own.
    pub(super) fn restore_worker(&self, name: &WorkerName, class: FailureClass) {
        let way = self.workers.get(name).and_then(|worker| Way::of(&worker.spec, class));
        // Also for a worker that the fleet file does not name any more.
        let way = way.or_else(|| {
            let unit = self.drills.unit()?;
            (class == FailureClass::Stuck).then_some(Way::Halt(unit))
        });
        let systemd = self.systemd.clone();
        self.when_done(name, async move {
            DrillDone::Restore(match way {
                Some(way) => way.back(&systemd).await,
                None => Ok("there was nothing that this node could restore".to_owned()),
            })
        });
    }

    /// Sends a task that does nothing through the lane, and has the journal say who ran it.
    pub(super) fn send_canary(&self, name: &WorkerName, _lane: Mode) {
        self.when_done(name, async move {
            DrillDone::Canary(Err(NoCanary::NotSent("this supervisor sends none".to_owned())))
        });
    }
}
