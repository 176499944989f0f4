//! What a supervisor has recorded is what a replay decides; and one that was away decides nothing by what it knew before.

use crate::harness::{Lab, SOON, service, wait};
use crate::scene::{SECOND, all_along, house};

const WORKERS: &str = "
    stopped: { unit: stopped.service, undeclared_stop: 4s }
    flapper: { unit: flapper.service, relaunches: 3, per: 10m, quarantine_retry: 5s }
    patient: { unit: patient.service, undeclared_stop: 2s }
";

const FLAPPER: &str =
    "[Service]\nExecStart=/bin/sh -c '[ -e /run/flapper.ill ] || exec sleep infinity; sleep 0.7; exit 1'\n";

#[test]
fn a_record_replays_as_it_was_and_a_supervisor_that_was_away_looks_first() {
    let mut units = vec![("flapper.service", FLAPPER.to_owned())];
    units.extend(["stopped.service", "patient.service"].map(|unit| (unit, service(""))));
    // Twenty that fall together, and their share of the crowd.
    let names: Vec<String> = (1..=20).map(|n| format!("w{n:02}")).collect();
    let files: Vec<String> = names.iter().map(|name| format!("{name}.service")).collect();
    units.extend(files.iter().map(|file| (file.as_str(), service(""))));
    let workers: String =
        names.iter().map(|name| format!("    {name}: {{ unit: {name}.service }}\n")).collect();
    let lab = house("record", &["mars", "ai-core"], &units, &format!("{WORKERS}{workers}"));

    lab.sh("mars", "systemctl stop stopped");
    lab.verified("stopped");
    let story = replay(&lab, "mars", "stopped");
    for word in ["nobody declared it", "ACTS      relaunch", "recovered"] {
        assert!(story.contains(word), "no {word:?} in:\n{story}");
    }
    // A peer with the right to see its status may read the same.
    assert_eq!(replay(&lab, "ai-core", "stopped"), story);

    lab.sh("mars", "touch /run/flapper.ill; systemctl kill -s KILL flapper");
    wait("the flapper was tried in quarantine, too", 30 * SECOND, || {
        replay(&lab, "mars", "flapper").contains("still down in quarantine").then_some(())
    });
    lab.sh("mars", "rm /run/flapper.ill");
    wait("it is mended", 30 * SECOND, || {
        (lab.worker("mars", "mars", "flapper")["quarantined"] == false).then_some(())
    });
    assert!(replay(&lab, "mars", "flapper").contains("recovered"));

    lab.sh("mars", &format!("systemctl kill -s KILL {}", files.join(" ")));
    for name in &names {
        lab.verified(name);
        assert!(replay(&lab, "mars", name).contains("ACTS      relaunch"));
    }

    was_away(&lab);
}

/// The replay of what was recorded of a worker of `mars`; it never differs from what was done.
fn replay(lab: &Lab, at: &str, worker: &str) -> String {
    lab.sh(
        at,
        &format!(
            "keyholder explain mars/{worker} --record >/run/{worker}.jsonl && keyholder explain --replay /run/{worker}.jsonl"
        ),
    );
    let story = lab.sh(at, &format!("keyholder explain --replay /run/{worker}.jsonl"));
    assert!(!story.contains("DIFFERS"), "{story}");
    story
}

/// A stop that nobody declared would be repaired after two seconds. The supervisor is stopped meanwhile, and somebody has
/// started the worker again by the time it runs on: what was due then is not done now.
fn was_away(lab: &Lab) {
    lab.sh("mars", "systemctl stop patient");
    wait("the stop was seen", SOON, || {
        (lab.worker("mars", "mars", "patient")["class"] == "dead").then_some(())
    });
    let supervisor = lab.property("mars", "keyholder.service", "MainPID");
    lab.sh("mars", "systemctl kill -s STOP keyholder; systemctl start patient");
    let run = lab.run_of("patient.service");
    all_along("its run goes on while nobody watches", 5 * SECOND, || lab.run_of("patient.service") == run);
    lab.sh("mars", "systemctl kill -s CONT keyholder");
    wait("the supervisor says that it was away", SOON, || {
        let said = lab.sh("mars", "journalctl -u keyholder -o cat --no-pager; keyholder audit -n 20");
        said.contains("this supervisor was away").then_some(())
    });
    all_along("nothing is done to it", 5 * SECOND, || lab.run_of("patient.service") == run);
    assert_eq!(lab.relaunches("mars", "patient"), 0);
    assert_eq!(lab.worker("mars", "mars", "patient")["class"], "healthy");
    assert_eq!(
        lab.property("mars", "keyholder.service", "MainPID"),
        supervisor,
        "it was not restarted for it"
    );
}
