//! A watcher whose own network is at fault, a neighbour that lives behind a firewall, and a neighbour that is really dead: only
//! the last one's power is touched.

use std::time::Instant;

use crate::harness::{Lab, SOON, wait};
use crate::scene::{SECOND, all_along};

const POWER: &str = "#!/bin/sh\necho \"power of $1\"\nsleep 2\n";
/// Seconds for which a node has to be unreachable before its power is touched.
const AFTER: u32 = 3;
const MARS: &str = "192.0.2.10";
const CORE: &str = "192.0.2.40";

fn runs(lab: &Lab) -> usize {
    let line = "journalctl --sync; journalctl -o cat --no-pager KEYHOLDER_PURPOSE=power _TRANSPORT=stdout";
    lab.sh("ai-core", line).lines().count()
}

/// The node stays in this state, and its power is not touched, for longer than it would take.
fn left_alone(lab: &Lab, state: &str, because: &str) {
    wait(&format!("ai-core sees mars {state}: {because}"), 2 * SOON, || {
        let mars = lab.node("ai-core", "mars");
        let why = mars["why"].as_str().unwrap_or_default();
        (mars["state"] == state && why.contains(because)).then_some(())
    });
    all_along(because, (AFTER + 4) * SECOND, || lab.node("ai-core", "mars")["state"] == state);
    assert_eq!(runs(lab), 0, "{because}");
    let explained = lab.sh("ai-core", "keyholder explain mars");
    println!("{explained}");
}

fn back(lab: &Lab) {
    wait("ai-core sees mars up", 2 * SOON, || (lab.node("ai-core", "mars")["state"] == "up").then_some(()));
}

/// Packets of a node that match are treated so, as they leave (`output`) or come (`input`).
fn rule(lab: &Lab, node: &str, hook: &str, rule: &str) {
    let table =
        format!("table inet lab {{\nchain it {{\ntype filter hook {hook} priority 0;\n{rule}\n}}\n}}\n");
    lab.in_net(node, &["nft", &table]);
}

#[test]
fn only_a_dead_host_is_switched_on_and_whoever_is_cut_off_says_that() {
    let lab = Lab::boot("cutoff", &["mars", "ai-core"]);
    lab.write("ai-core", "/usr/local/bin/power", POWER);
    lab.sh("ai-core", "chmod 755 /usr/local/bin/power");
    // The kernel forgets in seconds that somebody had a link address.
    let quick = "cd /proc/sys/net/ipv4/neigh/eth0 && echo 1000 > base_reachable_time_ms && echo 1 > delay_first_probe_time";
    lab.in_net("ai-core", &["sh", "-c", quick]);
    lab.install();
    let power = format!(
        "    power: {{ argv: [/usr/local/bin/power, mars], after: {AFTER}s, witness: 192.0.2.1 }}\n    watched_by: [ai-core]"
    );
    let fleet = lab.fleet(&[("mars", "ai-core", ""), ("ai-core", "mars", "")]);
    let fleet = fleet.replace("    watched_by: [ai-core]", &power).replace("status, ", "status, power, ");
    lab.deploy(&fleet);

    // Its own interface.
    lab.in_net("ai-core", &["ip", "link", "set", "eth0", "down"]);
    let down = Instant::now();
    left_alone(&lab, "cut_off", "Network is unreachable");
    println!("{:?}", down.elapsed());
    wait("somebody is called", SOON, || {
        let alerts = lab.evidence("ai-core", "alert");
        alerts.iter().any(|line| line.contains("this host is cut off")).then_some(())
    });
    let (code, said) = lab.tell("ai-core", "keyholder power mars");
    assert!(code == 5 && said.contains("cut-off"), "{code}: {said}");
    lab.in_net("ai-core", &["ip", "link", "set", "eth0", "up"]);
    back(&lab);

    // Its own firewall: silent, and with a word.
    rule(&lab, "ai-core", "output", &format!("ip daddr {MARS} tcp dport 7433 drop"));
    left_alone(&lab, "cut_off", "dropped on this host");
    lab.find_again("ai-core");
    back(&lab);
    rule(&lab, "ai-core", "output", &format!("ip daddr {MARS} reject"));
    left_alone(&lab, "cut_off", "a rule of this host");
    lab.find_again("ai-core");
    back(&lab);

    // The neighbour's firewall: the neighbour lives.
    rule(&lab, "mars", "input", &format!("ip saddr {CORE} reject with icmpx type admin-prohibited"));
    left_alone(&lab, "supervisor_dead", "administratively prohibited");
    lab.find_again("mars");
    back(&lab);
    rule(&lab, "mars", "input", &format!("ip saddr {CORE} drop"));
    left_alone(&lab, "unreachable", "");
    let explained = lab.sh("ai-core", "keyholder explain mars");
    assert!(explained.contains("it answers ARP and nothing else"), "{explained}");
    lab.find_again("mars");
    back(&lab);

    // What comes is lost here: that looks like death, and the witness is as silent.
    rule(&lab, "ai-core", "input", "ip saddr 192.0.2.0/24 ip daddr 192.0.2.40 drop");
    left_alone(&lab, "unreachable", "");
    lab.find_again("ai-core");
    back(&lab);

    lab.lab(&["cut", "mars"]);
    let cut = Instant::now();
    wait("ai-core switches it on", 4 * SOON, || (runs(&lab) > 0).then_some(()));
    println!("the command ran {:?} after the cut", cut.elapsed());
    let acted = lab.evidence("ai-core", "acting");
    assert!(acted.iter().any(|line| line.contains("the witness answers: 192.0.2.1")), "{acted:?}");
}
