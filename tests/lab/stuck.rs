//! Alive and of no use: a loop that hangs, a loop that is stopped, and a worker that nothing reaches. Each gets its own
//! remedy, the dead get no nudge, and whoever is well is left alone.

use serde_json::Value;

use crate::falls::open_redis;
use crate::harness::{Lab, SOON, service, wait};
use crate::scene::{SECOND, all_along, house};

/// Touches its file ten times a second; hangs while /run/NAME.hang exists, and a SIGUSR1 takes that away.
const LOOP: &str = r#"#!/bin/sh
name=$1
trap 'rm -f /run/$name.hang' USR1
while :; do
    while [ -e "/run/$name.hang" ]; do sleep 0.1; done
    : >"/run/$name.beat"
    sleep 0.1
done
"#;
/// Moves what waits from the server to the worker, unless its line is dead; a restart makes it alive again.
const PIPE: &str = r#"#!/bin/sh
rm -f /run/line-dead
while :; do
    [ -e /run/line-dead ] || redis-cli -h 192.0.2.40 RPOP agent:inbox >/dev/null
    sleep 0.2
done
"#;

fn looping(name: &str) -> String {
    format!("[Service]\nExecStart=/usr/local/bin/loop {name}\n")
}

/// What the supervisor of mars did to a worker, oldest first.
fn acts(lab: &Lab, worker: &str) -> Vec<String> {
    let lines = lab.records("mars", "acting", &format!("mars/{worker}"), "");
    lines.into_iter().map(|line| line.text).collect()
}

fn class(lab: &Lab, at: &str, worker: &str) -> Value {
    lab.worker(at, "mars", worker)["class"].clone()
}

fn is(lab: &Lab, at: &str, worker: &str, wanted: &str) {
    wait(&format!("{at} sees {worker} {wanted}"), SOON, || (class(lab, at, worker) == wanted).then_some(()));
}

/// Its own node has found it so; by now it may be well again.
fn found(lab: &Lab, worker: &str, class: &str) {
    wait(&format!("mars finds {worker} {class}"), SOON, || {
        let seen = lab.records("mars", "observed", &format!("mars/{worker}"), "");
        seen.iter().any(|line| line.text.contains(&format!("-> {class}:"))).then_some(())
    });
}

