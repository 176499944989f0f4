//! The relaunch, and what is answered to those who ordered it.

use super::core::{Core, Done};
use super::evidence::journal_of;
use crate::journal::{Event as Kind, Priority, Record};
use crate::judge::{Ending, Event, Health, Observation, StartBlocker};
use crate::peer::wire::{RelaunchFailed, Relaunched};
use crate::systemd::{NotStartable, Relaunch, RelaunchError};
use crate::vocabulary::{InvocationId, Moment, WorkerName, human};

/// How a relaunch ended, in the judge's words.
fn ending(result: &Result<InvocationId, RelaunchError>) -> Ending {
    match result {
        Ok(invocation) => Ending::Started(*invocation),
        Err(RelaunchError::NotStartable(obstacle)) => Ending::Refused(match obstacle {
            NotStartable::NotFound => StartBlocker::NotFound,
            NotStartable::Masked => StartBlocker::Masked,
            NotStartable::BadSetting => StartBlocker::BadUnitFile,
            NotStartable::RefusesManualStart => StartBlocker::RefusesManualStart,
        }),
        Err(
            RelaunchError::Refused(_)
            | RelaunchError::JobFailed { .. }
            | RelaunchError::Timeout
            | RelaunchError::NotRunning
            | RelaunchError::Bus(_)
            | RelaunchError::NotWatched,
        ) => Ending::Failed,
    }
}

impl Core {
    /// Restarts a worker's unit in a task of its own; [`Done::Relaunch`] follows.
    pub(super) fn relaunch(&mut self, name: &WorkerName, now: Moment) {
        let Some(worker) = self.workers.get_mut(name) else { return };
        worker.waiters.begun();
        if worker.because.is_empty() {
            worker.because =
                format!("its own supervisor saw it {}: {}", worker.shown.class.name(), worker.why());
        }
        let text = format!("relaunching {}: {}", worker.spec.unit, worker.because);
        worker.last_act = Some((now, "relaunch ordered".to_owned()));
        let (unit, timeout) = (worker.spec.unit.clone(), worker.relaunch_within());
        self.handles.recorder.record(Record::local(Kind::Acting, Priority::Notice, self.target(name), text));
        let (systemd, done, worker) = (self.handles.systemd.clone(), self.handles.done.clone(), name.clone());
        tokio::spawn(async move {
            let end = Box::new(systemd.relaunch(&unit, timeout).await);
            let log = match &end.result {
                Ok(_) => Vec::new(),
                Err(_) => journal_of(&unit).await,
            };
            // The loop's inbox closes only with the loop itself.
            let _ = done.send(Done::Relaunch { worker, end, log }).await;
        });
    }

    /// A relaunch of one of our workers ended.
    pub(super) fn relaunched(&mut self, name: &WorkerName, end: Relaunch, log: Vec<String>, now: Moment) {
        let (degraded, host) = (self.degraded(), self.host.state());
        let target = self.target(name);
        let Some(worker) = self.workers.get_mut(name) else { return };
        // Over the bus the look at the new run has arrived before this; through systemctl there is no other.
        if let Some(unit) = end.snapshot.filter(|_| end.break_glass) {
            worker.take_in(Observation::Unit(unit), host, now);
        }
        let took = human(end.took);
        let mut ending = ending(&end.result);
        if ending == Ending::Refused(StartBlocker::RefusesManualStart) && worker.health == Health::Healthy {
            // Only a unit that is up can be refused its stop; it has not fallen, and nothing is stranded.
            ending = Ending::Untouched;
        }
        let (priority, text) = match &end.result {
            Ok(invocation) => {
                let glass = if end.break_glass { ", through systemctl since the bus is gone" } else { "" };
                let text = format!("relaunched in {took} under invocation {}{glass}", invocation.short());
                (Priority::Notice, text)
            }
            Err(error) => {
                let text = format!("relaunch failed after {took}: {error}");
                (Priority::Error, text)
            }
        };
        let unit = worker.spec.unit.clone();
        // A table has the invocation in a column of its own; who it was and why is what a person asks next.
        let act = match &end.result {
            Ok(_) => format!("relaunched in {took} ({})", worker.because),
            Err(_) => text.clone(),
        };
        worker.last_act = Some((now, act));
        let took_us = u64::try_from(end.took.as_micros()).unwrap_or(u64::MAX);
        match end.result {
            Ok(invocation) => {
                let result = Relaunched {
                    unit,
                    before: end.before,
                    invocation,
                    took_us,
                    settled: false,
                    shared: false,
                    break_glass: end.break_glass,
                    degraded,
                };
                worker.waiters.started(result);
            }
            Err(error) => {
                let failed = RelaunchFailed {
                    unit,
                    why: error.to_string(),
                    job: end.job,
                    took_us,
                    log,
                    under_way: false,
                };
                worker.waiters.failed(&failed);
            }
        }
        let by = std::mem::take(&mut worker.because);
        self.handles.recorder.record(Record::local(Kind::Acted, priority, target, format!("{text} ({by})")));
        self.judge(name, &Event::Done(ending), now);
        self.look(name, now);
    }
}
