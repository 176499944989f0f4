//! Following a peer: what a watcher learns when the other side works, dies, hangs, comes back or is not there.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use keyholder::peer::bounds::Known;
use keyholder::peer::client::{ConnectError, Endpoint, LinkError, connect};
use keyholder::peer::inbox::Update;
use keyholder::peer::tls::Distrust;
use keyholder::peer::watch::{PeerEvent, PeerHandle, PeerNews, follow};
use keyholder::peer::wire::{Class, NodeState, Outcome, RefusalCode, RelaunchOrder, Verb, Verdict};
use keyholder::vocabulary::InvocationId;
use tokio::io::AsyncReadExt;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::house::{House, Key, PATIENCE, PEER_ADDRESS, eventually, hello, name, relaunch, report, worker};
use crate::redis_server::Port;

struct Watcher {
    events: mpsc::Receiver<PeerEvent>,
    handle: PeerHandle,
}

impl Watcher {
    fn of(to: Endpoint, key: &Key) -> Self {
        let (to_us, events) = mpsc::channel(64);
        Self { events, handle: follow(to, known(), key.identity(), hello("ai-core"), to_us) }
    }

    async fn next(&mut self) -> PeerNews {
        let event = timeout(PATIENCE, self.events.recv()).await.expect("news").unwrap();
        assert_eq!(event.node, name("mars"));
        event.what
    }

    async fn up(&mut self) -> keyholder::peer::wire::Hello {
        let PeerNews::Connected(hello) = self.next().await else { panic!("not connected") };
        assert!(matches!(self.next().await, PeerNews::Snapshot(_)));
        hello
    }

    async fn lost(&mut self) -> (NodeState, String) {
        match self.next().await {
            PeerNews::Lost { state, why } => (state, why),
            other => panic!("not lost: {other:?}"),
        }
    }
}

/// The workers of the house, as the fleet file of the watcher has them.
fn known() -> Known {
    let yaml = format!(
        "version: 1\nnodes:\n  mars: {{ address: 192.0.2.1:7433, pins: [\"{}\"], workers: {{ write: {{ unit: write.service }}, read: {{ unit: read.service }} }} }}\n",
        Key::new().pin
    );
    let fleet = keyholder::fleet::parse("fleet.yaml", yaml.as_bytes());
    Known::of(&fleet.unwrap_or_else(|problems| panic!("{problems}")).fleet, &name("mars"))
}

fn endpoint(address: SocketAddr, key: &Key) -> Endpoint {
    Endpoint { node: name("mars"), address, pins: [key.pin].into(), from: Some(PEER_ADDRESS.into()) }
}

#[tokio::test]
async fn a_watcher_follows_state_changes_and_a_farewell() {
    let house = House::open().await;
    let mut watcher = Watcher::of(house.endpoint(), &house.peer);
    assert_eq!(watcher.up().await.boot_nonce, house.nonce);
    let begun = Instant::now();
    house.changes.send(Arc::new(Update::Worker(report("write", Class::Dead)))).unwrap();
    assert_eq!(watcher.next().await, PeerNews::Change(report("write", Class::Dead)));
    println!("a change is known to the watcher after {:?}", begun.elapsed());
    house.changes.send(Arc::new(Update::Leaving)).unwrap();
    assert_eq!(watcher.next().await, PeerNews::Leaving);
}

#[tokio::test]
async fn the_last_change_still_goes_out_when_the_supervisor_ends() {
    let house = House::open().await;
    let mut watcher = Watcher::of(house.endpoint(), &house.peer);
    watcher.up().await;
    // No pause between the two: this is how a supervisor says goodbye.
    house.changes.send(Arc::new(Update::Leaving)).unwrap();
    house.close().await;
    assert_eq!(watcher.next().await, PeerNews::Leaving);
}

#[tokio::test]
async fn a_supervisor_that_starts_anew_is_followed_on_without_alarm_and_closing_is_no_refusal() {
    let house = House::open().await;
    let mut watcher = Watcher::of(house.endpoint(), &house.peer);
    let first = watcher.up().await;
    // Long enough to be worth an immediate new connection.
    tokio::time::sleep(Duration::from_millis(1100)).await;
    let waiting = house.listener.try_clone().unwrap();
    assert!(house.refusals().is_empty());
    let (key, peer) = house.close().await;
    let house = House::on(waiting, key, peer);
    let second = watcher.up().await;
    assert_eq!(second.boot_nonce, house.nonce);
    assert_ne!(first.boot_nonce, second.boot_nonce);
    assert!(house.refusals().is_empty());
}

