//! Rehearsals on real nodes: a worker is broken on purpose, its detector finds it, and the host next door brings it back.

use std::process::Child;

use serde_json::Value;

use crate::harness::{Lab, SOON, service, wait};
use crate::scene::{SECOND, all_along, house};

/// One rehearsal, as its reply in JSON.
pub(crate) fn drill(lab: &Lab, at: &str, what: &str) -> (i32, Value) {
    let output = lab.try_sh(at, &format!("keyholder drill {what} --json"));
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let verdict = said.lines().next().unwrap_or_default();
    let verdict = serde_json::from_str(verdict)
        .unwrap_or_else(|_| panic!("{what}: {said:?} {}", String::from_utf8_lossy(&output.stderr)));
    println!("{at}: drill {what}: {verdict}");
    (output.status.code().expect("an exit code"), verdict)
}

pub(crate) fn drilled(verdict: &Value) -> &Value {
    &verdict["outcome"]["drilled"]
}

pub(crate) fn refused(verdict: &Value) -> &str {
    verdict["refused"]["code"].as_str().unwrap_or_else(|| panic!("no refusal: {verdict}"))
}

fn see_each_other(lab: &Lab) {
    wait("they see each other", SOON, || {
        (lab.node("mars", "ai-core")["state"] == "up" && lab.node("ai-core", "mars")["state"] == "up")
            .then_some(())
    });
}

/// A rehearsal on `mars` whose watcher is there when it begins, and then hangs: its connections are open, and it orders nothing. Its
/// silence is noticed within seconds, and where the rehearsal was not begun before that, it is refused: then once more.
pub(crate) fn unhelped(lab: &Lab, what: &str) -> (i32, Value) {
    for _ in 0..3 {
        see_each_other(lab);
        lab.sh("ai-core", "systemctl kill -s STOP keyholder");
        let (code, verdict) = drill(lab, "mars", what);
        lab.sh("ai-core", "systemctl kill -s CONT keyholder");
        if verdict["refused"]["code"] != "not_now" {
            return (code, verdict);
        }
    }
    panic!("{what}: the watcher's silence was noticed sooner, three times");
}

/// The same for a rehearsal that goes on when this returns: `cut` takes the helper away, `heal` gives it back, `order` is what is run
/// on `at`. Returns the order, and the run of `unit` that it has ended.
fn begun(
    lab: &Lab,
    unit: &str,
    heal: impl Fn(),
    cut: impl Fn(),
    (at, order): (&str, &str),
) -> (Child, String) {
    for _ in 0..3 {
        see_each_other(lab);
        let before = lab.run_of(unit);
        cut();
        let mut order = lab.spawn(at, order);
        let broken = wait("it is broken, or not", SOON, || {
            let state = lab.property("mars", unit, "ActiveState");
            if state == "failed" || state == "inactive" || lab.run_of(unit) != before {
                return Some(true);
            }
            order.try_wait().expect("it can be waited for").map(|_| false)
        });
        if broken {
            return (order, before);
        }
        println!("not begun: {:?}", order.wait_with_output());
        heal();
    }
    panic!("{order:?}: the silence was noticed sooner, three times");
}

const WORKERS: &str = "
    agent:   { unit: agent.service }
    other:   { unit: other.service }
    vital:   { unit: vital.service, blast_radius: critical }
    nobody:  { unit: nobody.service, repair_by: nobody }
";

#[test]
fn a_worker_that_is_stopped_on_purpose_is_brought_back_from_next_door() {
    let units = ["agent", "other", "vital", "nobody"].map(|name| (format!("{name}.service"), service("")));
    let units: Vec<(&str, String)> = units.iter().map(|(name, body)| (name.as_str(), body.clone())).collect();
    let lab = house("drills", &["mars", "ai-core"], &units, WORKERS);

    found_and_repaired(&lab);
    what_must_not_be_broken_is_not(&lab);
    nobody_comes_and_the_node_restores_it(&lab);
    a_supervisor_that_dies_in_the_middle_leaves_nothing_broken(&lab);
}

#[test]
fn a_fleet_rehearses_all_that_it_promises_from_next_door() {
    let units = ["agent", "vital"].map(|name| (format!("{name}.service"), service("")));
    let units: Vec<(&str, String)> = units.iter().map(|(name, body)| (name.as_str(), body.clone())).collect();
    let workers = "
        agent: { unit: agent.service }
        vital: { unit: vital.service, blast_radius: critical }
    ";
    let lab = house("drills-all", &["mars", "ai-core"], &units, workers);

    a_supervisor_is_killed_and_the_knock_brings_it_back(&lab);
    the_timer_rehearses_what_is_most_due(&lab);
    everything_at_once_is_a_table(&lab);
    a_watcher_that_vanishes_leaves_no_supervisor_dead(&lab);
}

