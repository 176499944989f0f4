//! What the write lane does with root's rights: by PID 1 where it needs more than its sandbox leaves, only with a person's word
//! where the catalog wants one, and what becomes of a command that it has no right to end. And how it takes a new catalog.

use std::time::Duration;

use serde_json::Value;

use crate::harness::{Lab, SOON, wait};
use crate::lanehouse::house;
use crate::scene::all_along;

const UNIT: &str = "keyholder-lane-write.service";

#[test]
fn roots_rights_come_by_the_catalogs_own_ways_and_no_others() {
    let lab = house("laneroot", "");
    an_upgrade_is_run_by_pid_1(&lab);
    what_cannot_be_ended_is_answered_and_waited_for(&lab);
    a_new_catalog_counts_after_a_reload(&lab);
}

/// The shipped action, with sudoers as they were generated, and an apt-get that does what only all of root's rights allow.
fn an_upgrade_is_run_by_pid_1(lab: &Lab) {
    lab.write(
        "mars",
        "/usr/bin/apt-get",
        "#!/bin/sh\necho \"$DEBIAN_FRONTEND: $*\"; cat /proc/self/cgroup; touch /usr/lib/upgraded && chown nobody /usr/lib/upgraded\n",
    );
    let (code, said) = lab.tell("ai-core", "keyholder run mars apt.upgrade");
    assert!(code == 5 && said.contains("approval_required: step[0] apt.upgrade on mars"), "{code}: {said}");
    // Whose word no lane would take is not even asked.
    let (code, said) = lab.tell("ai-core", "keyholder run mars apt.upgrade --yes --approver-key /none");
    assert!(code == 5 && said.contains("keyholder key generate --approver"), "{code}: {said}");
    let (code, said) = lab.tell("ai-core", "keyholder run mars apt.upgrade --yes");
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("noninteractive: -y -o Dpkg::Options::=--force-confold upgrade\n"), "{said}");
    assert!(said.contains("/run-") && !said.contains(&format!("/{UNIT}\n")), "in a unit of its own: {said}");
    assert_eq!(lab.sh("mars", "stat -c %U /usr/lib/upgraded").trim(), "nobody");
    // Nothing else is allowed, and the sandbox is there.
    let other = lab.try_sh(
        "mars",
        "setpriv --reuid=keyholder-write --clear-groups sudo -n -- /usr/bin/apt-get -y upgrade",
    );
    assert!(!other.status.success());
}

/// A command of root's is not the lane's to kill: the task is answered all the same, nothing runs beside it, and the lane says
/// what it waits for.
fn what_cannot_be_ended_is_answered_and_waited_for(lab: &Lab) {
    let status = |words: &str| {
        wait(&format!("the status says {words:?}"), SOON, || {
            lab.property("mars", UNIT, "StatusText").contains(words).then_some(())
        });
    };
    // A slow machine may need the second for sudo, which is ended then before it has begun what does not listen.
    let begun = (0..5).find_map(|_| {
        let mut stubborn = lab.spawn("ai-core", "exec keyholder run mars lab.stubborn --json");
        let said = wait("the status says so, or it is over", SOON, || {
            let text = lab.property("mars", UNIT, "StatusText");
            let said = text.contains("is over its time of 1.0 s and was told to end");
            (said || stubborn.try_wait().unwrap().is_some()).then_some(said)
        });
        let output = stubborn.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        let told: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(told["result"]["status"], "timed_out", "{told}");
        (told["result"]["ran"]["beyond"] == true).then_some((told, said))
    });
    let (told, said) = begun.expect("it began within its second once");
    assert!(said, "the status says what is waited for: {told}");
    let result = &told["result"];
    assert!(result["note"].as_str().unwrap().contains("runs with other rights (sudo)"), "{told}");
    status("taking no tasks: lab.stubborn");
    let waits = lab.sh("ai-core", "keyholder run mars lab.read --no-wait");
    let beside = |lane: &Value| lane["waiting"] == 1 && lane["in_flight"][0]["action"] == "lab.stubborn";
    wait("the next task waits", SOON, || beside(&lab.lane("mars", "mars", "write")).then_some(()));
    all_along("nothing is run beside it", Duration::from_secs(2), || {
        // Null is a status that did not come in time.
        let lane = lab.lane("mars", "mars", "write");
        lane.is_null() || beside(&lane)
    });
    assert_eq!(lab.property("mars", UNIT, "NRestarts"), "0", "and the watchdog is content");
    lab.sh("mars", "touch /run/let-go");
    assert_eq!(lab.result("tasks:maintenance:mars", waits.trim())["status"], "ok");
}

fn a_new_catalog_counts_after_a_reload(lab: &Lab) {
    let catalog = "/etc/keyholder/catalog_mars.yaml";
    let run = lab.property("mars", UNIT, "InvocationID");
    for node in ["mars", "ai-core"] {
        lab.sh(node, &format!("sed -i 's/lab.read:/lab.look:/' {catalog}"));
    }
    let (code, said) = lab.tell("ai-core", "keyholder run mars lab.look");
    assert!(
        code == 5 && said.contains("unknown_action 'lab.look' on mars"),
        "the lane has the old one: {said}"
    );
    lab.sh("mars", "systemctl reload keyholder-lane-write keyholder-lane-read");
    wait("the lane has the new one", SOON, || {
        (lab.tell("ai-core", "keyholder run mars lab.look").0 == 0).then_some(())
    });
    lab.sh("mars", &format!("echo 'nonsense: 1' >>{catalog}; systemctl reload keyholder-lane-write"));
    wait("the lane says that it was refused", SOON, || {
        lab.property("mars", UNIT, "StatusText").contains("BY AN OLD CATALOG").then_some(())
    });
    assert_eq!(lab.tell("ai-core", "keyholder run mars lab.look").0, 0, "and goes on by the one before");
    let said = lab.sh("mars", &format!("journalctl --sync; journalctl -o cat -u {UNIT}"));
    assert!(said.contains("the new catalog is refused, the old one stays in force"), "{said}");
    assert_eq!(lab.property("mars", UNIT, "InvocationID"), run, "it is the same run all along");
}
