//! Lanes fall: deaf, frozen, behind a connection that is dead on one side, without their Redis, and with a supervisor that sees
//! nothing of it. What is found, what is done, by whom, and that nobody else is touched.

use crate::falls::{NODES, Part, open_redis, triangle};
use crate::harness::{Lab, SOON, repo, wait};
use crate::scene::{SECOND, all_along, monotonic_us};

const WRITE: &str = "keyholder-lane-write.service";
const READ: &str = "keyholder-lane-read.service";
const QUEUE: &str = "tasks:maintenance:mars";
/// A lane's claim gives an answer up after five seconds, so that it passes its loop well within these.
const CARE: &str = "stuck: { heartbeat: { older_than: 8s } }, delivery_gap: { backlog: { not_draining_for: 4s } }, grace: 2s, relaunches: 20";
const CATALOG: &str = r#"version: 1
node: venus
actions:
  lab.read: { mode: read, description: does nothing, argv: [/usr/bin/true] }
"#;

/// Installs lanes on every node, as the README has it: Redis and whoever gives tasks on `ai-core`. `mars` has `more` workers.
pub(crate) fn furnish(lab: &Lab, care: &str, more: &str) {
    open_redis(lab);
    lab.install();
    let key = lab.sh("ai-core", "keyholder key generate --task");
    let shipped = |node: &str| {
        std::fs::read_to_string(repo("catalogs").join(format!("catalog_{node}.yaml"))).expect("it is shipped")
    };
    let look = "\n  lab.read: { mode: read, description: does nothing, argv: [/usr/bin/true] }\n";
    for node in NODES {
        lab.write(node, "/root/catalogs/catalog_mars.yaml", &(shipped("mars") + look));
        lab.write(node, "/root/catalogs/catalog_ai-core.yaml", &shipped("ai-core"));
        lab.write(node, "/root/catalogs/catalog_venus.yaml", CATALOG);
    }
    let head = format!(
        "redis: {{ url: \"redis://ai-core:6379\" }}\ntask_keys: {{ ai-core: \"{}\" }}\nlanes: {{ read_routing: false }}\n",
        key.trim()
    );
    let lanes = format!("write: {{ lane: write, {care} }}\nread: {{ lane: read, {care} }}\n");
    let mars = format!("{lanes}{more}");
    let part = |workers| Part { workers, more: "" };
    let fleet = triangle(lab, &head, [part(&mars), part(&lanes), part(&lanes)]);
    lab.deploy_with(&fleet, "--catalogs /root/catalogs");
    lab.all_well();
}

/// The runs of all lanes.
fn runs(lab: &Lab) -> Vec<String> {
    lab.all_runs(&[WRITE, READ])
}

pub(crate) fn give(lab: &Lab) -> String {
    lab.sh("ai-core", "keyholder run mars lab.read --no-wait").trim().to_owned()
}

fn ran(lab: &Lab, id: &str) {
    let result = wait(&format!("{id} was run"), 40 * SECOND, || {
        let json = lab.sh("ai-core", &format!("redis-cli GET '{{{QUEUE}}}:result:{id}'"));
        serde_json::from_str::<serde_json::Value>(json.trim()).ok()
    });
    assert_eq!(result["status"], "ok", "{result}");
}

fn seen(lab: &Lab, at: &str, worker: &str, class: &str) -> serde_json::Value {
    wait(&format!("{at} sees {worker} {class}"), 30 * SECOND, || {
        let seen = lab.worker(at, "mars", worker);
        (seen["class"] == class).then_some(seen)
    })
}

/// What mars has found of a lane, oldest first.
fn found(lab: &Lab, class: &str) -> bool {
    let observed = lab.records("mars", "observed", "mars/write", "");
    observed.iter().any(|line| line.text.contains(&format!("-> {class}: ")))
}

fn deafen(lab: &Lab) {
    lab.sh("mars", &format!("systemctl kill -s USR2 --kill-whom=main {WRITE}"));
    wait("it plays deaf", SOON, || lab.property("mars", WRITE, "StatusText").contains("deaf").then_some(()));
}

#[test]
fn a_lane_that_falls_gets_what_helps_it_and_a_redis_that_falls_gets_nobody_restarted() {
    let lab = Lab::boot("lanefalls", &NODES);
    furnish(&lab, CARE, "");
    a_deaf_lane_hears_again(&lab);
    a_connection_that_is_dead_on_one_side_is_given_up(&lab);
    without_redis_there_is_one_cause_and_nobody_acts(&lab);
    what_its_own_node_cannot_see_is_seen_from_outside(&lab);
    a_frozen_supervisor_hides_nothing(&lab);
    a_frozen_lane_is_woken_in_vain_and_relaunched(&lab);
}

