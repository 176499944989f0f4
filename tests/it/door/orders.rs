//! Orders act once: over whatever connection they come, and never across a restart.

use std::sync::Arc;
use std::time::Instant;

use keyholder::peer::client::{connect, connect_local};
use keyholder::peer::wire::{Outcome, RefusalCode, RelaunchOrder, Request, ServerFrame, Verb, Verdict};
use keyholder::vocabulary::ReqId;

use super::house::{House, PATIENCE, eventually, hello, name, relaunch, worker};

fn request(house: &House, verb: Verb) -> Request {
    Request {
        boot_nonce: house.nonce,
        req_id: ReqId::random().unwrap(),
        target_node: name("mars"),
        worker: Some(worker("write")),
        verb,
        because: "test".to_owned(),
    }
}

fn code(verdict: &Verdict) -> Option<RefusalCode> {
    match verdict {
        Verdict::Refused(refusal) => Some(refusal.code),
        Verdict::Outcome(_) => None,
    }
}

#[tokio::test]
async fn the_same_request_twice_is_one_order_and_two_equal_verdicts() {
    let house = House::open().await;
    let (one, _e1) = house.call().await.unwrap();
    let (two, _e2) = house.call().await.unwrap();
    let request = request(&house, relaunch());
    house.state.lock().unwrap().stalled = true;
    let (first, copy) = (one.clone(), two.clone());
    let (r1, r2) = (request.clone(), request.clone());
    let first = tokio::spawn(async move { first.send(&r1, PATIENCE).await });
    let copy = tokio::spawn(async move { copy.send(&r2, PATIENCE).await });
    eventually("the order", || (house.orders().len() == 1).then_some(())).await;
    let reply = house.state.lock().unwrap().waiting.pop().unwrap();
    reply.send(Verdict::Outcome(Outcome::Held { for_ms: 42 })).unwrap();
    let verdicts = (first.await.unwrap().unwrap(), copy.await.unwrap().unwrap());
    assert_eq!(verdicts.0, Verdict::Outcome(Outcome::Held { for_ms: 42 }));
    assert_eq!(verdicts.0, verdicts.1);
    house.state.lock().unwrap().stalled = false;
    assert_eq!(two.send(&request, PATIENCE).await.unwrap(), verdicts.0);
    assert_eq!(house.orders().len(), 1);
}

#[tokio::test]
async fn a_verdict_is_remembered_also_if_its_asker_has_gone() {
    let house = House::open().await;
    let request = request(&house, relaunch());
    house.state.lock().unwrap().stalled = true;
    let (link, events) = house.call().await.unwrap();
    let (asker, asked) = (link.clone(), request.clone());
    let asker = tokio::spawn(async move { asker.send(&asked, PATIENCE).await });
    eventually("the order", || (house.orders().len() == 1).then_some(())).await;
    asker.abort();
    assert!(asker.await.unwrap_err().is_cancelled());
    drop((link, events));
    let reply = house.state.lock().unwrap().waiting.pop().unwrap();
    reply.send(Verdict::Outcome(Outcome::Held { for_ms: 7 })).unwrap();
    let (link, _events) = house.call().await.unwrap();
    let verdict = link.send(&request, PATIENCE).await.unwrap();
    assert_eq!(verdict, Verdict::Outcome(Outcome::Held { for_ms: 7 }));
    assert_eq!(house.orders().len(), 1);
}

#[tokio::test]
async fn a_request_recorded_before_a_restart_is_refused_after_it() {
    let house = House::open().await;
    let old = request(&house, relaunch());
    let (link, _events) = house.call().await.unwrap();
    assert_eq!(code(&link.send(&old, PATIENCE).await.unwrap()), None);
    let (key, peer) = house.close().await;
    eventually("the end of the connection", || link.is_closed().then_some(())).await;
    let house = House::with(key, peer).await;
    let (link, _events) = house.call().await.unwrap();
    assert_eq!(code(&link.send(&old, PATIENCE).await.unwrap()), Some(RefusalCode::StaleNonce));
    assert!(house.orders().is_empty());
    assert_eq!(house.refusals().len(), 1);
}

