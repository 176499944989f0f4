//! A peer whose key is in the wrong hands: it proves who it is and then says whatever harms most.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use keyholder::peer::client::{Endpoint, connect};
use keyholder::peer::codec::{FrameReader, encode};
use keyholder::peer::wire::{Class, MAX_REPLY, NodeReport, NodeState, Rehearsal, ServerFrame, Sighting};
use keyholder::vocabulary::FailureClass;
use nix::sys::signal::Signal;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::server::TlsStream;

use super::clients::{framed, impostor, tcp};
use super::house::{House, Key, PATIENCE, eventually, hello, name, node_report, report};
use super::supervisor::Supervisor;

/// How long it goes on.
const FLOOD: Duration = Duration::from_secs(15);
/// How many frames it sends in that time.
const FRAMES: usize = 120;

/// The door of `mars`, held by whoever has its key.
struct Mars {
    listener: TcpListener,
    key: Key,
}

impl Mars {
    async fn open() -> Self {
        keyholder::peer::tls::install_provider();
        Self { listener: TcpListener::bind("127.0.0.1:0").await.unwrap(), key: Key::new() }
    }

    fn address(&self) -> SocketAddr {
        self.listener.local_addr().unwrap()
    }

    /// The next connection whose hello was answered.
    async fn greet(&self) -> TlsStream<TcpStream> {
        tokio::time::timeout(PATIENCE, self.greet_next()).await.expect("nobody connects")
    }

    async fn greet_next(&self) -> TlsStream<TcpStream> {
        let acceptor = impostor(&self.key, &self.key);
        loop {
            let (stream, _) = self.listener.accept().await.unwrap();
            let Ok(mut stream) = acceptor.accept(stream).await else { continue };
            let Ok(Some(_)) = FrameReader::default().next(&mut stream, 4096).await else { continue };
            let hello = encode(&ServerFrame::Hello(hello("mars")), MAX_REPLY).unwrap();
            if stream.write_all(&hello).await.is_ok() && stream.flush().await.is_ok() {
                return stream;
            }
        }
    }

    /// Sends all of it, over as many connections as that takes: whoever listens may cut one that says too much.
    async fn say(&self, frames: &[Vec<u8>]) {
        let mut stream = self.greet().await;
        for frame in frames {
            while stream.write_all(frame).await.is_err() || stream.flush().await.is_err() {
                stream = self.greet().await;
            }
        }
        // What the other side has not read yet would be lost with a reset.
        drop(stream.shutdown().await);
    }

    /// `ai-core`, which watches it; its fleet file knows one worker of `mars`.
    fn watched(&self) -> Supervisor {
        let (mars, pin) = (self.address(), self.key.pin);
        Supervisor::start(|own, key| {
            format!(
                "version: 1\nnodes:\n  ai-core: {{ address: {own}, pins: [\"{}\"] }}\n  \
                 mars: {{ address: {mars}, pins: [\"{pin}\"], watched_by: [ai-core], workers: {{ agent: {{ unit: agent.service }} }} }}\n",
                key.pin
            )
        })
    }
}

/// What stands in a frame where its entries come.
const MARK: &str = "placeholder";

/// A snapshot of `mars` as large as a frame may be: what `one` puts in once, with another name each time.
fn full(round: usize, one: impl FnOnce(&mut NodeReport) -> String) -> Vec<u8> {
    let mut report = NodeReport { workers: Vec::new(), ..node_report() };
    let entry = one(&mut report);
    let frame = serde_json::to_string(&ServerFrame::Snapshot(report)).unwrap();
    let (before, after) = frame.split_once(&entry).unwrap();
    let mut json = before.to_owned();
    for n in 0.. {
        let next = entry.replace(MARK, &format!("ghost{round}-{n}"));
        if json.len() + next.len() + after.len() + 1 > MAX_REPLY {
            break;
        }
        if n > 0 {
            json.push(',');
        }
        json.push_str(&next);
    }
    json.push_str(after);
    framed(json.as_bytes())
}

fn json(entry: &impl serde::Serialize) -> String {
    serde_json::to_string(entry).unwrap()
}

