//! What a lane does when its server, or another lane, is in the way.

use std::time::{Duration, Instant};

use keyholder::lane::Status;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::rig::{Client, DEADLINE, Lane, Rig, until};
use crate::redis_server::Redis;

const ACTIONS: &str = r#"
  echo:
    mode: read
    description: says hello
    argv: [/bin/echo, hello]
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
    rig.program(
        "long",
        "echo long >>DIR/log; while [ -d DIR ] && [ ! -e DIR/end ]; do sleep 0.01; done; echo end >>DIR/log",
    );
    rig
}

/// While it lasts: few words and little work.
fn rides_out(lane: &Lane, lasts: Duration) {
    let (lines, ticks) = (lane.said().len(), lane.ticks());
    let end = Instant::now() + lasts;
    while Instant::now() < end {
        std::thread::sleep(Duration::from_millis(50));
    }
    let (lines, ticks) = (lane.said().len() - lines, lane.ticks() - ticks);
    assert!(lines <= 5 && lane.loudest_minute() <= 5, "{:?}", lane.said());
    println!("{lines} lines and {ticks} ticks of 10 ms processor time in {lasts:?}");
    let allowed = 5 + 2 * lasts.as_secs();
    assert!(ticks <= allowed, "{ticks} ticks of 10 ms in {lasts:?}: a busy loop");
}

/// Soon after its end, a result; the storm counts which came later than wanted.
fn back(redis: &Redis, id: &str) {
    let began = Instant::now();
    let mut client = Client::new(redis, "write");
    client.task(id, "echo", "{}");
    assert_eq!(client.result(id).status, Status::Ok);
    assert!(began.elapsed() < DEADLINE, "back only after {:?}", began.elapsed());
}

