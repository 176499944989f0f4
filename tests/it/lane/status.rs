//! What a lane says of itself in its file.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use keyholder::vocabulary::{LaneStatus, Mode, TaskStatus};
use nix::sys::signal::Signal;

use super::rig::{Client, Rig, until};
use crate::redis_server::Redis;

const ACTIONS: &str = r#"
  hold:
    mode: write
    description: runs until it is told to end
    argv: [DIR/hold]
  again:
    mode: read
    description: does nothing
    argv: [/bin/true]
"#;

#[test]
fn the_lane_says_how_it_is() {
    let (mut redis, rig) = (Redis::start(&[]), Rig::new(ACTIONS));
    rig.program("hold", "while [ ! -e DIR/end ]; do sleep 0.01; done");
    let mut client = Client::new(&redis, "write");
    let run = rig.path("run");
    fs::create_dir(&run).unwrap();
    let lane = rig.lane_with(
        "write",
        &redis,
        &[],
        &[("RUNTIME_DIRECTORY", run.to_str().unwrap()), ("INVOCATION_ID", &"0a".repeat(16))],
    );
    let file = run.join(LaneStatus::FILE);
    let says = |what: &str, so: &dyn Fn(&LaneStatus) -> bool| {
        until(what, || LaneStatus::read(&fs::read(&file).ok()?).ok().filter(|status| so(status)))
    };
    let idle = says("it serves", &|status| status.connected && status.waiting == Some(0));
    assert_eq!((idle.lane, idle.node.as_str(), idle.done), (Mode::Write, "mars", 0));
    assert_eq!(idle.queue, "tasks:maintenance:mars");
    assert_eq!(idle.invocation.unwrap().to_string(), "0a".repeat(16));
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o644);
    let later = says("its loop comes round", &|status| status.passes > idle.passes);
    assert!(later.pass_at > idle.pass_at);

    client.task("h", "hold", "{}");
    let begun = says("it runs", &|status| status.running == 1);
    assert_eq!((begun.in_flight[0].id.as_str(), begun.in_flight[0].action.as_str()), ("h", "hold"));
    assert!(!begun.in_flight[0].idempotent && begun.in_flight[0].since >= later.pass_at);
    for n in 0..3 {
        client.task(&format!("a{n}"), "again", "{}");
    }
    let grown = says("the queue grows while it runs", &|status| status.waiting == Some(3));
    assert_eq!(grown.in_flight, begun.in_flight);
    fs::write(rig.path("end"), "").unwrap();
    let done = says("all are done", &|status| status.done == 4 && status.waiting == Some(0));
    let last = done.last.unwrap();
    assert_eq!((last.id.as_str(), last.action.as_deref()), ("a2", Some("again")));
    assert_eq!((last.status, done.running), (TaskStatus::Ok, 0));
    client.task("n", "no.such", "{}");
    says("what was refused counts, too", &|status| {
        status.done == 5 && status.last.as_ref().is_some_and(|last| last.status == TaskStatus::Refused)
    });

    redis.kill();
    let away = says("Redis is gone", &|status| !status.connected);
    assert_eq!((away.waiting, away.done), (None, 5));
    let idle = says("it takes no tasks", &|status| status.no_tasks.is_some());
    assert!(idle.no_tasks.is_some_and(|why| why.starts_with("taking no tasks: ")), "why");
    redis.come_back();
    says("it takes tasks again", &|status| status.connected && status.no_tasks.is_none());
    lane.signal(Signal::SIGTERM);
}