#[test]
fn with_several_watchers_one_repair_is_enough_and_a_third_node_that_is_down_forbids_it() {
    let units = [("agent.service", service(""))];
    let lab = house("drills-three", &["mars", "ai-core", "venus"], &units, "agent: { unit: agent.service }");
    let starts = lab.starts("agent.service");
    let (code, verdict) = drill(&lab, "venus", "mars/agent --class dead");
    let by = drilled(&verdict)["by"].as_str().unwrap_or_default().to_owned();
    assert!(code == 0 && (by == "ai-core" || by == "venus"), "{verdict}");
    assert_eq!(lab.starts("agent.service"), starts + 1, "it came up once");

    // Seen from mars only: ai-core does not watch venus, and mars does not pass such an order on.
    let before = lab.property("ai-core", "keyholder.service", "InvocationID");
    lab.lab(&["unplug", "venus"]);
    wait("mars misses venus", SOON, || (lab.node("mars", "venus")["state"] == "unreachable").then_some(()));
    let (code, verdict) = drill(&lab, "mars", "ai-core --class supervisor-dead");
    assert_eq!((code, refused(&verdict)), (5, "not_now"));
    let (code, verdict) = drill(&lab, "ai-core", "mars/agent --class dead");
    assert_eq!((code, refused(&verdict)), (5, "not_now"));
    assert!(verdict["refused"]["text"].as_str().unwrap().contains("venus is unreachable"), "{verdict}");
    assert_eq!(lab.starts("agent.service"), starts + 1);
    assert_eq!(lab.property("ai-core", "keyholder.service", "InvocationID"), before);
}

fn supervisor(lab: &Lab) -> String {
    lab.property("mars", "keyholder.service", "InvocationID")
}

fn a_supervisor_is_killed_and_the_knock_brings_it_back(lab: &Lab) {
    let (before, agent) = (supervisor(lab), lab.run_of("agent.service"));
    let (code, verdict) = drill(lab, "ai-core", "mars --class supervisor-dead");
    let report = drilled(&verdict);
    assert!(code == 0 && report["passed"] == true && report["by"] == "ai-core", "{verdict}");
    assert!(report["repair_us"].is_u64(), "{verdict}");
    assert_ne!(supervisor(lab), before);
    assert_eq!(lab.run_of("agent.service"), agent, "its workers ran on");
    // It died of SIGKILL, and it was the knock that started it, not systemd's own Restart=.
    let journal =
        lab.sh("mars", "journalctl --sync; journalctl -b -o cat --no-pager _PID=1 UNIT=keyholder.service");
    assert!(
        journal.contains("code=killed, status=9/KILL") && !journal.contains("Scheduled restart"),
        "{journal}"
    );
    let shown = wait("ai-core remembers", SOON, || {
        lab.node("ai-core", "ai-core")["rehearsed"].as_array()?.first().cloned()
    });
    assert!(
        shown["node"] == "mars" && shown["class"] == "supervisor-dead" && shown["passed"] == true,
        "{shown}"
    );
    // Nobody but a watcher can see it.
    let (code, verdict) = drill(lab, "mars", "mars --class supervisor-dead");
    assert_eq!((code, refused(&verdict)), (5, "wrong_node"));
}

fn the_timer_rehearses_what_is_most_due(lab: &Lab) {
    for node in ["mars", "ai-core"] {
        let installed = lab.sh(node, "journalctl -b -o cat --no-pager _PID=1 UNIT=keyholder-drill.timer");
        assert!(installed.contains("Started keyholder-drill.timer"), "{node}: {installed}");
        assert_eq!(lab.property(node, "keyholder-drill.timer", "UnitFileState"), "enabled", "{node}");
    }
    let before = ["agent.service", "vital.service"].map(|unit| lab.run_of(unit));
    lab.sh("ai-core", "systemctl start keyholder-drill.service");
    let after = ["agent.service", "vital.service"].map(|unit| lab.run_of(unit));
    assert!(
        after[0] != before[0] && after[1] == before[1],
        "the critical one is left alone: {before:?} {after:?}"
    );
    let said =
        lab.sh("ai-core", "journalctl --sync; journalctl -o cat --no-pager -u keyholder-drill.service");
    assert!(said.contains("rehearsal of dead with mars/agent passed"), "{said}");
    // Refused is not failed.
    lab.sh("mars", "keyholder hold mars/agent --for 10m --why deploy");
    let (code, _) = lab.tell("ai-core", "keyholder drill mars/agent --class dead");
    assert_eq!(code, 5);
    lab.sh("mars", "keyholder release mars/agent");
}