/// Whether this is a repipe, by a node or as one that a watcher ordered.
fn is_repipe(act: &str) -> bool {
    act.starts_with("mars: repipe: SIGHUP to keyholder-lane-")
        || act.contains("ordering a repipe as its watcher")
}

/// The watchers of mars in rank. By [`CARE`] a gap is one after four seconds, the first may order something two seconds later, and
/// each further one two seconds after that.
const TURNS: [(&str, u64); 2] = [("ai-core", 6_000_000), ("venus", 8_000_000)];

/// Makes the lane fall, and checks that repipes, and nothing else, bring it back, that no watcher acts before its turn, and who
/// acted. `fall` returns when work began to wait, by the kernel's clock. On a machine that stalls the next one may take the silence
/// of whoever is first for its absence, and is as right, so that who acted is seen in one of three falls.
fn repiped_in_turn(lab: &Lab, who: &str, fall: impl Fn(&Lab) -> u64, in_turn: impl Fn(&[String]) -> bool) {
    for _ in 0..3 {
        let (before, done) = (runs(lab), lab.all_acts());
        let began = fall(lab);
        lab.all_well();
        let acts = lab.acts_since(&done);
        assert!(!acts.is_empty() && acts.iter().all(|act| is_repipe(act)), "{acts:?}");
        assert_eq!(runs(lab), before);
        for (watcher, turn) in TURNS {
            let orders = lab.records(watcher, "acting", "mars/write", "");
            let early = orders.iter().find(|order| (began..began + turn).contains(&order.at));
            assert!(early.is_none(), "{watcher} before its turn, after {began}: {early:?}");
        }
        if in_turn(&acts) {
            return;
        }
        println!("not {who}: {acts:?}");
    }
    panic!("not {who}, three times");
}

fn a_deaf_lane_hears_again(lab: &Lab) {
    let fall = |lab: &Lab| {
        deafen(lab);
        let began = monotonic_us();
        let ids = [give(lab), give(lab)];
        for id in &ids {
            ran(lab, id);
        }
        began
    };
    repiped_in_turn(lab, "its own node, and once", fall, |acts| {
        acts.len() == 1
            && acts[0].starts_with("mars: repipe: SIGHUP to keyholder-lane-write")
            && found(lab, "delivery-gap")
    });
}

/// The packets of the connections that the lanes of mars have now are lost, in both directions; new ones get through.
fn a_connection_that_is_dead_on_one_side_is_given_up(lab: &Lab) {
    let (before, done) = (runs(lab), lab.all_acts());
    let uids = lab.sh("mars", "id -u keyholder-write keyholder-read");
    let sockets = lab.in_net("mars", &["ss", "-tnHe", "state", "established", "dst", "192.0.2.40:6379"]);
    let ports: Vec<&str> = sockets
        .lines()
        .filter(|line| uids.lines().any(|uid| line.contains(&format!("uid:{uid} "))))
        .filter_map(|line| line.split_whitespace().nth(2)?.rsplit(':').next())
        .collect();
    assert!(ports.len() >= 2, "each lane has one at least: {sockets}");
    let ports = ports.join(", ");
    lab.lose("mars", &[format!("tcp sport {{ {ports} }}")], &[format!("tcp dport {{ {ports} }}")]);
    let id = give(lab);
    ran(lab, &id);
    lab.all_well();
    lab.find_again("mars");
    let acts = lab.acts_since(&done);
    assert!(acts.iter().all(|act| is_repipe(act)), "{acts:?}");
    assert_eq!(runs(lab), before, "a new connection was enough");
    println!("half-open connections: {ports}; acts: {acts:?}");
}

fn without_redis_there_is_one_cause_and_nobody_acts(lab: &Lab) {
    let (before, done) = (runs(lab), lab.all_acts());
    lab.sh("ai-core", "systemctl stop redis-server");
    for node in NODES {
        wait(&format!("{node} says what is wrong, once"), 20 * SECOND, || {
            let report = lab.node("venus", node);
            let degraded = report["degraded"].as_array()?;
            let workers = report["workers"].as_array()?;
            let one = degraded.len() == 1
                && degraded[0].as_str()?.contains("whether 2 workers make progress cannot be seen");
            (one && workers.iter().all(|worker| worker["class"] == "unknown")).then_some(())
        });
    }
    all_along("nobody is nudged, repiped or relaunched", 30 * SECOND, || lab.acts_since(&done).is_empty());
    for node in NODES {
        for worker in ["write", "read"] {
            // A status that does not come in time says nothing.
            wait(&format!("{node}/{worker} is unknown still"), SOON, || {
                let class = lab.class("ai-core", node, worker);
                assert!(class == "unknown" || class.is_null(), "{node}/{worker}: {class}");
                (class == "unknown").then_some(())
            });
        }
    }
    lab.sh("ai-core", "systemctl start redis-server");
    let id = give(lab);
    ran(lab, &id);
    lab.all_well();
    for node in NODES {
        wait(&format!("{node} is whole"), SOON, || {
            (lab.node(node, node)["degraded"] == serde_json::json!([])).then_some(())
        });
    }
    assert_eq!((runs(lab), lab.acts_since(&done)), (before, Vec::new()));
}

