//! Whose the lanes are: a user each, also after an upgrade from a node where both had one; what the read lane can reach of the
//! write lane; what other users of the host can get in the way of; and what is left when keyholder goes.

use serde_json::Value;

use crate::harness::{Lab, SOON, wait};
use crate::lanehouse::house;

const WRITE: &str = "keyholder-lane-write.service";
const LANES: [&str; 2] = ["write", "read"];
const SUDOERS: &str = "/etc/sudoers.d/keyholder";
/// What the intruder tries.
const ATTEMPTS: usize = 11;

#[test]
fn each_lane_has_a_user_of_its_own_and_the_read_lane_reaches_nothing_of_the_write_lane() {
    let lab = house("hostusers", "");
    lab.write("mars", "/usr/local/bin/intrude", include_str!("hostusers/intrude"));
    lab.write("mars", "/usr/local/sbin/rooted", "#!/bin/sh\nid -un >>/run/rooted\n");
    lab.write("mars", "/etc/keyholder/lane-write.env", "LAB_SECRET=open-sesame\n");
    lab.sh(
        "mars",
        "chmod 755 /usr/local/bin/intrude /usr/local/sbin/rooted; chmod 600 /etc/keyholder/lane-write.env",
    );
    lab.route_reads();
    both_lanes_get_one_user(&lab);
    let open = intrude(&lab);
    for what in ["environment: b'", "memory: None", "state directory: [", "ledger: b'", "signal: None"] {
        assert!(open.iter().any(|line| line.starts_with(&format!("got {what}"))), "with one user: {open:#?}");
    }
    assert!(open.iter().any(|line| line.contains("LAB_SECRET=open-sesame")), "{open:#?}");
    an_upgrade_separates_them_and_loses_no_task(&lab);
    nothing_is_reached(&lab);
    a_stranger_in_the_journal_disturbs_no_proof(&lab);
    nobody_else_holds_the_lock_of_the_installer(&lab);
    a_hook_that_only_root_may_execute_fails_the_doctor(&lab);
    lines_of_a_catalog_that_is_gone_are_drift_and_removed(&lab);
    a_purge_leaves_nothing(&lab);
}

/// As nodes were installed before: one user for both lanes.
fn both_lanes_get_one_user(lab: &Lab) {
    lab.sh(
        "mars",
        &format!(
            "useradd --system --gid keyholder --no-create-home --home-dir / --shell /usr/sbin/nologin keyholder && \
             sed -i 's/^\\(User\\|Group\\)=keyholder-.*/\\1=keyholder/' /usr/local/lib/systemd/system/keyholder-lane-*.service && \
             sed -i 's/^keyholder-write /keyholder /' {SUDOERS} && systemctl daemon-reload && \
             systemctl restart keyholder-lane-write keyholder-lane-read"
        ),
    );
    for lane in LANES {
        assert_eq!(user(lab, lane), "keyholder");
        let owner = lab.sh(
            "mars",
            &format!("stat -c %U /var/lib/keyholder-lane/{lane} /var/lib/keyholder-lane/{lane}/*"),
        );
        assert!(owner.lines().all(|owner| owner == "keyholder"), "{owner}");
    }
}

/// Whose a lane's process is; empty if there is none.
fn user(lab: &Lab, lane: &str) -> String {
    let line = format!("stat -c %U /proc/$(systemctl show -P MainPID keyholder-lane-{lane})");
    String::from_utf8_lossy(&lab.try_sh("mars", &line).stdout).trim().to_owned()
}

/// What an intruder in the read lane gets, attempt by attempt.
fn intrude(lab: &Lab) -> Vec<String> {
    let told = wait("the read lane runs it", SOON, || {
        let output = lab.try_sh("ai-core", "keyholder run mars lab.intrude --json");
        let told = serde_json::from_slice::<Value>(&output.stdout).ok()?;
        (told["result"]["unit"] == "keyholder-lane-read.service").then_some(told)
    });
    let said = told["result"]["ran"]["stdout"]["head"]["text"].as_str().unwrap_or_default();
    let lines: Vec<String> = said.lines().map(str::to_owned).collect();
    assert_eq!(lines.len(), ATTEMPTS, "{told}");
    lines
}

