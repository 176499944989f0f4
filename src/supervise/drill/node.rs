//! The death of a supervisor, on purpose: a watcher has its neighbour's supervisor killed, and sees whether its own knock
//! brings it back. The neighbour has systemd start it in any case when the lease ends, should the watcher have gone.

use std::time::{Duration, Instant};

use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};

use super::kept::{Kept, key};
use super::terms;
use crate::journal::{Event as Kind, Priority, Record};
use crate::judge::Host;
use crate::peer::inbox::Asker;
use crate::peer::watch::PeerHandle;
use crate::peer::wire::{
    DrillOrder, DrillReport, NodeState, Outcome, Refusal, RefusalCode, Request, Verb, Verdict,
};
use crate::supervise::core::{Core, Done};
use crate::supervise::refusals::refused;
use crate::systemd::{CommandExit, Systemd};
use crate::vocabulary::{Command, FailureClass, Moment, NodeName, UnitName, human};

/// How long a rehearsal of a supervisor lasts at most.
const LEASE: Duration = Duration::from_secs(60);
/// How long the neighbour may take to say that it will.
const ANSWER: Duration = Duration::from_secs(15);
/// How long the supervisor lets its answer get out before it has itself stopped.
const LAST_WORD: Duration = Duration::from_millis(100);
/// How long systemd may take to stop it.
const STOPPED: Duration = Duration::from_secs(15);
/// Our own unit, as it is shipped.
const UNIT: &str = "keyholder.service";

impl Core {
    /// Why a rehearsal with a neighbour's worker is not even passed on: something that is seen from here and perhaps not from
    /// there.
    pub(in super::super) fn in_the_way(
        &self,
        asker: &Asker,
        request: &Request,
        now: Moment,
    ) -> Option<Verdict> {
        let Verb::Drill(order) = &request.verb else { return None };
        if request.target_node == self.me {
            return None;
        }
        let why = self.amiss_from_here(now)?;
        let subject = match &request.worker {
            Some(worker) => format!("{}/{worker}", request.target_node),
            None => request.target_node.to_string(),
        };
        let text = format!("no rehearsal of {} with {subject}: {why}", order.class);
        let record = Record::local(Kind::Refused, Priority::Notice, subject, text.clone());
        self.handles.recorder.record(Record { by: asker.to_string(), verb: Some("drill"), ..record });
        Some(refused(RefusalCode::NotNow, text))
    }

    /// What speaks against breaking anything in view on purpose.
    fn amiss_from_here(&self, now: Moment) -> Option<String> {
        if let Some(other) = self.rehearsed_now(now) {
            return Some(format!("a rehearsal of {other} is under way; one at a time"));
        }
        let what = self.what_is_amiss(None, now)?;
        Some(format!(
            "the fleet is degraded, and nothing is broken on purpose then: {what}; see to that first, or --wait"
        ))
    }

    /// Somebody on this host orders the death of a neighbour's supervisor.
    pub(in super::super) fn drill_neighbour(
        &mut self,
        asker: &Asker,
        request: Request,
        order: DrillOrder,
        reply: oneshot::Sender<Verdict>,
        now: Moment,
    ) {
        if let Some(verdict) = self.in_the_way(asker, &request, now) {
            let _ = reply.send(verdict);
            return;
        }
        let node = request.target_node;
        let Some(neighbour) = self.neighbours.get(&node) else {
            let text = format!("{node} is not watched from {}; ask a node that watches it", self.me);
            let _ = reply.send(refused(RefusalCode::UnknownNode, text));
            return;
        };
        let text = format!("rehearsal of {} for {asker}: {}", order.class, request.because);
        self.handles.recorder.record(Record::local(Kind::Acting, Priority::Notice, node.as_str(), text));
        self.drills.with = Some(node.clone());
        let (handle, done, me) = (neighbour.handle.clone(), self.handles.done.clone(), self.me.clone());
        tokio::spawn(async move {
            let came = rehearse(&me, &node, &handle, order, &request.because).await;
            // The loop's inbox closes only with the loop itself.
            let _ = done.send(Done::DrillNode { node, came: Box::new(came), reply }).await;
        });
    }

