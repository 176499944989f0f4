//! Rehearsals with lanes, and with a worker that another unit feeds: stuck, cut off and dead on purpose, each found by its own
//! detector and mended by its own remedy from next door, and a task that goes through the lane afterwards.

use serde_json::Value;

use crate::drills::{drill, drilled, refused, unhelped};
use crate::harness::{Lab, SOON, wait};
use crate::lanehouse::house;
use crate::scene::SECOND;

const UNIT: &str = "keyholder-lane-write.service";
const CARE: &str = ", stuck: { heartbeat: { older_than: 4s } }, delivery_gap: { backlog: { not_draining_for: 4s } }, relaunches: 9";
/// Moves what waits from the server to the worker.
const PIPE: &str = "[Service]\nExecStart=/bin/sh -c 'while :; do redis-cli -h 192.0.2.40 RPOP agent:inbox >/dev/null; sleep 0.1; done'\n";
const INBOX: &str = "inbox: { unit: inbox.service, delivery_gap: { backlog: { queue: \"agent:inbox\", not_draining_for: 3s }, \
                     repipe: { restart: tunnel.service } } }";

#[test]
fn lanes_and_their_pipes_are_rehearsed_in_every_class() {
    let lab = house("drilledlanes", CARE);
    feed(&lab);
    well(&lab);

    stuck_is_found_and_the_ladder_goes_up_to_the_relaunch(&lab);
    deaf_is_found_and_a_repipe_mends_it(&lab);
    a_pipe_that_is_stopped_is_found_and_restarted(&lab);
    dead_waits_for_the_write(&lab);
    a_halted_lane_that_nobody_helps_goes_on(&lab);
}

/// A worker on `mars` that another unit feeds, and somebody on `ai-core` who gives it work all the time.
fn feed(lab: &Lab) {
    lab.write("mars", "/etc/systemd/system/tunnel.service", PIPE);
    lab.write("mars", "/etc/systemd/system/inbox.service", "[Service]\nExecStart=/bin/sleep infinity\n");
    lab.sh("mars", "systemctl daemon-reload; systemctl start tunnel inbox");
    let line = "while :; do redis-cli LPUSH agent:inbox work >/dev/null; sleep 0.5; done";
    lab.sh("ai-core", &format!("systemd-run --quiet --unit=work /bin/sh -c '{line}'"));
    for node in ["mars", "ai-core"] {
        let fleet = lab.sh(node, "cat /etc/keyholder/fleet.yaml");
        let (before, after) = fleet.split_once("  ai-core:").expect("two nodes");
        // Whichever stands first, the lanes of `mars` are those with care.
        let read = "read: { lane: read }";
        let with = format!("{read}\n      {INBOX}");
        let fleet = if before.contains("older_than") {
            format!("{}  ai-core:{after}", before.replace(read, &with))
        } else {
            format!("{before}  ai-core:{}", after.replace(read, &with))
        };
        lab.write(node, "/etc/keyholder/fleet.yaml", &fleet);
        lab.sh(node, "systemctl reload keyholder");
    }
}

fn well(lab: &Lab) {
    for at in ["mars", "ai-core"] {
        for node in ["mars", "ai-core"] {
            wait(&format!("{at} sees {node} well"), 20 * SECOND, || {
                let node = lab.node(at, node);
                let workers = node["workers"].as_array()?;
                let all = workers.iter().all(|worker| worker["class"] == "healthy");
                (node["state"] == "up" && all && !workers.is_empty()).then_some(())
            });
        }
    }
}

fn passed(lab: &Lab, what: &str) -> Value {
    let (code, verdict) = drill(lab, "ai-core", &format!("{what} --wait 40s"));
    let report = drilled(&verdict).clone();
    assert!(code == 0 && report["passed"] == true && report["by"] == "ai-core", "{verdict}");
    report
}

fn evidence(report: &Value) -> String {
    let lines = report["evidence"].as_array().into_iter().flatten().filter_map(Value::as_str);
    lines.collect::<Vec<_>>().join("\n")
}

