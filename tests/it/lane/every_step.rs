//! The lane's protocol, explored: a real lane and a real server, and after every single step of theirs everything that may
//! happen, alone and followed by a crash at every later step. No task that must not run twice does, none is lost, and no result
//! says something else than what happened.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use keyholder::lane::{Status, TaskResult, Text};
use keyholder::queue::Keys;
use ring::signature::{Ed25519KeyPair, KeyPair as _};

use super::rig::{Client, Lane, Rig, old_ledger, task};
use super::steps::{Act, Plan, Stage};

/// How far after the first act a crash follows, in points. `KEYHOLDER_STEPS=all` (`tests/run --long`) has it follow at each.
const NEAR: usize = 1;
/// A path that takes longer stands still.
const PATH: Duration = Duration::from_secs(60);
/// How many paths are played side by side. They wait for programs and for the server more than they work.
const STAGES: usize = 3;

/// Two that must not run twice, with a rate that lets both through and nothing else, and one that may.
const ACTIONS: &str = r#"
  once:
    mode: write
    description: must never run twice
    argv: [DIR/run, "{n}"]
    params: { n: { int: { min: 0, max: 9 } } }
    rate: { at_most: 2, per: 7d }
  again:
    mode: write
    description: may run twice
    argv: [DIR/run, "{n}"]
    idempotent: true
    params: { n: { int: { min: 0, max: 9 } } }
"#;

/// Which task is which: its number is its id and its parameter.
const TASKS: [(&str, &str); 3] = [("1", "once"), ("2", "again"), ("3", "once")];

/// Signs tasks for the write lane of mars.
struct Hub(Ed25519KeyPair);

impl Hub {
    fn new() -> Self {
        Self(Ed25519KeyPair::from_seed_unchecked(&[7; 32]).unwrap())
    }

    fn key(&self) -> String {
        let key: String = self.0.public_key().as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        format!("hub=ed25519:{key}")
    }

    fn sign(&self, task: String) -> String {
        let node = "mars".parse().unwrap();
        let context = keyholder::lane::Context { node: &node, lane: keyholder::catalog::Mode::Write };
        serde_json::to_string(&keyholder::lane::seal(task, "hub", &self.0, &context)).unwrap()
    }
}

/// One server, and two hosts with a catalog, a ledger and a lane each, used by one path after the other.
struct Player {
    stage: Stage,
    rig: Rig,
    hub: Hub,
    first: Arc<Mutex<String>>,
    client: Client,
}

/// What a path has shown.
struct Played {
    points: usize,
    seen: Vec<String>,
    wrong: Vec<String>,
}

impl Player {
    fn new(actions: &str) -> Self {
        let rig = Rig::new(actions);
        rig.program("run", "echo $1 >>DIR/log; echo ran $1");
        let first = Arc::<Mutex<String>>::default();
        let (bytes, forged) = (first.clone(), AtomicUsize::new(0));
        let stage = Stage::new(move |act, conn| {
            let first = bytes.lock().unwrap_or_else(PoisonError::into_inner).clone();
            happen(act, conn, &first, forged.fetch_add(1, Ordering::Relaxed));
        });
        let client = Client::new(&stage.redis, "write");
        Self { stage, rig, hub: Hub::new(), first, client }
    }

    fn lane(&self, host: &str) -> Lane {
        let state = self.rig.path(host);
        let args = ["--signer", &self.hub.key(), "--state-dir", state.to_str().unwrap()];
        self.rig.stepped_lane(&self.stage.url(), &args)
    }

