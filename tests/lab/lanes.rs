//! The two lanes on a real node: their rights, their word to systemd, their records, and what PID 1 runs for them.

use serde_json::Value;

use crate::harness::{Lab, SOON, wait};

const WRITE: &str = "tasks:maintenance:mars";
const READ: &str = "tasks:maintenance:mars:read";

const CATALOG: &str = r#"version: 1
node: mars
actions:
  service.logs:
    mode: read
    description: the last lines of a service's log
    argv: [/usr/bin/journalctl, -q, -u, "{unit}", -n, "1", --no-pager]
    params: { unit: { enum: [redis-server.service] } }
  service.restart:
    mode: write
    description: restart a service
    argv: [/usr/bin/sudo, -n, --, /usr/bin/systemctl, restart, "{unit}"]
    params: { unit: { enum: [victim.service] } }
    idempotent: true
  upgrade:
    mode: write
    description: what needs more than the lane has, by PID 1
    argv: [/usr/bin/sudo, -n, --, /usr/bin/systemd-run, --quiet, --pipe, --wait, --collect, /usr/local/sbin/upgrade]
"#;

fn task(lab: &Lab, queue: &str, id: &str, action: &str, params: &str) {
    task_of("now", lab, queue, id, action, params);
}

fn task_of(when: &str, lab: &Lab, queue: &str, id: &str, action: &str, params: &str) {
    let now = lab.sh("mars", &format!("date -u -d '{when}' +%Y-%m-%dT%H:%M:%SZ"));
    let task = format!(
        r#"{{"id":"{id}","action":"{action}","params":{params},"by":"lab","issued_at":"{}"}}"#,
        now.trim()
    );
    lab.sh("mars", &format!("redis-cli LPUSH {queue} '{task}'"));
}

fn result(lab: &Lab, queue: &str, id: &str) -> Value {
    wait(&format!("a result of {id}"), SOON, || {
        let json = lab.sh("mars", &format!("redis-cli GET '{{{queue}}}:result:{id}'"));
        serde_json::from_str(json.trim()).ok()
    })
}