#[test]
fn a_server_that_dies_and_comes_back_is_found_and_its_tasks_are_done() {
    let rig = rig();
    let mut redis = Redis::start(&["--appendonly", "yes", "--appendfsync", "always"]);
    let lane = rig.lane("write", &redis);
    lane.wait_for("serving");
    back(&redis, "before");
    // In the middle of a task: its result is published when there is somebody to publish it to.
    Client::new(&redis, "write").task("long", "long", "{}");
    until("it runs", || (rig.log() == ["long"]).then_some(()));
    Client::new(&redis, "write").task("waits", "once", r#"{"n":1}"#);
    redis.kill();
    std::fs::write(rig.path("end"), "").unwrap();
    until("it has ended", || (rig.log() == ["long", "end"]).then_some(()));
    rides_out(&lane, Duration::from_secs(3));
    redis.come_back();
    back(&redis, "after");
    let mut client = Client::new(&redis, "write");
    assert_eq!(client.result("long").status, Status::Ok);
    assert_eq!(client.result("waits").status, Status::Ok);
    assert_eq!(rig.log(), ["long", "end", "1"]);
    let ids: Vec<_> = client.results().into_iter().map(|result| result.id).collect();
    assert_eq!(ids, ["before", "long", "waits", "after"]);
    lane.wait_for("published late: the results of 1 tasks that had ended before (long)");
}

#[test]
fn a_server_that_hangs_is_left_and_found_again() {
    let (rig, redis) = (rig(), Redis::start(&[]));
    let lane = rig.lane("write", &redis);
    lane.wait_for("serving");
    let server = Pid::from_raw(redis.pid());
    kill(server, Signal::SIGSTOP).unwrap();
    rides_out(&lane, Duration::from_secs(7));
    lane.wait_for("taking no tasks");
    kill(server, Signal::SIGCONT).unwrap();
    back(&redis, "after");

    let mut client = Client::new(&redis, "write");
    redis::cmd("CLIENT").arg("PAUSE").arg(2000).exec(&mut client.conn).unwrap();
    rides_out(&lane, Duration::from_secs(2));
    back(&redis, "paused");
}

#[test]
fn a_full_server_is_worked_off() {
    let (rig, redis) = (rig(), Redis::start(&["--maxmemory-policy", "noeviction"]));
    let mut client = Client::new(&redis, "write");
    for n in 0..20 {
        client.task(&format!("t{n}"), "once", &format!(r#"{{"n":{n}}}"#));
    }
    redis::cmd("CONFIG").arg("SET").arg("maxmemory").arg("100kb").exec(&mut client.conn).unwrap();
    let refused = redis::cmd("SET").arg("x").arg("y").query::<()>(&mut client.conn).unwrap_err();
    assert_eq!(refused.code(), Some("OOM"));
    let lane = rig.lane("write", &redis);
    for n in 0..20 {
        assert_eq!(client.result(&format!("t{n}")).status, Status::Ok);
    }
    assert_eq!(rig.log(), (0..20).map(|n| n.to_string()).collect::<Vec<_>>());
    rides_out(&lane, Duration::from_secs(2));
    redis::cmd("CONFIG").arg("SET").arg("maxmemory").arg("0").exec(&mut client.conn).unwrap();
    back(&redis, "after");
}

#[test]
fn a_server_that_takes_no_writes_is_waited_out() {
    let (rig, redis) = (rig(), Redis::start(&[]));
    let other = Redis::start(&[]);
    let mut client = Client::new(&redis, "write");
    let lane = rig.lane("write", &redis);
    lane.wait_for("serving");
    let replica_of = |client: &mut Client, host: &str, port: &str| {
        redis::cmd("REPLICAOF").arg(host).arg(port).exec(&mut client.conn).unwrap();
    };
    replica_of(&mut client, "127.0.0.1", &other.port().to_string());
    lane.wait_for("taking no tasks");
    rides_out(&lane, Duration::from_secs(3));
    replica_of(&mut client, "NO", "ONE");
    back(&redis, "promoted");
}

#[test]
fn a_server_that_wants_another_password_is_waited_out() {
    let (rig, redis) = (rig(), Redis::start(&[]));
    let mut client = Client::new(&redis, "write");
    let lane = rig.lane("write", &redis);
    lane.wait_for("serving");
    redis::cmd("CONFIG").arg("SET").arg("requirepass").arg("new").exec(&mut client.conn).unwrap();
    redis::cmd("CLIENT")
        .arg("KILL")
        .arg("TYPE")
        .arg("normal")
        .arg("SKIPME")
        .arg("yes")
        .exec(&mut client.conn)
        .unwrap();
    lane.wait_for("does not let us in");
    rides_out(&lane, Duration::from_secs(2));
    redis::cmd("CONFIG").arg("SET").arg("requirepass").arg("").exec(&mut client.conn).unwrap();
    back(&redis, "let-in");
}

#[test]
fn a_second_lane_takes_no_tasks_and_says_who_has_the_queue() {
    let (rig, redis) = (rig(), Redis::start(&[]));
    let lane = rig.lane("write", &redis);
    lane.wait_for("serving");

    // On the same host, the same directory: it ends.
    let mut same = rig.lane("write", &redis);
    assert_eq!(same.end(), Some(5));
    // On another host of the same name: another ledger.
    let other_rig = self::rig();
    let other = other_rig.lane("write", &redis);
    let said = other.wait_for("is owned by another lane");
    assert!(said.contains("process"), "{said}");
    for n in 0..5 {
        back(&redis, &format!("t{n}"));
    }
    assert!(!other.said().iter().any(|line| line.contains("executed")), "{:?}", other.said());
    // When the first one leaves, the other takes over; when it dies, within the time that it owned the queue.
    assert_eq!(lane.leave(), Some(0));
    let said = other.wait_for("serving");
    assert!(said.contains("the queue is this lane's again"), "{said}");
    back(&redis, "taken-over");
}

#[test]
fn a_lane_says_that_its_owner_key_was_gone() {
    let (rig, redis) = (rig(), Redis::start(&[]));
    let lane = rig.lane("write", &redis);
    let said = lane.wait_for("serving");
    assert!(!said.contains("again"), "{said}");
    let mut conn = redis.conn();
    let gone: u32 = redis::cmd("DEL").arg("{tasks:maintenance:mars}:owner").query(&mut conn).unwrap();
    assert_eq!(gone, 1);
    lane.wait_for("its owner key was gone from the server, and is this lane's again");
    back(&redis, "after");
}

#[test]
fn a_lane_on_another_host_does_not_run_again_what_the_first_had_begun() {
    let (rig, redis) = (rig(), Redis::start(&[]));
    let mut client = Client::new(&redis, "write");
    let lane = rig.lane("write", &redis);
    client.task("long", "long", "{}");
    until("it runs", || (rig.log() == ["long"]).then_some(()));
    lane.die();
    let other_rig = self::rig();
    let _other = other_rig.lane("write", &redis);
    assert_eq!(client.result("long").status, Status::Interrupted);
    assert_eq!(other_rig.log(), [""; 0]);
}

#[test]
fn a_claim_of_a_dead_connection_takes_nothing_with_it() {
    let (rig, redis) = (rig(), Redis::start(&[]));
    let mut client = Client::new(&redis, "write");
    // What is left of a lane whose host vanished: a claim that waits, under the lane's name.
    let mut ghost = redis.conn();
    redis::cmd("CLIENT")
        .arg("SETNAME")
        .arg("keyholder-lane:tasks:maintenance:mars")
        .exec(&mut ghost)
        .unwrap();
    let keys = client.keys.clone();
    let ghost = std::thread::spawn(move || {
        let mut claim = redis::cmd("BLMOVE");
        claim.arg(&keys.queue).arg(&keys.in_flight).arg("RIGHT").arg("LEFT").arg(0);
        claim.query::<Option<Vec<u8>>>(&mut ghost)
    });
    until("the ghost waits", || {
        let list: String = redis::cmd("CLIENT").arg("LIST").query(&mut client.conn).unwrap();
        list.contains("cmd=blmove").then_some(())
    });
    let lane = rig.lane("write", &redis);
    lane.wait_for("dead connections of its own");
    assert!(ghost.join().unwrap().is_err());
    back(&redis, "t");
}

/// The shipped users have the rights that their roles need, and not each other's.
#[test]
fn every_role_gets_by_with_its_own_user() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/catalogs/redis-users.acl");
    let (rig, redis) = (rig(), Redis::start(&["--include", file]));
    let url = |user: &str| redis.url(&format!("{user}:CHANGE-ME@"));
    let conn = |user: &str| redis::Client::open(url(user)).unwrap().get_connection().unwrap();
    let write = rig.lane_with("write", &redis, &[], &[("KEYHOLDER_REDIS", &url("lane-write"))]);
    let read = rig.lane_with("read", &redis, &[], &[("KEYHOLDER_REDIS", &url("lane-read"))]);
    write.wait_for("serving");
    read.wait_for("serving");
    for mode in ["write", "read"] {
        let mut producer = Client::over(conn("producer"), mode);
        producer.task("t", "echo", "{}");
        producer.push(b"nonsense");
        assert_eq!(producer.result("t").status, Status::Ok, "{mode}");
        let keys = producer.keys.clone();
        until("both are answered", || (producer.results().len() == 2).then_some(()));
        // It cannot take tasks away, nor answer them.
        for (cmd, args) in [
            ("BRPOP", vec![keys.queue.clone(), "1".to_owned()]),
            ("SET", vec![keys.result("x"), "{}".to_owned()]),
            ("LRANGE", vec![keys.in_flight.clone(), "0".to_owned(), "1".to_owned()]),
            ("FLUSHALL", vec![]),
        ] {
            let denied = redis::cmd(cmd).arg(&args).query::<redis::Value>(&mut producer.conn).unwrap_err();
            assert_eq!(denied.code(), Some("NOPERM"), "{cmd} {args:?}");
        }
        let mut watcher = Client::over(conn("watcher"), mode);
        // Where sentinels name the master, everybody asks it for its role.
        for user in ["producer", "watcher", &format!("lane-{mode}")] {
            redis::cmd("ROLE").exec(&mut conn(user)).unwrap();
        }
        assert_eq!((watcher.length(&keys.queue), watcher.dead().len()), (0, 1));
        let denied = redis::cmd("LPUSH").arg(&keys.queue).arg("x").exec(&mut watcher.conn).unwrap_err();
        assert_eq!(denied.code(), Some("NOPERM"));
    }
    let write_queue = Client::over(conn("watcher"), "write").keys.queue;
    let denied = redis::cmd("LPUSH").arg(write_queue).arg("x").exec(&mut conn("lane-read")).unwrap_err();
    assert_eq!(denied.code(), Some("NOPERM"));
    assert_eq!((write.leave(), read.leave()), (Some(0), Some(0)));
}
