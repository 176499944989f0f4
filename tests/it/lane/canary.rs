//! Canaries through real lanes.

use std::time::{Duration, Instant};

use keyholder::detect::{self, Check, Plan, Vital};
use keyholder::judge::{Pulse, Signs};
use keyholder::lane::{Status, TaskResult};
use keyholder::queue::{CANARY, QueueName, canary_once};
use keyholder::systemd;
use keyholder::vocabulary::{Canary, DeliveryGap, Flow, Mode, Moment};
use nix::sys::signal::Signal;
use tokio::sync::{mpsc, watch};

use super::rig::{Client, DEADLINE, Rig, until};
use crate::redis_server::Redis;

const ACTIONS: &str =
    "  nap: { mode: write, description: d, argv: [DIR/nap], idempotent: true, timeout: 60s }\n";

/// The write lane here takes signed tasks only, and nobody has a key.
fn signed_only(rig: &Rig, redis: &Redis) -> super::rig::Lane {
    rig.lane_with("write", redis, &["--signer", &format!("ops=ed25519:{}", "0".repeat(64))], &[])
}

#[test]
fn a_lane_answers_a_canary_that_nobody_signed_and_runs_nothing_for_it() {
    let (redis, rig) = (Redis::start(&[]), Rig::new(ACTIONS));
    rig.program("nap", "echo nap >>DIR/log");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let node = "mars".parse().unwrap();
    for (mode, queue) in [("write", QueueName::write(&node)), ("read", QueueName::read(&node))] {
        let lane = if mode == "write" { signed_only(&rig, &redis) } else { rig.lane("read", &redis) };
        let url = redis.url("");
        let (id, answer) = runtime.block_on(canary_once(&url, &queue, &node, DEADLINE)).unwrap();
        let answer: TaskResult = serde_json::from_slice(&answer.expect("an answer")).unwrap();
        assert_eq!((&answer.id, answer.status, answer.ran), (&id, Status::Ok, None));
        lane.wait_for(&format!("executed action={CANARY} status=ok"));
        let mut client = Client::new(&redis, mode);
        let keys = client.keys.clone();
        // It is nobody's result, and soon gone.
        assert_eq!((client.results().len(), client.length(&keys.in_flight)), (0, 0));
        let left: i64 = redis::cmd("TTL").arg(keys.result(&id)).query(&mut client.conn).unwrap();
        assert!((1..=600).contains(&left), "{left}");
        // What only calls itself one is a task like any other.
        client.task("canary-x", CANARY, r#"{"a":1}"#);
        client.task("x", CANARY, "{}");
        // Where nobody signed them, the answers are under the hashes of their bytes.
        let answers = until("both are answered", || Some(client.results()).filter(|all| all.len() == 2));
        assert!(answers.iter().all(|answer| answer.status == Status::Refused), "{answers:?}");
    }
    assert_eq!(rig.log(), Vec::<String>::new());
}

fn becomes(flow: &mut impl FnMut() -> Pulse, what: &str, still: bool) {
    let end = Instant::now() + DEADLINE;
    while matches!(flow(), Pulse::Still(_)) != still {
        assert!(Instant::now() < end, "{what}");
    }
}

/// A lane whose process is stopped takes nothing: the canary sees it although no task waits, and sees it well again.
/// While it runs something it is left alone.
#[test]
fn a_canary_finds_a_lane_that_takes_nothing_and_leaves_a_busy_one_alone() {
    let (redis, rig) = (Redis::start(&[]), Rig::new(ACTIONS));
    rig.program("nap", "echo nap >>DIR/log; while [ ! -e DIR/awake ]; do sleep 0.05; done");
    let lane = rig.lane("write", &redis);
    lane.wait_for("serving");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let gap = DeliveryGap {
        flow: Flow::Lane(Mode::Write),
        not_draining_for: Duration::from_secs(600),
        canary: Some(Canary { every: Duration::from_millis(100), within: Duration::from_secs(1) }),
        repipe: None,
    };
    let looks = Check::at(&"mars/write".parse().unwrap(), &"lane.service".parse().unwrap(), None, Some(&gap));
    let (_plan, from) = watch::channel(Plan { looks, redis: Some(redis.url("")) });
    let (to, mut vitals) = mpsc::channel::<Vec<Vital>>(8);
    let (_units, list) = watch::channel(Vec::new());
    let (events, _heard) = mpsc::channel(64);
    runtime.block_on(async { detect::start(from, systemd::start(list, events), to) });
    let mut signs = Signs::default();
    let mut flow = || {
        let some = runtime.block_on(async { tokio::time::timeout(DEADLINE, vitals.recv()).await });
        for vital in some.expect("readings come").expect("detectors live") {
            signs.take(vital.sign, vital.reading, None, Some(&gap), Moment::now());
        }
        signs.vitals().flow
    };
    let mut client = Client::new(&redis, "write");
    // A second without an answer may also be a machine that stalls.
    let (mut answered, end) = (0, Instant::now() + DEADLINE);
    while answered < 20 {
        answered = if flow() == Pulse::Moving { answered + 1 } else { 0 };
        assert!(Instant::now() < end, "it does not answer");
    }
    lane.signal(Signal::SIGSTOP);
    becomes(&mut flow, "a stopped lane is not found", true);
    let keys = client.keys.clone();
    assert!(client.length(&keys.queue) + client.length(&keys.in_flight) <= 1, "canaries pile up");
    lane.signal(Signal::SIGCONT);
    becomes(&mut flow, "it is not seen well again", false);

    client.task("1", "nap", "{}");
    until("it runs", || (rig.log() == ["nap"]).then_some(()));
    let end = Instant::now() + Duration::from_secs(3);
    while Instant::now() < end {
        assert_eq!(flow(), Pulse::Moving, "a busy lane is left alone");
    }
    std::fs::write(rig.path("awake"), "").unwrap();
    assert_eq!(client.result("1").status, Status::Ok);
}