#[test]
fn each_lane_has_the_rights_of_its_mode_and_the_journal_says_which_one_ran_a_task() {
    let lab = Lab::boot("lanes", &["mars"]);
    lab.install();
    lab.write("mars", "/etc/keyholder/catalog_mars.yaml", CATALOG);
    lab.write(
        "mars",
        "/usr/local/sbin/upgrade",
        "#!/bin/sh\necho begun >>/usr/upgraded; until [ -e /run/upgrade ]; do sleep 0.1; done; echo ended >>/usr/upgraded; chown nobody /usr/upgraded\n",
    );
    lab.write("mars", "/etc/systemd/system/victim.service", "[Service]\nExecStart=/bin/sleep infinity\n");
    for mode in ["write", "read"] {
        lab.write(
            "mars",
            &format!("/etc/keyholder/lane-{mode}.env"),
            "KEYHOLDER_REDIS=redis://127.0.0.1:6379\n",
        );
    }
    lab.write(
        "mars",
        "/etc/systemd/system/keyholder-lane-write.service.d/unsigned.conf",
        "[Service]\nExecStart=\nExecStart=/usr/local/bin/keyholder lane --mode write --insecure-unsigned-write\n",
    );
    // Without its sudoers lines the write lane does not run, and is not started again and again.
    lab.sh(
        "mars",
        "chmod 755 /usr/local/sbin/upgrade; systemctl daemon-reload; systemctl start redis-server victim",
    );
    assert!(!lab.try_sh("mars", "systemctl start keyholder-lane-write").status.success());
    let said = lab.sh("mars", "journalctl --sync; journalctl -o cat -u keyholder-lane-write");
    assert!(said.contains("sudo -n -l"), "{said}");
    assert_eq!(lab.property("mars", "keyholder-lane-write", "NRestarts"), "0");
    lab.write(
        "mars",
        "/etc/sudoers.d/keyholder",
        "keyholder-write ALL=(root) NOPASSWD: /usr/bin/systemctl restart victim.service, \\\n    /usr/bin/systemd-run --quiet \
         --pipe --wait --collect /usr/local/sbin/upgrade\n",
    );
    lab.sh("mars", "chmod 440 /etc/sudoers.d/keyholder; systemctl reset-failed; systemctl start keyholder-lane-write keyholder-lane-read");
    let privs = |mode: &str| {
        let unit = format!("keyholder-lane-{mode}");
        let pid = lab.property("mars", &unit, "MainPID");
        lab.sh("mars", &format!("grep NoNewPrivs: /proc/{pid}/status")).trim().replace('\t', " ")
    };
    assert_eq!((privs("write").as_str(), privs("read").as_str()), ("NoNewPrivs: 0", "NoNewPrivs: 1"));

    let before = lab.property("mars", "victim.service", "InvocationID");
    task(&lab, WRITE, "w1", "service.restart", r#"{"unit":"victim.service"}"#);
    let done = result(&lab, WRITE, "w1");
    assert_eq!(
        (&done["status"], &done["unit"]),
        (&"ok".into(), &"keyholder-lane-write.service".into()),
        "{done}"
    );
    assert_ne!(lab.property("mars", "victim.service", "InvocationID"), before);
    task(&lab, READ, "r1", "service.logs", r#"{"unit":"redis-server.service"}"#);
    let done = result(&lab, READ, "r1");
    assert!(done["status"] == "ok" && done["ran"]["stdout"]["head"]["text"] != "", "{done}");
    task(&lab, READ, "r2", "service.restart", r#"{"unit":"victim.service"}"#);
    assert_eq!(result(&lab, READ, "r2")["refusal"]["code"], "mode_mismatch");

    // Only fields that journald itself sets say where a record comes from.
    let records = |id: &str, mode: &str| {
        let line = format!(
            "journalctl --sync; journalctl -q -o cat KEYHOLDER_TASK_ID={id} _SYSTEMD_UNIT=keyholder-lane-{mode}.service"
        );
        lab.sh("mars", &line).trim().to_owned()
    };
    assert_eq!(records("r1", "read"), "executed action=service.logs status=ok");
    assert_eq!(records("r1", "write"), "");
    assert_eq!(records("w1", "write"), "executed action=service.restart status=ok");

    // The lane is killed while PID 1 runs something for it: that goes on, is answered, and nothing runs beside it.
    task(&lab, WRITE, "w2", "upgrade", "{}");
    wait("the upgrade runs", SOON, || {
        lab.try_sh("mars", "test -e /usr/upgraded").status.success().then_some(())
    });
    let lane = || lab.property("mars", "keyholder-lane-write", "MainPID");
    let killed = lane();
    lab.sh("mars", "systemctl kill -s KILL --kill-whom=main keyholder-lane-write");
    task(&lab, WRITE, "w3", "service.restart", r#"{"unit":"victim.service"}"#);
    wait("the next lane is there", SOON, || {
        (![killed.as_str(), "0"].contains(&lane().as_str())).then_some(())
    });
    lab.sh("mars", "touch /run/upgrade");
    assert_eq!(result(&lab, WRITE, "w2")["status"], "interrupted");
    assert_eq!(lab.sh("mars", "cat /usr/upgraded"), "begun\nended\n");
    assert_eq!(result(&lab, WRITE, "w3")["status"], "ok");

    // While somebody is there to set the clock and has not, no task is refused for its date.
    lab.sh("mars", "mkdir -p /run/systemd/timesync");
    task_of("+1 hour", &lab, WRITE, "early", "service.restart", r#"{"unit":"victim.service"}"#);
    wait("it waits for the clock", SOON, || {
        let text = lab.property("mars", "keyholder-lane-write", "StatusText");
        text.contains("clock has not been set").then_some(())
    });
    let answered = lab.sh("mars", &format!("redis-cli EXISTS '{{{WRITE}}}:result:early'"));
    assert_eq!(answered.trim(), "0");
    lab.sh("mars", "touch /run/systemd/timesync/synchronized");
    assert_eq!(result(&lab, WRITE, "early")["refusal"]["code"], "expired");
    task(&lab, WRITE, "w4", "service.restart", r#"{"unit":"victim.service"}"#);
    assert_eq!(result(&lab, WRITE, "w4")["status"], "ok");

    // Redis away: the lanes stay, say so, and come back by themselves.
    let runs =
        ["write", "read"].map(|mode| lab.property("mars", &format!("keyholder-lane-{mode}"), "InvocationID"));
    lab.sh("mars", "systemctl stop redis-server");
    wait("both say it", SOON, || {
        let shows = |mode| lab.property("mars", &format!("keyholder-lane-{mode}"), "StatusText");
        ["write", "read"].map(shows).iter().all(|text| text.contains("taking no tasks")).then_some(())
    });
    lab.sh("mars", "systemctl start redis-server");
    task(&lab, READ, "r3", "service.logs", r#"{"unit":"redis-server.service"}"#);
    assert_eq!(result(&lab, READ, "r3")["status"], "ok");
    let now =
        ["write", "read"].map(|mode| lab.property("mars", &format!("keyholder-lane-{mode}"), "InvocationID"));
    assert_eq!(runs, now);
}
