//! What becomes of tasks, good and bad.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use keyholder::lane::{RefusalCode, Status, Text};
use nix::sys::signal::Signal;
use ring::signature::{Ed25519KeyPair, KeyPair as _};

use super::rig::{Client, Rig, task, until};
use crate::redis_server::Redis;

const ACTIONS: &str = r#"
  length:
    mode: read
    description: three in an hour
    argv: [/bin/echo, "{n}"]
    params: { n: { int: { min: 0, max: 9 } } }
    rate: { at_most: 3, per: 1h }
  peer:
    mode: read
    description: the same under another name
    argv: [/bin/echo, "0"]
  slow:
    mode: read
    description: waits for another beside it
    argv: [DIR/slow]
  loud:
    mode: read
    description: a hundred megabytes and no text
    argv: [DIR/loud]
  missing:
    mode: read
    description: its program is not there
    argv: [DIR/no-such-program]
  once:
    mode: write
    description: must never run twice
    argv: [DIR/once, "{n}"]
    params: { n: { int: { min: 0, max: 999 } } }
  long:
    mode: write
    description: runs until it is told to end
    argv: [DIR/long]
"#;

fn rig() -> Rig {
    let rig = Rig::new(ACTIONS);
    rig.program("once", "echo $1 >>DIR/log");
    rig.program("slow", "echo b >>DIR/times; while [ -d DIR ] && [ $(grep -c b DIR/times) -lt 2 ]; do sleep 0.01; done; echo e >>DIR/times");
    rig.program(
        "long",
        "echo long >>DIR/log; while [ -d DIR ] && [ ! -e DIR/end ]; do sleep 0.01; done; echo end >>DIR/log",
    );
    rig.program("loud", "head -c 100000000 /dev/zero; printf '\\377'");
    rig
}

