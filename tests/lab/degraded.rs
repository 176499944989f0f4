//! What the supervisor leans on breaks: the bus, PID 1's own process, the journal, the disk. It relaunches all the same,
//! says what is wrong, and is whole again by itself when that is mended.

use std::time::Duration;

use crate::harness::{Lab, SOON, service, wait};
use crate::orders::{OFTEN, degraded, relaunch, relaunched};
use crate::scene::all_along;

const SECOND: Duration = Duration::from_secs(1);

fn lab(name: &'static str) -> Lab {
    Lab::pair(name, &[("agent.service", &service(""))], &format!("agent: {{ {OFTEN} }}"))
}

fn run(lab: &Lab) -> String {
    lab.property("mars", "agent.service", "InvocationID")
}

/// An order from the other host, carried out; the verdict's `relaunched`.
fn order(lab: &Lab) -> serde_json::Value {
    let before = run(lab);
    let (verdict, took) = relaunch(lab, "ai-core", "mars/agent");
    let done = relaunched(&verdict).clone();
    assert!(took < SOON, "{took:?}: {done}");
    assert_eq!(run(lab), done["invocation"].as_str().expect("an invocation"));
    assert_ne!(run(lab), before);
    done
}

/// The supervisor's own process did not change: it coped, and was not simply started anew.
fn supervisor(lab: &Lab) -> String {
    lab.property("mars", "keyholder.service", "MainPID")
}

/// Kills the supervisor; systemd starts the next one.
fn another_supervisor(lab: &Lab) {
    let pid = supervisor(lab);
    lab.sh("mars", "systemctl kill -s KILL keyholder.service");
    wait("another supervisor serves", SOON, || {
        let serves = lab.property("mars", "keyholder.service", "SubState") == "running";
        (serves && supervisor(lab) != pid).then_some(())
    });
}

fn says(lab: &Lab, at: &str, words: &str) {
    wait(&format!("{at} shows mars degraded: {words}"), SOON, || {
        degraded(lab, at, "mars").iter().any(|text| text.contains(words)).then_some(())
    });
}

fn whole(lab: &Lab) {
    for at in ["mars", "ai-core"] {
        wait(&format!("{at} shows mars whole"), SOON, || {
            let node = lab.node(at, "mars");
            (node["state"] == "up" && node["degraded"] == serde_json::json!([])).then_some(())
        });
    }
}

#[test]
fn without_a_bus_or_with_another_pid_1_it_still_relaunches_and_repairs() {
    let lab = lab("bus");
    let pid = supervisor(&lab);
    dbus_daemon_is_killed(&lab);
    pid_1_is_executed_anew(&lab);
    pid_1_reloads_again_and_again(&lab);
    dbus_daemon_is_gone_for_good(&lab, &pid);
}

fn dbus_daemon_is_killed(lab: &Lab) {
    for _ in 0..3 {
        let before = run(lab);
        lab.sh("mars", "systemctl kill -s KILL --kill-whom=main dbus.service");
        all_along("the worker is left alone", SECOND / 2, || run(lab) == before);
        order(lab);
    }
    // Again, and the order comes in the same moment.
    lab.sh("mars", "systemctl kill -s KILL --kill-whom=main dbus.service");
    order(lab);
    whole(lab);
}

fn pid_1_is_executed_anew(lab: &Lab) {
    let before = run(lab);
    lab.sh("mars", "systemctl daemon-reexec");
    assert_eq!(run(lab), before);
    order(lab);
    // It is heard as before: a death is known and repaired at once.
    let before = run(lab);
    lab.sh("mars", "systemctl kill -s KILL agent.service");
    lab.new_run("mars", "agent.service", &before, SOON);
    whole(lab);
}

fn pid_1_reloads_again_and_again(lab: &Lab) {
    // Until it is told to stop, however long an order takes.
    let mut storm = lab.spawn("mars", "until [ -e /run/calm ]; do systemctl daemon-reload || exit; done");
    for _ in 0..3 {
        order(lab);
    }
    assert_eq!(storm.try_wait().expect("it can be waited for"), None, "PID 1 reloaded all along");
    lab.sh("mars", "touch /run/calm");
    assert!(storm.wait().expect("it ends").success());
    let before = run(lab);
    lab.sh("mars", "systemctl kill -s KILL agent.service");
    lab.new_run("mars", "agent.service", &before, SOON);
    whole(lab);
}

