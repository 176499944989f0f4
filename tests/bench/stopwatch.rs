//! The stopwatch of `tests/bench/relaunch` and `tests/bench/watch`: everything that has to be measured closer than a shell
//! can. Each command prints numbers (microseconds, unless it says otherwise) and nothing else. All nodes of the lab run on
//! one kernel, so that times taken in different nodes can be compared.

// A measuring tool stops at the first surprise, with the whole story.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stderr
)]

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use keyholder::peer::wire::{
    Class, ClientFrame, Hello, NodeReport, NodeState, Request, ServerFrame, Verb, WorkerReport,
};
use keyholder::vocabulary::{BootNonce, FleetHash, ReqId};
use nix::sys::signal::{Signal, kill};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::Pid;

#[path = "stopwatch/cost.rs"]
mod cost;
#[path = "stopwatch/falls.rs"]
mod falls;
#[path = "stopwatch/swarm.rs"]
mod swarm;
#[path = "stopwatch/tapes.rs"]
mod tapes;

const DEADLINE: Duration = Duration::from_secs(20);

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args.as_slice() {
        ["time", command @ ..] if !command.is_empty() => time(command),
        ["floor", unit] => floor(unit),
        ["beacon", file] => beacon(file),
        ["respawn", file, cgroup] => respawn(file, cgroup),
        ["healthy", socket, node, worker] => healthy(socket, node, worker),
        ["knowledge", socket, node, worker, cgroup] => knowledge(socket, node, worker, cgroup),
        ["idle", pid, seconds] => cost::idle(number(pid), number(seconds).into()),
        ["falls", socket, node, worker, rounds, act @ ..] => match falls::Act::of(act) {
            Some(act) => falls::worker(socket, node, worker, number(rounds), &act),
            None => return usage(),
        },
        ["cable", socket, node, rounds, netns, port] => {
            falls::cable(socket, node, number(rounds), netns, port);
        }
        ["killed", socket, node, worker, rounds, cgroup] => {
            falls::killed(socket, node, worker, number(rounds), cgroup);
        }
        ["deaf", socket, node, rounds, lab] => falls::deaf(socket, node, number(rounds), lab),
        ["beat", file] => falls::beat(file),
        ["beats", directory, workers] => falls::beats(directory, number(workers)),
        ["drain", redis, queue] => falls::drain(redis, queue),
        ["swarm", directory, binary, unit, seconds, busy, sizes @ ..] if !sizes.is_empty() => {
            let sizes: Vec<u8> = sizes.iter().map(|size| size.parse().unwrap()).collect();
            swarm::run(directory, binary, unit, number(seconds), number(busy), &sizes);
        }
        ["tapes", workers] => tapes::weigh(number(workers)),
        // `cargo bench` calls it like this; a test run must not trip over it.
        [] | ["--bench"] => {}
        _ => return usage(),
    }
    ExitCode::SUCCESS
}

fn usage() -> ExitCode {
    eprintln!(
        "usage: stopwatch time CMD... | floor UNIT | beacon FILE | respawn FILE CGROUP | idle PID SECONDS\n\
         \x20      | healthy SOCKET NODE WORKER | knowledge SOCKET NODE WORKER CGROUP\n\
         \x20      | falls SOCKET NODE WORKER ROUNDS (kill CGROUP | stop CGROUP | starve CGROUP REDIS QUEUE)\n\
         \x20      | cable SOCKET NODE ROUNDS NETNS PORT | killed SOCKET NODE WORKER ROUNDS CGROUP\n\
         \x20      | deaf SOCKET NODE ROUNDS LAB | beat FILE | beats DIR WORKERS | drain REDIS QUEUE\n\
         \x20      | swarm DIR BINARY UNIT SECONDS BUSY SIZE... | tapes WORKERS"
    );
    ExitCode::from(2)
}

fn number(text: &str) -> u32 {
    text.parse().unwrap_or_else(|_| panic!("{text:?} is no number"))
}

fn micros(took: Duration) {
    println!("{:.0}", took.as_secs_f64() * 1e6);
}

