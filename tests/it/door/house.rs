//! A node `mars` with its door open, and an inbox behind it that takes orders and remembers them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use keyholder::fleet::{BlastRadius, Fleet, Grant, Node, Policy, Right, Scope, Worker};
use keyholder::journal::{Event, Record, Recorder};
use keyholder::peer::client::{ConnectError, Endpoint, Events, Link, connect};
use keyholder::peer::identity::Identity;
use keyholder::peer::inbox::{Asker, Inbox, InboxMessage, Subscription, Update};
use keyholder::peer::listener::{Listeners, serve};
use keyholder::peer::tls;
use keyholder::peer::wire::{
    Class, Hello, NodeReport, NodeState, Outcome, Refusal, RefusalCode, RelaunchOrder, Relaunched, Request,
    Verb, Verdict, WorkerReport,
};
use keyholder::vocabulary::{BootNonce, FleetHash, InvocationId, NodeName, Pin, WorkerName};
use tokio::sync::{broadcast, mpsc, oneshot, watch};
use tokio::task::JoinHandle;

pub(super) const SECOND: Duration = Duration::from_secs(1);
pub(super) const PATIENCE: Duration = Duration::from_secs(20);
/// Where genuine peers call from, and what the fleet file says of `ai-core`.
pub(super) const PEER_ADDRESS: [u8; 4] = [127, 0, 0, 2];

/// A key with a certificate of any date around it.
pub(super) struct Key {
    pub(super) pair: rcgen::KeyPair,
    pub(super) certificate: Vec<u8>,
    pub(super) pin: Pin,
}

impl Key {
    pub(super) fn new() -> Self {
        Self::of_year(2026)
    }

    pub(super) fn of_year(year: i32) -> Self {
        let pair = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
        let mut params = rcgen::CertificateParams::default();
        params.not_before = rcgen::date_time_ymd(year, 1, 1);
        params.not_after = rcgen::date_time_ymd(year, 12, 31);
        let certificate = params.self_signed(&pair).unwrap();
        let pin = tls::pin_of(certificate.der()).unwrap();
        Self { certificate: certificate.der().to_vec(), pair, pin }
    }

    pub(super) fn identity(&self) -> Identity {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key.pem");
        self.write(&path);
        Identity::load(&path).unwrap()
    }

    /// Into a file as a node has it.
    pub(super) fn write(&self, path: &std::path::Path) {
        let mut file =
            std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).unwrap();
        std::io::Write::write_all(&mut file, self.pair.serialize_pem().as_bytes()).unwrap();
    }
}

pub(super) fn name(text: &str) -> NodeName {
    text.parse().unwrap()
}

pub(super) fn worker(text: &str) -> WorkerName {
    text.parse().unwrap()
}

fn node(address: SocketAddr, pins: &[Pin], watched_by: &[&str]) -> Node {
    let unit = |n: &str| Worker {
        unit: format!("{n}.service").parse().unwrap(),
        lane: None,
        blast_radius: BlastRadius::Normal,
        policy: Policy::default(),
        stuck: None,
        delivery_gap: None,
    };
    Node {
        address,
        pins: pins.iter().copied().collect(),
        watched_by: watched_by.iter().map(|n| name(n)).collect(),
        disabled: false,
        insecure_unsigned_write: false,
        power: None,
        workers: ["write", "read", "secret"].map(|n| (worker(n), Arc::new(unit(n)))).into(),
    }
}

pub(super) fn report(worker_name: &str, class: Class) -> WorkerReport {
    WorkerReport {
        node: name("mars"),
        worker: worker(worker_name),
        unit: format!("{worker_name}.service").parse().unwrap(),
        blast_radius: BlastRadius::Normal,
        class,
        why: "x".repeat(200),
        for_ms: 5,
        invocation: None,
        doing: String::new(),
        due_in_ms: None,
        last_act: None,
        last_act_ms: None,
        held_for_ms: None,
        quarantined: false,
        left_to_peers: false,
        startable: true,
        alert: None,
        lane: None,
        drill: None,
        rehearsed: Vec::new(),
    }
}

