//! The task: what is due is read group by group, each group by one job at a time.

use std::collections::BTreeSet;
use std::pin::Pin;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};

use super::files::{self, Files};
use super::journal::Journal;
use super::look::{Check, SignSource};
use super::redis::Watcher;
use super::timetable::Timetable;
use super::{Plan, Vital};
use crate::judge::Reading;
use crate::systemd::{CommandExit, Systemd};
use crate::vocabulary::{Command, Target, UnitName};

/// How many readings go to the loop at once: it has other work in between.
const TOGETHER: usize = 256;

/// The readings of looks, by their numbers in the plan, and what the job hands back.
struct JobDone {
    group: Group,
    readings: Vec<(usize, Reading)>,
    watcher: Option<Watcher>,
}

type Job = Pin<Box<dyn Future<Output = JobDone> + Send>>;

/// What is read together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Group {
    Files,
    Redis,
    Bus,
    Journal,
    /// A command has nobody to share with.
    Command(usize),
}

struct Task {
    systemd: Systemd,
    plan: Plan,
    table: Timetable,
    jobs: FuturesUnordered<Job>,
    /// The groups of which a job is under way.
    busy: Vec<Group>,
    /// What has become due and is not being read yet.
    pending: BTreeSet<usize>,
    files: Files,
    journal: Journal,
    /// Away while something is read in Redis.
    watcher: Option<Watcher>,
}

/// Why the task woke.
enum TaskWoke {
    Due,
    JobDone(Box<JobDone>),
    Planned { open: bool },
    Closed,
}

pub(super) async fn run(mut plan: watch::Receiver<Plan>, systemd: Systemd, out: mpsc::Sender<Vec<Vital>>) {
    let mut task = Task {
        systemd,
        plan: Plan::default(),
        table: Timetable::new(Instant::now(), std::iter::empty()),
        jobs: FuturesUnordered::new(),
        busy: Vec::new(),
        pending: BTreeSet::new(),
        files: Files::default(),
        journal: Journal::default(),
        watcher: Some(Watcher::new(None)),
    };
    task.take(plan.borrow_and_update().clone());
    let mut open = true;
    loop {
        task.launch();
        let next = task.table.next();
        // Each branch is cancel safe; jobs are kept across turns.
        let woke = tokio::select! {
            () = out.closed() => TaskWoke::Closed,
            changed = plan.changed(), if open => TaskWoke::Planned { open: changed.is_ok() },
            Some(done) = task.jobs.next() => TaskWoke::JobDone(Box::new(done)),
            () = at(next), if next.is_some() => TaskWoke::Due,
        };
        match woke {
            TaskWoke::Due => {
                task.pending.extend(task.table.take(Instant::now()));
            }
            TaskWoke::JobDone(done) => {
                if !task.tell(*done, &out) {
                    return;
                }
            }
            TaskWoke::Planned { open: still } => {
                open = still;
                let plan = plan.borrow_and_update().clone();
                if plan != task.plan {
                    task.take(plan);
                }
            }
            TaskWoke::Closed => return,
        }
    }
}

async fn at(next: Option<Instant>) {
    match next {
        Some(next) => sleep_until(next).await,
        None => std::future::pending().await,
    }
}

impl Task {
    /// From now on this is the plan. What is under way for another one is given up.
    fn take(&mut self, plan: Plan) {
        self.jobs.clear();
        self.busy.clear();
        self.pending.clear();
        match &mut self.watcher {
            Some(watcher) if plan.redis == self.plan.redis => watcher.keep(&plan.looks),
            Some(_) | None => self.watcher = Some(Watcher::new(plan.redis.as_deref())),
        }
        let lines = plan.looks.iter().filter_map(|look| match &look.place {
            SignSource::Journal(unit) => Some(unit),
            SignSource::File(_)
            | SignSource::Lane(_)
            | SignSource::Key(_)
            | SignSource::Command(_)
            | SignSource::Watchdog(_)
            | SignSource::Queue { .. }
            | SignSource::LaneQueue(_)
            | SignSource::Canary(..) => None,
        });
        self.journal.keep(&lines.collect::<Vec<_>>());
        self.table = Timetable::new(Instant::now(), plan.looks.iter().map(|look| look.every));
        self.plan = plan;
    }

