//! A lane that finds its master through sentinels.

use std::time::{Duration, Instant};

use keyholder::lane::{Status, TaskResult};
use keyholder::queue::{Front, Level, QueueError, QueueName, preflight};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::house::{ELECTED, House};
use super::rig::{Client, DEADLINE, Lane, Rig, task, until, within};

const ACTIONS: &str = r#"
  once:
    mode: write
    argv: [DIR/once, "{n}"]
    params: { n: { int: { min: 0, max: 999 } } }
"#;

fn scene() -> (Rig, House) {
    let rig = Rig::new(ACTIONS);
    rig.program("once", "echo $1 >>DIR/log");
    (rig, House::new())
}

/// A task at the master is done soon after `since`. Whoever elects also cuts connections: then it is given once more, and so it is
/// to another master, if this machine stalls and the sentinels take that for a failure.
fn serves(house: &House, n: usize, since: Instant) {
    let (id, raw) = (format!("t{n}"), task(&format!("t{n}"), "once", &format!(r#"{{"n":{n}}}"#)));
    let mut given = None;
    let result = until(&format!("a result of {id}"), || {
        let master = house.master()?;
        let mut client = Client::over(house.servers[master].try_conn()?, "write");
        if given != Some(master) {
            redis::cmd("LPUSH").arg(&client.keys.queue).arg(&raw).exec(&mut client.conn).ok()?;
            given = Some(master);
        }
        let result: Option<String> =
            redis::cmd("GET").arg(client.keys.result(&id)).query(&mut client.conn).ok()?;
        result.map(|json| serde_json::from_str::<TaskResult>(&json).unwrap())
    });
    assert_eq!(result.status, Status::Ok);
    let took = since.elapsed();
    println!("back {took:.1?} after the election");
    assert!(took < DEADLINE, "back only after {took:?}");
}

fn few_words(lane: &Lane) {
    assert!(lane.loudest_minute() <= 5, "{:?}", lane.said());
}

#[test]
fn a_lane_follows_the_master_that_is_elected_and_leaves_the_one_that_is_demoted() {
    let (rig, mut house) = scene();
    let lane = rig.lane_at("write", &house.url(), &[], &[]);
    serves(&house, 0, Instant::now());

    let (new, since) = house.fail_over();
    serves(&house, 1, since);
    // It comes back as it went, believing to be the master.
    house.servers[1 - new].come_back();
    house.settle();

    // The demoted one lives and answers; nothing may wait in it.
    let (_, since) = house.hand_over();
    serves(&house, 2, since);
    few_words(&lane);
    assert_eq!(lane.leave(), Some(0));
    house.settle();

    // The sentinel that is asked first hangs.
    let hangs = Pid::from_raw(house.sentinels[0].pid());
    kill(hangs, Signal::SIGSTOP).unwrap();
    let began = Instant::now();
    let lane = rig.lane_at("write", &house.url(), &[], &[]);
    serves(&house, 3, began);
    kill(hangs, Signal::SIGCONT).unwrap();
    few_words(&lane);
    assert_eq!(rig.log(), ["0", "1", "2", "3"]);
}

#[test]
fn who_leads_to_no_master_is_said_with_what_each_sentinel_said() {
    let (rig, house) = scene();
    let one = house.sentinels[0].port();
    let (replica, nobody) = (house.servers[1].port(), 1);
    let unknown = rig.lane_at("write", &format!("redis-sentinel://127.0.0.1:{one}/other"), &[], &[]);
    let said = unknown.wait_for("taking no tasks");
    assert!(said.contains("it knows no such master") && said.contains("do they call it other"), "{said}");
    assert_eq!(unknown.leave(), Some(0));
    // A Redis is no sentinel, and nobody is nobody: the third knows it.
    let mixed = format!("redis-sentinel://127.0.0.1:{nobody},127.0.0.1:{replica},127.0.0.1:{one}/mymaster");
    let lane = rig.lane_at("write", &mixed, &[], &[]);
    serves(&house, 0, Instant::now());
    assert_eq!(lane.leave(), Some(0));
    // What a sentinel that was cut off would say: the name of a server that is no master any more.
    let stale = crate::redis_server::Sentinel::start(replica, 2, Duration::from_secs(60));
    let url = format!("redis-sentinel://127.0.0.1:{}/mymaster", stale.port());
    let lane = rig.lane_at("write", &url, &[], &[]);
    let said = lane.wait_for("taking no tasks");
    assert!(said.contains("its role is slave"), "{said}");
    let mut client = Client::new(&house.servers[0], "write");
    client.task("t1", "once", r#"{"n":1}"#);
    assert_eq!(lane.leave(), Some(0));
    let url = format!("redis-sentinel://127.0.0.1:{},127.0.0.1:{one}/mymaster", stale.port());
    let lane = rig.lane_at("write", &url, &[], &[]);
    until("it is done", || (rig.log() == ["0", "1"]).then_some(()));
    few_words(&lane);
}

/// Who gives tasks and who looks go the same way as the lane.
#[test]
fn tasks_are_given_and_servers_are_looked_at_through_sentinels_too() {
    let (_rig, mut house) = scene();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let look = |url: &str| runtime.block_on(preflight(url, Duration::from_secs(10)));
    let found = look(&house.url()).unwrap();
    assert!(found.iter().all(|finding| finding.level != Level::Error), "{found:?}");
    let found = look(&house.sentinels[0].url("")).unwrap();
    assert!(found.iter().any(|finding| finding.text.contains("write redis-sentinel://")), "{found:?}");

    let queue = QueueName::write(&"mars".parse().unwrap());
    let give = |house: &House| {
        let url = house.url();
        runtime.block_on(async { Front::connect(&url).await?.push(&queue, b"{}").await })
    };
    assert_eq!(give(&house), Ok(1));
    until("the replica has it", || {
        let mut replica = Client::new(&house.servers[1], "write");
        let queue = replica.keys.queue.clone();
        (replica.length(&queue) == 1).then_some(())
    });
    house.servers[0].kill();
    let error = give(&house).unwrap_err();
    assert!(matches!(error, QueueError::NoMaster { .. }), "{error}");
    house.elected_after(0);
    within(ELECTED, "it is given to the new one", || give(&house).ok().filter(|waiting| *waiting == 2));
}

#[test]
fn passwords_are_for_the_master_and_for_sentinels_that_ask() {
    let (rig, house) = scene();
    for server in &house.servers {
        let mut conn = server.conn();
        let set = |conn: &mut redis::Connection, what: &str, to: &str| {
            redis::cmd("CONFIG").arg("SET").arg(what).arg(to).exec(conn).unwrap();
        };
        set(&mut conn, "masterauth", "hunter2");
        set(&mut conn, "requirepass", "hunter2");
    }
    let url = house.url().replace("://", "://:hunter2@");
    let lane = rig.lane_at("write", &url, &[], &[]);
    let said = lane.wait_for("serving");
    assert!(!said.contains("hunter2") && said.contains("redis-sentinel://:***@"), "{said}");
    assert_eq!(lane.leave(), Some(0));
    for sentinel in &house.sentinels {
        let mut cmd = redis::cmd("ACL");
        cmd.arg("SETUSER")
            .arg("default")
            .arg("resetpass")
            .arg(">hunter2")
            .exec(&mut sentinel.conn())
            .unwrap();
    }
    let lane = rig.lane_at("write", &url, &[], &[]);
    lane.wait_for("serving");
    assert_eq!(lane.leave(), Some(0));
    let wrong = rig.lane_at("write", &url.replace("hunter2", "hunter3"), &[], &[]);
    let said = wrong.wait_for("taking no tasks");
    assert!(said.contains("authentication failed") && !said.contains("hunter3"), "{said}");
}
