//! A lane that is killed again and again: nothing lost, nothing twice, nothing side by side, nothing out of order.

use std::collections::BTreeMap;
use std::time::Duration;

use keyholder::lane::Status;

use super::rig::{Client, Dice, Rig, until};
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
    let redis = Redis::start(&["--appendonly", "yes", "--appendfsync", "no"]);
    let rig = Rig::new(ACTIONS);
    // Appending one line is atomic; what is between the two is the time in which another must not run.
    rig.program("once", "echo b $1 >>DIR/log; sleep 0.00$(($1 % 8)); echo e $1 >>DIR/log");
    let mut client = Client::new(&redis, "write");
    let mut dice = Dice::new();
    let mut pushed = 0;
    let mut push = |client: &mut Client, dice: &mut Dice| {
        let action = if dice.below(4) == 0 { "again" } else { "once" };
        client.task(&format!("t{pushed}"), action, &format!(r#"{{"n":{pushed}}}"#));
        pushed += 1;
        (pushed - 1, action)
    };
    let mut actions = BTreeMap::new();
    for _ in 0..kills() {
        let lane = rig.lane("write", &redis);
        for _ in 0..dice.below(6) {
            let (n, action) = push(&mut client, &mut dice);
            actions.insert(n, action);
        }
        std::thread::sleep(Duration::from_micros(dice.below(150_000)));
        lane.die();
    }
    let lane = rig.lane("write", &redis);
    lane.wait_for("serving");
    until("every task has a result", || {
        (client.results().len() >= actions.len()
            && client.length(&client.keys.queue.clone()) == 0
            && client.length(&client.keys.in_flight.clone()) == 0)
            .then_some(())
    });
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
    println!("{} kills, {} tasks, {interrupted} interrupted, {} runs", kills(), actions.len(), begun.len());
    assert!(kills() < 40 || interrupted > 0, "no kill hit a running task: the test tests nothing");
}
