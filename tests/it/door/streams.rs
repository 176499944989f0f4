//! What a watcher hears: the state first, every change, a keepalive each second, and nothing it has no right to.

use std::sync::Arc;
use std::time::{Duration, Instant};

use keyholder::fleet::Right;
use keyholder::peer::client::Events;
use keyholder::peer::inbox::Update;
use keyholder::peer::wire::{Class, NodeReport, ServerFrame};
use nix::sys::socket::{setsockopt, sockopt};
use tokio::time::timeout;

use super::clients::Raw;
use super::house::{House, Key, PATIENCE, SECOND, eventually, grant, name, report};

async fn next(events: &mut Events) -> Option<ServerFrame> {
    let news = async {
        loop {
            match events.next().await {
                Some(ServerFrame::Keepalive) => {}
                other => return other,
            }
        }
    };
    timeout(PATIENCE, news).await.expect("news")
}

async fn snapshot(events: &mut Events) -> NodeReport {
    match next(events).await {
        Some(ServerFrame::Snapshot(report)) => report,
        other => panic!("not a snapshot: {other:?}"),
    }
}

fn workers(report: &NodeReport) -> Vec<&str> {
    report.workers.iter().map(|w| w.worker.as_str()).collect()
}

#[tokio::test]
async fn a_watcher_gets_the_state_then_changes_and_only_what_it_may_see() {
    let house = House::open().await;
    let (_link, mut events) = house.call().await.unwrap();
    assert_eq!(workers(&snapshot(&mut events).await), ["write", "read"]);
    let mut elsewhere = report("write", Class::Dead);
    elsewhere.node = name("ai-core");
    for change in [report("secret", Class::Dead), elsewhere, report("write", Class::Dead)] {
        house.changes.send(Arc::new(Update::Worker(change))).unwrap();
    }
    assert_eq!(next(&mut events).await, Some(ServerFrame::Change(report("write", Class::Dead))));
    house.changes.send(Arc::new(Update::Leaving)).unwrap();
    assert_eq!(next(&mut events).await, Some(ServerFrame::Leaving));
}

#[tokio::test]
async fn a_quiet_watcher_hears_a_keepalive_each_second() {
    let house = House::open().await;
    let (_link, mut events) = house.call().await.unwrap();
    snapshot(&mut events).await;
    let begun = Instant::now();
    for _ in 0..2 {
        assert_eq!(timeout(PATIENCE, events.next()).await.unwrap(), Some(ServerFrame::Keepalive));
    }
    let took = begun.elapsed();
    assert!(took > SECOND && took < PATIENCE, "{took:?}");
}

#[tokio::test]
async fn who_is_no_watcher_or_may_not_see_is_told_so_and_sees_nothing_until_it_is_granted() {
    let house = House::open().await;
    house.edit_fleet(|fleet| fleet.grants.clear());
    let (_link, mut events) = house.call().await.unwrap();
    let nothing = snapshot(&mut events).await;
    assert!(nothing.workers.is_empty() && nothing.degraded.is_empty());
    assert_eq!(timeout(PATIENCE, events.next()).await.unwrap(), Some(ServerFrame::Keepalive));
    assert_eq!(house.state.lock().unwrap().subscriptions, 0);
    house.edit_fleet(|fleet| fleet.grants.push(grant("ai-core", &[Right::Status])));
    assert_eq!(workers(&snapshot(&mut events).await), ["write", "read"]);
    // And when it is taken away again.
    house.edit_fleet(|fleet| fleet.grants.clear());
    assert!(snapshot(&mut events).await.workers.is_empty());
}

#[tokio::test]
async fn a_watcher_that_was_too_slow_gets_the_state_anew() {
    let house = House::open().await;
    let (_link, mut events) = house.call().await.unwrap();
    snapshot(&mut events).await;
    eventually("the subscription", || (house.changes.receiver_count() == 1).then_some(())).await;
    // In one go, so that the session cannot run meanwhile: 100 changes through a channel for 16.
    for _ in 0..100 {
        house.changes.send(Arc::new(Update::Worker(report("write", Class::Dead)))).unwrap();
    }
    assert_eq!(workers(&snapshot(&mut events).await), ["write", "read"]);
    assert_eq!(house.state.lock().unwrap().subscriptions, 2);
}

async fn cut_by(edit: impl FnOnce(&mut keyholder::fleet::Fleet)) {
    let house = House::open().await;
    let (link, mut events) = house.call().await.unwrap();
    snapshot(&mut events).await;
    let begun = Instant::now();
    house.edit_fleet(edit);
    assert_eq!(next(&mut events).await, None);
    assert!(begun.elapsed() < PATIENCE);
    assert!(link.is_closed());
    let refusals = house.refusals();
    assert_eq!(refusals.len(), 1, "{refusals:?}");
    assert!(refusals[0].text.contains("no longer accepted"));
}

#[tokio::test]
async fn the_live_connection_of_a_removed_peer_is_cut_on_reload() {
    cut_by(|fleet| drop(fleet.nodes.remove(&name("ai-core")))).await;
}

#[tokio::test]
async fn the_live_connection_of_a_disabled_peer_is_cut_on_reload() {
    cut_by(|fleet| fleet.nodes.get_mut(&name("ai-core")).unwrap().disabled = true).await;
}

#[tokio::test]
async fn the_live_connection_over_a_removed_key_is_cut_on_reload() {
    cut_by(|fleet| fleet.nodes.get_mut(&name("ai-core")).unwrap().pins = [Key::new().pin].into()).await;
}

#[tokio::test]
async fn a_key_that_moved_to_another_node_does_not_keep_the_old_name() {
    cut_by(|fleet| {
        let node = fleet.nodes.remove(&name("ai-core")).unwrap();
        fleet.nodes.insert(name("venus"), node);
    })
    .await;
}

#[tokio::test]
async fn a_watcher_that_does_not_read_is_cut() {
    let house = House::open().await;
    let raw = Raw::open(house.address, &house.peer).await;
    setsockopt(raw.stream.get_ref().0, sockopt::RcvBuf, &4096).unwrap();
    eventually("the subscription", || (house.changes.receiver_count() == 1).then_some(())).await;
    let begun = Instant::now();
    let change = Arc::new(Update::Worker(report("write", Class::Dead)));
    // A session that lags unsubscribes for a moment, so "nobody listens" does not mean that it was cut.
    while begun.elapsed() < 3 * PATIENCE {
        let _ = house.changes.send(Arc::clone(&change));
        if house.refusals().iter().any(|r| r.text.contains("the peer does not read")) {
            break;
        }
        tokio::time::sleep(Duration::from_micros(200)).await;
    }
    let took = begun.elapsed();
    assert!(
        house.refusals().iter().any(|r| r.text.contains("the write timed out after 5 s")),
        "{:?}",
        house.refusals()
    );
    assert!(took < 3 * PATIENCE, "{took:?}");
    drop(raw);
}

#[tokio::test]
async fn a_fifth_connection_of_a_peer_replaces_its_oldest() {
    let house = House::open().await;
    let mut links = Vec::new();
    for _ in 0..5 {
        links.push(house.call().await.unwrap());
    }
    eventually("the oldest to be cut", || links[0].0.is_closed().then_some(())).await;
    assert!(links[1..].iter().all(|(link, _)| !link.is_closed()));
}
