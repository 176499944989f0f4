use std::sync::Arc;

use tokio::sync::oneshot;

use super::*;
use crate::fleet::parse;
use crate::peer::wire::{Outcome, Verdict};

/// The worker `agent` of a fleet file that is as short as it can be.
fn worker(now: Moment) -> Worker {
    let pin = format!("sha256:{}", "a".repeat(64));
    let text = format!(
        "version: 1\nnodes:\n  mars:\n    address: 192.0.2.10:7433\n    pins: [\"{pin}\"]\n    workers:\n      agent: {{ unit: agent.service }}\n"
    );
    let fleet = parse("fleet.yaml", text.as_bytes()).unwrap_or_else(|problems| panic!("{problems}")).fleet;
    let spec = fleet.nodes.values().flat_map(|node| node.workers.values()).next().unwrap();
    Worker::new(Arc::clone(spec), WorkerState::default(), now)
}

#[test]
fn a_stop_or_a_start_in_vain_does_not_change_since_when_a_worker_is_dead() {
    let at = Moment::from_millis;
    let mut worker = worker(at(0));
    worker.turn(Class::Healthy, Class::Dead, at(1_000));
    assert_eq!(worker.since, at(1_000));
    // Somebody stops what is down already, and somebody else starts it in vain.
    for again in [5_000, 9_000] {
        worker.turn(Class::Dead, Class::Starting, at(again));
        assert_eq!(worker.since, at(again), "it is on its way since then");
        worker.turn(Class::Starting, Class::Starting, at(again + 50));
        worker.turn(Class::Starting, Class::Dead, at(again + 100));
        assert_eq!(worker.since, at(1_000), "it is as dead as before");
    }
    worker.turn(Class::Dead, Class::Starting, at(12_000));
    worker.turn(Class::Starting, Class::Healthy, at(12_100));
    assert_eq!(worker.since, at(12_100));
    worker.turn(Class::Healthy, Class::Dead, at(20_000));
    assert_eq!(worker.since, at(20_000), "that is another fall");
}

#[test]
fn whoever_has_waited_for_ninety_seconds_is_told_that_it_is_still_under_way() {
    let at = Moment::from_millis;
    let mut worker = worker(at(0));
    let (reply, mut first) = oneshot::channel();
    worker.waiters.wait(reply, false, false, at(0));
    let (reply, mut second) = oneshot::channel();
    worker.waiters.wait(reply, false, true, at(30_000));
    worker.answer_late(at(89_999));
    assert!(first.try_recv().is_err(), "not yet");
    worker.answer_late(at(90_000));
    let Ok(Verdict::Outcome(Outcome::Failed(failed))) = first.try_recv() else { panic!("no answer") };
    assert!(failed.under_way && failed.why.starts_with("still under way"), "{}", failed.why);
    assert!(second.try_recv().is_err(), "that one has waited for a minute only");
    assert_eq!(worker.wake(), Some(at(120_000)), "it is answered in its turn");
    assert!(!worker.waiters.is_full());
}