    /// Plays one path to its end: all tasks answered, and a last lane has put in order what was left.
    fn play(&mut self, plan: &[(usize, Act)]) -> Played {
        self.stage.begin(plan.to_vec());
        for host in ["a", "b"] {
            let state = self.rig.path(host);
            let _ = fs::remove_dir_all(&state);
            old_ledger(&state);
        }
        let _ = fs::remove_file(self.rig.path("log"));
        redis::cmd("FLUSHALL").exec(&mut self.client.conn).unwrap();
        let given: Vec<String> = TASKS
            .iter()
            .map(|(n, action)| self.hub.sign(task(n, action, &format!(r#"{{"n":{n}}}"#))))
            .collect();
        self.first.lock().unwrap().clone_from(&given[0]);
        let mut pipe = redis::pipe();
        pipe.atomic();
        for raw in &given {
            pipe.cmd("LPUSH").arg(&self.client.keys.queue).arg(raw);
        }
        pipe.exec(&mut self.client.conn).unwrap();
        self.stage.given();

        let mut host = "a";
        let mut lane = self.lane(host);
        self.stage.enter(lane.pid());
        let end = Instant::now() + PATH;
        let mut wrong = Vec::new();
        loop {
            if let Some(act) = self.stage.killed() {
                lane.end();
                if act == Act::Takeover {
                    host = if host == "a" { "b" } else { "a" };
                }
                lane = self.lane(host);
                self.stage.enter(lane.pid());
            }
            if self.settled() {
                break;
            }
            if Instant::now() > end {
                wrong.push(format!("a task is lost: {:?} {:?}", self.answers(), lane.said()));
                break;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        let (points, seen) = self.stage.seen();
        lane.die();
        if !plan.is_empty() {
            // A last lane, to which nothing happens: what was put in flight behind the back of the lane before is settled.
            self.stage.begin(Vec::new());
            let lane = self.lane(host);
            while !self.in_order() && Instant::now() < end {
                std::thread::sleep(Duration::from_millis(2));
            }
            if !self.in_order() {
                wrong.push(format!("something stays in flight: {:?}", lane.said()));
            }
            lane.die();
        }
        self.check(plan, &mut wrong);
        Played { points, seen, wrong }
    }

    /// Nothing waits, and everything has its result.
    fn settled(&mut self) -> bool {
        let keys = self.client.keys.clone();
        let mut pipe = redis::pipe();
        pipe.atomic().cmd("LLEN").arg(&keys.queue);
        for (n, _) in TASKS {
            pipe.cmd("EXISTS").arg(keys.result(n));
        }
        let seen: Vec<u64> = pipe.query(&mut self.client.conn).unwrap();
        seen == [0, 1, 1, 1]
    }

    /// Nothing waits, and nothing is in flight.
    fn in_order(&mut self) -> bool {
        let keys = self.client.keys.clone();
        self.client.length(&keys.queue) == 0 && self.client.length(&keys.in_flight) == 0
    }

    fn answers(&mut self) -> BTreeMap<&'static str, Option<TaskResult>> {
        let result = |client: &mut Client, n| {
            let json: Option<String> =
                redis::cmd("GET").arg(client.keys.result(n)).query(&mut client.conn).unwrap();
            json.map(|json| serde_json::from_str(&json).unwrap())
        };
        TASKS.iter().map(|(n, _)| (*n, result(&mut self.client, n))).collect()
    }

    fn check(&mut self, plan: &[(usize, Act)], wrong: &mut Vec<String>) {
        let log = self.rig.log();
        let ran = |n: &str| log.iter().filter(|line| *line == n).count();
        let died = plan.iter().any(|(_, act)| act.kills());
        let marked = plan.iter().any(|(_, act)| matches!(act, Act::ForgedMark | Act::ForgedElement));
        let answers = self.answers();
        for (n, action) in TASKS {
            let (times, Some(result)) = (ran(n), &answers[n]) else { continue };
            if action == "once" && times > 1 {
                wrong.push(format!("task {n} ran {times} times"));
            }
            if result.id != n || result.action.as_deref() != Some(action) {
                wrong.push(format!("the result of {n} is about another task: {result:?}"));
            }
            let said = result.ran.as_ref().map(|ran| ran.stdout.head.clone());
            let true_ = match result.status {
                Status::Ok => times >= 1 && said == Some(Text::Text(format!("ran {n}\n"))),
                // What the dead lane had done is not known. A forged mark that says that another lane began it, with a variant
                // or without, keeps a task from running.
                Status::Interrupted => said.is_none() && (died || marked),
                Status::Failed | Status::Killed | Status::Refused | Status::TimedOut => false,
            };
            if !true_ {
                wrong.push(format!("task {n} ran {times} times and its result says {result:?}"));
            }
        }
        for line in &log {
            if !TASKS.iter().any(|(n, _)| n == line) {
                wrong.push(format!("something ran that nobody signed: {line}"));
            }
        }
    }
}

/// Carries out what does not concern connections and processes. `nth` keeps forgeries apart.
fn happen(act: Act, conn: &mut redis::Connection, first: &str, nth: usize) {
    let keys = Keys::of(&keyholder::queue::QueueName::write(&"mars".parse().unwrap()));
    let hash = |raw: &str| {
        let digest = ring::digest::digest(&ring::digest::SHA256, raw.as_bytes());
        digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect::<String>()
    };
    let mark = |owner: &str| {
        format!(
            r#"{{"owner":"{owner}","place":"elsewhere","id":"other{nth}","action":"other","issued_ms":0,"again":true,"attempts":1,"at":"2026-01-01T00:00:00Z"}}"#
        )
    };
    match act {
        Act::Crash | Act::Failover => {}
        // As if it had not been renewed for its whole time.
        Act::Takeover => redis::cmd("DEL").arg(&keys.owner).exec(conn).unwrap(),
        Act::Duplicate => redis::cmd("LPUSH").arg(&keys.queue).arg(first).exec(conn).unwrap(),
        Act::ForgedElement => {
            let variant = format!("{first}{}", " ".repeat(nth % 7 + 1));
            redis::cmd("HSET").arg(&keys.begun).arg(hash(&variant)).arg(mark("they")).exec(conn).unwrap();
            redis::cmd("LPUSH").arg(&keys.in_flight).arg(variant).exec(conn).unwrap();
        }
        Act::ForgedMark => {
            redis::cmd("HSET").arg(&keys.begun).arg(hash(first)).arg(mark("they")).exec(conn).unwrap();
        }
        Act::LostMarks => redis::cmd("DEL").arg(&keys.begun).exec(conn).unwrap(),
        Act::Unsigned => {
            let raw = task(&format!("u{nth}"), "once", r#"{"n":9}"#);
            redis::cmd("HSET").arg(&keys.begun).arg(hash(&raw)).arg(mark("they")).exec(conn).unwrap();
            redis::cmd("LPUSH").arg(&keys.in_flight).arg(raw).exec(conn).unwrap();
        }
    }
}

/// What another host's ledger cannot know, and only the server could say: with these after one another a task that must not
/// run twice may run once on each of two hosts that bear one name. README says that a node's name belongs to one host.
fn beyond(plan: &[(usize, Act)]) -> bool {
    let takes_over = plan.iter().any(|(_, act)| *act == Act::Takeover);
    let server_lies = |act: &Act| {
        matches!(act, Act::Failover | Act::LostMarks | Act::Duplicate | Act::ForgedElement | Act::ForgedMark)
    };
    takes_over && plan.iter().any(|(_, act)| server_lies(act))
}

/// Everything that may happen at one point, and a crash or takeover after it.
fn plans(points: usize, all: bool) -> Vec<Plan> {
    let mut plans: Vec<Plan> = vec![Vec::new()];
    for at in 0..points {
        for act in Act::ALL {
            plans.push(vec![(at, act)]);
            // What is done to the server while the lane lives is followed by its death; a death by another.
            let last = if all { points + points / 2 } else { at + NEAR };
            for later in at + 1..=last {
                let deaths: &[Act] = if all { &[Act::Crash, Act::Takeover] } else { &[Act::Crash] };
                plans.extend(deaths.iter().map(|death| vec![(at, act), (later, *death)]));
            }
        }
    }
    plans.retain(|plan| !beyond(plan));
    plans
}

/// Plays the plans on several stages; gives what was wrong.
fn explore(actions: &str, plans: &[Plan]) -> (usize, BTreeSet<Vec<String>>, Vec<String>) {
    let next = AtomicUsize::new(0);
    let found = Mutex::new((0, BTreeSet::new(), Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..STAGES {
            scope.spawn(|| {
                let mut player = Player::new(actions);
                while let Some(plan) = plans.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let played = player.play(plan);
                    let mut found = found.lock().unwrap();
                    found.0 += played.points;
                    for wrong in &played.wrong {
                        println!("{plan:?}: {wrong}");
                    }
                    found.1.insert(played.seen);
                    found.2.extend(played.wrong.iter().map(|wrong| format!("{plan:?}: {wrong}")));
                }
            });
        }
    });
    found.into_inner().unwrap()
}

#[test]
fn whatever_happens_after_any_step_nothing_runs_twice_is_lost_or_answered_falsely() {
    let began = Instant::now();
    let straight = Player::new(ACTIONS).play(&[]);
    assert_eq!(straight.wrong, [""; 0]);
    println!("the straight path: {:?}", straight.seen);
    let all = std::env::var("KEYHOLDER_STEPS").is_ok_and(|steps| steps == "all");
    let plans = plans(straight.points, all);
    let (points, paths, wrong) = explore(ACTIONS, &plans);
    println!(
        "{} plans over {} points, {points} states, {} different paths, {:.1?}",
        plans.len(),
        straight.points,
        paths.len(),
        began.elapsed()
    );
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), plans.len(), wrong.join("\n"));
}

#[test]
fn the_exploration_finds_a_task_that_may_run_twice() {
    // What must not run twice is declared as what may: a lane that dies in it runs it again.
    let wrong = ACTIONS.replacen("rate:", "idempotent: true\n    rate:", 1);
    let plans: Vec<Plan> =
        (0..Player::new(&wrong).play(&[]).points).map(|at| vec![(at, Act::Crash)]).collect();
    let (_, _, wrong) = explore(&wrong, &plans);
    assert!(wrong.iter().any(|wrong| wrong.contains("ran 2 times")), "{wrong:?}");
}
