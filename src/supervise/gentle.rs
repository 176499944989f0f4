//! Nudges and repipes: how they are carried out, and what is answered to those who ordered them.

use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use super::core::{Core, Done};
use super::refusals::refused;
use super::waiters::WAITERS_AT_MOST;
use super::worker::Worker;
use crate::journal::{Event as Kind, Priority, Record};
use crate::judge::{Admitted, Ending, Event, OrderRequest, Trigger, admit};
use crate::peer::inbox::Asker;
use crate::peer::wire::{GentleOrder, Outcome, RefusalCode, Verdict};
use crate::systemd::{CommandExit, Systemd};
use crate::vocabulary::{Moment, Nudge, Remedy, Repipe, UnitName, WorkerName, human};

/// How long a reload or the restart of a pipe may take.
const ACT: Duration = Duration::from_secs(30);

/// A gentle remedy as the fleet file describes it.
#[derive(Clone)]
enum Plan {
    Nudge(Nudge),
    Repipe(Repipe),
}

impl Plan {
    fn of(worker: &Worker, remedy: Remedy) -> Option<Self> {
        match remedy {
            Remedy::Nudge => {
                worker.spec.stuck.as_ref().and_then(|stuck| stuck.nudge.clone()).map(Self::Nudge)
            }
            Remedy::Repipe => {
                worker.spec.delivery_gap.as_ref().and_then(|gap| gap.repipe.clone()).map(Self::Repipe)
            }
            Remedy::Relaunch => None,
        }
    }

    /// What it does to `unit`, in words.
    fn in_words(&self, unit: &UnitName) -> String {
        match self {
            Self::Nudge(Nudge::Signal(signal)) => format!("{} to {unit}", signal.name()),
            Self::Nudge(Nudge::Reload) => format!("reload of {unit}"),
            Self::Nudge(Nudge::Command(command)) => {
                format!("command {}", command.argv.first().map(String::as_str).unwrap_or_default())
            }
            Self::Repipe(Repipe::Restart(pipe)) => format!("restart of {pipe}, which feeds {unit}"),
            Self::Repipe(Repipe::Hangup) => format!("SIGHUP to {unit}, which connects again"),
        }
    }

    async fn carry_out(self, unit: &UnitName, systemd: &Systemd) -> Result<(), String> {
        const HANGUP: i32 = 1;
        let told = |error: crate::systemd::ActError| error.to_string();
        match self {
            Self::Nudge(Nudge::Signal(signal)) => {
                takes(unit, signal.number(), signal.name(), systemd).await?;
                systemd.signal(unit, signal.number(), false).await.map_err(told)
            }
            Self::Nudge(Nudge::Reload) => systemd.reload(unit, ACT).await.map_err(told),
            Self::Nudge(Nudge::Command(command)) => match systemd.run(&command, "nudge").await.exit {
                CommandExit::Exited(0) => Ok(()),
                exit @ (CommandExit::Exited(_)
                | CommandExit::Killed(_)
                | CommandExit::TimedOut
                | CommandExit::NotStarted(_)
                | CommandExit::Unseen(_)) => Err(format!("its command {}", in_words(&exit))),
            },
            Self::Repipe(Repipe::Restart(pipe)) => {
                systemd.restart_other(&pipe, ACT).await.map(drop).map_err(told)
            }
            Self::Repipe(Repipe::Hangup) => {
                takes(unit, HANGUP, "SIGHUP", systemd).await?;
                systemd.signal(unit, HANGUP, false).await.map_err(told)
            }
        }
    }
}

/// Whether the main process can take a signal. One that would be ended by it gets none, and the ladder goes on.
async fn takes(unit: &UnitName, number: i32, name: &str, systemd: &Systemd) -> Result<(), String> {
    let facts = systemd.facts(unit).await.map_err(|why| format!("{name} was not sent: {why}"))?;
    super::handlers::takes(facts.main_pid, number, name).map_err(|why| format!("{name} was not sent: {why}"))
}

/// How a command ended, after "it" or "the command".
pub(super) fn in_words(exit: &CommandExit) -> String {
    match exit {
        CommandExit::Exited(code) => format!("exited with {code}"),
        CommandExit::Killed(signal) => format!("was killed by signal {signal}"),
        CommandExit::TimedOut => "was ended because its time was up".to_owned(),
        CommandExit::NotStarted(why) => format!("did not run: {why}"),
        CommandExit::Unseen(why) => format!("was started and its end was not seen: {why}"),
    }
}