    /// What came of it.
    pub(in super::super) fn drilled_neighbour(
        &mut self,
        node: &NodeName,
        came: Result<DrillReport, Refusal>,
        reply: oneshot::Sender<Verdict>,
        now: Moment,
    ) {
        self.drills.with = None;
        let verdict = match came {
            Ok(report) => {
                let kept = Kept::new(&report, now);
                self.keep(&key(node.as_str(), report.class), &kept);
                self.tell_drilled(&report, now);
                self.drills.nodes.insert(node.clone(), kept);
                self.publish_node(now);
                Verdict::Outcome(Outcome::Drilled(report))
            }
            Err(refusal) => Verdict::Refused(refusal),
        };
        // Whoever has gone meanwhile reads it in the matrix.
        let _ = reply.send(verdict);
    }

    /// A watcher orders the death of this supervisor.
    pub(in super::super) fn serve_own_death(
        &mut self,
        asker: &Asker,
        order: DrillOrder,
        reply: oneshot::Sender<Verdict>,
        now: Moment,
    ) {
        let text = if order.class != FailureClass::SupervisorDead {
            Some((RefusalCode::NoWorker, format!("{} is a class of workers: name one", order.class)))
        } else if !matches!(asker, Asker::Peer { .. }) {
            let text =
                format!("a watcher of {} has to do that: what is dead cannot see itself come back", self.me);
            Some((RefusalCode::WrongNode, text))
        } else if self.host.state() != Host::Running {
            Some((RefusalCode::NotNow, "the host boots or shuts down".to_owned()))
        } else if let Some(why) =
            self.drills.asked.get(&None).and_then(|asked| asked.may(lease(order), now).err())
        {
            Some((RefusalCode::NotNow, why))
        } else {
            self.amiss_from_here(now).map(|text| (RefusalCode::NotNow, text))
        };
        if let Some((code, text)) = text {
            let record = Record::local(Kind::Refused, Priority::Notice, self.me.as_str(), text.clone());
            self.handles.recorder.record(Record { by: asker.to_string(), verb: Some("drill"), ..record });
            let _ = reply.send(refused(code, text));
            return;
        }
        let lease = lease(order);
        let text = format!(
            "rehearsal for {asker}: this supervisor dies now; systemd starts it after {} if nobody else has",
            human(lease)
        );
        self.handles.recorder.record(Record::local(Kind::Acting, Priority::Notice, self.me.as_str(), text));
        self.peer_rehearses(None, lease, now);
        self.drills.to_die = true;
        let (systemd, done) = (self.handles.systemd.clone(), self.handles.done.clone());
        tokio::spawn(async move {
            let why = match insure(&systemd, lease).await {
                Ok(()) => {
                    let _ = reply.send(Verdict::Outcome(Outcome::Noted));
                    sleep(LAST_WORD).await;
                    stop_ourselves(&systemd).await
                }
                Err(why) => {
                    let _ = reply.send(refused(RefusalCode::NotNow, why.clone()));
                    why
                }
            };
            // It lives on.
            let _ = done.send(Done::Alive(why)).await;
        });
    }

    /// This supervisor was to be killed and is not.
    pub(in super::super) fn still_alive(&mut self, why: &str) {
        self.drills.to_die = false;
        let text = format!("the rehearsal does not take place, this supervisor lives on: {why}");
        self.handles.recorder.record(Record::local(Kind::Acted, Priority::Error, self.me.as_str(), text));
    }
}

fn lease(order: DrillOrder) -> Duration {
    match order.lease_ms {
        0 => LEASE,
        ms => Duration::from_millis(ms).clamp(terms::LEASE.0, LEASE),
    }
}

