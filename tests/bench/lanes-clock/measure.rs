//! What is measured, in which order.

use std::time::{Duration, Instant};

use crate::Plan;
use crate::client::Client;
use crate::figures::{Figures, Limit, Times, Wanted, Way};
use crate::python::Other;
use crate::rig::{Process, Rig, until};

/// Laps of one turn: of what takes about a millisecond, and of what takes many.
const SHORT: usize = 60;
const LONG: usize = 20;
/// The first laps of each turn are not counted: everybody comes from waiting, with a processor that has slept and caches that
/// others have filled.
const WARM: usize = 5;
/// Reads of one turn beside a write that takes two seconds.
const READS: usize = 400;
/// Tasks for each throughput.
const BATCH: usize = 400;
/// How many tasks wait for the lane whose memory is measured, and how long it works on them.
const WAITING: usize = 100_000;
const WORKS: Duration = Duration::from_secs(4);
const OK: &str = r#""status":"ok""#;

fn say(what: &str) {
    eprint!("\rbench: {what}\x1b[K");
}

/// Everything.
pub(crate) fn all(plan: &Plan) -> Figures {
    let mut figures = Figures::default();
    latency(plan, &mut figures);
    beside_a_write(plan, &mut figures);
    throughput(plan, &mut figures);
    memory(plan, &mut figures);
    wanted(&mut figures);
    eprint!("\r\x1b[K");
    figures
}

/// Who is raced, by which way.
enum Racer {
    /// Works on a queue of its own; an action, and the word that a good result has.
    Ours {
        _process: Process,
        client: Client,
        action: &'static str,
        good: &'static str,
    },
    /// The same, and the waiting is that of `keyholder run`.
    Run {
        _process: Process,
        client: Client,
    },
    Other(Other),
}

impl Racer {
    fn laps(&mut self) -> Vec<Duration> {
        let mut times = match self {
            Self::Ours { client, action, good, .. } => client.laps(action, good, WARM + SHORT),
            Self::Run { client, .. } => client.laps_as_run("read.true", WARM + SHORT),
            Self::Other(other) => other.laps(WARM + LONG),
        };
        times.split_off(WARM)
    }
}

fn latency(plan: &Plan, figures: &mut Figures) {
    say("starting everybody");
    let rig = Rig::new(plan);
    let lane = |name: &str, mode: &str, action: &'static str, args: &[&str]| {
        let (_process, client) = rig.lane(name, mode, args);
        Racer::Ours { _process, client, action, good: OK }
    };
    let (_process, client) = rig.floor();
    let floor = Racer::Ours { _process, client, action: "", good: "" };
    let (_process, client) = rig.lane("run", "read", &[]);
    let run = Racer::Run { _process, client };
    let mut racers = vec![
        ("floor", "the floor: BRPOP, posix_spawn, LPUSH", floor),
        ("read", "keyholder, read lane", lane("read", "read", "read.true", &[])),
        (
            "brpop",
            "keyholder, read lane, claim: brpop",
            lane("brpop", "read", "read.true", &["--claim", "brpop"]),
        ),
        ("run", "keyholder, read lane, as keyholder run waits", run),
        ("write-again", "keyholder, write lane, idempotent", lane("again", "write", "write.again", &[])),
        ("write-once", "keyholder, write lane, never to run twice", lane("once", "write", "write.once", &[])),
    ];
    racers
        .extend(Other::all(plan, &rig).into_iter().map(|other| (other.key, other.name, Racer::Other(other))));
    for racer in &racers {
        let (name, worker) = match &racer.2 {
            Racer::Other(other) => (format!("{}, its worker", other.name), &other.worker),
            Racer::Ours { .. } | Racer::Run { .. } => continue,
        };
        figures.memory.push((name, worker.kilobytes("VmRSS")));
    }
    let mut times: Vec<Times> = racers.iter().map(|_| Times::default()).collect();
    for turn in 0..plan.turns {
        say(&format!("latency, turn {} of {}", turn + 1, plan.turns));
        for n in 0..racers.len() {
            // Nobody always follows the same one.
            let n = (n + turn) % racers.len();
            times[n].add(racers[n].2.laps());
        }
    }
    figures.latency = racers
        .iter()
        .zip(times)
        .map(|((key, name, _), times)| Way { key, name: (*name).to_owned(), times })
        .collect();
}