/// A write runs, one more waits, and the installer changes both lanes meanwhile.
fn an_upgrade_separates_them_and_loses_no_task(lab: &Lab) {
    let running = lab.begin_write();
    let waiting = lab.sh("ai-core", "keyholder run mars lab.root --no-wait").trim().to_owned();
    let mut install = lab.spawn("mars", "exec /root/src/install.sh --binary /root/keyholder 2>&1");
    wait("the lane is told to leave", SOON, || {
        lab.property("mars", WRITE, "StatusText").contains("leaving").then_some(())
    });
    assert!(install.try_wait().unwrap().is_none(), "it waits for the lane");
    assert_eq!(user(lab, "write"), "keyholder");
    // A process that systemd has just made for it is root's for a moment.
    wait("the read lane is its new user's", SOON, || (user(lab, "read") == "keyholder-read").then_some(()));
    lab.open_gate();
    let output = install.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}");
    let queue = "tasks:maintenance:mars";
    assert_eq!(lab.result(queue, &running)["status"], "ok");
    assert_eq!(lab.result(queue, &waiting)["status"], "ok");
    assert_eq!(lab.sh("mars", "cat /run/rooted"), "root\n", "it ran, and once");
    for lane in LANES {
        let name = format!("keyholder-{lane}");
        assert_eq!(user(lab, lane), name, "{said}");
        let dir = format!("/var/lib/keyholder-lane/{lane}");
        assert_eq!(lab.sh("mars", &format!("stat -c '%U %G %a' {dir}")), format!("{name} {name} 700\n"));
        assert_eq!(lab.sh("mars", &format!("find {dir} ! -user {name}")), "");
        let groups = lab.sh("mars", &format!("id -Gn {name}"));
        assert_eq!(groups.trim(), name, "no group that another lane has");
    }
    let lines = lab.sh("mars", &format!("grep -o '^keyholder[a-z-]* ' {SUDOERS} | sort -u"));
    assert_eq!(lines, "keyholder-write \n");
    assert!(lab.sh("mars", "/root/src/install.sh --binary /root/keyholder").contains("nothing to do"));
    assert_eq!(lab.sh("mars", "cat /run/rooted"), "root\n");
}

/// Neither from inside the read lane nor from outside of its sandbox.
fn nothing_is_reached(lab: &Lab) {
    let outside = lab.sh(
        "mars",
        "setpriv --reuid=keyholder-read --regid=keyholder-read --init-groups /usr/local/bin/intrude",
    );
    let outside: Vec<String> = outside.lines().map(str::to_owned).collect();
    assert_eq!(outside.len(), ATTEMPTS, "{outside:#?}");
    for tried in [intrude(lab), outside] {
        assert!(tried.iter().all(|line| line.starts_with("refused ")), "{tried:#?}");
    }
    assert_eq!(lab.sh("mars", "cat /run/rooted"), "root\n");
    // The group may look, and only look.
    let look = "setpriv --reuid=nobody --regid=nogroup --groups=keyholder keyholder";
    assert!(lab.sh("mars", &format!("{look} status mars")).contains("write"));
    assert_eq!(
        lab.try_sh("mars", &format!("{look} hold mars/write --for 1m --why no")).status.code(),
        Some(5)
    );
}

/// Records that name a task, by a user who is no lane: too long to be read, and more than are read.
fn a_stranger_in_the_journal_disturbs_no_proof(lab: &Lab) {
    let id = lab.sh("ai-core", "keyholder run mars lab.read --no-wait").trim().to_owned();
    assert_eq!(lab.result("tasks:maintenance:mars:read", &id)["status"], "ok");
    let prove = || lab.try_sh("mars", &format!("keyholder prove {id} --node mars --json"));
    let before = prove();
    assert!(String::from_utf8_lossy(&before.stdout).contains("\"proved\""), "{before:?}");
    lab.write(
        "mars",
        "/root/forge",
        "import socket, sys\ns = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)\ns.connect('/run/systemd/journal/socket')\n\
         for n in range(40):\n    s.send(b'MESSAGE=' + b'x' * 90000 + b'\\nKEYHOLDER_LANE=read\\nKEYHOLDER_STATUS=ok\\nKEYHOLDER_TASK_ID=' + sys.argv[1].encode() + b'\\n')\n",
    );
    lab.sh(
        "mars",
        &format!("setpriv --reuid=nobody --regid=nogroup --clear-groups python3 - {id} </root/forge"),
    );
    let count = format!(
        "journalctl --sync; journalctl -q -o cat KEYHOLDER_TASK_ID={id} _UID=$(id -u nobody) | wc -l"
    );
    assert_eq!(lab.sh("mars", &count).trim(), "40");
    let after = prove();
    assert!(String::from_utf8_lossy(&after.stdout).contains("\"proved\""), "{after:?}");
}

