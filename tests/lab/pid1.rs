//! PID 1 hangs for 25 seconds: nothing that the supervisor or a lane writes to it may block them.

use std::time::{Duration, Instant};

use crate::harness::{SOON, wait};
use crate::lanehouse::house;

const HANGS: Duration = Duration::from_secs(25);

#[test]
fn while_pid_1_hangs_the_supervisor_answers_lanes_run_and_nobody_acts() {
    let lab = house("pid1", "");
    let units = "keyholder.service keyholder-lane-write.service keyholder-lane-read.service";
    let runs = || lab.sh("mars", &format!("systemctl show -P InvocationID {units}"));
    let before = runs();
    let acts = lab.evidence("mars", "acting");
    let leader = lab.lab(&["leader", "mars"]);
    let signal = |name: &str| {
        let status = std::process::Command::new("kill").args([name, leader.trim()]).status();
        assert!(status.is_ok_and(|status| status.success()), "kill {name}");
    };
    signal("-STOP");
    // Nobody's first ping of this time finds room: PID 1 has the one that comes when it reads again, or it ends the supervisor.
    lab.sh("mars", "for i in $(seq 20); do NOTIFY_SOCKET=/run/systemd/notify timeout 0.1 systemd-notify --no-block X=1 || :; done");
    let since = Instant::now();
    let (mut slowest, mut unknown, mut tasks) = (Duration::ZERO, false, 0);
    while since.elapsed() < HANGS {
        let asked = Instant::now();
        let mars = lab.sh("mars", "timeout 5 keyholder status mars || [ $? = 3 ]");
        slowest = slowest.max(asked.elapsed());
        unknown |= mars.contains("PID 1 does not answer");
        let ran = lab.sh("ai-core", "timeout 8 keyholder run mars host.memory");
        assert!(!ran.is_empty());
        tasks += 1;
    }
    let seen = lab.node("mars", "mars");
    signal("-CONT");
    println!("{tasks} tasks ran, the slowest status took {slowest:?}; at the end: {seen}");
    assert!(slowest < Duration::from_secs(3), "{slowest:?}");
    assert!(unknown, "the workers are unknown, and the cause is said: {seen}");
    let workers = seen["workers"].as_array().expect("workers");
    assert!(workers.iter().all(|worker| worker["class"] == "unknown"), "{seen}");
    assert!(!seen.to_string().contains("restarted through systemctl"), "that cannot be promised: {seen}");

    wait("all is well again", 3 * SOON, || {
        let mars = lab.node("mars", "mars");
        let workers = mars["workers"].as_array()?;
        let well = workers.iter().all(|worker| worker["class"] == "healthy");
        (well && mars["degraded"].as_array()?.is_empty()).then_some(())
    });
    assert_eq!(runs(), before, "nothing was restarted");
    assert_eq!(lab.evidence("mars", "acting"), acts, "nobody acted");
}
