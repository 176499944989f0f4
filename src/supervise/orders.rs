//! Orders and questions off the inbox. The door has authenticated and admitted them; here they meet the worker's state.

use std::time::Duration;

use tokio::sync::{Semaphore, oneshot};

use super::core::Core;
use super::evidence::journal_of;
use super::refusals::refused;
use super::waiters::WAITERS_AT_MOST;
use crate::fleet::matrix::seen_in_redis;
use crate::journal::{self, Event as Kind, Priority, Record};
use crate::judge::{Admitted, Event, Hold, OrderRequest, Releases, Trigger, admit, may_hold, may_release};
use crate::peer::inbox::{Asker, InboxMessage, Subscription, View};
use crate::peer::wire::{
    DeadLetter, Explanation, NodeReport, Outcome, RefusalCode, RelaunchOrder, Request, Verb, Verdict,
};
use crate::vocabulary::{Mode, Moment, Remedy, TaskId, UnitName, WorkerName, human};

/// The longest hold. A lease that outlives everybody's memory of it is no lease.
pub(super) const HOLD_AT_MOST: Duration = Duration::from_secs(7 * 86_400);
/// How many searches of the journal may run at once: each is a child and up to some megabytes of records.
const SEARCHES: usize = 2;

/// Answers with the unit's last journal lines as well, in a task of its own: the loop waits for no child.
fn explain_with_log(unit: UnitName, mut explained: Explanation, reply: oneshot::Sender<Verdict>) {
    tokio::spawn(async move {
        let log = journal_of(&unit).await;
        if !log.is_empty() {
            explained.observed.push("its last journal lines:".to_owned());
            explained.observed.extend(log.into_iter().map(|line| format!("  {line}")));
        }
        let _ = reply.send(Verdict::Outcome(Outcome::Explained(explained)));
    });
}

/// Searches the journal in a task of its own: the loop waits for no child.
fn prove(task: TaskId, lane: Option<Mode>, reply: oneshot::Sender<Verdict>) {
    static UNDER_WAY: Semaphore = Semaphore::const_new(SEARCHES);
    let Ok(permit) = UNDER_WAY.try_acquire() else {
        let text = format!("{SEARCHES} searches of the journal are under way already: ask again");
        let _ = reply.send(refused(RefusalCode::Busy, text));
        return;
    };
    tokio::spawn(async move {
        let verdict = match journal::prove(&task, lane).await {
            Ok(proof) => Verdict::Outcome(Outcome::Proof(proof)),
            Err(error) => refused(RefusalCode::Internal, error.to_string()),
        };
        drop(permit);
        let _ = reply.send(verdict);
    });
}

impl Core {
    /// Takes one order off the inbox. The answer goes out by its own channel, at once or when the act has ended.
    pub(super) fn order(&mut self, order: InboxMessage, now: Moment) {
        match order {
            InboxMessage::Subscribe { view, reply } => {
                let first = match view {
                    View::Node => vec![self.node_report(now)],
                    View::Fleet => self.fleet_report(now),
                };
                let _ = reply.send(Subscription { first, changes: self.publisher.subscribe(view) });
            }
            InboxMessage::Request { asker, request, reply } => {
                if let Verb::Power { force } = request.verb {
                    self.serve_power(&asker, request, force, reply, now);
                } else if let (Verb::Drill(order), None, false) =
                    (&request.verb, &request.worker, request.target_node == self.me)
                {
                    let order = *order;
                    self.drill_neighbour(&asker, request, order, reply, now);
                } else if let (Verb::Explain {}, None) = (&request.verb, &request.worker) {
                    let node = request.target_node;
                    let verdict = self.explain_node(&node, now).map_or_else(
                        || refused(RefusalCode::UnknownNode, format!("{} does not watch {node}", self.me)),
                        |explained| Verdict::Outcome(Outcome::ExplainedNode(explained)),
                    );
                    let _ = reply.send(verdict);
                } else if let Some(verdict) = self.in_the_way(&asker, &request, now) {
                    let _ = reply.send(verdict);
                } else if request.target_node == self.me {
                    self.serve(&asker, request, reply, now);
                } else {
                    self.pass_on(request, reply, now);
                }
            }
        }
    }