pub(super) fn node_report() -> NodeReport {
    NodeReport {
        node: name("mars"),
        state: NodeState::Up,
        why: "up".to_owned(),
        version: None,
        fleet_hash: None,
        degraded: Vec::new(),
        sees: Vec::new(),
        rehearsed: Vec::new(),
        workers: ["write", "read", "secret"].map(|n| report(n, Class::Healthy)).into(),
    }
}

/// What the inbox has seen and how it behaves.
#[derive(Default)]
pub(super) struct InboxState {
    pub(super) orders: Vec<(Asker, Request)>,
    pub(super) subscriptions: usize,
    /// While set, relaunches are taken and not answered; they wait here.
    pub(super) stalled: bool,
    pub(super) waiting: Vec<oneshot::Sender<Verdict>>,
}

pub(super) struct House {
    pub(super) address: SocketAddr,
    pub(super) socket: PathBuf,
    /// The listening socket as PID 1 holds it.
    pub(super) listener: std::net::TcpListener,
    pub(super) key: Key,
    pub(super) peer: Key,
    pub(super) nonce: BootNonce,
    pub(super) fleet: watch::Sender<Arc<Fleet>>,
    pub(super) state: Arc<Mutex<InboxState>>,
    pub(super) changes: broadcast::Sender<Arc<Update>>,
    pub(super) recorder: Recorder,
    pub(super) records: Mutex<(std::sync::mpsc::Receiver<Record>, Vec<Record>)>,
    stop: Option<oneshot::Sender<()>>,
    served: JoinHandle<()>,
    inbox: JoinHandle<()>,
    dir: tempfile::TempDir,
}

pub(super) fn grant(from: &str, rights: &[Right]) -> Grant {
    Grant {
        from: name(from),
        on: name("mars"),
        workers: Scope::Only([worker("write"), worker("read")].into()),
        rights: rights.iter().copied().collect(),
    }
}

impl House {
    /// `mars`, watched by `ai-core` at 127.0.0.2, which may see and relaunch `write` and `read` but not `secret`.
    pub(super) async fn open() -> Self {
        Self::with(Key::new(), Key::new()).await
    }

    pub(super) async fn with(key: Key, peer: Key) -> Self {
        tls::install_provider();
        let tcp = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        Self::on(tcp, key, peer)
    }

    pub(super) fn on(tcp: std::net::TcpListener, key: Key, peer: Key) -> Self {
        let (address, listener) = (tcp.local_addr().unwrap(), tcp.try_clone().unwrap());
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("keyholder.sock");
        let unix = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        let fleet = Fleet {
            hash: FleetHash::of(b"fleet"),
            redis: None,
            task_keys: Default::default(),
            approver_keys: Default::default(),
            lanes: Default::default(),
            nodes: BTreeMap::from([
                (name("mars"), node(address, &[key.pin], &["ai-core"])),
                (name("ai-core"), node((PEER_ADDRESS, 7433).into(), &[peer.pin], &[])),
            ]),
            grants: vec![grant("ai-core", &[Right::Status, Right::Relaunch])],
        };
        let (fleet, fleet_seen) = watch::channel(Arc::new(fleet));
        let (orders, messages) = mpsc::channel(64);
        let (to_records, records) = std::sync::mpsc::sync_channel(10_000);
        let nonce = BootNonce::random().unwrap();
        let recorder = Recorder::new(to_records);
        let inbox = Inbox { me: name("mars"), nonce, fleet: fleet_seen, orders, recorder: recorder.clone() };
        let (stop, stopped) = oneshot::channel::<()>();
        let identity = key.identity();
        let served = tokio::spawn(async move {
            let listeners = Listeners { tcp: vec![tcp], unix: vec![unix] };
            let stopped = async { stopped.await.unwrap_or(()) };
            serve(listeners, &identity, inbox, stopped).await.unwrap();
        });
        let state = Arc::new(Mutex::new(InboxState::default()));
        let (changes, _) = broadcast::channel(16);
        let inbox = tokio::spawn(work(messages, Arc::clone(&state), changes.clone()));
        let records = Mutex::new((records, Vec::new()));
        let stop = Some(stop);
        Self {
            address,
            socket,
            listener,
            key,
            peer,
            nonce,
            fleet,
            state,
            changes,
            recorder,
            records,
            stop,
            served,
            inbox,
            dir,
        }
    }