/// The one clock of all nodes.
fn monotonic() -> Duration {
    clock_gettime(ClockId::CLOCK_MONOTONIC).unwrap().into()
}

/// A whole process, from fork to exit.
fn time(command: &[&str]) {
    let mut child = Command::new(command[0]);
    child.args(&command[1..]).stdin(Stdio::null()).stdout(Stdio::null());
    let start = Instant::now();
    let status = child.status().unwrap();
    let took = start.elapsed();
    assert!(status.success(), "{command:?}: {status}");
    micros(took);
}

#[zbus::proxy(
    interface = "org.freedesktop.systemd1.Manager",
    default_service = "org.freedesktop.systemd1",
    default_path = "/org/freedesktop/systemd1"
)]
trait Manager {
    fn subscribe(&self) -> zbus::Result<()>;
    fn restart_unit(&self, name: &str, mode: &str) -> zbus::Result<zbus::OwnedObjectPath>;
    #[zbus(signal)]
    fn job_removed(&self, id: u32, job: zbus::ObjectPath<'_>, unit: &str, result: &str) -> zbus::Result<()>;
}

/// PID 1's own share: RestartUnit until JobRemoved on a connection that has been used before.
fn floor(unit: &str) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let measured = runtime.block_on(async {
        let bus = zbus::Connection::system().await.unwrap();
        let manager = ManagerProxy::new(&bus).await.unwrap();
        manager.subscribe().await.unwrap();
        let mut removed = manager.receive_job_removed().await.unwrap();
        let mut took = Duration::MAX;
        for _warm in [false, true] {
            let start = Instant::now();
            let job = manager.restart_unit(unit, "replace").await.unwrap();
            while let Some(signal) = removed.next().await {
                let signal = signal.args().unwrap();
                if *signal.job() == *job {
                    assert_eq!(*signal.result(), "done");
                    break;
                }
            }
            took = start.elapsed();
        }
        took
    });
    micros(measured);
}

/// The worker that is killed: notes when it runs, then sleeps for ever.
fn beacon(file: &str) {
    let started = monotonic();
    let new = format!("{file}.new");
    fs::write(&new, started.as_micros().to_string()).unwrap();
    fs::rename(new, file).unwrap();
    loop {
        std::thread::park();
    }
}

/// Sends the one process of a unit a signal; the moment just before.
fn signal(cgroup: &str, signal: Signal) -> Duration {
    let procs = fs::read_to_string(Path::new(cgroup).join("cgroup.procs")).unwrap();
    let pid: i32 = procs.trim().parse().unwrap_or_else(|_| panic!("not one process in {cgroup}: {procs:?}"));
    let at = monotonic();
    kill(Pid::from_raw(pid), signal).unwrap();
    at
}

/// From SIGKILL until the next beacon: the worker's own first instruction, not somebody's opinion of it.
fn respawn(file: &str, cgroup: &str) {
    let before = fs::read_to_string(file).unwrap();
    let killed = signal(cgroup, Signal::SIGKILL);
    let started = loop {
        let now = fs::read_to_string(file).unwrap();
        if now != before {
            break Duration::from_micros(now.parse().unwrap());
        }
        assert!(monotonic() < killed + DEADLINE, "not back after {DEADLINE:?}");
        std::thread::sleep(Duration::from_micros(200)); // coarse is fine: the beacon carries the time
    };
    micros(started - killed);
}

/// Waits until a worker is healthy in the eyes of the supervisor behind the socket.
fn healthy(socket: &str, node: &str, worker: &str) {
    Watch::open(socket).until(node, worker, Class::Healthy);
}

/// From SIGKILL until another node's supervisor has pushed the news to a local watcher.
fn knowledge(socket: &str, node: &str, worker: &str, cgroup: &str) {
    let mut watch = Watch::open(socket);
    watch.until(node, worker, Class::Healthy);
    let killed = signal(cgroup, Signal::SIGKILL);
    watch.until(node, worker, Class::Dead);
    let known = monotonic();
    // The next round wants to begin with a healthy worker.
    watch.until(node, worker, Class::Healthy);
    micros(known - killed);
}