    /// Every node in view, this one first.
    pub(super) fn fleet_report(&self, now: Moment) -> Vec<NodeReport> {
        let own = std::iter::once(self.node_report(now));
        own.chain(self.neighbours.keys().filter_map(|name| self.neighbour_report(name, now))).collect()
    }

    fn serve(&mut self, asker: &Asker, request: Request, reply: oneshot::Sender<Verdict>, now: Moment) {
        let Some(name) = request.worker else {
            let verdict = match request.verb {
                Verb::Status {} => Verdict::Outcome(Outcome::Status(self.node_report(now))),
                Verb::Fleet {} => Verdict::Outcome(Outcome::Fleet(self.fleet_report(now))),
                Verb::Audit { last } => return self.audit(last, reply),
                Verb::Watch {} | Verb::Events {} => Verdict::Outcome(Outcome::Watching),
                Verb::Prove { task, lane } => return prove(task, lane, reply),
                Verb::Requeue(ref letter) | Verb::Drop(ref letter) => {
                    self.note(asker, request.verb.name(), letter, &request.because);
                    Verdict::Outcome(Outcome::Noted)
                }
                Verb::Drill(order) => return self.serve_own_death(asker, order, reply, now),
                Verb::Power { .. } => {
                    refused(RefusalCode::NotConfigured, "the fleet file names nothing of the kind")
                }
                Verb::Relaunch(_)
                | Verb::Nudge(_)
                | Verb::Repipe(_)
                | Verb::Hold { .. }
                | Verb::Release {}
                | Verb::Explain {} => refused(RefusalCode::NoWorker, "name the worker: NODE/WORKER"),
            };
            let _ = reply.send(verdict);
            return;
        };
        let Some(worker) = self.workers.get(&name) else {
            let _ = reply.send(refused(RefusalCode::UnknownWorker, self.no_such_worker(&name)));
            return;
        };
        let verdict = match request.verb {
            Verb::Relaunch(order) => {
                return self.serve_relaunch(asker, name, order, request.because, reply, now);
            }
            Verb::Nudge(order) => {
                let order = (Remedy::Nudge, order);
                return self.serve_gentle(asker, name, order, request.because, reply, now);
            }
            Verb::Repipe(order) => {
                let order = (Remedy::Repipe, order);
                return self.serve_gentle(asker, name, order, request.because, reply, now);
            }
            Verb::Drill(order) => {
                return self.serve_drill(asker, name, order, &request.because, reply, now);
            }
            Verb::Status {} => {
                let workers = vec![worker.report(&self.me, &name, now)];
                Verdict::Outcome(Outcome::Status(NodeReport { workers, ..self.node_report(now) }))
            }
            Verb::Explain {} => {
                let mut explained = worker.explain(&self.me, &name, now);
                explained.decided.extend(seen_in_redis(&self.fleet, &worker.spec));
                if worker.is_well(now) {
                    Verdict::Outcome(Outcome::Explained(explained))
                } else {
                    return explain_with_log(worker.spec.unit.clone(), explained, reply);
                }
            }
            Verb::Hold { for_ms } => self.serve_hold(asker, &name, for_ms, request.because, now),
            Verb::Release {} => self.serve_release(asker, &name, now),
            Verb::Power { .. }
            | Verb::Audit { .. }
            | Verb::Fleet {}
            | Verb::Prove { .. }
            | Verb::Requeue(_)
            | Verb::Drop(_)
            | Verb::Watch {}
            | Verb::Events {} => {
                refused(RefusalCode::Malformed, format!("`{}` takes no worker", request.verb.name()))
            }
        };
        let _ = reply.send(verdict);
    }

    /// Somebody on this host is about to do something with a task that could not be done. This is the record of it.
    fn note(&self, asker: &Asker, verb: &'static str, letter: &DeadLetter, because: &str) {
        let DeadLetter { node, lane, task } = letter;
        let text = format!("{verb} of the dead-lettered task {task} of the {lane} lane of {node}: {because}");
        let record = Record::local(Kind::Acting, Priority::Notice, node.as_str(), text);
        self.handles.recorder.record(Record { by: asker.to_string(), verb: Some(verb), ..record });
    }