/// Reads through the read lane, with and without a write that runs.
fn beside_a_write(plan: &Plan, figures: &mut Figures) {
    let rig = Rig::new(plan);
    let (_read, mut read) = rig.lane("read", "read", &[]);
    let (_write, mut write) = rig.lane("write", "write", &[]);
    let (mut with, mut without) = (Times::default(), Times::default());
    for turn in 0..plan.turns {
        say(&format!("reads beside a write, turn {} of {}", turn + 1, plan.turns));
        // Neither always comes first: a p99 is made of moments, and those change.
        for beside in [turn % 2 == 0, turn % 2 != 0] {
            if beside {
                write.give("write.long");
                until("the write runs", || write.in_flight() == 1);
            }
            let times = read.laps("read.true", OK, WARM + READS).split_off(WARM);
            if beside { &mut with } else { &mut without }.add(times);
            if beside {
                write.collect();
            }
        }
    }
    let key = "read-beside-a-write";
    figures.latency.push(Way {
        key,
        name: "keyholder, read lane, while a write runs".to_owned(),
        times: with,
    });
    let key = "read-alone";
    figures.latency.push(Way {
        key,
        name: "keyholder, read lane, while none runs".to_owned(),
        times: without,
    });
}

fn throughput(plan: &Plan, figures: &mut Figures) {
    let rig = Rig::new(plan);
    let mut lanes: Vec<_> = [1, 2, 4, 8]
        .map(|slots: usize| {
            let (lane, client) = rig.lane(&format!("slots{slots}"), "read", &["--slots", &slots.to_string()]);
            (format!("keyholder, read lane, {slots} slots"), lane, client)
        })
        .into();
    let (floor, client) = rig.floor();
    lanes.insert(0, ("the floor".to_owned(), floor, client));
    let mut best = vec![0.0_f64; lanes.len()];
    let turns = plan.turns.div_ceil(4);
    for turn in 0..turns {
        say(&format!("throughput, turn {} of {turns}", turn + 1));
        for ((_, _, client), best) in lanes.iter_mut().zip(&mut best) {
            let start = Instant::now();
            client.give_many("read.true", BATCH);
            for _ in 0..BATCH {
                client.collect();
            }
            #[expect(clippy::cast_precision_loss, reason = "a small number")]
            let rate = BATCH as f64 / start.elapsed().as_secs_f64();
            *best = best.max(rate);
        }
    }
    let names = lanes.into_iter().map(|(name, ..)| name);
    figures.throughput = names.zip(best).collect();
}

fn memory(plan: &Plan, figures: &mut Figures) {
    say("memory");
    let rig = Rig::new(plan);
    let (lane, mut client) = rig.lane("memory", "read", &[]);
    client.laps("read.true", OK, 100);
    let idle = lane.kilobytes("VmRSS");
    client.give_many("read.true", WAITING);
    std::thread::sleep(WORKS);
    assert!(client.waiting() > WAITING / 2, "it was too fast for its memory to be measured");
    // The peak of all its life; its commands are not it.
    let peak = lane.own_kilobytes("VmHWM");
    figures.memory.insert(0, ("keyholder, read lane, idle".to_owned(), idle));
    figures.memory.insert(1, ("keyholder, read lane, peak, 100,000 tasks waiting".to_owned(), peak));
}

fn wanted(figures: &mut Figures) {
    let p50 = |key: &str| figures.of(key).map(|times| times.at(0.5));
    let ratio = |this: Option<f64>, that: Option<f64>| Some(this? / that?);
    let p99 = |key: &str| figures.of(key).map(|times| times.at(0.99));
    #[expect(clippy::cast_precision_loss, reason = "kilobytes of one process")]
    let megabytes = |n: usize| figures.memory.get(n).map(|(_, kb)| *kb as f64 / 1024.0);
    let at_most = [
        ("floor", "read lane, times the floor", ratio(p50("read"), p50("floor")), 1.5),
        (
            "beside-a-write",
            "p99 of reads while a write runs, times without",
            ratio(p99("read-beside-a-write"), p99("read-alone")),
            1.1,
        ),
        ("memory-idle", "megabytes of an idle lane", megabytes(0), 10.0),
        ("memory-full", "megabytes of a lane with 100,000 tasks waiting", megabytes(1), 10.0),
    ];
    let at_least = [
        ("rq", "times faster than rq", ratio(p50("rq"), p50("read")), 5.0),
        ("celery", "times faster than celery", ratio(p50("celery"), p50("read")), 5.0),
    ];
    let one = |limit: fn(f64) -> Limit| {
        move |(key, text, is, than): (&'static str, &str, Option<f64>, f64)| {
            Some(Wanted { key, text: text.to_owned(), is: is?, limit: limit(than) })
        }
    };
    let all = at_most
        .into_iter()
        .filter_map(one(Limit::AtMost))
        .chain(at_least.into_iter().filter_map(one(Limit::AtLeast)));
    figures.wanted = all.collect();
}