fn everything_at_once_is_a_table(lab: &Lab) {
    let (code, said) = lab.tell("ai-core", "keyholder drill --all");
    println!("{said}");
    assert_eq!(code, 0, "{said}");
    let row = |start: &str| {
        let found = said.lines().find(|line| line.split_whitespace().take(2).eq(start.split(' ')));
        found.unwrap_or_else(|| panic!("no row {start}: {said}")).to_owned()
    };
    assert!(row("mars/agent dead").contains("passed"), "{said}");
    assert!(row("mars supervisor-dead").contains("passed"), "{said}");
    assert!(row("mars/vital dead").contains("left out"), "{said}");
    // Not even with --yes from next door; root on its own node may.
    let vital = lab.run_of("vital.service");
    let (code, said) = lab.tell("ai-core", "keyholder drill mars/vital --class dead --yes");
    assert!(code == 5 && said.contains("root on its own node"), "{said}");
    assert_eq!(lab.run_of("vital.service"), vital);
    let (code, said) = lab.tell("mars", "keyholder drill mars/vital --class dead --yes --wait 30s");
    assert!(code == 0 && said.contains("passed"), "{said}");
    peers_have_their_share(lab);
    let (_, matrix) = lab.tell("ai-core", "keyholder matrix");
    println!("{matrix}");
    assert!(!matrix.contains("keyholder drill mars"), "nothing of mars is left to be rehearsed: {matrix}");
}

/// Two rehearsals of the agent were asked for from next door by now; the third is the last for an hour, also for a new run of the
/// supervisor. Its lease is the node's own whatever the peer says, and root on the node goes on.
fn peers_have_their_share(lab: &Lab) {
    let (code, said) = lab.tell("ai-core", "keyholder drill mars/agent --class dead --lease 10m --wait 30s");
    assert!(code == 0 && said.contains("passed"), "{said}");
    let began = lab.records("mars", "acting", "mars/agent", "");
    let began = began.iter().rev().find(|line| line.text.starts_with("rehearsal of")).expect("an act");
    assert!(!began.text.contains("at most for 10m"), "{began:?}");
    lab.sh("mars", "systemctl restart keyholder");
    see_each_other(lab);
    let before = lab.run_of("agent.service");
    let (code, said) = lab.tell("ai-core", "keyholder drill mars/agent --class dead");
    assert!(code == 5 && said.contains("3 rehearsals of it within an hour"), "{said}");
    assert_eq!(lab.run_of("agent.service"), before);
    let (code, said) = lab.tell("mars", "keyholder drill mars/agent --class dead --wait 30s");
    assert!(code == 0 && said.contains("passed"), "{said}");
}

/// The watcher's order arrives, and from then on nothing of the node gets out: no knock comes in, and a timer of PID 1 starts
/// the supervisor when the lease ends.
fn a_watcher_that_vanishes_leaves_no_supervisor_dead(lab: &Lab) {
    let (heal, cut) = (|| drop(lab.lab(&["heal", "mars"])), || drop(lab.lab(&["loss", "mars", "out"])));
    let order = ("ai-core", "exec keyholder drill mars --class supervisor-dead --lease 4s");
    let (order, before) = begun(lab, "keyholder.service", heal, cut, order);
    lab.new_run("mars", "keyholder.service", &before, SOON);
    heal();
    let output = order.wait_with_output().expect("it ends");
    assert!(!output.status.success(), "{output:?}");
    wait("all is as it was", SOON, || (lab.node("ai-core", "mars")["state"] == "up").then_some(()));
}

fn found_and_repaired(lab: &Lab) {
    let (before, starts) = (lab.run_of("agent.service"), lab.starts("agent.service"));
    let others = ["other.service", "vital.service"].map(|unit| lab.run_of(unit));
    let (code, verdict) = drill(lab, "mars", "mars/agent --class dead");
    let report = drilled(&verdict);
    assert!(code == 0 && report["passed"] == true && report["by"] == "ai-core", "{verdict}");
    assert!(report["detect_us"].is_u64() && report["repair_us"].is_u64(), "{verdict}");
    assert_ne!(lab.run_of("agent.service"), before);
    assert_eq!(lab.starts("agent.service"), starts + 1, "it came up once");
    assert_eq!(
        ["other.service", "vital.service"].map(|unit| lab.run_of(unit)),
        others,
        "nothing else was touched"
    );
    let act = lab.records("mars", "acting", "mars/agent", "").pop().expect("an act");
    assert!(act.text.starts_with("relaunching") && act.text.contains("ai-core"), "{act:?}");
    // It is no fall: the flap guard does not count it, and nobody is woken.
    assert!(lab.evidence("mars", "alert").iter().all(|line| !line.contains("agent")), "an alert");
    for _ in 0..3 {
        let (code, verdict) = drill(lab, "mars", "mars/agent --class dead --wait 30s");
        assert!(code == 0 && drilled(&verdict)["passed"] == true, "{verdict}");
    }
    for at in ["mars", "ai-core"] {
        let shown = wait(&format!("{at} shows it"), SOON, || {
            let worker = lab.worker(at, "mars", "agent");
            let last = worker["rehearsed"].as_array()?.first()?.clone();
            (worker["drill"].is_null()).then_some(last)
        });
        assert!(shown["class"] == "dead" && shown["passed"] == true && shown["by"] == "ai-core", "{shown}");
    }
    let before = lab.worker("mars", "mars", "agent")["rehearsed"][0].clone();
    lab.sh("mars", "systemctl restart keyholder");
    let after = wait("it is remembered", SOON, || {
        lab.worker("mars", "mars", "agent")["rehearsed"].as_array()?.first().cloned()
    });
    assert!(after["ago_ms"].as_u64() >= before["ago_ms"].as_u64(), "{before} {after}");
}