#[test]
fn a_read_lane_runs_side_by_side_and_refuses_what_changes_something() {
    let (redis, rig) = (Redis::start(&[]), rig());
    let mut client = Client::new(&redis, "read");
    let lane = rig.lane("read", &redis);
    lane.wait_for("serving");
    for n in 0..4 {
        client.task(&format!("s{n}"), "slow", "{}");
    }
    for n in 0..4 {
        assert_eq!(client.result(&format!("s{n}")).status, Status::Ok);
    }
    let log = std::fs::read_to_string(rig.dir.path().join("times")).unwrap();
    assert!(log.starts_with("b\nb\n"), "one after the other: {log}");

    client.task("w", "once", r#"{"n":1}"#);
    let refusal = client.result("w").refusal.unwrap();
    assert_eq!(refusal.code, RefusalCode::ModeMismatch);
    assert_eq!(rig.log(), [""; 0]);
    client.task("m", "missing", "{}");
    let result = client.result("m");
    assert!(result.status == Status::Failed && result.note.unwrap().contains("could not be started"));
    client.task("l", "loud", "{}");
    let ran = client.result("l").ran.unwrap();
    assert_eq!(ran.stdout.omitted, 100_000_001 - 64 * 1024);
    assert!(matches!(ran.stdout.tail, Text::Escaped(tail) if tail.ends_with("\\x00\\xff")));
    assert!(lane.resident() < 40_000, "{} kB", lane.resident());
    assert_eq!(lane.leave(), Some(0));
}

#[test]
fn a_rate_is_kept_over_a_restart_and_another_name_has_its_own() {
    let (redis, rig) = (Redis::start(&[]), rig());
    let mut client = Client::new(&redis, "read");
    let lane = rig.lane("read", &redis);
    for n in 0..3 {
        client.task(&format!("l{n}"), "length", r#"{"n":1}"#);
        assert_eq!(client.result(&format!("l{n}")).status, Status::Ok);
    }
    lane.die();
    let _lane = rig.lane("read", &redis);
    client.task("l3", "length", r#"{"n":1}"#);
    assert_eq!(client.result("l3").refusal.unwrap().text, "rate_limit: length: 3+1 in 3600 s > 3");
    client.task("p", "peer", "{}");
    assert_eq!(client.result("p").status, Status::Ok);
}

#[test]
fn bad_tasks_start_nothing_and_the_lane_goes_on() {
    let (redis, rig) = (Redis::start(&[]), rig());
    let pair = Ed25519KeyPair::from_seed_unchecked(&[7; 32]).unwrap();
    let key: String = pair.public_key().as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    let mut client = Client::new(&redis, "write");
    let lane = rig.lane_with("write", &redis, &["--signer", &format!("hub=ed25519:{key}")], &[]);
    lane.wait_for("serving");
    let node = "mars".parse().unwrap();
    let sign = |task: String| {
        let context = keyholder::lane::Context { node: &node, lane: keyholder::catalog::Mode::Write };
        serde_json::to_string(&keyholder::lane::seal(task, "hub", &pair, &context)).unwrap()
    };
    let good = sign(task("good", "once", r#"{"n":7}"#));
    let bad: Vec<Vec<u8>> = vec![
        b"nonsense".to_vec(),
        b"\xff\xfe\x00".to_vec(),
        vec![b'x'; 1 << 20],
        ["[".repeat(10_000), "]".repeat(10_000)].concat().into(),
        b"".to_vec(),
        task("unsigned", "once", r#"{"n":1}"#).into(),
        good.replacen('7', "8", 1).into(),
        sign(task("argv", "once", r#"{"n":1},"argv":["/bin/sh"]"#)).into(),
        sign(task("param", "once", r#"{"n":"1 2"}"#)).into(),
        sign(task("unknown", "sh", "{}")).into(),
    ];
    for raw in &bad {
        client.push(raw);
    }
    client.push(good.as_bytes());
    assert_eq!(client.result("good").status, Status::Ok);
    let results = client.results();
    assert_eq!(results.len(), bad.len() + 1);
    let codes: Vec<_> = results.iter().filter_map(|r| r.refusal.as_ref()).map(|r| r.code).collect();
    use RefusalCode::{BadParam, Malformed, UnknownAction, Unsigned};
    assert_eq!(codes[5..], [Unsigned, Unsigned, Malformed, BadParam, UnknownAction]);
    assert_eq!(codes[..5], [Malformed; 5]);
    let dead = client.dead();
    assert_eq!(dead.len(), 8);
    assert!(dead.iter().any(|one| one["task"]["escaped"] == "\\xff\\xfe\\x00"), "{dead:?}");
    assert!(dead.iter().all(|one| one.to_string().len() < 40_000));

    // The same again, and after everything was wiped: answered, not run.
    client.push(good.as_bytes());
    until("the copy is worked off", || (client.length(&client.keys.in_flight.clone()) == 0).then_some(()));
    redis::cmd("FLUSHALL").exec(&mut client.conn).unwrap();
    client.push(good.as_bytes());
    assert_eq!(client.result("good").status, Status::Ok);
    client.push(sign(task("good", "once", r#"{"n":9}"#)).as_bytes());
    let dead = until("a dead task", || client.dead().pop());
    assert_eq!(dead["code"], "replayed");
    assert_eq!(client.result("good").status, Status::Ok);
    assert_eq!(rig.log(), ["7"]);
    assert_eq!(client.length(&client.keys.in_flight.clone()), 0);
}

#[test]
fn a_task_whose_answer_nobody_has_any_more_is_not_run_again_and_not_left_without_one() {
    let (rig, redis) = (Rig::new(ACTIONS), Redis::start(&[]));
    let lane = rig.lane("write", &redis);
    let mut client = Client::new(&redis, "write");
    let first = task("first", "peer", "{}");
    client.push(first.as_bytes());
    // The ledger keeps the last fifty answers, and looks at that now and then.
    for n in 0..210 {
        client.task(&format!("t{n}"), "peer", "{}");
    }
    assert_eq!(client.result("t209").status, Status::Ok);
    client.push(first.as_bytes());
    until("the copy is worked off", || (client.length(&client.keys.in_flight.clone()) == 0).then_some(()));
    assert_eq!(client.result("first").status, Status::Ok);
    redis::cmd("FLUSHALL").exec(&mut client.conn).unwrap();
    client.push(first.as_bytes());
    let result = client.result("first");
    assert_eq!(
        (result.status, result.refusal.map(|r| r.code)),
        (Status::Refused, Some(RefusalCode::Replayed))
    );
    let executed = lane.said().iter().filter(|line| line.starts_with("executed")).count();
    assert_eq!(executed, 211);
}

#[test]
fn a_lane_told_to_leave_finishes_what_runs_and_takes_no_more() {
    let (redis, rig) = (Redis::start(&[]), rig());
    let mut client = Client::new(&redis, "write");
    let mut lane = rig.lane("write", &redis);
    lane.wait_for("serving");
    client.task("l", "long", "{}");
    client.task("next", "once", r#"{"n":1}"#);
    until("it runs", || (rig.log() == ["long"]).then_some(()));
    lane.signal(Signal::SIGTERM);
    lane.wait_for("leaving when 1 running tasks are finished");
    std::fs::write(rig.path("end"), "").unwrap();
    assert_eq!(lane.end(), Some(0));
    assert_eq!(rig.log(), ["long", "end"]);
    assert_eq!(client.result("l").status, Status::Ok);
    assert_eq!(
        (client.length(&client.keys.queue.clone()), client.length(&client.keys.in_flight.clone())),
        (1, 0)
    );
    // Nobody has to wait for its claim to the queue to expire.
    let owner: Option<String> = redis::cmd("GET").arg(&client.keys.owner).query(&mut client.conn).unwrap();
    assert_eq!(owner, None);
}

#[test]
fn an_idle_lane_leaves_at_once_and_a_nudged_or_rebuilt_one_goes_on() {
    let (redis, rig) = (Redis::start(&[]), rig());
    let mut client = Client::new(&redis, "read");
    let lane = rig.lane("read", &redis);
    lane.wait_for("serving");
    let connections = |client: &mut Client| -> BTreeSet<String> {
        let list: String = redis::cmd("CLIENT").arg("LIST").query(&mut client.conn).unwrap();
        let ours = list.lines().filter(|line| line.contains("name=keyholder-lane:"));
        ours.map(|line| line.split(' ').next().unwrap().to_owned()).collect()
    };
    let two = |client: &mut Client| {
        until("it has two connections", || Some(connections(client)).filter(|all| all.len() == 2))
    };
    let before = two(&mut client);
    lane.signal(Signal::SIGUSR1);
    client.task("p1", "peer", "{}");
    assert_eq!(client.result("p1").status, Status::Ok);
    // A lane that stood still for some seconds connects again by right, and says so.
    let after = two(&mut client);
    assert!(after == before || lane.said().iter().any(|line| line.contains("taking no tasks")), "{after:?}");
    let before = after;
    lane.signal(Signal::SIGHUP);
    until("it has connected anew", || {
        let now = connections(&mut client);
        (now.len() == 2 && now.is_disjoint(&before)).then_some(())
    });
    client.task("p2", "peer", "{}");
    assert_eq!(client.result("p2").status, Status::Ok);
    let began = Instant::now();
    assert_eq!(lane.leave(), Some(0));
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
}

#[test]
fn a_lane_with_the_wrong_rights_does_not_start() {
    let (redis, rig) = (Redis::start(&[]), rig());
    // A write lane's process in a read lane's place.
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_keyholder"))
        .args(["lane", "--mode", "read", "--node", "mars", "--catalog"])
        .arg(rig.dir.path().join("catalog_mars.yaml"))
        .arg("--state-dir")
        .arg(rig.dir.path().join("state"))
        .env("KEYHOLDER_REDIS", redis.url(""))
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(5));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("NoNewPrivileges=yes"), "{said}");

    // A read lane's process in the place of a write lane that needs sudo.
    let sudo = Rig::new(
        "  up:\n    mode: write\n    description: x\n    argv: [/usr/bin/sudo, -n, --, /usr/bin/apt-get, upgrade]\n",
    );
    let output = std::process::Command::new("setpriv")
        .args([
            "--no-new-privs",
            env!("CARGO_BIN_EXE_keyholder"),
            "lane",
            "--mode",
            "write",
            "--node",
            "mars",
        ])
        .arg("--insecure-unsigned-write")
        .arg("--catalog")
        .arg(sudo.dir.path().join("catalog_mars.yaml"))
        .arg("--state-dir")
        .arg(sudo.dir.path().join("state"))
        .env("KEYHOLDER_REDIS", redis.url(""))
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(5), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn the_same_bytes_given_many_times_are_answered_once_and_leave_nothing_behind() {
    let rig = Rig::new("  nothing: { mode: read, argv: [/bin/true] }\n");
    let redis = Redis::start(&[]);
    let mut client = Client::new(&redis, "read");
    let _lane = rig.lane("read", &redis);
    for (n, action) in (0..20).flat_map(|n| [(n, "nothing"), (n, "unheard-of")]) {
        let task = task(&format!("{action}-{n}"), action, "{}");
        // One after the other, so that they come while the first is run, while it is answered, and afterwards.
        for _ in 0..20 {
            client.push(task.as_bytes());
        }
    }
    let (queue, in_flight) = (client.keys.queue.clone(), client.keys.in_flight.clone());
    until("nothing waits and nothing is in flight", || {
        (client.length(&queue) == 0 && client.length(&in_flight) == 0).then_some(())
    });
    let mut answered: Vec<String> = client.results().into_iter().map(|result| result.id).collect();
    assert_eq!(answered.len(), 40);
    answered.sort();
    answered.dedup();
    assert_eq!(answered.len(), 40);
}