fn dbus_daemon_is_gone_for_good(lab: &Lab, pid: &str) {
    let before = run(lab);
    lab.sh("mars", "systemctl mask --runtime --now dbus.socket dbus.service 2>&1");
    says(lab, "mars", "system bus");
    says(lab, "ai-core", "system bus");
    assert_eq!(run(lab), before);
    let done = order(lab);
    assert_eq!(done["break_glass"], true, "{done}");
    assert!(done["degraded"][0].as_str().is_some_and(|text| text.contains("system bus")), "{done}");
    let told = lab.sh("ai-core", "keyholder relaunch mars/agent");
    assert!(told.contains("break-glass") && told.contains("degraded: system bus"), "{told}");
    assert!(lab.evidence("mars", "acted").iter().any(|line| line.contains("through systemctl")));
    let doctor = lab.try_sh("mars", "keyholder doctor");
    let doctor = String::from_utf8_lossy(&doctor.stdout).into_owned();
    assert!(doctor.contains("bus") && doctor.contains("FAIL"), "{doctor}");
    // A death is seen by asking each second, and repaired.
    let before = run(lab);
    lab.sh("mars", "systemctl kill -s KILL agent.service");
    lab.new_run("mars", "agent.service", &before, SOON);
    assert_eq!(supervisor(lab), pid);
    // One that starts without a bus does the same.
    another_supervisor(lab);
    assert_eq!(order(lab)["break_glass"], true);
    let before = run(lab);
    lab.sh("mars", "systemctl kill -s KILL agent.service");
    lab.new_run("mars", "agent.service", &before, SOON);

    lab.sh("mars", "systemctl unmask --runtime dbus.socket dbus.service && systemctl start dbus.socket");
    whole(lab);
    assert_eq!(order(lab)["break_glass"], false);
}

#[test]
fn without_a_journal_or_with_a_full_disk_it_still_relaunches_and_says_so() {
    let lab = lab("evidence");
    journald_is_stopped(&lab);
    journald_hangs(&lab);
    the_disk_is_full(&lab);
}

const JOURNALD: &str = "systemd-journald.socket systemd-journald-dev-log.socket systemd-journald.service";

fn journald_is_stopped(lab: &Lab) {
    let pid = supervisor(lab);
    lab.sh("mars", &format!("systemctl mask --runtime --now {JOURNALD} 2>&1"));
    for _ in 0..3 {
        order(lab);
    }
    says(lab, "mars", "journald");
    says(lab, "ai-core", "journald");
    let done = order(lab);
    assert!(done["degraded"].to_string().contains("journald"), "{done}");
    let doctor = lab.try_sh("mars", "keyholder doctor");
    let doctor = String::from_utf8_lossy(&doctor.stdout).into_owned();
    assert!(doctor.contains("journald"), "{doctor}");
    let before = run(lab);
    lab.sh("mars", "systemctl kill -s KILL agent.service");
    lab.new_run("mars", "agent.service", &before, SOON);
    assert_eq!(supervisor(lab), pid);

    lab.sh("mars", &format!("systemctl unmask --runtime {JOURNALD} && systemctl start {JOURNALD}"));
    whole(lab);
    // What happened meanwhile is told, late but complete.
    let after = run(lab);
    wait("the evidence has followed", SOON, || {
        lab.evidence("mars", "acted").iter().any(|line| line.contains(&after[..8])).then_some(())
    });
    assert!(lab.evidence("mars", "degraded").iter().any(|line| line.contains("journald is back")));
}

fn journald_hangs(lab: &Lab) {
    let pid = supervisor(lab);
    lab.sh("mars", "systemctl kill -s STOP systemd-journald.service");
    // Every buffer on the way to it fills with what these orders write, and each is carried out meanwhile.
    for _ in 0..6 {
        order(lab);
    }
    // Then it is noticed.
    wait("the hang is noticed", SOON, || {
        order(lab)["degraded"].to_string().contains("journald").then_some(())
    });
    assert_eq!(supervisor(lab), pid);
    another_supervisor(lab);
    order(lab);
    lab.sh("mars", "systemctl kill -s CONT systemd-journald.service");
    whole(lab);
}

fn the_disk_is_full(lab: &Lab) {
    // A disk of its own for the state, as an operator might have it, small enough to be filled.
    lab.sh(
        "mars",
        "systemctl stop keyholder.service && cp -a /var/lib/keyholder /root/state &&
         mount -t tmpfs -o size=4m,mode=700 state /var/lib/keyholder && cp -a /root/state/. /var/lib/keyholder/ &&
         systemctl start keyholder.service",
    );
    whole(lab);
    let pid = supervisor(lab);
    let fill = "cat /dev/zero >/var/lib/keyholder/filler; [ -s /var/lib/keyholder/filler ]";
    lab.try_sh("mars", fill);
    // What is free inside the database's own pages is used up first.
    wait("it says that the disk is full", 20 * SECOND, || {
        let done = order(lab);
        done["degraded"].to_string().contains("state.db is full").then_some(())
    });
    says(lab, "mars", "state.db is full");
    says(lab, "ai-core", "state.db is full");
    let before = run(lab);
    lab.sh("mars", "systemctl kill -s KILL agent.service");
    lab.new_run("mars", "agent.service", &before, SOON);
    assert_eq!(supervisor(lab), pid);
    // And one that starts with a full disk.
    another_supervisor(lab);
    order(lab);

    lab.sh("mars", "rm /var/lib/keyholder/filler");
    whole(lab);
    let done = order(lab);
    let short = &done["invocation"].as_str().expect("an invocation")[..8];
    wait("the audit is written again", SOON, || {
        lab.sh("mars", "keyholder audit -n 10").contains(short).then_some(())
    });
}