#[test]
fn each_way_to_be_of_no_use_is_found_and_gets_its_own_remedy_and_nobody_else_is_touched() {
    let units: Vec<(&str, String)> = vec![
        ("hangs.service", looping("hangs") + "# not started"),
        ("stops.service", looping("stops") + "# not started"),
        ("dies.service", looping("dies") + "# not started"),
        ("well.service", looping("well") + "# not started"),
        ("inbox.service", service("# not started")),
        ("tunnel.service", "[Service]\nExecStart=/usr/local/bin/pipe\n# not started".to_owned()),
    ];
    let workers = "
        hangs: { unit: hangs.service, stuck: { heartbeat: { file: /run/hangs.beat, older_than: 2s }, nudge: { signal: SIGUSR1 } } }
        stops: { unit: stops.service, stuck: { heartbeat: { file: /run/stops.beat, older_than: 2s }, nudge: { signal: SIGUSR1 } } }
        dies: { unit: dies.service, stuck: { heartbeat: { file: /run/dies.beat, older_than: 2s }, nudge: { signal: SIGUSR1 } } }
        well: { unit: well.service, stuck: { heartbeat: { file: /run/well.beat, older_than: 2s }, nudge: { signal: SIGUSR1 } } }
        inbox: { unit: inbox.service, delivery_gap: { backlog: { queue: \"agent:inbox\", not_draining_for: 4s }, repipe: { restart: tunnel.service } } }";
    let lab = house(
        "stuck",
        &["mars", "ai-core", "venus"],
        &units,
        "sleeper: { unit: sleeper.service, repair_by: nobody }",
    );
    open_redis(&lab);
    for (path, body) in [("loop", LOOP), ("pipe", PIPE)] {
        lab.write("mars", &format!("/usr/local/bin/{path}"), body);
        lab.sh("mars", &format!("chmod 755 /usr/local/bin/{path}"));
    }
    lab.sh("mars", "systemctl start hangs stops dies well inbox tunnel");
    let fleet = lab
        .sh("mars", "cat /etc/keyholder/fleet.yaml")
        .replace(
            "      sleeper: { unit: sleeper.service, repair_by: nobody }\n",
            &(workers.replace("        ", "      ") + "\n"),
        )
        .replace("version: 1\n", "version: 1\nredis: { url: \"redis://192.0.2.40:6379\" }\n");
    for node in ["mars", "ai-core", "venus"] {
        lab.write(node, "/etc/keyholder/fleet.yaml", &fleet);
        lab.sh(node, "systemctl reload keyholder");
    }
    for worker in ["hangs", "stops", "dies", "well", "inbox"] {
        is(&lab, "venus", worker, "healthy");
    }
    let runs: Vec<String> =
        ["hangs", "well", "inbox"].map(|unit| lab.run_of(&format!("{unit}.service"))).into();

    // A loop that hangs in a process that lives: the nudge wakes it, and it is the same run.
    lab.sh("mars", ": >/run/hangs.hang");
    found(&lab, "hangs", "stuck");
    is(&lab, "ai-core", "hangs", "healthy");
    assert_eq!(acts(&lab, "hangs").len(), 1, "{:?}", acts(&lab, "hangs"));
    assert!(acts(&lab, "hangs").iter().all(|act| act.starts_with("nudge: SIGUSR1")));

    // A process that is stopped hears no nudge: the ladder goes on to the relaunch.
    let before = lab.run_of("stops.service");
    lab.sh("mars", "systemctl kill -s STOP stops.service");
    lab.new_run("mars", "stops.service", &before, SOON);
    is(&lab, "ai-core", "stops", "healthy");
    let told = acts(&lab, "stops");
    // A supervisor that did not look for a second cannot see whether it helped, says so, and begins anew.
    let acted = lab.records("mars", "acted", "mars/stops", "");
    let said = |what: &str| acted.iter().filter(|line| line.text.contains(what)).count();
    assert_eq!(told.len(), 2 + said("whether it helped cannot be seen"), "{told:?}");
    assert_eq!(said("makes progress again"), 0, "what is stopped never does: {acted:?}");
    let (last, first) = told.split_last().expect("acts");
    assert!(last.starts_with("relaunching") && first.iter().all(|act| act.starts_with("nudge")), "{told:?}");

    // The dead are never nudged, however old their heartbeat is.
    let before = lab.run_of("dies.service");
    lab.sh("mars", "systemctl kill -s KILL dies.service");
    lab.new_run("mars", "dies.service", &before, SOON);
    let told = acts(&lab, "dies");
    assert!(told.len() == 1 && told[0].starts_with("relaunching"), "{told:?}");
    lab.verified("dies");
    lab.sh("mars", "systemctl stop dies.service");
    is(&lab, "mars", "dies", "dead");
    let (code, said) = lab.tell("mars", "keyholder nudge mars/dies");
    assert!(code != 0 && said.contains("the dead cannot be nudged"), "{code} {said}");

    // A worker whose pipe is dead: the pipe is built anew, the worker goes on.
    lab.sh("mars", "touch /run/line-dead");
    lab.sh("ai-core", "for n in 1 2 3; do redis-cli LPUSH agent:inbox $n; done");
    found(&lab, "inbox", "delivery-gap");
    is(&lab, "venus", "inbox", "healthy");
    // It is well after the first that is taken.
    wait("all three are taken", SOON, || {
        (lab.sh("ai-core", "redis-cli LLEN agent:inbox").trim() == "0").then_some(())
    });
    let told = acts(&lab, "inbox");
    assert!(told.len() == 1 && told[0].starts_with("repipe: restart of tunnel.service"), "{told:?}");

    // Nobody else was touched, and the watchers had nothing to do.
    let after: Vec<String> =
        ["hangs", "well", "inbox"].map(|unit| lab.run_of(&format!("{unit}.service"))).into();
    assert_eq!(after, runs);
    assert_eq!(acts(&lab, "well"), Vec::<String>::new());
    for watcher in ["ai-core", "venus"] {
        assert_eq!(lab.evidence(watcher, "acting"), Vec::<String>::new());
    }

    // The server gone: what it shows cannot be seen, which is no reason to do anything.
    lab.sh("ai-core", "systemctl stop redis-server");
    is(&lab, "ai-core", "inbox", "unknown");
    all_along("nothing is done while it cannot be seen", 8 * SECOND, || acts(&lab, "inbox").len() == 1);
    lab.sh("ai-core", "systemctl start redis-server");
    is(&lab, "ai-core", "inbox", "healthy");
    what_only_a_watcher_sees_to_be_in_vain_is_followed_by_a_relaunch(&lab);
}

/// Neither mars nor the pipe reaches Redis: work waits, mars cannot see it, and a new pipe changes nothing.
fn what_only_a_watcher_sees_to_be_in_vain_is_followed_by_a_relaunch(lab: &Lab) {
    let (run, before) = (lab.run_of("inbox.service"), acts(lab, "inbox").len());
    lab.hide_redis_from_root("mars");
    lab.sh("ai-core", "redis-cli LPUSH agent:inbox 1");
    lab.new_run("mars", "inbox.service", &run, 120 * SECOND);
    lab.find_again("mars");
    lab.sh("ai-core", "redis-cli DEL agent:inbox");
    is(lab, "ai-core", "inbox", "healthy");
    let told = acts(lab, "inbox");
    // A watcher that did not look for two seconds begins anew, with another repipe.
    let (last, first) = told[before..].split_last().expect("acts");
    let in_turn = last.starts_with("relaunching")
        && !first.is_empty()
        && first.iter().all(|act| act.starts_with("repipe: restart of tunnel.service"));
    assert!(in_turn, "{told:?}");
    // By the first in rank; after a stall both find it due at once.
    let by_a_watcher = |act: &String| {
        ["ai-core", "venus"].iter().any(|watcher| {
            act.contains(&format!("{watcher}: its watcher saw it delivery-gap as seen from {watcher}"))
        })
    };
    assert!(told[before..].iter().all(by_a_watcher), "{told:?}");
}