    fn no_such_worker(&self, name: &WorkerName) -> String {
        let known: Vec<&str> = self.workers.keys().map(WorkerName::as_str).collect();
        format!("no worker {name} on {}; its workers are: {}", self.me, known.join(", "))
    }

    fn serve_relaunch(
        &mut self,
        asker: &Asker,
        name: WorkerName,
        order: RelaunchOrder,
        because: String,
        reply: oneshot::Sender<Verdict>,
        now: Moment,
    ) {
        let Some(worker) = self.workers.get_mut(&name) else { return };
        let wish = OrderRequest { remedy: Remedy::Relaunch, expect: order.expect, force: order.force };
        let policy = &worker.spec.policy;
        let admitted =
            admit(&worker.state, &worker.health, worker.invocation(), self.host.state(), wish, policy, now);
        let shared = admitted == Ok(Admitted::Join);
        match admitted {
            Ok(Admitted::Start | Admitted::Join) if worker.waiters.is_full() => {
                let text = format!("{WAITERS_AT_MOST} orders wait for {}/{name} already", self.me);
                let _ = reply.send(refused(RefusalCode::Busy, text));
            }
            Ok(Admitted::Start | Admitted::Join) => {
                worker.waiters.wait(reply, order.settled, shared, now);
                if !shared {
                    worker.because = format!("{asker}: {because}");
                    self.judge(&name, &Event::Ordered(Remedy::Relaunch), now);
                }
                self.cue(&name, Trigger::Remedy(asker.peer()), now);
            }
            Ok(Admitted::AlreadyRecovered(invocation)) => {
                let _ = reply.send(Verdict::Outcome(Outcome::AlreadyRecovered { invocation }));
            }
            Err(objection) => self.refuse(asker, &name, Remedy::Relaunch, objection, reply),
        }
    }

    fn serve_hold(
        &mut self,
        asker: &Asker,
        name: &WorkerName,
        for_ms: u64,
        why: String,
        now: Moment,
    ) -> Verdict {
        let length = Duration::from_millis(for_ms);
        if length.is_zero() || length > HOLD_AT_MOST {
            let text = format!("a hold lasts more than nothing and at most {}", human(HOLD_AT_MOST));
            return refused(RefusalCode::Malformed, text);
        }
        let Some(worker) = self.workers.get(name) else {
            return refused(RefusalCode::UnknownWorker, self.no_such_worker(name));
        };
        if let Err(of_root) = may_hold(&worker.state, asker.peer().is_some(), now) {
            return self.refuse_of_root(asker, name, "hold", of_root, now);
        }
        let (by, by_peer) = (asker.to_string(), asker.peer().is_some());
        self.judge(name, &Event::Hold(Hold { until: now + length, why, by, by_peer }), now);
        self.look(name, now);
        Verdict::Outcome(Outcome::Held { for_ms })
    }

    fn serve_release(&mut self, asker: &Asker, name: &WorkerName, now: Moment) -> Verdict {
        let Some(worker) = self.workers.get(name) else {
            return refused(RefusalCode::UnknownWorker, self.no_such_worker(name));
        };
        let hold = worker.state.held(now).cloned();
        let (held, quarantined) = (hold.is_some(), worker.state.quarantined());
        match (may_release(&worker.state, asker.peer().is_some(), now), hold) {
            (Err(of_root), _) => return self.refuse_of_root(asker, name, "release", of_root, now),
            // A hold that ends now is one that is over.
            (Ok(Releases::Hold), Some(hold)) => {
                self.judge(name, &Event::Hold(Hold { until: now, ..hold }), now);
            }
            (Ok(Releases::All | Releases::Hold), _) => self.judge(name, &Event::Release, now),
        }
        let ended = self.workers.get(name).is_some_and(|worker| !worker.state.quarantined());
        self.look(name, now);
        Verdict::Outcome(Outcome::Released { hold: held, quarantine: quarantined && ended })
    }

    fn audit(&self, last: u32, reply: oneshot::Sender<Verdict>) {
        let read = self.handles.store.audit(last);
        tokio::spawn(async move {
            let verdict = match read.await {
                Ok(lines) => Verdict::Outcome(Outcome::Audit(lines)),
                Err(error) => refused(RefusalCode::Internal, error.to_string()),
            };
            let _ = reply.send(verdict);
        });
    }
}
