//! Many at once, and one again and again: what fell by accident comes back, what keeps falling is tried slowly, and what has a
//! common cause is left alone until somebody mends that.

use std::fmt::Write as _;
use std::time::Duration;

use crate::falls::{NODES, Part, triangle};
use crate::harness::{Lab, SOON, service, wait};
use crate::scene::{SECOND, all_along};

/// How many crash at once.
const MANY: usize = 20;
/// How many beat, and how many of those hang together.
const BEATING: usize = 5;
const HANGING: usize = 4;

/// Touches its file ten times a second, but not while what it waits for is not there.
const LOOP: &str = r#"#!/bin/sh
while :; do
    while [ -e "/run/$2" ]; do sleep 0.1; done
    : >"/run/$1.beat"
    sleep 0.1
done
"#;
/// Dies a second after each start, until it is repaired.
const FLAPPER: &str = "[Service]\nExecStart=/bin/sh -c 'until [ -e /run/flapper.falls ]; do sleep 0.1; done; \
    [ -e /run/flapper.mended ] && exec sleep infinity; sleep 1; exit 1'\n";

fn many() -> impl Iterator<Item = String> {
    (1..=MANY).map(|n| format!("many{n:02}"))
}

fn beating() -> impl Iterator<Item = String> {
    (1..=BEATING).map(|n| format!("beats{n}"))
}

#[test]
fn a_storm_is_weathered_and_a_common_cause_is_named_and_not_fought() {
    let lab = Lab::boot("storms", &NODES);
    // The crowd is on mars, those that hang together on ai-core: the brake counts everybody who is up on a node.
    let mut mars =
        String::from("flapper: { unit: flapper.service, settle: 2s, relaunches: 3, quarantine_retry: 2s }\n");
    for name in many() {
        lab.write("mars", &format!("/etc/systemd/system/{name}.service"), &service(""));
        let _ = writeln!(mars, "{name}: {{ unit: {name}.service }}");
    }
    lab.write("mars", "/etc/systemd/system/flapper.service", FLAPPER);
    lab.sh("mars", "systemctl daemon-reload; cd /etc/systemd/system; systemctl start flapper many*.service");
    lab.write("ai-core", "/usr/local/bin/loop", LOOP);
    lab.sh("ai-core", "chmod 755 /usr/local/bin/loop");
    let mut core = String::new();
    for (n, name) in beating().enumerate() {
        let waits_for = if n < HANGING { "line.down" } else { "nothing" };
        let unit = format!("[Service]\nExecStart=/usr/local/bin/loop {name} {waits_for}\n");
        lab.write("ai-core", &format!("/etc/systemd/system/{name}.service"), &unit);
        let _ = writeln!(
            core,
            "{name}: {{ unit: {name}.service, stuck: {{ heartbeat: {{ file: /run/{name}.beat, older_than: 10s }}, nudge: {{ signal: SIGUSR1 }} }} }}"
        );
    }
    lab.sh("ai-core", "systemctl daemon-reload; cd /etc/systemd/system; systemctl start beats*.service");
    lab.install();
    let part = |workers| Part { workers, more: "" };
    lab.deploy(&triangle(&lab, "", [part(&mars), part(&core), Part::default()]));
    lab.all_well();

    twenty_crash_at_once(&lab);
    // It takes a while until they are seen to hang: a supervisor that did not look for half the time begins anew.
    let runs = beating_runs(&lab);
    assert_eq!(lab.evidence("ai-core", "alert"), Vec::<String>::new());
    lab.sh("ai-core", "touch /run/line.down");
    what_keeps_falling_is_tried_slowly_and_told_once(&lab);
    what_hangs_together_is_left_alone(&lab, &runs);
    assert_eq!(lab.evidence("venus", "acting"), Vec::<String>::new());
}

