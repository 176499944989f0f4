//! A read is answered before its lane takes that down. What if the lane dies in between?

use keyholder::lane::Status;
use rusqlite::{Connection, params};

use super::rig::{Client, Rig, task, until};
use crate::redis_server::Redis;

const ACTIONS: &str = r#"
  look:
    mode: read
    description: leaves a trace, so that one can count
    argv: [DIR/look]
"#;

fn rig() -> Rig {
    let rig = Rig::new(ACTIONS);
    rig.program("look", "echo looked >>DIR/log");
    rig
}

/// The ledger as a SIGKILL leaves it between the answer and the writing down of it.
fn as_if_it_had_died_before_the_ledger(rig: &Rig, id: &str) {
    let ledger = Connection::open(rig.path("state-read/ledger.db")).unwrap();
    let undo = "UPDATE task SET result = NULL, published = 0 WHERE id = ?1";
    assert_eq!(ledger.execute(undo, params![id]).unwrap(), 1);
}

fn is_open(rig: &Rig, id: &str) -> bool {
    let ledger = Connection::open(rig.path("state-read/ledger.db")).unwrap();
    let open = "SELECT NOT published FROM task WHERE id = ?1";
    ledger.query_row(open, params![id], |row| row.get(0)).unwrap()
}

#[test]
fn an_answer_that_only_redis_has_is_the_only_one_and_is_said() {
    let (redis, rig) = (Redis::start(&[]), rig());
    let mut client = Client::new(&redis, "read");
    let (raw, results) = (task("1", "look", "{}"), client.keys.results.clone());
    let lane = rig.lane("read", &redis);
    client.push(raw.as_bytes());
    let first = client.result("1");
    lane.wait_for("executed action=look");
    lane.die();
    as_if_it_had_died_before_the_ledger(&rig, "1");

    let lane = rig.lane("read", &redis);
    lane.wait_for("executed action=look status=ok (recovered: said for run ");
    client.push(raw.as_bytes());
    // Claimed one after the other: if this one is answered, the copy is at least in flight.
    client.task("2", "look", "{}");
    client.result("2");
    until("nothing is in flight", || {
        let in_flight = client.keys.in_flight.clone();
        (client.length(&in_flight) == 0).then_some(())
    });
    assert_eq!(client.result("1"), first);
    assert_eq!(client.length(&results), 2, "one result for each");
    assert_eq!(rig.log(), ["looked"; 2], "once for each");
    assert_eq!(lane.leave(), Some(0));
    assert!(!is_open(&rig, "1"));
}

#[test]
fn an_answer_that_nobody_has_any_more_is_made_once_more() {
    let (redis, rig) = (Redis::start(&[]), rig());
    let mut client = Client::new(&redis, "read");
    let (raw, results) = (task("1", "look", "{}"), client.keys.results.clone());
    let lane = rig.lane("read", &redis);
    client.push(raw.as_bytes());
    client.result("1");
    lane.die();
    as_if_it_had_died_before_the_ledger(&rig, "1");
    redis::cmd("FLUSHALL").exec(&mut client.conn).unwrap();

    let lane = rig.lane("read", &redis);
    lane.wait_for("serving");
    client.push(raw.as_bytes());
    assert_eq!(client.result("1").status, Status::Ok);
    assert_eq!((client.length(&results), rig.log().len()), (1, 2));
    assert!(!lane.said().concat().contains("recovered"), "nothing was there to be said");
}

#[test]
fn an_answer_that_is_another_tasks_is_not_taken_over() {
    let (redis, rig) = (Redis::start(&[]), rig());
    let mut client = Client::new(&redis, "read");
    let raw = task("1", "look", "{}");
    let lane = rig.lane("read", &redis);
    client.push(raw.as_bytes());
    client.task("2", "look", "{}");
    client.result("1");
    client.result("2");
    lane.die();
    as_if_it_had_died_before_the_ledger(&rig, "1");
    let (from, to) = (client.keys.result("2"), client.keys.result("1"));
    redis::cmd("COPY").arg(from).arg(to).arg("REPLACE").exec(&mut client.conn).unwrap();

    let lane = rig.lane("read", &redis);
    lane.wait_for("serving");
    client.push(raw.as_bytes());
    client.task("3", "look", "{}");
    client.result("3");
    until("it is run once more", || (rig.log().len() == 4).then_some(()));
    drop(lane);
}

#[test]
fn an_answer_that_somebody_forged_is_not_taken_over() {
    let (redis, rig) = (Redis::start(&[]), rig());
    let mut client = Client::new(&redis, "read");
    let raw = task("1", "look", "{}");
    let lane = rig.lane("read", &redis);
    client.push(raw.as_bytes());
    let mut forged = client.result("1");
    lane.die();
    as_if_it_had_died_before_the_ledger(&rig, "1");
    // All names are right, what it says is not.
    forged.status = Status::Failed;
    let forged = serde_json::to_string(&forged).unwrap();
    redis::cmd("SET").arg(client.keys.result("1")).arg(forged).exec(&mut client.conn).unwrap();

    let lane = rig.lane("read", &redis);
    lane.wait_for("serving");
    client.push(raw.as_bytes());
    until("it is run once more", || (rig.log().len() == 2).then_some(()));
    assert!(!lane.said().concat().contains("recovered"), "{:?}", lane.said());
}
