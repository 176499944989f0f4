//! How a worker is broken on purpose, how it is restored, and how a lane shows that it does its work again.

use std::time::{Duration, Instant};

use tokio::time::sleep;

use crate::fleet::Worker as Spec;
use crate::journal::{self, ProofVerdict};
use crate::queue::{CanaryTask, Front, QueueName, canary_once};
use crate::store::StoreError;
use crate::supervise::core::Core;
use crate::supervise::drill::state::{DrillDone, NoCanary};
use crate::supervise::lanes;
use crate::supervise::worker::Worker;
use crate::systemd::Systemd;
use crate::vocabulary::{
    FailureClass, Flow, LaneStatus, Mode, NodeName, Repipe, TaskId, UnitName, WorkerName, human,
};

/// SIGHUP, SIGUSR2, SIGCONT and SIGSTOP on Linux (signal(7)).
const HUP: i32 = 1;
const USR2: i32 = 12;
const CONT: i32 = 18;
const STOP: i32 = 19;
/// How long a unit may take to stop. A lane that runs a task finishes it first, and is not rehearsed while it does.
const STOPPED: Duration = Duration::from_secs(60);
/// How long a lane may take to say that it is deaf and runs nothing.
const QUIET: Duration = Duration::from_secs(5);
/// How often its word is looked at meanwhile.
const LISTEN: Duration = Duration::from_millis(100);
/// How long a lane that came back may take to answer a task that does nothing.
const ANSWERED: Duration = Duration::from_secs(30);
/// How often a lane is told again to be deaf.
const DEAF_AGAIN: Duration = Duration::from_secs(60);
/// How long the disk may take for the lease before anything is broken.
const ON_DISK: Duration = Duration::from_secs(2);
/// How long a pipe may take to start.
const STARTED: Duration = Duration::from_secs(30);

/// A lane, and where its tasks come from.
#[derive(Clone)]
struct Lane {
    node: NodeName,
    mode: Mode,
    /// Where Redis is.
    url: Option<String>,
}

impl Lane {
    fn queue(&self) -> QueueName {
        match self.mode {
            Mode::Write => QueueName::write(&self.node),
            Mode::Read => QueueName::read(&self.node),
        }
    }

    fn url(&self) -> Result<&str, String> {
        self.url.as_deref().ok_or_else(|| "the fleet file names no Redis".to_owned())
    }

    /// Has a task that does nothing wait in the queue, so that there is something that does not arrive.
    async fn give_work(&self) -> Result<(), String> {
        let front = Front::connect(self.url()?).await.map_err(|error| error.to_string())?;
        let bird = CanaryTask::new(&self.node).ok_or("the kernel gives no random id")?;
        front.push(&self.queue(), &bird.raw).await.map(drop).map_err(|error| error.to_string())
    }

    /// Has the write lane take nothing more, and waits until it runs nothing: a write that it has begun meanwhile must not be
    /// interrupted.
    async fn quieten(&self, unit: &UnitName, systemd: &Systemd) -> Result<(), String> {
        if self.mode != Mode::Write {
            return Ok(());
        }
        let word = || lanes::word(&self.node, self.mode);
        let before = word().map_or(0, |status| status.passes);
        systemd.signal(unit, USR2, false).await.map_err(|error| error.to_string())?;
        let until = Instant::now() + QUIET;
        // The pass that was under way may still have taken one.
        let quiet = |status: LaneStatus| status.passes > before + 1 && status.running == 0;
        while !word().is_some_and(quiet) {
            if Instant::now() >= until {
                return Err("it has just begun a task, or does not say that it has none".to_owned());
            }
            sleep(LISTEN).await;
        }
        Ok(())
    }

    /// Sends a task that does nothing through it, and has the journal say who did it.
    async fn prove(&self) -> Result<String, NoCanary> {
        let not_sent = |error: String| NoCanary::NotSent(error);
        let url = self.url().map_err(not_sent)?;
        let answer = canary_once(url, &self.queue(), &self.node, ANSWERED).await;
        let (id, answer) = answer.map_err(|error| not_sent(error.to_string()))?;
        if answer.is_none() {
            let text = format!("({id}) was not answered within {}", human(ANSWERED));
            return Err(NoCanary::NotProved(text));
        }
        let task: TaskId = id.parse().map_err(|_| not_sent("its id cannot be proved".to_owned()))?;
        match journal::prove(&task, Some(self.mode)).await {
            Ok(proof) => match proof.verdict {
                ProofVerdict::Proved => Ok(format!("the task {id} went through it: proved, {}", proof.why)),
                ProofVerdict::Inconclusive => {
                    Ok(format!("the task {id} was answered; by whom is inconclusive: {}", proof.why))
                }
                ProofVerdict::Refuted => {
                    Err(NoCanary::NotProved(format!("({id}) was not its doing: {}", proof.why)))
                }
            },
            Err(error) => {
                Ok(format!("the task {id} was answered; who did it could not be looked up: {error}"))
            }
        }
    }
}

/// How a fall is brought about.
enum Way {
    /// The unit is stopped.
    Stop(UnitName, Option<Lane>),
    /// All its processes are halted.
    Halt(UnitName, Option<Lane>),
    /// The lane is told to be deaf.
    Deafen(UnitName, Lane),
    /// The unit that feeds it is stopped.
    StopPipe(UnitName),
}

