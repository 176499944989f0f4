//! Nodes fall: the supervisor, its socket, the host's power, its cable, the way between two of them. What each of the others
//! says and does then, and that nobody who runs is touched.

use std::time::Instant;

use crate::falls::{NODES, Part, triangle};
use crate::harness::{Lab, SOON, service, wait};
use crate::scene::{SECOND, all_along};

/// Says who runs it; it switches nothing. It lasts for as long as journald may take to stamp what it said: PID 1 keeps the
/// fields only while the unit runs.
const POWER: &str = "#!/bin/sh\necho \"power of $1\"\nsleep 2\n";
/// Seconds for which a node has to be unreachable before its power is touched.
const AFTER: u32 = 5;
const BOOTS: &str = "[Install]\nWantedBy=multi-user.target";

#[test]
fn whatever_becomes_of_a_node_the_others_say_what_they_see_and_nobody_who_runs_is_touched() {
    let lab = Lab::boot("nodefalls", &NODES);
    for node in NODES {
        lab.write(node, "/etc/systemd/system/own.service", &service(BOOTS));
        lab.write(node, "/usr/local/bin/power", POWER);
        lab.sh(
            node,
            "chmod 755 /usr/local/bin/power; systemctl daemon-reload; systemctl --quiet enable --now own",
        );
    }
    lab.write("mars", "/etc/systemd/system/left.service", &service(BOOTS));
    lab.sh("mars", "systemctl daemon-reload; systemctl --quiet enable --now left");
    lab.install();
    let own = "own: { unit: own.service }";
    let left = format!("{own}\nleft: {{ unit: left.service, repair_by: peer, grace: 1s, relaunches: 20 }}");
    let power =
        NODES.map(|node| format!("power: {{ argv: [/usr/local/bin/power, {node}], after: {AFTER}s }}"));
    let [mars, core, venus] = &power;
    let fleet = triangle(
        &lab,
        "",
        [
            Part { workers: &left, more: mars },
            Part { workers: own, more: core },
            Part { workers: own, more: venus },
        ],
    );
    // The kernel forgets in seconds that somebody had a link address; a dead host is known by that.
    let quick = "cd /proc/sys/net/ipv4/neigh/eth0 && echo 1000 > base_reachable_time_ms && echo 1 > delay_first_probe_time";
    for node in NODES {
        lab.in_net(node, &["sh", "-c", quick]);
    }
    lab.deploy(&fleet);
    lab.all_well();

    let runs = lab.all_runs(&["own"]);
    let unharmed = |what: &str| assert_eq!(lab.all_runs(&["own"]), runs, "after {what}");
    the_supervisor_is_killed_and_stopped(&lab);
    unharmed("the supervisor was killed and stopped");
    its_socket_is_stopped_as_well(&lab);
    unharmed("the door was shut");
    the_way_between_two_is_cut(&lab);
    unharmed("the way was cut");
    assert_eq!(lab.all_acts(), Vec::<String>::new(), "so far nobody had anything to do");
    what_is_left_to_the_watchers_is_done_by_one_of_them(&lab);
    unharmed("the watchers helped");
    the_power_is_cut(&lab);
    let runs = lab.all_runs(&["own"]);
    let acts = lab.all_acts();
    the_cable_is_pulled_and_packets_are_lost_one_way(&lab);
    assert_eq!(lab.all_runs(&["own"]), runs);
    assert_eq!(lab.all_acts(), acts, "nobody acts on a guess, or once more");
}

fn seen_up_by_all(lab: &Lab) {
    for at in NODES {
        for node in NODES {
            lab.until_state(at, node, "up");
        }
    }
}

fn the_supervisor_is_killed_and_stopped(lab: &Lab) {
    for how in ["systemctl kill -s KILL keyholder.service", "systemctl stop keyholder.service"] {
        let before = lab.property("mars", "keyholder.service", "InvocationID");
        lab.sh("mars", how);
        // Nobody on mars starts a stopped one: it is the watchers' knock.
        lab.new_run("mars", "keyholder.service", &before, SOON);
        seen_up_by_all(lab);
    }
}

