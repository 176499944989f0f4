//! Orders of somebody on this host that are for another node: they are passed on to it.

use std::time::Duration;

use tokio::sync::oneshot;

use super::core::Core;
use super::refusals::refused;
use super::waiters::ANSWERED_WITHIN;
use super::watcher_jobs::answered;
use crate::journal::{Event as Kind, Priority, Record};
use crate::peer::wire::{GentleOrder, Outcome, Refusal, RefusalCode, RelaunchOrder, Request, Verb, Verdict};
use crate::vocabulary::{Moment, NodeName, Target, WorkerName};

/// How much longer than it takes at most a peer's answer to a relaunch is waited for.
const ANSWER_SLACK: Duration = Duration::from_secs(15);
/// How long a peer may take to carry out a nudge or repipe and to see whether it helped.
const ANSWER_GENTLE: Duration = Duration::from_secs(30 + 60 + 15);
/// How long a peer may take for a rehearsal: the longest lease, a remedy that is under way when it ends, its own repair, and a
/// task through a lane.
const ANSWER_DRILL: Duration = Duration::from_secs(600 + 30 + 60 + 60);
/// How long a peer may take to answer anything else.
const ANSWER: Duration = Duration::from_secs(5);
/// How long a peer may take to search its journal: as long as the search may take there, and the way.
const ANSWER_PROOF: Duration = Duration::from_secs(10);
impl Core {
    /// Says so, and which there are.
    pub(super) fn no_such_node(&self, node: &NodeName) -> String {
        let known: Vec<&str> = self.fleet.nodes.keys().map(NodeName::as_str).collect();
        format!("{node} is not in fleet.yaml, which knows {}", known.join(", "))
    }

    /// Passes an order of somebody on this host on to the node that it is for.
    pub(super) fn pass_on(&self, request: Request, reply: oneshot::Sender<Verdict>, now: Moment) {
        let Some(neighbour) = self.neighbours.get(&request.target_node) else {
            let text = if self.fleet.nodes.contains_key(&request.target_node) {
                format!(
                    "{} is not watched from {}; ask a node that watches it, or itself",
                    request.target_node, self.me
                )
            } else {
                self.no_such_node(&request.target_node)
            };
            let _ = reply.send(refused(RefusalCode::UnknownNode, text));
            return;
        };
        let verb = match request.verb {
            // An order from here is about the run that is seen from here: if that has passed, nothing is to be done.
            Verb::Relaunch(order) if order.expect.is_none() => Verb::Relaunch(RelaunchOrder {
                expect: request.worker.as_ref().and_then(|worker| neighbour.invocation(worker)),
                ..order
            }),
            Verb::Nudge(order) if order.expect.is_none() => Verb::Nudge(GentleOrder {
                expect: request.worker.as_ref().and_then(|worker| neighbour.invocation(worker)),
                ..order
            }),
            Verb::Repipe(order) if order.expect.is_none() => Verb::Repipe(GentleOrder {
                expect: request.worker.as_ref().and_then(|worker| neighbour.invocation(worker)),
                ..order
            }),
            verb @ (Verb::Status {}
            | Verb::Relaunch(_)
            | Verb::Nudge(_)
            | Verb::Repipe(_)
            | Verb::Power { .. }
            | Verb::Drill(_)
            | Verb::Hold { .. }
            | Verb::Release {}
            | Verb::Explain {}
            | Verb::Audit { .. }
            | Verb::Fleet {}
            | Verb::Prove { .. }
            | Verb::Requeue(_)
            | Verb::Drop(_)
            | Verb::Watch {}
            | Verb::Events {}) => verb,
        };
        // A silent node's last known state is better than none, and says itself that it is old.
        if let (Verb::Status {}, None) = (&verb, &request.worker) {
            if let Some(report) = self.neighbour_report(&request.target_node, now) {
                let _ = reply.send(Verdict::Outcome(Outcome::Status(report)));
            }
            return;
        }
        let deadline = self.answer_within(&request.target_node, request.worker.as_ref(), &verb);
        let handle = neighbour.handle.clone();
        let recorder = self.handles.recorder.clone();
        let known = neighbour.in_words(&request.target_node);
        tokio::spawn(async move {
            let acts = verb.acts();
            let answer = handle.request(request.worker.as_ref(), verb, &request.because, deadline).await;
            let verdict = answer.unwrap_or_else(|error| {
                let Refusal { code, text } = error.refusal();
                refused(code, format!("{text} ({known})"))
            });
            if let (true, Some(worker)) = (acts, request.worker) {
                let target = Target { node: request.target_node, worker };
                let (served, text) = answered(&target, &verdict);
                let priority = if served { Priority::Notice } else { Priority::Error };
                recorder.record(Record::local(Kind::Acted, priority, target.to_string(), text));
            }
            let _ = reply.send(verdict);
        });
    }

    pub(super) fn answer_within(
        &self,
        node: &NodeName,
        worker: Option<&WorkerName>,
        verb: &Verb,
    ) -> Duration {
        match verb {
            Verb::Relaunch(_) => {
                let spec =
                    self.fleet.nodes.get(node).zip(worker).and_then(|(node, name)| node.workers.get(name));
                let policy = spec.map(|worker| worker.policy.clone()).unwrap_or_default();
                ANSWERED_WITHIN + policy.settle + ANSWER_SLACK
            }
            Verb::Prove { .. } => ANSWER_PROOF,
            Verb::Nudge(_) | Verb::Repipe(_) => ANSWER_GENTLE,
            Verb::Drill(_) => ANSWER_DRILL,
            Verb::Power { .. } => ANSWER_SLACK,
            Verb::Status {}
            | Verb::Hold { .. }
            | Verb::Release {}
            | Verb::Explain {}
            | Verb::Audit { .. }
            | Verb::Fleet {}
            | Verb::Requeue(_)
            | Verb::Drop(_)
            | Verb::Watch {}
            | Verb::Events {} => ANSWER,
        }
    }
}
