//! The record of what was run survives the death of who ran it.

use std::io::Read as _;

use keyholder::lane::Status;

use super::rig::{Client, Rig, until};
use crate::redis_server::Redis;

const ACTIONS: &str = r#"
  quick:
    mode: read
    description: does nothing
    argv: [/bin/true]
"#;

/// More than fit into a pipe that nobody reads, at some forty bytes each.
const TASKS: usize = 2_500;

#[test]
fn what_a_lane_ran_and_could_not_say_any_more_is_said_by_the_next() {
    let (redis, rig) = (Redis::start(&[]), Rig::new(ACTIONS));
    let mut client = Client::new(&redis, "read");
    // Its journal does not follow: the line is written into a pipe that is full at some point.
    let mut deaf = rig.unheard_lane("read", &redis);
    for n in 0..TASKS {
        client.task(&format!("q{n}"), "quick", "{}");
    }
    let results = client.keys.results.clone();
    // However long all of them take: each waits only for the next.
    let mut answered = 0;
    while answered < TASKS as u64 {
        answered =
            until("one more is answered", || Some(client.length(&results)).filter(|now| *now > answered));
    }
    assert_eq!(answered, TASKS as u64, "each has one result");
    deaf.kill().unwrap();
    deaf.wait().unwrap();
    let mut said = String::new();
    deaf.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    let said = said.lines().filter(|line| *line == "executed action=quick status=ok").count();
    assert!(said < TASKS, "all was said; the pipe is larger than thought");

    let lane = rig.lane("read", &redis);
    lane.wait_for("serving");
    let again = || {
        let lines = lane.said();
        lines
            .iter()
            .filter(|line| line.starts_with("executed") && line.contains("(recovered: said for run "))
            .count()
    };
    // What was being written when it died may be said twice, and nothing is said of none.
    until(&format!("{} are said after all", TASKS - said), || (said + again() >= TASKS).then_some(()));
    assert!(said + again() <= TASKS + 1, "{said} and {} of {TASKS}", again());
    assert_eq!(client.length(&results), TASKS as u64, "each has one result");
    assert_eq!(client.result("q0").status, Status::Ok);
}