fn its_socket_is_stopped_as_well(lab: &Lab) {
    lab.sh("mars", "systemctl stop keyholder.socket keyholder.service");
    for at in ["ai-core", "venus"] {
        // The first that is seen may be the end of the connection; whether somebody holds the door shows at the next.
        wait(&format!("{at} sees that the door is shut"), SOON, || {
            let seen = lab.node(at, "mars");
            let told = seen["why"].as_str().is_some_and(|why| why.contains("keyholder.socket"));
            (seen["state"] == "supervisor_dead" && told).then_some(())
        });
        let (code, said) = lab.tell(at, "keyholder relaunch mars/own --timeout 20s");
        assert!(code != 0 && said.contains("keyholder.socket"), "{code}: {said}");
    }
    let dead = || lab.node("ai-core", "mars")["state"] == "supervisor_dead";
    all_along("a host that answers is not switched off and on", (AFTER + 1) * SECOND, dead);
    let (code, said) = lab.tell("ai-core", "keyholder power mars");
    assert!(code == 5 && said.contains("not known to be down"), "{code}: {said}");
    lab.sh("mars", "systemctl start keyholder.socket");
    seen_up_by_all(lab);
}

/// mars and ai-core both live and do not reach each other; venus reaches both.
fn the_way_between_two_is_cut(lab: &Lab) {
    lab.sh("ai-core", "ip route add blackhole 192.0.2.10/32");
    let cut = Instant::now();
    // The one whose own route rejects it knows that the fault is its own.
    for (at, node, state) in [("ai-core", "mars", "cut_off"), ("mars", "ai-core", "unreachable")] {
        lab.until_state(at, node, state);
        wait(&format!("{at} says that venus sees {node} up"), SOON, || {
            let why = lab.node(at, node)["why"].clone();
            why.as_str().is_some_and(|why| why.contains("venus sees it up")).then_some(())
        });
    }
    println!("both sides said so after {:?}", cut.elapsed());
    for (at, target, state) in [("ai-core", "mars/own", "cut-off"), ("mars", "ai-core/own", "unreachable")] {
        let (code, said) = lab.tell(at, &format!("keyholder relaunch {target} --timeout 20s"));
        assert!(code != 0 && said.contains(state), "{at}: {code}: {said}");
    }
    let (code, said) = lab.tell("ai-core", "keyholder power mars");
    assert!(code == 5 && said.contains("venus sees it up"), "{code}: {said}");
    all_along("nobody is switched off and on who is up elsewhere", (AFTER + 1) * SECOND, || {
        lab.node("venus", "mars")["state"] == "up" && lab.node("venus", "ai-core")["state"] == "up"
    });
    lab.sh("ai-core", "ip route del blackhole 192.0.2.10/32");
    seen_up_by_all(lab);
}

