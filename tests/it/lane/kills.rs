//! A lane that is killed again and again: nothing lost, nothing twice, nothing side by side, nothing out of order.

use std::collections::BTreeMap;
use std::time::Duration;

use keyholder::lane::Status;

use super::rig::{Client, Dice, Lane, Rig, until};
use crate::redis_server::Redis;

/// How often the lane is killed; `tests/run --long` says 1000.
fn kills() -> u64 {
    std::env::var("KEYHOLDER_KILLS").ok().and_then(|kills| kills.parse().ok()).unwrap_or(40)
}

const ACTIONS: &str = r#"
  once:
    mode: write
    description: must never run twice
    argv: [DIR/once, "{n}"]
    params: { n: { int: { min: 0, max: 999999 } } }
  again:
    mode: write
    description: may run twice
    argv: [DIR/once, "{n}"]
    idempotent: true
    params: { n: { int: { min: 0, max: 999999 } } }
"#;

#[test]
fn whenever_the_lane_is_killed_every_task_has_one_result_and_nothing_runs_twice() {
    story(kills(), |lane, _, dice| {
        std::thread::sleep(Duration::from_micros(dice.below(150_000)));
        lane.die();
        None
    });
}

#[test]
fn whenever_the_server_is_killed_nothing_is_lost_either() {
    story(kills() / 4, |lane, redis, dice| {
        std::thread::sleep(Duration::from_micros(dice.below(150_000)));
        redis.kill();
        std::thread::sleep(Duration::from_micros(dice.below(50_000)));
        let survivor = (dice.below(2) == 0).then_some(lane);
        redis.come_back();
        survivor
    });
}

/// Tasks come in, something happens to the lane or its server, again and again; in the end all is as it must be.
fn story(times: u64, mut happens: impl FnMut(Lane, &mut Redis, &mut Dice) -> Option<Lane>) {
    let mut redis = Redis::start(&["--appendonly", "yes", "--appendfsync", "no"]);
    let rig = Rig::new(ACTIONS);
    // Appending one line is atomic; what is between the two is the time in which another must not run.
    rig.program("once", "echo b $1 >>DIR/log; [ $(($1 % 5)) -gt 0 ] && s=0.00$(($1 % 8)) || s=0.2; sleep $s; echo e $1 >>DIR/log");
    let mut dice = Dice::new();
    let mut actions = BTreeMap::new();
    let mut survivor = None;
    for _ in 0..times {
        let lane = survivor.take().unwrap_or_else(|| rig.lane("write", &redis));
        let mut client = Client::new(&redis, "write");
        for _ in 0..dice.below(6) {
            let n = actions.len();
            let action = if dice.below(4) == 0 { "again" } else { "once" };
            client.task(&format!("t{n}"), action, &format!(r#"{{"n":{n}}}"#));
            actions.insert(n as u64, action);
        }
        survivor = happens(lane, &mut redis, &mut dice);
    }
    let lane = survivor.unwrap_or_else(|| rig.lane("write", &redis));
    lane.wait_for("serving");
    let mut client = Client::new(&redis, "write");
    // What has piled up takes its time; only standing still is an end.
    let keys = client.keys.clone();
    let open = |client: &mut Client| client.length(&keys.queue) + client.length(&keys.in_flight);
    let mut left = open(&mut client);
    while left > 0 {
        left = until(&format!("the next of {left} open tasks is done"), || {
            Some(open(&mut client)).filter(|now| *now < left)
        });
    }
    assert_eq!(lane.leave(), Some(0));

    let results = client.results();
    let by_id: BTreeMap<_, _> = results.iter().map(|result| (result.id.clone(), result.status)).collect();
    assert_eq!((results.len(), by_id.len()), (actions.len(), actions.len()), "a task has two results");
    let log = rig.log();
    let begun: Vec<u64> =
        log.iter().filter_map(|line| line.strip_prefix("b ")).map(|n| n.parse().unwrap()).collect();
    for pair in log.chunks(2) {
        let same = |b: &str, e: &str| b.strip_prefix("b ") == e.strip_prefix("e ");
        assert!(matches!(pair, [b, e] if same(b, e)), "two ran at a time: {pair:?} in {log:?}");
    }
    let mut interrupted = 0;
    for (n, action) in &actions {
        let times = begun.iter().filter(|begun| *begun == n).count();
        let status = by_id[&format!("t{n}")];
        match *action {
            "once" => {
                assert!(times <= 1, "t{n} ran {times} times");
                match status {
                    Status::Ok => assert_eq!(times, 1, "t{n} is ok and never ran"),
                    Status::Interrupted => interrupted += 1,
                    other => panic!("t{n}: {other:?}"),
                }
            }
            _ => assert!(
                (times >= 1 && status == Status::Ok) || status == Status::Interrupted,
                "t{n}: {times} times, {status:?}"
            ),
        }
    }
    let mut firsts = begun.clone();
    firsts.dedup();
    assert!(firsts.is_sorted(), "out of order: {begun:?}");
    println!("{times} times, {} tasks, {interrupted} interrupted, {} runs", actions.len(), begun.len());
    // In the long run some hit a running task, or nothing was tested.
    assert!(times < 40 || interrupted > 0);
}