/// A full frame of each kind of list, then of changes of one worker each, as long as anybody wants more.
fn flood(round: usize) -> Vec<u8> {
    if round > 4 {
        let mut ghost = report(&format!("ghost{round}"), Class::Dead);
        ghost.why = "z".repeat(MAX_REPLY - 2000);
        return encode(&ServerFrame::Change(ghost), MAX_REPLY).unwrap();
    }
    full(round, |mars| match round {
        0 => {
            mars.degraded = vec![MARK.to_owned()];
            json(&mars.degraded[0])
        }
        1 => {
            mars.sees = vec![Sighting { node: name(MARK), state: NodeState::Up, ago_ms: 0 }];
            json(&mars.sees[0])
        }
        2 => {
            mars.rehearsed = vec![Rehearsal {
                node: Some(name(MARK)),
                class: FailureClass::Dead,
                passed: false,
                why: "x".repeat(300),
                by: None,
                ago_ms: 0,
                detect_ms: None,
                repair_ms: None,
            }];
            json(&mars.rehearsed[0])
        }
        3 => {
            let mut agent = report("agent", Class::Dead);
            agent.why = "z".repeat(500_000);
            mars.workers = vec![agent];
            json(&mars.workers[0])
        }
        _ => {
            mars.workers = vec![report(MARK, Class::Dead)];
            json(&mars.workers[0])
        }
    })
}

fn dropped(text: &str) -> bool {
    text.contains("were dropped")
}

#[tokio::test]
async fn reports_about_what_the_fleet_file_does_not_have_take_no_memory_and_are_told_once() {
    let mars = Mars::open().await;
    let supervisor = mars.watched();
    let first =
        encode(&ServerFrame::Snapshot(NodeReport { workers: Vec::new(), ..node_report() }), MAX_REPLY);
    mars.say(&[first.unwrap()]).await;
    eventually("mars answers", || (supervisor.sees("mars").state == NodeState::Up).then_some(())).await;
    let before = supervisor.memory();

    let until = Instant::now() + FLOOD;
    let mut sent = 0;
    let mut stream = mars.greet().await;
    while Instant::now() < until && sent < FRAMES {
        let frame = flood(sent);
        while stream.write_all(&frame).await.is_err() || stream.flush().await.is_err() {
            // Whoever listens may cut one that says too much.
            stream = mars.greet().await;
        }
        sent += 1;
    }
    drop(stream);
    assert!(sent > 8, "{sent} frames only");
    let honest = NodeReport { workers: vec![report("agent", Class::Healthy)], ..node_report() };
    let honest = encode(&ServerFrame::Snapshot(honest), MAX_REPLY).unwrap();
    mars.say(&[honest]).await;
    let seen = eventually("the last report", || {
        let seen = supervisor.sees("mars");
        (seen.workers.len() == 1 && seen.workers[0].class == Class::Healthy).then_some(seen)
    })
    .await;
    let grown = supervisor.memory().saturating_sub(before);
    println!("{sent} frames of 1 MB each, and the watcher grew by {} KB", grown >> 10);
    assert!(grown < 24 << 20, "the watcher grew by {grown} bytes");
    assert!(json(&seen).len() < 8192, "{seen:?}");
    assert!(seen.degraded.iter().any(|line| dropped(line)), "{:?}", seen.degraded);
    assert_eq!(supervisor.audit().iter().filter(|line| dropped(&line.text)).count(), 1);
}

#[tokio::test]
async fn a_length_that_a_peer_announces_is_refused_before_there_is_room_for_it() {
    let mars = Mars::open().await;
    let ours = Key::new();
    let to =
        Endpoint { node: name("mars"), address: mars.address(), pins: [mars.key.pin].into(), from: None };
    for length in [u32::MAX, 512 << 20, u32::try_from(MAX_REPLY).unwrap() + 1, 0] {
        // As the answer to the hello …
        let acceptor = impostor(&mars.key, &mars.key);
        let first = async {
            let (stream, _) = mars.listener.accept().await.unwrap();
            let mut stream = acceptor.accept(stream).await.unwrap();
            stream.write_all(&length.to_be_bytes()).await.unwrap();
            stream.flush().await.unwrap();
            stream
        };
        let identity = ours.identity();
        let (_held, answer) =
            tokio::join!(first, connect(&to, &identity, hello("ai-core"), Duration::from_secs(4)));
        let Err(error) = answer else { panic!("connected to a liar") };
        let error = error.to_string();
        assert!(error.contains("does not speak"), "{length}: {error}");
        // … and after it.
        let (mut stream, answer) =
            tokio::join!(mars.greet(), connect(&to, &identity, hello("ai-core"), PATIENCE));
        let (_link, mut events) = answer.unwrap();
        stream.write_all(&length.to_be_bytes()).await.unwrap();
        stream.flush().await.unwrap();
        assert_eq!(events.next().await, None, "{length}");
        let why = events.why();
        assert!(why.contains("are allowed") || why.contains("it is empty"), "{length}: {why}");
    }
}

