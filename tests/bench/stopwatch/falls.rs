//! Each way to fall, done on purpose, and when another node's supervisor has pushed the news of it and of the end of it.
//! Every round prints two times: from the act to the class, and from the class to healthy again.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use keyholder::peer::wire::{Class, NodeState};
use nix::sys::signal::Signal;

use super::{DEADLINE, Watch, is, monotonic, signal};

/// Long enough for a connection that has just come back to count as one that holds.
const QUIET: Duration = Duration::from_millis(1_100);

/// How a worker is brought down.
pub(super) enum Act<'a> {
    /// SIGKILL for its one process.
    Kill(&'a str),
    /// SIGSTOP for it.
    Stop(&'a str),
    /// SIGSTOP for the unit that feeds it, and then work for it: address of Redis, name of the list.
    Starve { pipe: &'a str, redis: &'a str, queue: &'a str },
}

impl<'a> Act<'a> {
    pub(super) fn of(words: &[&'a str]) -> Option<Self> {
        match words {
            ["kill", cgroup] => Some(Self::Kill(cgroup)),
            ["stop", cgroup] => Some(Self::Stop(cgroup)),
            ["starve", pipe, redis, queue] => Some(Self::Starve { pipe, redis, queue }),
            _ => None,
        }
    }

    fn class(&self) -> Class {
        match self {
            Self::Kill(_) => Class::Dead,
            Self::Stop(_) => Class::Stuck,
            Self::Starve { .. } => Class::DeliveryGap,
        }
    }

    /// The moment at which it fell.
    fn commit(&self) -> Duration {
        match self {
            Self::Kill(cgroup) => signal(cgroup, Signal::SIGKILL),
            Self::Stop(cgroup) => signal(cgroup, Signal::SIGSTOP),
            Self::Starve { pipe, redis, queue } => {
                signal(pipe, Signal::SIGSTOP);
                let mut server = TcpStream::connect(redis).unwrap();
                let at = monotonic();
                // Work that was never there before: the same again would be told from the last only by when it came.
                let work = at.as_micros();
                assert!(ask(&mut server, &format!("LPUSH {queue} {work}")).starts_with(':'));
                at
            }
        }
    }
}

/// A worker falls and comes back, so many times.
pub(super) fn worker(socket: &str, node: &str, worker: &str, rounds: u32, act: &Act) {
    let mut watch = Watch::open(socket);
    watch.until(node, worker, Class::Healthy);
    for _ in 0..rounds {
        // Detectors look at times of their own; the falls must not keep step with them.
        any_time(Duration::from_millis(100), Duration::from_millis(700));
        let fell = act.commit();
        watch.until(node, worker, act.class());
        let found = monotonic();
        watch.until(node, worker, Class::Healthy);
        told(found - fell, monotonic() - found);
    }
}

/// A node's cable is pulled on the bridge, and put back.
pub(super) fn cable(socket: &str, node: &str, rounds: u32, netns: &str, port: &str) {
    let mut watch = Watch::open(socket);
    watch.until_node(node, NodeState::Up);
    let set = |to: &str| {
        let status = Command::new("ip").args(["-n", netns, "link", "set", port, to]).status().unwrap();
        assert!(status.success(), "{port} {to}");
    };
    for _ in 0..rounds {
        any_time(QUIET, Duration::from_secs(1));
        let pulled = monotonic();
        set("down");
        watch.until_node(node, NodeState::Unreachable);
        let found = monotonic();
        set("up");
        let plugged = monotonic();
        watch.until_node(node, NodeState::Up);
        told(found - pulled, monotonic() - plugged);
    }
}

/// A supervisor is killed. Its watcher's next knock is answered by the next run, which is when both times are up: that
/// run is heard, and then it has seen its worker.
pub(super) fn killed(socket: &str, node: &str, worker: &str, rounds: u32, cgroup: &str) {
    let mut watch = Watch::open(socket);
    watch.until(node, worker, Class::Healthy);
    for _ in 0..rounds {
        any_time(QUIET, Duration::from_millis(500));
        let fell = signal(cgroup, Signal::SIGKILL);
        let report = watch.until_new_run(node, fell);
        let heard = monotonic();
        // A supervisor that has looked at its workers before it answers is not heard of them again.
        if !report.workers.iter().any(|report| is(report, node, worker, Class::Healthy)) {
            watch.until(node, worker, Class::Healthy);
        }
        told(heard - fell, monotonic() - heard);
    }
}

/// A supervisor and its socket are stopped, and the socket is started: the next knock starts the supervisor. systemd's own
/// times are the beginning of both.
pub(super) fn deaf(socket: &str, node: &str, rounds: u32, lab: &str) {
    let mut watch = Watch::open(socket);
    watch.until_node(node, NodeState::Up);
    for _ in 0..rounds {
        any_time(QUIET, Duration::from_millis(500));
        let stop = inside(lab, node, &["systemctl", "stop", "keyholder.socket", "keyholder.service"]);
        watch.until_node(node, NodeState::SupervisorDead);
        let found = monotonic();
        done(stop);
        let fell = since(lab, node, "keyholder.service", "ActiveExitTimestampMonotonic");
        let start = inside(lab, node, &["systemctl", "start", "keyholder.socket"]);
        watch.until_node(node, NodeState::Up);
        let back = monotonic();
        done(start);
        let open = since(lab, node, "keyholder.socket", "ActiveEnterTimestampMonotonic");
        told(found.saturating_sub(fell), back.saturating_sub(open));
    }
}

/// The worker whose loop may stop: it leaves a sign of life twenty times a second, so that the last is from just before.
pub(super) fn beat(file: &str) {
    loop {
        fs::write(file, []).unwrap();
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Signs of life for many workers that do nothing.
pub(super) fn beats(directory: &str, workers: u32) {
    loop {
        for number in 1..=workers {
            fs::write(Path::new(directory).join(number.to_string()), []).unwrap();
        }
        std::thread::sleep(Duration::from_secs(5));
    }
}

/// The pipe: takes from a list. It does not block there, or the server would hand work to one that is stopped.
pub(super) fn drain(redis: &str, queue: &str) {
    let mut server = TcpStream::connect(redis).unwrap();
    loop {
        if ask(&mut server, &format!("RPOP {queue}")).starts_with("$-1") {
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

/// One of Redis's inline commands, whose answer fits into one packet.
fn ask(server: &mut TcpStream, command: &str) -> String {
    server.write_all(format!("{command}\r\n").as_bytes()).unwrap();
    let mut answer = [0; 256];
    let length = server.read(&mut answer).unwrap();
    assert!(length > 0, "Redis hung up");
    String::from_utf8_lossy(&answer[..length]).into_owned()
}

fn told(found: Duration, mended: Duration) {
    println!("{:.0} {:.0}", found.as_secs_f64() * 1e6, mended.as_secs_f64() * 1e6);
}

/// Waits for `least` and a part of `more` that differs from time to time.
fn any_time(least: Duration, more: Duration) {
    let part = f64::from(monotonic().subsec_micros() % 1_000) / 1_000.0;
    std::thread::sleep(least + more.mul_f64(part));
}

fn inside(lab: &str, node: &str, command: &[&str]) -> Child {
    Command::new(lab).args(["exec", node]).args(command).stdin(Stdio::null()).spawn().unwrap()
}

fn done(mut child: Child) {
    let status = child.wait().unwrap();
    assert!(status.success(), "{status}");
}

/// One of systemd's times of a unit.
fn since(lab: &str, node: &str, unit: &str, property: &str) -> Duration {
    let command = ["exec", node, "systemctl", "show", "-P", property, unit];
    let output = Command::new(lab).args(command).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let at = Duration::from_micros(text.trim().parse().unwrap());
    assert!(monotonic() < at + DEADLINE * 2, "{unit} has no {property}");
    at
}
