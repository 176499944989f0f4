//! What this node orders as a watcher of its neighbours, and what comes of it.

use std::time::Duration;

use super::core::{Core, Done};
use crate::journal::{Event as Kind, Priority, Record};
use crate::peer::wire::{GentleOrder, Outcome, RelaunchOrder, Verb, Verdict};
use crate::vocabulary::{Moment, Remedy, Target, human};

impl Core {
    /// Orders what neighbours leave to their watchers; returns when to look again.
    pub(super) fn watcher_jobs(&mut self, now: Moment) -> Option<Moment> {
        let (mut go, mut wake) = (Vec::new(), None::<Moment>);
        for (node, neighbour) in &mut self.neighbours {
            let (ailing, again) = neighbour.watcher_jobs(&self.me, node, &self.fleet, now);
            wake = [wake, again].into_iter().flatten().min();
            go.extend(
                ailing
                    .into_iter()
                    .map(|(worker, remedy, saw)| (Target { node: node.clone(), worker }, remedy, saw)),
            );
        }
        for (target, remedy, saw) in go {
            self.run_errand(target, remedy, &saw);
        }
        wake
    }

    /// Gives one order in a task of its own; [`Done::WatcherJob`] follows.
    fn run_errand(&mut self, target: Target, remedy: Remedy, saw: &str) {
        let Some(neighbour) = self.neighbours.get(&target.node) else { return };
        let expect = neighbour.invocation(&target.worker);
        let verb = match remedy {
            Remedy::Relaunch => Verb::Relaunch(RelaunchOrder { expect, ..RelaunchOrder::default() }),
            Remedy::Nudge => Verb::Nudge(GentleOrder { expect, force: false }),
            Remedy::Repipe => Verb::Repipe(GentleOrder { expect, force: false }),
        };
        let text = format!("{target} is {saw}: ordering a {remedy} as its watcher");
        self.handles.recorder.record(Record::local(Kind::Acting, Priority::Notice, target.to_string(), text));
        let deadline = self.answer_within(&target.node, Some(&target.worker), &verb);
        let (handle, done) = (neighbour.handle.clone(), self.handles.done.clone());
        let because = format!("its watcher saw it {saw}");
        tokio::spawn(async move {
            let answer = handle.request(Some(&target.worker), verb, &because, deadline).await;
            let verdict = Box::new(answer.map_err(|error| error.to_string()));
            // The loop's inbox closes only with the loop itself.
            let _ = done.send(Done::WatcherJob { target, verdict }).await;
        });
    }

    /// A neighbour answered an order that this node gave as its watcher.
    pub(super) fn errand_done(&mut self, target: &Target, verdict: &Result<Verdict, String>, now: Moment) {
        let (served, text) = match verdict {
            Ok(verdict) => answered(target, verdict),
            Err(error) => (false, format!("{target}: {error}")),
        };
        let priority = if served { Priority::Notice } else { Priority::Error };
        self.handles.recorder.record(Record::local(Kind::Acted, priority, target.to_string(), text));
        if let Some(neighbour) = self.neighbours.get_mut(&target.node) {
            neighbour.errand_done(target, served, now);
        }
    }
}

/// Whether a neighbour did what it was ordered to, and what it answered in words.
pub(super) fn answered(target: &Target, verdict: &Verdict) -> (bool, String) {
    match verdict {
        Verdict::Outcome(Outcome::Relaunched(done)) => {
            let took = human(Duration::from_micros(done.took_us));
            (true, format!("{target} runs again under invocation {} after {took}", done.invocation.short()))
        }
        Verdict::Outcome(Outcome::AlreadyRecovered { .. }) => {
            (true, format!("{target} had already recovered; nothing was touched"))
        }
        Verdict::Outcome(Outcome::Remedied(done)) => {
            (done.helped != Some(false), format!("{target}: {}: {}", done.remedy, done.why))
        }
        Verdict::Outcome(Outcome::Drilled(report)) => {
            let came = if report.passed { "passed" } else { "failed" };
            (report.passed, format!("{target}: rehearsal of {} {came}: {}", report.class, report.why))
        }
        Verdict::Outcome(Outcome::Failed(failed)) if failed.under_way => {
            (true, format!("{target}: {}", failed.why))
        }
        Verdict::Outcome(Outcome::Failed(failed)) => (false, format!("{target} is not back: {}", failed.why)),
        Verdict::Outcome(Outcome::Held { for_ms }) => {
            (true, format!("{target} is left alone for {}", human(Duration::from_millis(*for_ms))))
        }
        Verdict::Outcome(Outcome::Released { .. }) => (true, format!("{target} is released")),
        Verdict::Outcome(
            other @ (Outcome::Status(_)
            | Outcome::Fleet(_)
            | Outcome::Explained(_)
            | Outcome::ExplainedNode(_)
            | Outcome::Audit(_)
            | Outcome::Proof(_)
            | Outcome::Powered { .. }
            | Outcome::Noted
            | Outcome::Watching),
        ) => (false, format!("{target}: unexpected answer {other:?}")),
        Verdict::Refused(refusal) => (false, format!("{target} refused it: {refusal}")),
    }
}

#[cfg(test)]
#[path = "watcher_jobs/tests.rs"]
mod tests;