/// A watcher on the local socket. The command line has a client of its own; this one is not measured with what it
/// measures.
struct Watch(UnixStream);

impl Watch {
    fn open(socket: &str) -> Self {
        let stream = UnixStream::connect(socket).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        let mut watch = Self(stream);
        watch.send(&ClientFrame::Hello(Hello {
            node: "local".parse().unwrap(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            boot_nonce: BootNonce::from_bytes([0; 16]),
            fleet_hash: FleetHash::from_bytes([0; 32]),
        }));
        let ServerFrame::Hello(server) = watch.next() else { panic!("no hello") };
        watch.send(&ClientFrame::Request(Request {
            boot_nonce: server.boot_nonce,
            req_id: ReqId::random().unwrap(),
            target_node: server.node,
            worker: None,
            verb: Verb::Watch {},
            because: "the benchmark".to_owned(),
        }));
        watch
    }

    fn send(&mut self, frame: &ClientFrame) {
        let body = serde_json::to_vec(frame).unwrap();
        let mut bytes = u32::try_from(body.len()).unwrap().to_be_bytes().to_vec();
        bytes.extend(body);
        self.0.write_all(&bytes).unwrap();
    }

    fn next(&mut self) -> ServerFrame {
        let mut length = [0; 4];
        self.0.read_exact(&mut length).unwrap();
        let mut body = vec![0; u32::from_be_bytes(length).try_into().unwrap()];
        self.0.read_exact(&mut body).unwrap();
        serde_json::from_slice(&body).unwrap()
    }

    /// Follows what is pushed until the worker is in this class.
    fn until(&mut self, node: &str, worker: &str, class: Class) {
        let wanted = |report: &WorkerReport| is(report, node, worker, class);
        let start = Instant::now();
        loop {
            assert!(start.elapsed() < DEADLINE, "{node}/{worker} not {class:?} within {DEADLINE:?}");
            let seen = match self.next() {
                ServerFrame::Change(report) => wanted(&report),
                ServerFrame::Snapshot(node) => node.workers.iter().any(wanted),
                ServerFrame::Hello(_)
                | ServerFrame::Keepalive
                | ServerFrame::Leaving
                | ServerFrame::Event(_)
                | ServerFrame::Missed { .. }
                | ServerFrame::Reply(_) => false,
            };
            if seen {
                return;
            }
        }
    }

    /// Follows what is pushed until the node is in this state.
    fn until_node(&mut self, node: &str, state: NodeState) {
        let _ = self.until_report(node, &format!("{state:?}"), |report| report.state == state);
    }

    /// Follows what is pushed until the node is described by a supervisor that began after `fell`: it has seen nothing for
    /// longer than that. Gives that description.
    fn until_new_run(&mut self, node: &str, fell: Duration) -> NodeReport {
        self.until_report(node, "in a new run", |report| {
            let young = |worker: &WorkerReport| u128::from(worker.for_ms) <= (monotonic() - fell).as_millis();
            report.state == NodeState::Up && report.workers.iter().all(young)
        })
    }

    fn until_report(&mut self, node: &str, what: &str, wanted: impl Fn(&NodeReport) -> bool) -> NodeReport {
        let start = Instant::now();
        loop {
            assert!(start.elapsed() < DEADLINE, "{node} not {what} within {DEADLINE:?}");
            if let ServerFrame::Snapshot(report) = self.next()
                && report.node.as_str() == node
                && wanted(&report)
            {
                return report;
            }
        }
    }
}

/// Whether a report says that the worker is in this class.
fn is(report: &WorkerReport, node: &str, worker: &str, class: Class) -> bool {
    // Healthy means settled as well: a death before that is a failed repair, which is retried more and more slowly.
    let settled = class != Class::Healthy || report.doing.is_empty();
    report.node.as_str() == node && report.worker.as_str() == worker && report.class == class && settled
}