#[tokio::test]
async fn where_nothing_listens_the_supervisor_is_dead_and_it_is_told_once() {
    let (key, ours) = (Key::new(), Key::new());
    let port = Port::new();
    let mut watcher = Watcher::of(endpoint(port.address(), &key), &ours);
    let begun = Instant::now();
    assert_eq!(watcher.lost().await.0, NodeState::SupervisorDead);
    assert!(begun.elapsed() < PATIENCE);
    // Several attempts later nothing more has been said; then it comes up.
    assert!(timeout(Duration::from_secs(2), watcher.events.recv()).await.is_err());
    let house = House::on(std::net::TcpListener::bind(port.address()).unwrap(), key, ours);
    assert_eq!(watcher.up().await.boot_nonce, house.nonce);
}

#[tokio::test]
async fn a_host_that_takes_connections_without_a_supervisor_is_told_within_three_seconds() {
    let (key, ours) = (Key::new(), Key::new());
    let mute = TcpListener::bind("127.0.0.1:0").await.unwrap();
    for attempt in 1.. {
        let mut watcher = Watcher::of(endpoint(mute.local_addr().unwrap(), &key), &ours);
        let begun = Instant::now();
        let (state, why) = watcher.lost().await;
        assert_eq!(state, NodeState::SupervisorDead);
        assert!(why.contains("no supervisor answers"), "{why}");
        if in_time(begun, attempt) {
            return;
        }
    }
}

/// Passes bytes on until told to hold them back: a cable that is pulled, as far as TCP can tell.
struct Cable {
    address: SocketAddr,
    cut: tokio::sync::watch::Sender<bool>,
}

impl Cable {
    async fn to(far: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (cut, seen) = tokio::sync::watch::channel(false);
        tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                let far = super::clients::tcp(far, PEER_ADDRESS).await;
                tokio::spawn(carry(near, far, seen.clone()));
            }
        });
        Self { address, cut }
    }
}

async fn carry(
    mut near: tokio::net::TcpStream,
    mut far: tokio::net::TcpStream,
    mut cut: tokio::sync::watch::Receiver<bool>,
) {
    let pulled = tokio::select! {
        _ = tokio::io::copy_bidirectional(&mut near, &mut far) => false,
        pulled = async { cut.wait_for(|cut| *cut).await.is_ok() } => pulled,
    };
    if pulled {
        // Both ends stay open and hear nothing more.
        let _plugged = cut.wait_for(|cut| !*cut).await.is_ok();
    }
}

#[tokio::test]
async fn silence_is_told_within_three_seconds_and_what_comes_after_it_too() {
    let house = House::open().await;
    let cable = Cable::to(house.address).await;
    let mut watcher = Watcher::of(endpoint(cable.address, &house.key), &house.peer);
    watcher.up().await;
    for attempt in 1.. {
        cable.cut.send(true).unwrap();
        let begun = Instant::now();
        // The host still takes connections: only the supervisor is silent, and nobody has to go there.
        assert_eq!(watcher.lost().await.0, NodeState::SupervisorDead);
        let told = in_time(begun, attempt);
        cable.cut.send(false).unwrap();
        watcher.up().await;
        if told {
            return;
        }
    }
}

/// Within three seconds; once in ten tries is enough, for this machine may stall at that moment.
fn in_time(begun: Instant, attempt: u32) -> bool {
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(3) || attempt < 10, "{took:?}");
    took < Duration::from_secs(3)
}

#[tokio::test]
async fn an_address_where_no_host_is_is_unreachable_and_no_deadline_is_missed() {
    // TEST-NET-1 of RFC 5737: routed nowhere, or refused by a router or by this host. It is not a dead supervisor in any case.
    let to = Endpoint { from: None, ..endpoint("192.0.2.254:7433".parse().unwrap(), &Key::new()) };
    let begun = Instant::now();
    let error =
        connect(&to, &Key::new().identity(), hello("ai-core"), Duration::from_secs(1)).await.unwrap_err();
    assert!(matches!(error.state(), NodeState::Unreachable | NodeState::CutOff), "{error}");
    assert!(begun.elapsed() < PATIENCE);
}