/// Only the supervisor's way to Redis is cut, so that it is blind, and the lane is deaf.
fn what_its_own_node_cannot_see_is_seen_from_outside(lab: &Lab) {
    let fall = |lab: &Lab| {
        lab.hide_redis_from_root("mars");
        seen(lab, "mars", "write", "unknown");
        deafen(lab);
        let began = monotonic_us();
        ran(lab, &give(lab));
        lab.find_again("mars");
        began
    };
    repiped_in_turn(lab, "the first in rank, and once", fall, |acts| {
        acts.len() == 2
            && acts[0].starts_with("mars: repipe: SIGHUP")
            && acts[0].contains("ai-core")
            && acts[1].starts_with("ai-core: ")
            && acts[1].contains("as seen from ai-core: ordering a repipe as its watcher")
    });
}

/// It is systemd's watchdog that ends a supervisor that hangs; until then the neighbours see its lanes.
fn a_frozen_supervisor_hides_nothing(lab: &Lab) {
    let fall = |lab: &Lab| {
        let supervisor = lab.property("mars", "keyholder.service", "InvocationID");
        // It has no task yet, so that the supervisor has nothing to find before it is frozen.
        deafen(lab);
        let frozen = monotonic_us();
        lab.sh(
            "mars",
            "systemctl service-watchdogs no; systemctl kill -s STOP --kill-whom=main keyholder.service",
        );
        let began = monotonic_us();
        let id = give(lab);
        for at in ["ai-core", "venus"] {
            let worker = seen(lab, at, "write", "delivery_gap");
            assert!(worker["why"].as_str().is_some_and(|why| why.contains("from outside")), "{worker}");
            lab.until_state(at, "mars", "supervisor_dead");
        }
        end_by_watchdog(lab, frozen);
        lab.new_run("mars", "keyholder.service", &supervisor, 30 * SECOND);
        ran(lab, &id);
        began
    };
    repiped_in_turn(lab, "once, by the first in rank or by its own new supervisor", fall, |acts| {
        let on_mars: Vec<&String> = acts.iter().filter(|act| act.starts_with("mars: ")).collect();
        on_mars.len() == 1 && on_mars[0].starts_with("mars: repipe: SIGHUP")
    });
}

/// Lets systemd's watchdogs bite again. One that was due meanwhile, because all that took so long, does not come a second time.
fn end_by_watchdog(lab: &Lab, since: u64) {
    lab.sh("mars", "systemctl service-watchdogs yes; journalctl --sync");
    let missed = lab.sh(
        "mars",
        "journalctl -b -o json --no-pager _PID=1 UNIT=keyholder.service -g 'Ignoring watchdog' || :",
    );
    let at = |line: &str| {
        let entry: serde_json::Value = serde_json::from_str(line).ok()?;
        entry["__MONOTONIC_TIMESTAMP"].as_str()?.parse::<u64>().ok()
    };
    if missed.lines().filter_map(at).any(|at| at > since) {
        println!("its watchdog was due before both had seen it");
        lab.sh("mars", "systemctl kill -s KILL keyholder.service");
    }
}

fn a_frozen_lane_is_woken_in_vain_and_relaunched(lab: &Lab) {
    let (before, done) = (runs(lab), lab.all_acts());
    let run = lab.run_of(WRITE);
    // Its own watchdog would be the first where all this takes half a minute.
    lab.sh(
        "mars",
        &format!("systemctl service-watchdogs no; systemctl kill -s STOP --kill-whom=main {WRITE}"),
    );
    lab.new_run("mars", WRITE, &run, 60 * SECOND);
    lab.sh("mars", "systemctl service-watchdogs yes");
    assert!(found(lab, "stuck"));
    let id = give(lab);
    ran(lab, &id);
    lab.all_well();
    let acts = lab.acts_since(&done);
    // What a stall hides from whoever verifies a nudge is nudged once more.
    let (on_mars, orders): (Vec<&String>, Vec<&String>) =
        acts.iter().partition(|act| act.starts_with("mars: "));
    let (last, first) = on_mars.split_last().expect("an act");
    let in_turn = !first.is_empty()
        && first.iter().all(|act| act.starts_with("mars: nudge: SIGUSR1"))
        && last.starts_with("mars: relaunching");
    assert!(in_turn && orders.iter().all(|act| act.contains("as its watcher")), "{acts:?}");
    let after = runs(lab);
    assert_eq!(
        (&before[1..], before[0].split(' ').next_back()),
        (&after[1..], after[0].split(' ').next_back()),
        "nobody else"
    );
}
