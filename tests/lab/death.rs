//! The ways a worker dies, and that it is back: once, under a new invocation, and that the peer's view follows.

use std::time::Duration;

use crate::harness::{Lab, service, wait};

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn a_worker_killed_by_a_signal_is_back_within_a_second_once_and_the_peer_knows() {
    let lab = Lab::pair("killed", &[("agent.service", &service(""))], "agent: { unit: agent.service }");
    let before = lab.property("mars", "agent.service", "InvocationID");
    lab.sh("mars", "systemctl kill -s KILL agent.service");
    let run = lab.new_run("mars", "agent.service", &before, SECOND);
    wait("ai-core knows the new run", SECOND, || {
        let seen = lab.worker("ai-core", "mars", "agent");
        (seen["class"] == "healthy" && seen["invocation"] == run.as_str()).then_some(())
    });
    assert_eq!(lab.relaunches("mars", "agent"), 1);
    wait("the repair is verified", 5 * SECOND, || {
        lab.evidence("mars", "acted").iter().any(|line| line.contains("stayed up")).then_some(())
    });
    assert_eq!(lab.property("mars", "agent.service", "InvocationID"), run);
}