fn acts(lab: &Lab, worker: &str) -> Vec<String> {
    let lines = lab.records("mars", "acting", &format!("mars/{worker}"), "");
    lines.into_iter().map(|line| line.text).collect()
}

fn stuck_is_found_and_the_ladder_goes_up_to_the_relaunch(lab: &Lab) {
    let (before, read) = (lab.run_of(UNIT), lab.run_of("keyholder-lane-read.service"));
    // The lane's own watchdog would be the first where all this takes half a minute.
    lab.sh("mars", "systemctl service-watchdogs no");
    let report = passed(lab, "mars/write --class stuck");
    lab.sh("mars", "systemctl service-watchdogs yes");
    assert_ne!(lab.run_of(UNIT), before, "{report}");
    assert_eq!(lab.run_of("keyholder-lane-read.service"), read, "nothing else was touched");
    assert!(
        evidence(&report).contains("SIGSTOP") && evidence(&report).contains("went through it"),
        "{report}"
    );
    let acts = acts(lab, "write");
    let last = acts.iter().rev().take(2).collect::<Vec<_>>();
    assert!(last[1].starts_with("nudge") && last[0].starts_with("relaunching"), "{acts:?}");
}

fn deaf_is_found_and_a_repipe_mends_it(lab: &Lab) {
    let before = lab.run_of(UNIT);
    let report = passed(lab, "mars/write --class delivery-gap");
    assert_eq!(lab.run_of(UNIT), before, "a repipe is enough: {report}");
    assert!(evidence(&report).contains("deaf") && evidence(&report).contains("went through it"), "{report}");
    let acts = acts(lab, "write");
    assert!(acts.last().is_some_and(|act| act.starts_with("repipe") && act.contains("ai-core")), "{acts:?}");
    assert_eq!(lab.sh("ai-core", "redis-cli LLEN tasks:maintenance:mars").trim(), "0");
}

fn a_pipe_that_is_stopped_is_found_and_restarted(lab: &Lab) {
    let (worker, pipe) = (lab.run_of("inbox.service"), lab.run_of("tunnel.service"));
    let report = passed(lab, "mars/inbox --class delivery-gap");
    assert_eq!(lab.run_of("inbox.service"), worker, "{report}");
    assert_ne!(lab.run_of("tunnel.service"), pipe, "{report}");
}

fn dead_waits_for_the_write(lab: &Lab) {
    // The write is the only reason there is.
    well(lab);
    let id = lab.begin_write();
    for class in ["dead", "stuck", "delivery-gap"] {
        let (code, verdict) = drill(lab, "ai-core", &format!("mars/write --class {class}"));
        assert_eq!((code, refused(&verdict)), (5, "not_now"), "{class}");
        assert!(verdict["refused"]["text"].as_str().unwrap().contains(&id), "{verdict}");
    }
    let before = lab.run_of(UNIT);
    let order = lab.spawn("ai-core", "keyholder drill mars/write --class dead --wait 2m --json");
    wait("it was refused once more", SOON, || {
        (lab.records("mars", "refused", "mars/write", "").len() >= 4).then_some(())
    });
    assert_eq!(lab.run_of(UNIT), before);
    lab.open_gate();
    assert_eq!(lab.result("tasks:maintenance:mars", &id)["status"], "ok");
    let output = order.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{output:?}");
    assert_ne!(lab.run_of(UNIT), before);
}

fn a_halted_lane_that_nobody_helps_goes_on(lab: &Lab) {
    well(lab);
    let before = lab.run_of(UNIT);
    let (code, verdict) = unhelped(lab, "mars/write --class stuck --lease 2s");
    assert!(code == 1 && drilled(&verdict)["passed"] == false, "{verdict}");
    assert_eq!(lab.run_of(UNIT), before, "it goes on where it was: {verdict}");
    let id = lab.sh("ai-core", "keyholder run mars lab.read --no-wait").trim().to_owned();
    assert_eq!(lab.result("tasks:maintenance:mars", &id)["status"], "ok");
    wait("it is well again", SOON, || {
        (lab.worker("mars", "mars", "write")["class"] == "healthy").then_some(())
    });
}