fn nobody_else_holds_the_lock_of_the_installer(lab: &Lab) {
    let nobody = "setpriv --reuid=nobody --regid=nogroup --clear-groups";
    let taken = lab.try_sh("mars", &format!("{nobody} flock -n /run/keyholder-install.lock true"));
    assert!(
        !taken.status.success()
            && lab.sh("mars", "stat -c '%U %a' /run/keyholder-install.lock") == "root 600\n"
    );
    // Where it was before, everybody may make and lock files.
    let mut held =
        lab.spawn("mars", &format!("exec {nobody} flock /run/lock/keyholder-install.lock sleep 60"));
    wait("a stranger holds a lock there", SOON, || {
        lab.try_sh("mars", "pgrep -u nobody sleep").status.success().then_some(())
    });
    lab.sh("mars", "/root/src/install.sh --binary /root/keyholder");
    held.kill().unwrap();
    held.wait().unwrap();
}

fn doctor(lab: &Lab, check: &str) -> String {
    let output = lab.try_sh("mars", "keyholder doctor --json");
    let findings: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let of = |finding: &&Value| finding["check"] == check;
    findings.as_array().expect("findings").iter().filter(of).map(Value::to_string).collect()
}

/// The unit that runs the hook is no user that root knows beforehand.
fn a_hook_that_only_root_may_execute_fails_the_doctor(lab: &Lab) {
    lab.write("mars", "/etc/keyholder/alert", "#!/bin/sh\ncat >/dev/null\n");
    for (mode, level) in [("700", "fail"), ("711", "fail"), ("750", "fail"), ("755", "ok")] {
        lab.sh("mars", &format!("chmod {mode} /etc/keyholder/alert"));
        let found = doctor(lab, "alert");
        assert!(found.contains(&format!("\"level\":\"{level}\"")), "{mode}: {found}");
        assert!(level == "ok" || found.contains("chmod a+rx /etc/keyholder/alert"), "{mode}: {found}");
    }
    // A unit that was given the hook's group may execute it.
    lab.write(
        "mars",
        "/etc/systemd/system/keyholder-alert@.service.d/group.conf",
        "[Service]\nSupplementaryGroups=adm\n",
    );
    lab.sh("mars", "systemctl daemon-reload; chgrp adm /etc/keyholder/alert; chmod 750 /etc/keyholder/alert");
    let found = doctor(lab, "alert");
    assert!(found.contains("\"level\":\"ok\""), "{found}");
}

fn lines_of_a_catalog_that_is_gone_are_drift_and_removed(lab: &Lab) {
    let found = doctor(lab, "sudoers");
    assert!(found.contains("\"level\":\"ok\""), "{found}");
    lab.sh("mars", &format!("echo 'keyholder-write ALL=(root) NOPASSWD: /usr/bin/id' >>{SUDOERS}"));
    let found = doctor(lab, "sudoers");
    assert!(found.contains("\"level\":\"fail\"") && found.contains("NOPASSWD: /usr/bin/id"), "{found}");
    lab.sh("mars", "mv /etc/keyholder/catalog_mars.yaml /root/");
    let found = doctor(lab, "sudoers");
    assert!(found.contains("\"level\":\"fail\"") && found.contains("catalog_mars.yaml"), "{found}");
    let rooted = "setpriv --reuid=keyholder-write --clear-groups sudo -n -- /usr/local/sbin/rooted";
    lab.sh("mars", rooted);
    let said = lab.sh("mars", "/root/src/install.sh --binary /root/keyholder 2>&1");
    assert!(said.contains("its sudoers lines go as well"), "{said}");
    assert!(!lab.try_sh("mars", rooted).status.success());
    assert!(!lab.try_sh("mars", &format!("test -e {SUDOERS}")).status.success());
    assert_eq!(doctor(lab, "sudoers"), "");
}

fn a_purge_leaves_nothing(lab: &Lab) {
    lab.sh("mars", "/root/src/install.sh --uninstall --purge");
    for gone in ["/var/lib/keyholder", "/var/lib/keyholder-lane", "/etc/keyholder", "/run/keyholder"] {
        assert!(!lab.try_sh("mars", &format!("test -e {gone}")).status.success(), "{gone}");
    }
    assert_eq!(lab.sh("mars", "getent passwd | grep keyholder; getent group | grep keyholder; true"), "");
    assert_eq!(
        lab.sh("mars", "find / -xdev \\( -nouser -o -nogroup \\) -not -path '/proc/*' -print 2>/dev/null"),
        ""
    );
}