    /// Starts a job for every group that has something to read and is not at it.
    fn launch(&mut self) {
        if self.pending.is_empty() {
            return;
        }
        let (mut files, mut redis, mut bus, mut journal) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for number in std::mem::take(&mut self.pending) {
            let Some(look) = self.plan.looks.get(number) else { continue };
            let group = group(number, &look.place);
            if self.busy.contains(&group) {
                self.pending.insert(number);
                continue;
            }
            match &look.place {
                SignSource::File(path) => files.push((number, files::Target::Beat(path.clone()))),
                SignSource::Lane(path) => files.push((number, files::Target::Lane(path.clone()))),
                SignSource::Key(_)
                | SignSource::Queue { .. }
                | SignSource::LaneQueue(_)
                | SignSource::Canary(..) => {
                    redis.push((number, look.clone()));
                }
                SignSource::Watchdog(unit) => bus.push((number, unit.clone())),
                SignSource::Journal(unit) => journal.push((number, unit.clone())),
                SignSource::Command(command) => {
                    let job = command_job(self.systemd.clone(), number, look.target.clone(), command.clone());
                    self.busy.push(group);
                    self.jobs.push(job);
                }
            }
        }
        if !files.is_empty() {
            let reader = self.files.clone();
            self.start(Group::Files, async move {
                let (numbers, targets) = files.into_iter().unzip();
                (pair(numbers, reader.read(targets).await), None)
            });
        }
        if !redis.is_empty()
            && let Some(mut watcher) = self.watcher.take()
        {
            self.start(Group::Redis, async move {
                let (numbers, looks): (_, Vec<Check>) = redis.into_iter().unzip();
                (pair(numbers, watcher.read(&looks).await), Some(watcher))
            });
        }
        if !bus.is_empty() {
            let systemd = self.systemd.clone();
            self.start(Group::Bus, async move { (watchdogs(&systemd, bus).await, None) });
        }
        if !journal.is_empty() {
            let (reader, systemd) = (self.journal.clone(), self.systemd.clone());
            self.start(Group::Journal, async move { (reader.read(&systemd, journal).await, None) });
        }
    }

    fn start(
        &mut self,
        group: Group,
        job: impl Future<Output = (Vec<(usize, Reading)>, Option<Watcher>)> + Send + 'static,
    ) {
        self.busy.push(group);
        self.jobs.push(Box::pin(async move {
            let (readings, watcher) = job.await;
            JobDone { group, readings, watcher }
        }));
    }

    /// Passes readings on; false if nobody wants them any more.
    fn tell(&mut self, done: JobDone, out: &mpsc::Sender<Vec<Vital>>) -> bool {
        self.busy.retain(|group| *group != done.group);
        if done.watcher.is_some() {
            self.watcher = done.watcher;
        }
        let mut vitals = done.readings.into_iter().filter_map(|(number, reading)| {
            let look = self.plan.looks.get(number)?;
            Some(Vital { target: look.target.clone(), sign: look.sign, reading })
        });
        loop {
            let some: Vec<_> = vitals.by_ref().take(TOGETHER).collect();
            if some.is_empty() {
                return true;
            }
            match out.try_send(some) {
                Ok(()) => {}
                Err(TrySendError::Full(lost)) => {
                    tracing::debug!(lost = lost.len(), "readings were dropped: the loop is busy");
                }
                Err(TrySendError::Closed(_)) => return false,
            }
        }
    }
}

fn group(number: usize, place: &SignSource) -> Group {
    match place {
        SignSource::File(_) | SignSource::Lane(_) => Group::Files,
        SignSource::Key(_) | SignSource::Queue { .. } | SignSource::LaneQueue(_) | SignSource::Canary(..) => {
            Group::Redis
        }
        SignSource::Watchdog(_) => Group::Bus,
        SignSource::Journal(_) => Group::Journal,
        SignSource::Command(_) => Group::Command(number),
    }
}

fn pair(numbers: Vec<usize>, readings: Vec<Reading>) -> Vec<(usize, Reading)> {
    numbers.into_iter().zip(readings).collect()
}

fn command_job(systemd: Systemd, number: usize, target: Target, command: Command) -> Job {
    Box::pin(async move {
        let end = systemd.run(&command, &format!("heartbeat of {target}")).await;
        let program = command.argv.first().map_or("", String::as_str);
        let reading = match end.exit {
            CommandExit::Exited(0) => Reading::Moving,
            CommandExit::Exited(1) => Reading::Silent(format!("{program} says that there is no heartbeat")),
            CommandExit::Exited(code) => Reading::Failed(format!("{program} failed with exit code {code}")),
            CommandExit::Killed(signal) => Reading::Failed(format!("{program} was ended by signal {signal}")),
            CommandExit::TimedOut => Reading::Failed(format!("{program} took longer than it may")),
            CommandExit::NotStarted(why) => Reading::Failed(format!("{program} did not run: {why}")),
            CommandExit::Unseen(why) => Reading::Failed(format!("how {program} ended was not seen: {why}")),
        };
        JobDone { group: Group::Command(number), readings: vec![(number, reading)], watcher: None }
    })
}

/// After one failure the others are not tried: the bus is the same for all.
async fn watchdogs(systemd: &Systemd, units: Vec<(usize, UnitName)>) -> Vec<(usize, Reading)> {
    let mut wrong = None;
    let mut readings = Vec::with_capacity(units.len());
    for (number, unit) in units {
        let reading = match &wrong {
            Some(why) => Reading::Failed(String::clone(why)),
            None => match systemd.watchdog(&unit).await {
                Ok(0) => Reading::Failed(format!(
                    "{unit} has no watchdog to ask, or does not run; it needs WatchdogSec= and must ping"
                )),
                Ok(at) => Reading::Mark(at),
                Err(why) => Reading::Failed(wrong.insert(why).clone()),
            },
        };
        readings.push((number, reading));
    }
    readings
}

#[cfg(test)]
mod tests;