impl Way {
    fn of(spec: &Spec, class: FailureClass, lane: Option<Lane>) -> Option<Self> {
        let unit = spec.unit.clone();
        match class {
            FailureClass::Dead => Some(Self::Stop(unit, lane)),
            FailureClass::Stuck => Some(Self::Halt(unit, lane)),
            FailureClass::DeliveryGap => {
                let gap = spec.delivery_gap.as_ref()?;
                match (&gap.repipe, &gap.flow) {
                    (Some(Repipe::Restart(pipe)), _) => Some(Self::StopPipe(pipe.clone())),
                    (Some(Repipe::Hangup) | None, Flow::Lane(_)) => Some(Self::Deafen(unit, lane?)),
                    (Some(Repipe::Hangup) | None, Flow::Queue { .. }) => None,
                }
            }
            FailureClass::SupervisorDead | FailureClass::Unreachable => None,
        }
    }

    async fn go(&self, systemd: &Systemd) -> Result<String, String> {
        let began = Instant::now();
        if let Self::Stop(unit, Some(lane)) | Self::Halt(unit, Some(lane)) = self {
            lane.quieten(unit, systemd).await?;
        }
        let (what, done) = match self {
            Self::Stop(unit, _) => (format!("{unit} was stopped"), systemd.stop(unit, STOPPED).await),
            Self::Halt(unit, _) => {
                (format!("{unit} was halted (SIGSTOP)"), systemd.signal(unit, STOP, true).await)
            }
            Self::Deafen(unit, lane) => {
                let done = systemd.signal(unit, USR2, false).await;
                lane.give_work()
                    .await
                    .map_err(|why| format!("nothing could be put into its queue: {why}"))?;
                (format!("{unit} was told to be deaf (SIGUSR2), and a task waits in {}", lane.queue()), done)
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
            // The judge's own order brings it back if it is down.
            Self::Stop(unit, Some(_)) => {
                // One that is down hears nothing, and does not have to.
                let _ = systemd.signal(unit, HUP, false).await;
                return Ok(format!("{unit} was told to hear (SIGHUP), or is started if it is down"));
            }
            Self::Stop(unit, None) => return Ok(format!("{unit} is started if it is down")),
            Self::Halt(unit, lane) => {
                let done = systemd.signal(unit, CONT, true).await;
                if lane.is_some() {
                    let _ = systemd.signal(unit, HUP, false).await;
                }
                (format!("{unit} was let go on (SIGCONT)"), done)
            }
            Self::Deafen(unit, _) => {
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
    fn lane_of(&self, name: &WorkerName) -> Option<Lane> {
        let mode = self.workers.get(name)?.spec.lane?;
        let url = self.assignments.redis(self.fleet.redis.as_ref());
        Some(Lane { node: self.me.clone(), mode, url })
    }

    fn way(&self, name: &WorkerName, class: FailureClass) -> Option<Way> {
        Way::of(&self.workers.get(name)?.spec, class, self.lane_of(name))
    }

    /// Breaks the worker in a task of its own.
    pub(super) fn break_worker(&self, name: &WorkerName, class: FailureClass) {
        let (way, systemd, store) =
            (self.way(name, class), self.handles.systemd.clone(), self.handles.store.clone());
        self.when_done(name, async move {
            // The next run of this supervisor restores what this one has broken, and it knows of it only from the disk.
            match store.flush(ON_DISK).await {
                Ok(()) | Err(StoreError::Journal(_)) => {}
                Err(error @ (StoreError::Late | StoreError::Degraded(_))) => {
                    return DrillDone::Break(Err(format!(
                        "that it is broken could not be written down: {error}"
                    )));
                }
            }
            DrillDone::Break(match way {
                Some(way) => way.go(&systemd).await,
                None => Err("the fleet file no longer says how".to_owned()),
            })
        });
    }

    /// A lane hears again by itself after two minutes, in case we are gone by then. As long as we are not, and nobody has
    /// found it, it is told again.
    pub(super) fn keep_deaf(&mut self) {
        let Some(under_way) = &mut self.drills.under_way else { return };
        let drill = &under_way.drill;
        let class = drill.class == FailureClass::DeliveryGap && drill.is_on() && drill.helped.is_none();
        if !class || under_way.deafened.elapsed() < DEAF_AGAIN {
            return;
        }
        under_way.deafened = Instant::now();
        let name = under_way.worker.clone();
        if let Some(Way::Deafen(unit, _)) = self.way(&name, FailureClass::DeliveryGap) {
            let systemd = self.handles.systemd.clone();
            // If it is not heard the lane hears again too soon, and the rehearsal fails.
            tokio::spawn(async move { systemd.signal(&unit, USR2, false).await });
        }
    }

    /// Undoes the break in a task of its own.
    pub(super) fn restore_worker(&self, name: &WorkerName, class: FailureClass) {
        // Also for a worker that the fleet file does not name any more.
        let way = self.way(name, class).or_else(|| {
            let unit = self.drills.unit()?;
            (class == FailureClass::Stuck).then_some(Way::Halt(unit, None))
        });
        let systemd = self.handles.systemd.clone();
        self.when_done(name, async move {
            DrillDone::Restore(match way {
                Some(way) => way.back(&systemd).await,
                None => Ok("there was nothing that this node could restore".to_owned()),
            })
        });
    }

    /// Sends a task that does nothing through a lane, and has the journal say who did it.
    pub(super) fn send_canary(&self, name: &WorkerName) {
        let lane = self.lane_of(name);
        self.when_done(name, async move {
            DrillDone::Canary(match lane {
                Some(lane) => lane.prove().await,
                None => Err(NoCanary::NotSent("it is no lane any more".to_owned())),
            })
        });
    }
}
