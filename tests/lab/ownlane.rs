//! Tasks that restart the lane that runs them: the lane and the task never wait for each other, the answer is true, nothing runs
//! twice, and whoever else restarts a lane still has it finish what it runs.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::harness::{Lab, SOON, repo, wait};
use crate::lanehouse::house;
use crate::scene::all_along;

const UNIT: &str = "keyholder-lane-write.service";
/// Far less than the quarter of an hour that systemd lets the lane have.
const AT_ONCE: Duration = Duration::from_secs(60);

#[test]
fn a_task_that_restarts_its_own_lane_is_answered_at_once_and_truly() {
    let lab = house("ownlane", "");
    lab.write(
        "mars",
        "/usr/local/sbin/restarts",
        "#!/bin/sh\necho begun >>/run/restarts\nsystemctl restart keyholder-lane-write\necho ended >>/run/restarts\n",
    );
    lab.sh("mars", "chmod 755 /usr/local/sbin/restarts");
    for (action, status, words) in [
        ("lab.again", "ok", "it ended this lane and waited for that"),
        ("lab.later", "ok", ""),
        (
            "lab.script",
            "interrupted",
            "`systemctl restart keyholder-lane-write`, which waits for the end of the lane",
        ),
        (
            "lab.upgrade",
            "interrupted",
            "`systemctl restart keyholder-lane-write`, which waits for the end of the lane",
        ),
    ] {
        restarts(&lab, action, status, words);
    }
    // The script was ended with the lane's unit; what PID 1 ran for the lane went on to its end.
    assert_eq!(lab.sh("mars", "cat /run/restarts"), "begun\nbegun\nended\n");
    an_operator_is_not_taken_for_the_task(&lab);
    it_is_said_beforehand(&lab);
}

/// The task is answered soon, by a new run of the lane if need be, its proof says the same, and the next task is run.
fn restarts(lab: &Lab, action: &str, status: &str, words: &str) {
    let run = lab.property("mars", UNIT, "InvocationID");
    let since = Instant::now();
    let id = lab.sh("ai-core", &format!("keyholder run mars {action} --no-wait")).trim().to_owned();
    let queue = "tasks:maintenance:mars";
    let result: Value = wait(&format!("{action} is answered"), AT_ONCE, || {
        let json = lab.sh("ai-core", &format!("redis-cli GET '{{{queue}}}:result:{id}'"));
        serde_json::from_str(json.trim()).ok()
    });
    assert_eq!(result["status"], status, "{result}");
    assert!(result["note"].as_str().unwrap_or_default().contains(words), "{result}");
    lab.new_run("mars", UNIT, &run, AT_ONCE);
    let next = lab.sh("ai-core", "keyholder run mars lab.read --no-wait");
    assert_eq!(lab.result(queue, next.trim())["status"], "ok");
    println!("{action}: {status} after {:?}", since.elapsed());
    let told = lab.sh(
        "mars",
        &format!("journalctl --sync; journalctl -q -o cat KEYHOLDER_TASK_ID={id} _SYSTEMD_UNIT={UNIT}"),
    );
    assert!(
        told.lines().all(|line| line.contains(&format!("status={status}"))) && !told.is_empty(),
        "{told}"
    );
}

fn an_operator_is_not_taken_for_the_task(lab: &Lab) {
    let run = lab.property("mars", UNIT, "InvocationID");
    let write = lab.begin_write();
    let mut order = lab.spawn("mars", &format!("exec systemctl restart {UNIT}"));
    wait("the lane is told to leave", SOON, || {
        lab.property("mars", UNIT, "StatusText").contains("leaving").then_some(())
    });
    all_along("it finishes what it runs", Duration::from_secs(3), || order.try_wait().unwrap().is_none());
    lab.open_gate();
    assert!(order.wait().unwrap().success());
    assert_eq!(lab.result("tasks:maintenance:mars", &write)["status"], "ok");
    lab.new_run("mars", UNIT, &run, SOON);
}

/// `check` warns, and needrestart is told to leave the lanes and the supervisor alone.
fn it_is_said_beforehand(lab: &Lab) {
    let said = lab.sh("mars", "keyholder check 2>&1");
    assert_eq!(said.matches("which runs it: the command waits for the lane").count(), 1, "{said}");
    let perl = "our %nrconf = (override_rc => {}); eval do { local (@ARGV, $/) = $ARGV[0]; <> }; die $@ if $@; \
        for my $rc (qw(keyholder.service keyholder-lane-write.service keyholder-lane-read.service ssh.service)) { \
        print \"$rc\\n\" if grep { $rc =~ /$_/ && !$nrconf{override_rc}->{$_} } keys %{$nrconf{override_rc}} }";
    lab.write("mars", "/root/needrestart.pl", perl);
    let left_alone = lab.sh("mars", "perl /root/needrestart.pl /etc/needrestart/conf.d/keyholder.conf");
    assert_eq!(left_alone, "keyholder.service\nkeyholder-lane-write.service\nkeyholder-lane-read.service\n");
    assert!(repo("install/needrestart.conf").exists());
}