    /// Ends the supervisor as a crash would for its connections; returns what a new run needs.
    pub(super) async fn close(mut self) -> (Key, Key) {
        drop(self.stop.take());
        (&mut self.served).await.unwrap();
        self.inbox.abort();
        drop(self.dir);
        (self.key, self.peer)
    }

    pub(super) fn endpoint(&self) -> Endpoint {
        Endpoint {
            node: name("mars"),
            address: self.address,
            pins: BTreeSet::from([self.key.pin]),
            from: Some(PEER_ADDRESS.into()),
        }
    }

    pub(super) async fn call(&self) -> Result<(Link, Events), ConnectError> {
        connect(&self.endpoint(), &self.peer.identity(), hello("ai-core"), PATIENCE).await
    }

    pub(super) fn orders(&self) -> Vec<(Asker, Request)> {
        self.state.lock().unwrap().orders.clone()
    }

    /// Every record so far.
    pub(super) fn records(&self) -> Vec<Record> {
        let mut records = self.records.lock().unwrap();
        let new: Vec<Record> = records.0.try_iter().collect();
        records.1.extend(new);
        records.1.clone()
    }

    pub(super) fn refusals(&self) -> Vec<Record> {
        self.records().into_iter().filter(|r| r.event == Event::Refused).collect()
    }

    pub(super) fn edit_fleet(&self, edit: impl FnOnce(&mut Fleet)) {
        self.fleet.send_modify(|fleet| edit(Arc::make_mut(fleet)));
    }
}

pub(super) fn hello(node: &str) -> Hello {
    Hello {
        node: name(node),
        version: "0.0.0".to_owned(),
        boot_nonce: BootNonce::from_bytes([3; 16]),
        fleet_hash: FleetHash::of(b"fleet"),
    }
}

pub(super) fn relaunch() -> Verb {
    Verb::Relaunch(RelaunchOrder::default())
}

async fn work(
    mut inbox: mpsc::Receiver<InboxMessage>,
    state: Arc<Mutex<InboxState>>,
    changes: broadcast::Sender<Arc<Update>>,
) {
    while let Some(order) = inbox.recv().await {
        let mut state = state.lock().unwrap();
        match order {
            InboxMessage::Subscribe { reply, .. } => {
                state.subscriptions += 1;
                let _ = reply.send(Subscription { first: vec![node_report()], changes: changes.subscribe() });
            }
            InboxMessage::Request { asker, request, reply } => {
                let verdict = verdict(&request);
                state.orders.push((asker, request));
                if state.stalled {
                    state.waiting.push(reply);
                } else {
                    let _ = reply.send(verdict);
                }
            }
        }
    }
}

fn verdict(request: &Request) -> Verdict {
    Verdict::Outcome(match &request.verb {
        Verb::Relaunch(_) => Outcome::Relaunched(Relaunched {
            unit: "write.service".parse().unwrap(),
            before: None,
            invocation: InvocationId::from_bytes([9; 16]),
            took_us: 4000,
            settled: false,
            shared: false,
            break_glass: false,
            degraded: Vec::new(),
        }),
        Verb::Status {} => Outcome::Status(node_report()),
        Verb::Fleet {} => Outcome::Fleet(vec![node_report()]),
        Verb::Hold { for_ms } => Outcome::Held { for_ms: *for_ms },
        Verb::Nudge(_)
        | Verb::Repipe(_)
        | Verb::Power { .. }
        | Verb::Drill(_)
        | Verb::Release {}
        | Verb::Explain {}
        | Verb::Audit { .. }
        | Verb::Prove { .. }
        | Verb::Requeue(_)
        | Verb::Drop(_)
        | Verb::Watch {}
        | Verb::Events {} => {
            return Verdict::Refused(Refusal::new(RefusalCode::Internal, "not in this house"));
        }
    })
}

/// Waits for a state, never for a moment.
pub(super) async fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let by = tokio::time::Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(tokio::time::Instant::now() < by, "never: {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}