fn what_is_left_to_the_watchers_is_done_by_one_of_them(lab: &Lab) {
    const KILL: &str = "systemctl kill -s KILL left";
    let acts = || -> Vec<String> {
        lab.records("mars", "acting", "mars/left", "").into_iter().map(|act| act.text).collect()
    };
    let settled = |many: usize| {
        let acts = wait(&format!("it was relaunched, {many} in all"), 2 * SOON, || {
            let acts = acts();
            let well = lab.class("venus", "mars", "left") == "healthy"
                && lab.class("ai-core", "mars", "left") == "healthy";
            (acts.len() >= many && well).then_some(acts)
        });
        assert_eq!(acts.len(), many, "{acts:?}");
        acts
    };
    // After a stall all watchers find it due at once, and any of them may be the first: one of three falls shows the order.
    let first = (1..=3).find(|many| {
        lab.sh("mars", KILL);
        settled(*many)[many - 1].contains("ai-core")
    });
    let falls = first.expect("the first in rank is the first to act");

    lab.sh("ai-core", "systemctl stop keyholder.socket keyholder.service");
    lab.until_state("venus", "ai-core", "supervisor_dead");
    lab.sh("mars", KILL);
    let told = wait("venus acts", 2 * SOON, || Some(acts()).filter(|acts| acts.len() > falls));
    assert!(told[falls].contains("venus"), "{told:?}");
    lab.sh("ai-core", "systemctl start keyholder.socket keyholder.service");
    seen_up_by_all(lab);
    settled(falls + 1);

    // Both at once, and about the same run: one relaunch, and both hear of it.
    let run = lab.run_of("left.service");
    let order = format!("keyholder relaunch mars/left --expect {run} --json --timeout 20s");
    let orders = ["ai-core", "venus"].map(|node| lab.spawn(node, &order));
    for child in orders {
        let output = child.wait_with_output().expect("it ends");
        assert!(output.status.success(), "{output:?}");
    }
    settled(falls + 2);
    let starts = lab.starts("left.service");
    assert_eq!(starts, falls + 3, "its first start, and one for each fall and for the orders");
}

fn the_power_is_cut(lab: &Lab) {
    let before = lab.all_acts().len();
    let run = |node: &str| {
        let line =
            "journalctl --sync; journalctl -o json --no-pager KEYHOLDER_PURPOSE=power _TRANSPORT=stdout";
        lab.sh(node, line).lines().map(str::to_owned).collect::<Vec<_>>()
    };
    lab.lab(&["cut", "mars"]);
    let cut = Instant::now();
    for at in ["ai-core", "venus"] {
        lab.until_state(at, "mars", "unreachable");
    }
    println!("both said so {:?} after the cut", cut.elapsed());
    let told =
        wait("ai-core runs its command", 2 * SOON, || Some(run("ai-core")).filter(|lines| !lines.is_empty()));
    println!("the command ran {:?} after the cut", cut.elapsed());
    let line: serde_json::Value = serde_json::from_str(&told[0]).expect("a record");
    assert_eq!(line["MESSAGE"], "power of mars");
    let unit = line["_SYSTEMD_UNIT"].as_str().expect("its unit");
    assert!(unit.starts_with("keyholder-run-"), "a unit of its own, not a child: {line}");
    // Once, and by nobody else, for longer than the next in rank would leave it.
    all_along("venus leaves it to ai-core", 21 * SECOND, || {
        run("venus").is_empty() && run("ai-core").len() == 1
    });
    lab.lab(&["boot", "mars"]);
    seen_up_by_all(lab);
    lab.all_well();
    let acts = lab.all_acts();
    let power = |act: &&String| act.contains("power: running");
    assert_eq!(acts.iter().filter(power).count(), 1, "{acts:?}");
    // What mars did before may be gone with its journal; nothing else was added.
    assert!(acts.len() <= before + 1, "{acts:?}");
}

fn the_cable_is_pulled_and_packets_are_lost_one_way(lab: &Lab) {
    // mars reaches nobody: likelier itself that is cut off than everybody else gone.
    lab.lab(&["unplug", "mars"]);
    for (at, node) in [("ai-core", "mars"), ("venus", "mars")] {
        lab.until_state(at, node, "unreachable");
    }
    for node in ["ai-core", "venus"] {
        lab.until_state("mars", node, "cut_off");
    }
    let alone = || lab.node("mars", "venus")["state"] == "cut_off";
    all_along("mars switches nobody on", (AFTER + 1) * SECOND, alone);
    lab.lab(&["plug", "mars"]);
    seen_up_by_all(lab);
    for way in ["out", "in"] {
        lab.lab(&["loss", "mars", way]);
        for at in ["ai-core", "venus"] {
            lab.until_state(at, "mars", "unreachable");
        }
        lab.lab(&["heal", "mars"]);
        seen_up_by_all(lab);
    }
}
