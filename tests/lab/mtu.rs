//! A link in the middle silently drops packets that are longer than it takes. The handshake passes; reports and orders have to as
//! well, and where they cannot, that is not the death of anybody.

use std::process::Command;

use crate::harness::{Lab, SOON, service, wait};
use crate::network::run;
use crate::orders::{relaunch, relaunched};

/// Enough workers that a report of them takes several packets.
const WORKERS: usize = 12;

/// The bridge drops what is longer than this, without a word. Segments have to leave the nodes one by one for that, as on a real
/// cable.
fn drop_longer_than(lab: &Lab, bytes: u32) {
    for node in ["mars", "ai-core"] {
        let leader = lab.lab(&["leader", node]);
        let line = ["-t", leader.trim(), "-n", "ip", "link", "set", "eth0", "gso_max_segs", "1"];
        assert!(Command::new("nsenter").args(line).status().expect("nsenter runs").success(), "{node}");
    }
    let rules = format!(
        "add table bridge mtu; delete table bridge mtu; add table bridge mtu; \
         add chain bridge mtu forward {{ type filter hook forward priority 0; }}; \
         add rule bridge mtu forward meta length > {bytes} counter drop"
    );
    lab.lab(&["net", "nft", &rules]);
}

/// How many packets the bridge has dropped.
fn dropped(lab: &Lab) -> u64 {
    let rules = lab.lab(&["net", "nft", "list", "table", "bridge", "mtu"]);
    let (_, after) = rules.split_once("counter packets ").expect("a counter");
    after.split_whitespace().next().and_then(|count| count.parse().ok()).expect("a number")
}

/// Both sides call each other anew.
fn call_anew(lab: &Lab) {
    for node in ["mars", "ai-core"] {
        lab.sh(node, "systemctl restart keyholder");
    }
}

#[test]
fn a_link_that_drops_large_packets_holds_up_neither_reports_nor_orders_and_is_not_taken_for_a_death() {
    let names: Vec<String> = (0..WORKERS).map(|n| format!("w{n}")).chain(["agent".to_owned()]).collect();
    let units: Vec<(String, String)> =
        names.iter().map(|name| (format!("{name}.service"), service(""))).collect();
    let units: Vec<(&str, &str)> = units.iter().map(|(unit, body)| (unit.as_str(), body.as_str())).collect();
    let workers: String = names.iter().map(|name| format!("{name}: {{ unit: {name}.service }}\n")).collect();
    let lab = Lab::pair("mtu", &units, &workers);

    drop_longer_than(&lab, 1300);
    call_anew(&lab);
    wait("ai-core has the report of mars", SOON, || {
        let mars = lab.node("ai-core", "mars");
        (mars["state"] == "up" && mars["workers"].as_array()?.len() == WORKERS + 1).then_some(())
    });
    let before = run(&lab);
    let (verdict, took) = relaunch(&lab, "ai-core", "mars/agent");
    relaunched(&verdict);
    println!("the order was answered after {took:?}");
    assert_ne!(run(&lab), before);
    wait("ai-core sees the new run", SOON, || {
        (lab.worker("ai-core", "mars", "agent")["invocation"] == run(&lab).as_str()).then_some(())
    });
    assert_eq!(dropped(&lab), 0, "packets that were too long");

    // A link that takes even less: the supervisor answers, and nothing it reports arrives.
    drop_longer_than(&lab, 1200);
    call_anew(&lab);
    let why = wait("ai-core says what is wrong with the way to mars", SOON, || {
        let mars = lab.node("ai-core", "mars");
        let why = mars["why"].as_str().filter(|why| why.contains("MTU"))?;
        (mars["state"] == "unknown").then(|| why.to_owned())
    });
    assert!(why.contains("ping -M do"), "{why}");
    let alerts = lab.evidence("ai-core", "alert");
    assert!(alerts.iter().all(|line| !line.contains("cannot be reached")), "{alerts:?}");
    lab.lab(&["net", "nft", "delete table bridge mtu"]);
    wait("all is well again", SOON, || (lab.node("ai-core", "mars")["state"] == "up").then_some(()));
}
