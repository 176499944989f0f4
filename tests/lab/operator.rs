//! An operator's stop that comes while systemd or keyholder is busy with the unit: it is respected like any other.

use std::time::Duration;

use crate::harness::{Lab, SOON, wait};
use crate::scene::{all_along, house};

/// After how long a stop that nobody declared is undone.
const UNDECLARED: Duration = Duration::from_secs(20);
/// How many units are stopped in each state.
const EACH: usize = 8;

/// systemd waits for a long time until it restarts it.
const AUTO: &str =
    "# not started\n[Service]\nExecStart=/bin/sleep infinity\nRestart=always\nRestartSec=600\n";
/// Is starting for as long as the gate is there.
const PRE: &str = "# not started\n[Service]\n\
    ExecStartPre=/bin/sh -c 'while [ -e /run/%p.gate ]; do sleep 0.1; done'\nExecStart=/bin/sleep infinity\n";
/// Ends well when it is stopped while it starts, as many daemons do.
const POLITE: &str = "# not started\n[Service]\nType=notify\nNotifyAccess=all\n\
    ExecStart=/bin/sh -c 'trap \"exit 0\" TERM; while [ -e /run/%p.gate ]; do sleep 0.1; done; systemd-notify --ready; while :; do sleep 0.1; done'\n";

const STATES: [&str; 4] = ["auto", "pre", "polite", "ours"];

fn names(kind: &str) -> Vec<String> {
    (1..=if kind == "ours" { 2 } else { EACH }).map(|n| format!("{kind}{n}")).collect()
}

fn units(kind: &str) -> String {
    names(kind).iter().map(|name| name.replacen(kind, &format!("{kind}@"), 1)).collect::<Vec<_>>().join(" ")
}

#[test]
fn a_stop_in_the_middle_of_a_restart_or_of_a_start_is_respected_like_any_other() {
    let files = [("auto", AUTO), ("pre", PRE), ("polite", POLITE), ("ours", PRE)];
    let files: Vec<(String, String)> =
        files.iter().map(|(kind, body)| (format!("{kind}@.service"), (*body).to_owned())).collect();
    let files: Vec<(&str, String)> = files.iter().map(|(unit, body)| (unit.as_str(), body.clone())).collect();
    let workers: String = STATES
        .iter()
        .flat_map(|kind| names(kind).into_iter().map(move |name| (kind, name)))
        .map(|(kind, name)| {
            let unit = name.replacen(kind, &format!("{kind}@"), 1);
            format!("{name}: {{ unit: {unit}.service, undeclared_stop: {}s }}\n", UNDECLARED.as_secs())
        })
        .collect();
    let lab = house("operator", &["mars", "ai-core"], &files, &workers);
    let all = || STATES.iter().flat_map(|kind| names(kind));
    let classes = |what: &str, wanted: &dyn Fn(&serde_json::Value) -> bool, names: &[String]| {
        wait(what, SOON, || {
            let node = lab.node("mars", "mars");
            let seen = node["workers"].as_array()?;
            let of = |name: &String| seen.iter().find(|seen| seen["worker"] == **name);
            names.iter().all(|name| of(name).is_some_and(wanted)).then_some(())
        });
    };
    let everybody: Vec<String> = all().collect();
    classes("all are up", &|seen| seen["class"] == "healthy", &everybody);

    // In the wait for systemd's own restart, in a start that an operator ordered, and in one that the supervisor ordered.
    lab.sh("mars", "touch /run/pre.gate /run/polite.gate /run/ours.gate");
    let (auto, pre, polite, ours) = (units("auto"), units("pre"), units("polite"), units("ours"));
    lab.sh(
        "mars",
        &format!("systemctl kill -s KILL {auto} {ours}; systemctl restart --no-block {pre} {polite}"),
    );
    classes("all are in transition", &|seen| seen["class"] == "starting", &everybody);
    wait("systemd waits or starts", SOON, || {
        let states = lab.sh("mars", &format!("systemctl show -P SubState {auto} {pre} {polite} {ours}"));
        let busy = |state: &str| ["auto-restart", "start-pre", "start"].contains(&state);
        states.lines().filter(|line| !line.is_empty()).all(busy).then_some(())
    });
    let begun = relaunches(&lab);
    lab.sh("mars", &format!("systemctl stop {auto} {pre} {polite} {ours}; rm /run/*.gate"));
    let stopped = |seen: &serde_json::Value| {
        seen["class"] == "dead"
            && !seen["due_in_ms"].is_null()
            && seen["why"].as_str().is_some_and(|why| why.contains("stopped by an operator or a program"))
    };
    classes("all count as stopped", &stopped, &everybody);
    let down = || down(&lab, &everybody);
    // A new supervisor has but the units' properties to go by, and what the one before it knew.
    lab.sh("mars", "systemctl restart keyholder.service");
    all_along("they are left alone", UNDECLARED / 3, down);
    assert_eq!(relaunches(&lab), begun, "relaunches before and after the stop");
    let alerts = lab.evidence("mars", "alert");
    for unit in STATES.iter().flat_map(|kind| units(kind).split(' ').map(str::to_owned).collect::<Vec<_>>()) {
        let word = format!("{unit}.service was stopped and no hold was declared");
        assert_eq!(alerts.iter().filter(|alert| alert.starts_with(&word)).count(), 1, "{unit}: {alerts:?}");
    }
    classes("all are brought back when it is due", &|seen| seen["class"] == "healthy", &everybody);
    assert_eq!(relaunches(&lab).len(), begun.len() + everybody.len(), "each once");
}

/// The supervisor's relaunches so far.
fn relaunches(lab: &Lab) -> Vec<String> {
    let mut acting = lab.evidence("mars", "acting");
    acting.retain(|line| line.starts_with("relaunching"));
    acting
}

fn down(lab: &Lab, names: &[String]) -> bool {
    let units: Vec<String> = names
        .iter()
        .map(|name| {
            let at = name.find(|c: char| c.is_ascii_digit()).expect("a number");
            format!("{}@{}", &name[..at], &name[at..])
        })
        .collect();
    let states = lab.sh("mars", &format!("systemctl show -P ActiveState {}", units.join(" ")));
    states.lines().filter(|line| !line.is_empty()).all(|state| state == "inactive" || state == "failed")
}