fn what_must_not_be_broken_is_not(lab: &Lab) {
    see_each_other(lab);
    let runs = || ["agent.service", "vital.service", "nobody.service"].map(|unit| lab.run_of(unit));
    let before = runs();
    for (what, why) in [
        ("mars/vital --class dead", "critical"),
        ("mars/nobody --class dead", "not_configured"),
        ("mars/agent --class stuck", "not_configured"),
        ("mars/agent --class delivery-gap", "not_configured"),
    ] {
        let (code, verdict) = drill(lab, "mars", what);
        assert_eq!((code, refused(&verdict)), (5, why), "{what}");
    }
    lab.sh("mars", "keyholder hold mars/agent --for 10m --why deploy");
    assert_eq!(refused(&drill(lab, "mars", "mars/agent --class dead").1), "held");
    lab.sh("mars", "keyholder release mars/agent");
    // Something else is down.
    lab.sh("mars", "systemctl kill -s KILL nobody");
    wait("nobody is dead", SOON, || (lab.worker("mars", "mars", "nobody")["class"] == "dead").then_some(()));
    assert_eq!(refused(&drill(lab, "mars", "mars/agent --class dead").1), "not_now");
    lab.sh("mars", "systemctl start nobody");
    wait("nobody is up", SOON, || (lab.worker("mars", "mars", "nobody")["class"] == "healthy").then_some(()));
    // Whoever would repair it is not there.
    lab.sh("ai-core", "systemctl stop keyholder.socket keyholder.service");
    wait("ai-core is missed", SOON, || (lab.node("mars", "ai-core")["state"] != "up").then_some(()));
    assert_eq!(refused(&drill(lab, "mars", "mars/agent --class dead").1), "not_now");
    assert_eq!(runs()[..2], before[..2]);
    lab.sh("ai-core", "systemctl start keyholder.socket keyholder.service");
    see_each_other(lab);
}

fn nobody_comes_and_the_node_restores_it(lab: &Lab) {
    let before = lab.run_of("agent.service");
    let (code, verdict) = unhelped(lab, "mars/agent --class dead --lease 2s");
    let report = drilled(&verdict);
    assert!(code == 1 && report["passed"] == false && report["by"].is_null(), "{verdict}");
    assert!(report["why"].as_str().unwrap().contains("no watcher brought it back"), "{verdict}");
    assert_ne!(lab.run_of("agent.service"), before, "it is back all the same");
    assert_eq!(lab.property("mars", "agent.service", "ActiveState"), "active");
    let act = lab.records("mars", "acting", "mars/agent", "").pop().expect("an act");
    assert!(act.text.contains("its rehearsal is over"), "{act:?}");
    wait("somebody hears of it", SOON, || {
        lab.evidence("mars", "alert")
            .iter()
            .any(|line| line.contains("rehearsal of dead FAILED"))
            .then_some(())
    });
    see_each_other(lab);
}

fn a_supervisor_that_dies_in_the_middle_leaves_nothing_broken(lab: &Lab) {
    let signal = |signal: &str| drop(lab.sh("ai-core", &format!("systemctl kill -s {signal} keyholder")));
    let order = ("mars", "exec keyholder drill mars/agent --class dead --lease 5m");
    let (order, before) = begun(lab, "agent.service", || signal("CONT"), || signal("STOP"), order);
    lab.sh("mars", "systemctl kill -s KILL keyholder");
    let run = lab.new_run("mars", "agent.service", &before, SOON);
    signal("CONT");
    let output = order.wait_with_output().expect("it ends");
    assert!(!output.status.success(), "its supervisor is gone: {output:?}");
    let shown = wait("it is known to have failed", SOON, || {
        let worker = lab.worker("mars", "mars", "agent");
        let last = worker["rehearsed"].as_array()?.first()?.clone();
        (worker["drill"].is_null() && last["passed"] == false).then_some(last)
    });
    assert!(shown["why"].as_str().unwrap().contains("started again"), "{shown}");
    all_along("it is left alone from then on", 2 * SECOND, || lab.run_of("agent.service") == run);
}