impl Core {
    /// Carries out a nudge or repipe in a task of its own; [`Done::Gentle`] follows.
    pub(super) fn gentle(&mut self, name: &WorkerName, remedy: Remedy, now: Moment) {
        let Some(worker) = self.workers.get_mut(name) else { return };
        if worker.because.is_empty() {
            worker.because =
                format!("its own supervisor saw it {}: {}", worker.shown.class.name(), worker.why());
        }
        worker.waiters.remedy_begun(remedy, now);
        worker.last_act = Some((now, format!("{remedy} ordered")));
        let unit = worker.spec.unit.clone();
        let plan = Plan::of(worker, remedy);
        let what = plan.as_ref().map(|plan| plan.in_words(&unit)).unwrap_or_default();
        let text = format!("{remedy}: {what}: {}", worker.because);
        self.handles.recorder.record(Record::local(Kind::Acting, Priority::Notice, self.target(name), text));
        let (systemd, done, worker) = (self.handles.systemd.clone(), self.handles.done.clone(), name.clone());
        tokio::spawn(async move {
            let began = Instant::now();
            let result = match plan {
                Some(plan) => plan.carry_out(&unit, &systemd).await,
                None => Err(format!("the fleet file names no {remedy} for it any more")),
            };
            // The loop's inbox closes only with the loop itself.
            let _ = done.send(Done::Gentle { worker, remedy, result, took: began.elapsed() }).await;
        });
    }

    /// It was carried out, or could not be.
    pub(super) fn gentled(
        &mut self,
        name: &WorkerName,
        remedy: Remedy,
        result: Result<(), String>,
        took: Duration,
        now: Moment,
    ) {
        let target = self.target(name);
        let Some(worker) = self.workers.get_mut(name) else { return };
        let by = std::mem::take(&mut worker.because);
        let (priority, ending, text) = match result {
            Ok(()) => {
                (Priority::Notice, Ending::Sent, format!("{remedy} carried out in {} ({by})", human(took)))
            }
            Err(why) => (Priority::Error, Ending::Failed, format!("{remedy} failed: {why} ({by})")),
        };
        worker.last_act = Some((now, text.clone()));
        self.handles.recorder.record(Record::local(Kind::Acted, priority, target, text));
        self.judge(name, &Event::Done(ending), now);
        self.look(name, now);
    }

    /// Somebody orders a nudge or a repipe.
    pub(super) fn serve_gentle(
        &mut self,
        asker: &Asker,
        name: WorkerName,
        (remedy, order): (Remedy, GentleOrder),
        because: String,
        reply: oneshot::Sender<Verdict>,
        now: Moment,
    ) {
        let target = self.target(&name);
        let Some(worker) = self.workers.get_mut(&name) else { return };
        if Plan::of(worker, remedy).is_none() {
            let setting = if remedy == Remedy::Nudge { "stuck.nudge" } else { "delivery_gap.repipe" };
            let text = format!(
                "fleet.yaml names no {remedy} for {target} (`{setting}`); what is always there: keyholder relaunch {target}"
            );
            let _ = reply.send(refused(RefusalCode::NotConfigured, text));
            return;
        }
        let wish = OrderRequest { remedy, expect: order.expect, force: order.force };
        let policy = &worker.spec.policy;
        match admit(&worker.state, &worker.health, worker.invocation(), self.host.state(), wish, policy, now)
        {
            Ok(Admitted::Start | Admitted::Join) if worker.waiters.is_full_for_remedies() => {
                let text = format!("{WAITERS_AT_MOST} orders wait for {target} already");
                let _ = reply.send(refused(RefusalCode::Busy, text));
            }
            Ok(Admitted::Join) => {
                worker.waiters.wait_for_remedy(reply);
                self.cue(&name, Trigger::Remedy(asker.peer()), now);
            }
            Ok(Admitted::Start) => {
                worker.waiters.wait_for_remedy(reply);
                worker.because = format!("{asker}: {because}");
                self.judge(&name, &Event::Ordered(remedy), now);
                self.cue(&name, Trigger::Remedy(asker.peer()), now);
            }
            Ok(Admitted::AlreadyRecovered(invocation)) => {
                let _ = reply.send(Verdict::Outcome(Outcome::AlreadyRecovered { invocation }));
            }
            Err(objection) => self.refuse(asker, &name, remedy, objection, reply),
        }
    }
}