/// Has systemd start this supervisor when the lease ends. Starting one that runs does nothing.
async fn insure(systemd: &Systemd, lease: Duration) -> Result<(), String> {
    let after = format!("--on-active={}s", lease.as_secs().max(1));
    let argv = [
        "/usr/bin/systemd-run",
        "--quiet",
        "--collect",
        "--description=keyholder: the end of a rehearsal",
        "--timer-property=AccuracySec=1s",
        &after,
        "/usr/bin/systemctl",
        "--no-block",
        "start",
        UNIT,
    ];
    let argv = argv.iter().map(|&part| part.to_owned()).collect();
    let command = Command { argv, user: "root".to_owned(), timeout: Duration::from_secs(5) };
    match systemd.run(&command, "the lease of a rehearsal").await.exit {
        CommandExit::Exited(0) => Ok(()),
        exit @ (CommandExit::Exited(_)
        | CommandExit::Killed(_)
        | CommandExit::TimedOut
        | CommandExit::NotStarted(_)
        | CommandExit::Unseen(_)) => {
            let how = super::super::gentle::in_words(&exit);
            Err(format!("the lease could not be set up (systemd-run {how}), so nothing is killed"))
        }
    }
}

/// Has systemd stop this supervisor, so that its own `Restart=` does not come first; it kills itself when it is told to.
/// Returns only if that did not happen.
async fn stop_ourselves(systemd: &Systemd) -> String {
    let unit = match UNIT.parse::<UnitName>() {
        Ok(unit) => unit,
        Err(error) => return error.to_string(),
    };
    match systemd.stop_other(&unit, STOPPED).await {
        Ok(()) => "systemd says that it is stopped".to_owned(),
        Err(error) => error.to_string(),
    }
}

/// Has a neighbour's supervisor killed and waits for it to come back.
async fn rehearse(
    me: &NodeName,
    node: &NodeName,
    handle: &PeerHandle,
    order: DrillOrder,
    because: &str,
) -> Result<DrillReport, Refusal> {
    let unreachable = || Refusal::new(RefusalCode::Unreachable, format!("there is no connection to {node}"));
    let before = handle.run().ok_or_else(unreachable)?;
    let mut evidence = vec![format!("its supervisor ran as {before} and was told to die")];
    let lease = lease(order);
    let ends = Instant::now() + lease;
    match handle.request(None, Verb::Drill(order), because, ANSWER).await {
        Ok(Verdict::Outcome(_)) => {}
        Ok(Verdict::Refused(refusal)) => return Err(refusal),
        Err(error) => return Err(error.refusal()),
    }
    let began = Instant::now();
    let us = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    let mut report = DrillReport {
        node: node.clone(),
        worker: None,
        class: order.class,
        passed: false,
        why: "its supervisor did not die".to_owned(),
        by: None,
        detect_us: None,
        repair_us: None,
        evidence: Vec::new(),
    };
    let left = || ends.saturating_duration_since(Instant::now());
    if left().is_zero() {
        // Whatever has happened meanwhile, it was perhaps not the knock.
        report.why = "its answer came when the lease had ended".to_owned();
    } else if timeout(left(), handle.gone(before)).await.is_ok() {
        let found = began.elapsed();
        report.detect_us = Some(us(found));
        evidence.push(format!("the connection to it ended after {}, and {me} knocked", human(found)));
        report.why = match timeout(left(), handle.another_run(before)).await {
            Ok(Some(run)) => {
                let back = began.elapsed();
                evidence.push(format!("a new run, {run}, answered the knock after {}", human(back)));
                report.repair_us = Some(us(back.saturating_sub(found)));
                match handle.request(None, Verb::Status {}, because, ANSWER).await {
                    Ok(Verdict::Outcome(Outcome::Status(status))) if status.state == NodeState::Up => {
                        let workers = status.workers.len();
                        evidence.push(format!("it is up and reports {workers} workers"));
                        (report.passed, report.by) = (true, Some(me.to_string()));
                        "its death was seen, and the knock brought it back".to_owned()
                    }
                    Ok(_) => "it answered the knock, and does not say that it is up".to_owned(),
                    Err(error) => format!("it answered the knock and then no question: {error}"),
                }
            }
            Ok(None) | Err(_) => "the knock did not bring it back before the lease ended".to_owned(),
        };
    }
    report.evidence = evidence;
    Ok(report)
}