#[tokio::test]
async fn distrust_on_either_side_is_told_apart() {
    let house = House::open().await;
    let (stranger, deadline) = (Key::new(), PATIENCE);
    let ours = house.peer.identity();
    let to = |pins: &Key, node: &str| Endpoint { node: name(node), ..endpoint(house.address, pins) };
    let unknown = connect(&to(&stranger, "mars"), &ours, hello("ai-core"), deadline).await.unwrap_err();
    let ConnectError::Handshake { why: Distrust::Unpinned(pin), .. } = &unknown else {
        panic!("{unknown:?}")
    };
    assert_eq!(*pin, house.key.pin);
    let turned =
        connect(&to(&house.key, "mars"), &stranger.identity(), hello("ai-core"), deadline).await.unwrap_err();
    assert!(matches!(turned, ConnectError::Handshake { why: Distrust::TurnedAway(_), .. }), "{turned:?}");
    let other = connect(&to(&house.key, "venus"), &ours, hello("ai-core"), deadline).await.unwrap_err();
    assert!(matches!(other, ConnectError::WrongNode { .. }), "{other:?}");
    let named = connect(&to(&house.key, "mars"), &ours, hello("venus"), deadline).await.unwrap_err();
    assert!(matches!(&named, ConnectError::Refused(r) if r.code == RefusalCode::WrongNode), "{named:?}");
    for error in [unknown, turned, other, named] {
        assert_eq!(error.state(), NodeState::Unknown, "who answers is not dead: {error}");
    }
}

#[tokio::test]
async fn an_impostor_with_the_pinned_certificate_gets_no_hello_from_us() {
    let (pinned, wrong, ours) = (Key::new(), Key::new(), Key::new());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let acceptor = super::clients::impostor(&pinned, &wrong);
    let heard = tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        match acceptor.accept(stream).await {
            Ok(mut stream) => stream.read_u8().await.is_ok(),
            Err(_) => false,
        }
    });
    let error =
        connect(&endpoint(address, &pinned), &ours.identity(), hello("ai-core"), PATIENCE).await.unwrap_err();
    assert!(matches!(error, ConnectError::Handshake { why: Distrust::WrongKey, .. }), "{error:?}");
    assert!(!heard.await.unwrap());
}

#[tokio::test]
async fn a_request_waits_for_the_connection_that_it_wishes_for() {
    let (key, ours) = (Key::new(), Key::new());
    let port = Port::new();
    let mut watcher = Watcher::of(endpoint(port.address(), &key), &ours);
    watcher.lost().await;
    let handle = watcher.handle.clone();
    let none = handle.request(Some(&worker("write")), relaunch(), "", Duration::from_millis(300)).await;
    let Err(error) = none else { panic!("{none:?}") };
    assert_eq!(error.refusal().code, RefusalCode::Unreachable);
    let asked =
        tokio::spawn(async move { handle.request(Some(&worker("write")), relaunch(), "", PATIENCE).await });
    let house = House::on(std::net::TcpListener::bind(port.address()).unwrap(), key, ours);
    assert!(matches!(asked.await.unwrap().unwrap(), Verdict::Outcome(Outcome::Relaunched(_))));
    assert_eq!(house.orders().len(), 1);
}

async fn interrupted(verb: Verb) -> (Result<Verdict, LinkError>, House) {
    let house = House::open().await;
    house.state.lock().unwrap().stalled = true;
    let mut watcher = Watcher::of(house.endpoint(), &house.peer);
    watcher.up().await;
    let (handle, waiting) = (watcher.handle.clone(), house.listener.try_clone().unwrap());
    let asked = tokio::spawn(async move { handle.request(Some(&worker("write")), verb, "", PATIENCE).await });
    eventually("the order", || (house.orders().len() == 1).then_some(())).await;
    let (key, peer) = house.close().await;
    let house = House::on(waiting, key, peer);
    (asked.await.unwrap(), house)
}

#[tokio::test]
async fn what_cannot_act_twice_is_asked_again_of_a_supervisor_that_started_anew() {
    let expect = Some(InvocationId::from_bytes([1; 16]));
    let guarded = Verb::Relaunch(RelaunchOrder { expect, ..RelaunchOrder::default() });
    let (verdict, house) = interrupted(guarded).await;
    assert!(matches!(verdict, Ok(Verdict::Outcome(Outcome::Relaunched(_)))), "{verdict:?}");
    assert_eq!(house.orders().len(), 1);
}

#[tokio::test]
async fn what_could_act_twice_is_not_asked_again_and_says_so() {
    let (verdict, house) = interrupted(relaunch()).await;
    let Err(error) = verdict else { panic!("{verdict:?}") };
    assert_eq!(error.refusal().code, RefusalCode::NoAnswer);
    assert!(house.orders().is_empty());
}

#[tokio::test]
async fn a_dropped_handle_closes_its_connection() {
    let house = House::open().await;
    let mut watcher = Watcher::of(house.endpoint(), &house.peer);
    watcher.up().await;
    eventually("the subscription", || (house.changes.receiver_count() == 1).then_some(())).await;
    drop(watcher.handle);
    eventually("its end", || (house.changes.receiver_count() == 0).then_some(())).await;
}
