//! Units that systemd is at for longer than it should be, and relaunches that take as long as they are allowed to.

use std::time::Instant;

use crate::harness::{Lab, SOON, wait};
use crate::scene::SECOND;

const WORKERS: &str = "
    queued: { unit: queued.service, start_timeout: 2s, relaunches: 1, quarantine_retry: 1h }
    never:  { unit: never.service, relaunches: 1, quarantine_retry: 1h }
    pre:    { unit: pre.service, repair_by: nobody }
    slow:   { unit: slow.service, start_timeout: 4s }
";

/// What `queued` waits for never ends.
const BLOCKER: &str = "# not started\n[Service]\nType=oneshot\nExecStart=/bin/sleep infinity\n";
const QUEUED: &str = "[Unit]\nAfter=blocker.service\n[Service]\nExecStart=/bin/sleep infinity\n";
/// Never gets ready, and systemd tries it again and again: each attempt is longer than the flap guard's window would count.
const NEVER: &str = "# not started\n[Unit]\nStartLimitIntervalSec=0\n[Service]\nType=notify\nNotifyAccess=all\n\
    TimeoutStartSec=2\nTimeoutStopSec=1\nRestart=always\nRestartSec=1\n\
    ExecStart=/bin/sh -c 'systemd-notify --status=\"waiting for the ledger\"; exec sleep infinity'\n";
const PRE: &str = "# not started\n[Service]\nTimeoutStartSec=3\nTimeoutStopSec=3\nExecStartPre=/bin/true\n\
    ExecStartPre=/bin/sh -c 'trap \"\" TERM; while :; do sleep 1; done'\nExecStart=/bin/sleep infinity\n";
/// Its stop alone takes longer than `start_timeout`.
const SLOW: &str =
    "[Service]\nTimeoutStopSec=8\nExecStart=/bin/sh -c 'trap \"\" TERM; while :; do sleep 1; done'\n";

#[test]
fn what_hangs_is_said_once_with_what_is_in_the_way_and_a_slow_stop_is_waited_for() {
    let units = [
        ("blocker.service", BLOCKER),
        ("queued.service", QUEUED),
        ("never.service", NEVER),
        ("pre.service", PRE),
        ("slow.service", SLOW),
    ];
    let lab = Lab::pair("hangs", &units, WORKERS);
    lab.sh("mars", "systemctl start --no-block blocker; systemctl restart --no-block queued; systemctl stop pre never; systemctl start --no-block never");

    a_relaunch_whose_stop_is_slow_is_back(&lab);
    the_job_in_the_way_is_named(&lab);
    a_unit_that_never_gets_ready_ends_in_quarantine(&lab);
}

fn alerts(lab: &Lab, worker: &str, text: &str) -> Vec<String> {
    let lines = lab.records("mars", "alert", &format!("mars/{worker}"), "");
    lines.into_iter().map(|line| line.text).filter(|line| line.contains(text)).collect()
}

fn a_relaunch_whose_stop_is_slow_is_back(lab: &Lab) {
    let began = Instant::now();
    let (code, said) = lab.tell("ai-core", "keyholder relaunch mars/slow");
    assert!(code == 0 && said.contains("running again"), "{code} after {:?}: {said}", began.elapsed());
    assert!(began.elapsed() > 7 * SECOND, "systemd waits for its stop: {:?}", began.elapsed());
}

fn the_job_in_the_way_is_named(lab: &Lab) {
    let alert = wait("it is said that it hangs", SOON, || alerts(lab, "queued", "hangs").pop());
    assert!(alert.contains("waits for job") && alert.contains("blocker.service/start"), "{alert}");
    let (code, said) = lab.tell("mars", "keyholder status mars/queued");
    assert!(code == 3, "{code}: {said}");
    let (_, said) = lab.tell("mars", "keyholder explain mars/queued");
    assert!(said.contains("blocker.service/start"), "{said}");
    lab.sh("mars", "systemctl stop blocker");
    wait("it starts when nothing is in the way", 2 * SOON, || {
        (lab.worker("mars", "mars", "queued")["class"] == "healthy").then_some(())
    });
    assert_eq!(alerts(lab, "queued", "hangs").len(), 1, "once");
}

fn a_unit_that_never_gets_ready_ends_in_quarantine(lab: &Lab) {
    let alert = wait("it is said that it never comes up", 2 * SOON, || alerts(lab, "never", "hangs").pop());
    // Between two attempts there is no process to name.
    assert!(alert.contains("waiting for the ledger"), "{alert}");
    wait("it is in quarantine", 2 * SOON, || {
        (lab.worker("ai-core", "mars", "never")["quarantined"] == true).then_some(())
    });
    assert_eq!(lab.tell("mars", "keyholder status mars/never").0, 3);
    assert_eq!(alerts(lab, "never", "hangs").len(), 1, "once: {:?}", alerts(lab, "never", ""));
    // A command before the start that does not end, and a stop that it does not obey.
    lab.sh("mars", "systemctl start --no-block pre");
    wait("it is being started", SOON, || {
        (lab.property("mars", "pre.service", "SubState") == "start-pre").then_some(())
    });
    let (_, said) = lab.tell("mars", "keyholder status mars/pre");
    assert!(said.contains("mars/pre"), "{said}");
}
