//! The stopwatch of `tests/bench/relaunch`: everything that has to be measured closer than a shell can. Each command
//! prints numbers (microseconds, unless it says otherwise) and nothing else. All nodes of the lab run on one kernel, so
//! that times taken in different nodes can be compared.

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
use keyholder::peer::wire::{Class, ClientFrame, Hello, Request, ServerFrame, Verb, WorkerReport};
use keyholder::vocabulary::{BootNonce, FleetHash, ReqId};
use nix::sys::signal::{Signal, kill};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::Pid;

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
        ["idle", pid, seconds] => idle(pid, seconds.parse().unwrap()),
        // `cargo bench` calls it like this; a test run must not trip over it.
        [] | ["--bench"] => {}
        _ => {
            eprintln!(
                "usage: stopwatch time CMD... | floor UNIT | beacon FILE | respawn FILE CGROUP\n\
                 \x20      | healthy SOCKET NODE WORKER | knowledge SOCKET NODE WORKER CGROUP | idle PID SECONDS"
            );
            return ExitCode::from(2);
        }
    }
    ExitCode::SUCCESS
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

/// Ends the one process of a unit the hard way; the moment just before.
fn sigkill(cgroup: &str) -> Duration {
    let procs = fs::read_to_string(Path::new(cgroup).join("cgroup.procs")).unwrap();
    let pid: i32 = procs.trim().parse().unwrap_or_else(|_| panic!("not one process in {cgroup}: {procs:?}"));
    let at = monotonic();
    kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
    at
}

/// From SIGKILL until the next beacon: the worker's own first instruction, not somebody's opinion of it.
fn respawn(file: &str, cgroup: &str) {
    let before = fs::read_to_string(file).unwrap();
    let killed = sigkill(cgroup);
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
    let killed = sigkill(cgroup);
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
        let wanted = |report: &WorkerReport| {
            // Healthy means settled as well: a death before that is a failed repair, which is retried more and more slowly.
            let settled = class != Class::Healthy || report.doing.is_empty();
            report.node.as_str() == node
                && report.worker.as_str() == worker
                && report.class == class
                && settled
        };
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
}

/// What a process costs while nothing happens: resident kB, anonymous kB, CPU microseconds, wake-ups.
fn idle(pid: &str, seconds: u64) {
    let field = |name: &str| -> u64 {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    };
    let threads = || {
        fs::read_dir(format!("/proc/{pid}/task"))
            .unwrap()
            .map(|task| task.unwrap().path())
            .collect::<Vec<_>>()
    };
    // Ticks of utime and stime are 10 ms each; the scheduler counts in nanoseconds.
    let cpu = || -> u64 {
        let ran = |task: &Path| -> u64 {
            let stat = fs::read_to_string(task.join("schedstat")).unwrap();
            stat.split(' ').next().unwrap().parse().unwrap()
        };
        threads().iter().map(|task| ran(task)).sum()
    };
    let (cpu_before, woken_before) = (cpu(), field("voluntary_ctxt_switches:"));
    std::thread::sleep(Duration::from_secs(seconds));
    let used = (cpu() - cpu_before) / 1000;
    let woken = field("voluntary_ctxt_switches:") - woken_before;
    println!("{} {} {used} {woken} {}", field("VmRSS:"), field("RssAnon:"), threads().len());
}