fn twenty_crash_at_once(lab: &Lab) {
    let before: Vec<String> = many().map(|name| lab.run_of(&format!("{name}.service"))).collect();
    lab.sh(
        "mars",
        "kill -KILL $(cd /etc/systemd/system; for unit in many*; do systemctl show -P MainPID $unit; done)",
    );
    let names: Vec<String> = many().collect();
    for (name, before) in names.iter().zip(&before) {
        lab.new_run("mars", &format!("{name}.service"), before, SOON);
    }
    wait("all have stayed up", SOON, || {
        let acted = lab.evidence("mars", "acted");
        (acted.iter().filter(|act| act.contains("many") && act.contains("stayed up")).count() == MANY)
            .then_some(())
    });
    let mut at: Vec<u64> = Vec::new();
    for name in &names {
        let acts = lab.records("mars", "acting", &format!("mars/{name}"), "");
        assert_eq!(acts.len(), 1, "{name} once: {acts:?}");
        at.push(acts[0].at);
    }
    at.sort_unstable();
    // How they are spread is shown by the judge's own tests: a supervisor that gets no processor for two seconds finds all
    // of them due.
    println!("twenty came back within {:?}", Duration::from_micros(at[MANY - 1] - at[0]));
    assert_eq!(lab.evidence("ai-core", "acting"), Vec::<String>::new(), "its watchers had nothing to do");
}

fn what_keeps_falling_is_tried_slowly_and_told_once(lab: &Lab) {
    let alerts = || lab.records("mars", "alert", "mars/flapper", "");
    let acts = || lab.records("mars", "acting", "mars/flapper", "");
    lab.sh("mars", "touch /run/flapper.falls");
    wait("it is in quarantine, as venus sees it", 2 * SOON, || {
        (lab.worker("venus", "mars", "flapper")["quarantined"] == true).then_some(())
    });
    let alert = wait("it is loud", SOON, || alerts().pop());
    assert!(alert.text.contains("quarantine"), "{alert:?}");
    assert_eq!(acts().iter().filter(|act| act.at < alert.at).count(), 3, "its budget, and no more");
    wait("it is tried twice in quarantine", 2 * SOON, || (acts().len() >= 5).then_some(()));
    // The first three are its budget.
    let slow = lab.recorded("mars", "acting", "mars/flapper");
    let gap = slow[4].0.saturating_sub(slow[3].0);
    assert!(gap >= 3 * SECOND, "a second up and two of rest, but {gap:?}");
    lab.sh("mars", "touch /run/flapper.mended");
    wait("it is back to normal by itself, as venus sees it", 2 * SOON, || {
        let seen = lab.worker("venus", "mars", "flapper");
        (seen["class"] == "healthy" && seen["quarantined"] == false).then_some(())
    });
    assert_eq!(alerts().len(), 1, "one alert for all of it: {:?}", alerts());
}

fn beating_runs(lab: &Lab) -> Vec<String> {
    beating().map(|name| lab.property("ai-core", &format!("{name}.service"), "InvocationID")).collect()
}

/// Four of five hang since they were in these runs.
fn what_hangs_together_is_left_alone(lab: &Lab, before: &[String]) {
    let alerts = || lab.evidence("ai-core", "alert");
    wait("four are stuck and the brake is on, as venus sees it", 2 * SOON, || {
        let node = lab.node("venus", "ai-core");
        let workers = node["workers"].as_array()?;
        let braked = |worker: &&serde_json::Value| {
            worker["class"] == "stuck"
                && worker["doing"].as_str().is_some_and(|doing| doing.contains("common one"))
        };
        let told = node["degraded"].to_string().contains("4 workers make no progress");
        (workers.iter().filter(braked).count() == HANGING && told).then_some(())
    });
    wait("somebody is called", SOON, || (alerts().len() == 1).then_some(()));
    // Longer than the brake is looked at anew.
    let quiet = || lab.all_acts().iter().all(|act| act.starts_with("mars: ")) && alerts().len() == 1;
    all_along("one alert, and nothing is done", 12 * SECOND, quiet);
    assert!(alerts()[0].contains("the cause is a common one"), "{:?}", alerts());
    lab.sh("ai-core", "rm /run/line.down");
    lab.all_well();
    assert!(quiet(), "{:?} {:?}", lab.all_acts(), alerts());
    assert_eq!(beating_runs(lab), before);
    assert_eq!(lab.node("venus", "ai-core")["degraded"], serde_json::json!([]));
}
