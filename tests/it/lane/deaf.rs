//! A lane that is told to be deaf: well in every respect, and nothing reaches it.

use std::fs;

use keyholder::lane::Status;
use keyholder::vocabulary::LaneStatus;
use nix::sys::signal::Signal;

use super::rig::{Client, Rig, until};
use crate::redis_server::Redis;

const ACTIONS: &str = r#"
  echo:
    mode: read
    description: says hello
    argv: [/bin/echo, hello]
  hold:
    mode: write
    description: runs until it is told to end
    argv: [DIR/hold]
"#;

#[test]
fn a_deaf_lane_takes_nothing_and_lives_on_until_its_pipe_is_built_anew() {
    let (redis, rig) = (Redis::start(&[]), Rig::new(ACTIONS));
    rig.program("hold", "while [ ! -e DIR/end ]; do sleep 0.01; done");
    let run = rig.path("run");
    fs::create_dir(&run).unwrap();
    let lane = rig.lane_with("write", &redis, &[], &[("RUNTIME_DIRECTORY", run.to_str().unwrap())]);
    let mut client = Client::new(&redis, "write");
    let status = || LaneStatus::read(&fs::read(run.join(LaneStatus::FILE)).ok()?).ok();

    // What runs is finished and answered.
    client.task("running", "hold", "{}");
    until("it runs", || status().filter(|status| status.running == 1));
    lane.signal(Signal::SIGUSR2);
    fs::write(rig.path("end"), "").unwrap();
    assert_eq!(client.result("running").status, Status::Ok);
    lane.wait_for("deaf, for a rehearsal");

    client.task("waits", "echo", "{}");
    let before = until("it sees that something waits", || status().filter(|s| s.waiting == Some(1)));
    assert!(before.connected && before.running == 0);
    // Its heartbeat goes on, also when it is nudged.
    lane.signal(Signal::SIGUSR1);
    until("its loop comes round", || status().filter(|status| status.passes > before.passes + 2));
    assert_eq!((client.length(&client.keys.queue.clone()), client.results().len()), (1, 1));

    lane.signal(Signal::SIGHUP);
    assert_eq!(client.result("waits").status, Status::Ok);
    // A blocked claim is given up at once, and what it got is put back.
    lane.signal(Signal::SIGUSR2);
    until("it is deaf again", || {
        (lane.said().iter().filter(|line| line.contains("deaf, for a rehearsal")).count() == 2).then_some(())
    });
    client.task("last", "echo", "{}");
    lane.signal(Signal::SIGHUP);
    assert_eq!(client.result("last").status, Status::Ok);
    lane.signal(Signal::SIGUSR2);
    assert_eq!(lane.leave(), Some(0), "it leaves as always");
}