#[tokio::test]
async fn what_is_asked_for_at_once_is_answered_to_each_and_too_much_is_busy() {
    let house = House::open().await;
    house.state.lock().unwrap().stalled = true;
    let (link, _events) = house.call().await.unwrap();
    let asked: Vec<_> = (0..9)
        .map(|_| {
            let (link, request) = (link.clone(), request(&house, relaunch()));
            tokio::spawn(async move { link.send(&request, PATIENCE).await.unwrap() })
        })
        .collect();
    eventually("eight orders and a refusal", || {
        (house.orders().len() == 8 && house.refusals().len() == 1).then_some(())
    })
    .await;
    // Answered last first: each verdict must still find its own asker.
    let orders = house.orders();
    let waiting: Vec<_> = house.state.lock().unwrap().waiting.drain(..).collect();
    for (n, reply) in waiting.into_iter().enumerate().rev() {
        reply.send(Verdict::Outcome(Outcome::Held { for_ms: n as u64 })).unwrap();
    }
    let mut busy = 0;
    let mut answers = Vec::new();
    for one in asked {
        match one.await.unwrap() {
            Verdict::Outcome(Outcome::Held { for_ms }) => answers.push(for_ms),
            verdict => {
                assert_eq!(code(&verdict), Some(RefusalCode::Busy));
                busy += 1;
            }
        }
    }
    assert_eq!((busy, orders.len()), (1, 8));
    answers.sort_unstable();
    assert_eq!(answers, (0..8).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_desk_that_is_gone_or_never_answers_is_said_so() {
    let house = House::open().await;
    house.state.lock().unwrap().stalled = true;
    let (link, _events) = house.call().await.unwrap();
    let (other, request) = (link.clone(), request(&house, relaunch()));
    let asked = tokio::spawn(async move { other.send(&request, PATIENCE).await.unwrap() });
    eventually("the order", || (house.orders().len() == 1).then_some(())).await;
    house.state.lock().unwrap().waiting.clear();
    assert_eq!(code(&asked.await.unwrap()), Some(RefusalCode::NoAnswer));
}

#[tokio::test]
async fn the_local_socket_serves_root_for_the_whole_fleet_and_watches() {
    let house = House::open().await;
    let (link, mut events) = connect_local(&house.socket, PATIENCE).await.unwrap();
    assert_eq!(link.server().node, name("mars"));
    let force = Verb::Relaunch(RelaunchOrder { force: true, ..RelaunchOrder::default() });
    let is_root = nix::unistd::Uid::effective().is_root();
    for target in ["mars", "ai-core"] {
        let verdict = link.request(&name(target), Some(&worker("write")), force.clone(), "", PATIENCE).await;
        assert_eq!(code(&verdict.unwrap()), (!is_root).then_some(RefusalCode::NotRoot));
    }
    let seen = link.request(&name("mars"), None, Verb::Watch {}, "", PATIENCE).await.unwrap();
    assert_eq!(seen, Verdict::Outcome(Outcome::Watching));
    let Some(ServerFrame::Snapshot(report)) = events.next().await else { panic!("no snapshot") };
    assert_eq!(report.workers.len(), 3, "the local socket sees everything");
    house.changes.send(Arc::new(keyholder::peer::inbox::Update::Leaving)).unwrap();
    assert_eq!(events.next().await, Some(ServerFrame::Leaving));
}

/// Not a limit, a figure: what the door adds to an order over a connection that is kept.
#[tokio::test]
async fn round_trip_over_a_kept_link() {
    let house = House::open().await;
    let begun = Instant::now();
    let (link, _events) =
        connect(&house.endpoint(), &house.peer.identity(), hello("ai-core"), PATIENCE).await.unwrap();
    let connected = begun.elapsed();
    let mut times = Vec::new();
    for _ in 0..300 {
        let begun = Instant::now();
        let verdict =
            link.request(&name("mars"), Some(&worker("write")), relaunch(), "measured", PATIENCE).await;
        assert_eq!(code(&verdict.unwrap()), None);
        times.push(begun.elapsed());
    }
    times.sort_unstable();
    println!(
        "connect and hello {connected:?}; relaunch round trip: median {:?}, p95 {:?}",
        times[150], times[285]
    );
}