#[tokio::test]
async fn a_request_whose_length_is_a_lie_is_refused_before_there_is_room_for_it() {
    let house = House::open().await;
    for length in [u32::MAX, 512 << 20, 4097] {
        let mut raw = super::clients::Raw::open(house.address, &house.peer).await;
        raw.send(&length.to_be_bytes()).await;
        let Some(ServerFrame::Reply(reply)) = raw.reply().await else { panic!("{length}: no reply") };
        assert!(format!("{reply:?}").contains("TooLarge"), "{reply:?}");
    }
}

/// Every line of the audit that is not about the supervisor's own start.
fn lines(supervisor: &Supervisor) -> usize {
    supervisor
        .audit()
        .iter()
        .filter(|line| line.event == "peer" || line.event == "refused" || line.event == "alert")
        .count()
}

#[tokio::test]
async fn a_peer_that_turns_again_and_again_does_not_fill_the_audit() {
    let mars = Mars::open().await;
    let supervisor = mars.watched();
    let state = |state| {
        let report = NodeReport { state, workers: Vec::new(), ..node_report() };
        encode(&ServerFrame::Snapshot(report), MAX_REPLY).unwrap()
    };
    let mut both = state(NodeState::Leaving);
    both.extend(state(NodeState::Up));
    let frames = vec![both; 2000];
    mars.say(&frames).await;
    eventually("the last of them", || (supervisor.sees("mars").state == NodeState::Up).then_some(())).await;
    let told = lines(&supervisor);
    assert!((10..60).contains(&told), "{told} lines");
    assert!(supervisor.audit().iter().any(|line| line.text.contains("supervises")), "its own start");
}

#[tokio::test]
async fn a_peers_calls_that_a_stalled_supervisor_did_not_answer_do_not_read_like_an_attack() {
    let mars = Mars::open().await;
    let supervisor = mars.watched();
    eventually("the door is open", || {
        supervisor.audit().iter().any(|line| line.text.contains("supervises")).then_some(())
    })
    .await;
    supervisor.signal(Signal::SIGSTOP);
    for _ in 0..10 {
        drop(tcp(supervisor.address, [127, 0, 0, 1]).await);
    }
    supervisor.signal(Signal::SIGCONT);
    let ended = || {
        let ended =
            supervisor.audit().into_iter().filter(|line| line.text.contains("before it was answered"));
        ended.collect::<Vec<_>>()
    };
    let told = eventually("they are told", || Some(ended()).filter(|told| told.len() > 1)).await;
    // One may come before it stands still, and one after the count.
    assert!(told.len() <= 4 && told.iter().any(|line| line.text.contains(" more within ")), "{told:?}");
    assert!(!supervisor.audit().iter().any(|line| line.event == "refused"), "{:?}", supervisor.audit());
}

#[tokio::test]
async fn strangers_from_many_addresses_do_not_fill_the_audit_and_hide_nothing_of_a_peer() {
    let mars = Mars::open().await;
    let supervisor = mars.watched();
    let until = Instant::now() + Duration::from_secs(6);
    let mut calls = 0;
    while Instant::now() < until {
        for last in 100..117 {
            let mut stream = tcp(supervisor.address, [127, 0, 0, last]).await;
            let _ = stream.write_all(b"GET / HTTP/1.1\r\n\r\n").await;
            calls += 1;
        }
        // Whoever stops too many at once sees no more than the door takes.
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let told = eventually("the strangers are told", || {
        let told = lines(&supervisor);
        (told > 10).then_some(told)
    })
    .await;
    println!("{calls} calls, {told} lines");
    assert!(calls > 500 && told < 60, "{calls} calls, {told} lines");
    // The key is of a node, and the hello says another.
    let to = Endpoint {
        node: name("ai-core"),
        address: supervisor.address,
        pins: [supervisor.key.pin].into(),
        from: Some([127, 0, 0, 1].into()),
    };
    let refused = connect(&to, &mars.key.identity(), hello("venus"), PATIENCE).await;
    assert!(refused.is_err());
    eventually("the peer is told", || {
        supervisor.audit().iter().any(|line| line.by == "mars" && line.event == "refused").then_some(())
    })
    .await;
}
