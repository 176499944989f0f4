//! What an operator does to a node that runs: new configuration, good and broken, a new key, a new version, removal. Workers do
//! not notice.

use std::time::Duration;

use crate::harness::{Lab, SOON, VERBS, service, wait};
use crate::orders::{OFTEN, degraded, relaunch, relaunched};
use crate::scene::all_along;

const SECOND: Duration = Duration::from_secs(1);
const FILE: &str = "/etc/keyholder/fleet.yaml";

#[test]
fn a_reload_takes_effect_at_once_and_a_broken_file_changes_nothing() {
    let lab = Lab::boot("reload", &["mars", "ai-core"]);
    for unit in ["agent", "second"] {
        lab.write("mars", &format!("/etc/systemd/system/{unit}.service"), &service(""));
    }
    lab.sh("mars", "systemctl daemon-reload && systemctl start agent second");
    lab.install();
    let fleet = lab.fleet(&[("mars", "ai-core", &format!("agent: {{ {OFTEN} }}")), ("ai-core", "mars", "")]);
    lab.deploy(&fleet);
    let (supervisor, worker) = (running(&lab, "keyholder.service"), running(&lab, "agent.service"));

    exposure(&lab);
    a_broken_file(&lab, &fleet);
    a_worker_more_and_less(&lab, &fleet);
    grants(&lab, &fleet);
    assert_eq!(running(&lab, "agent.service"), worker, "the worker was touched");
    a_peer_that_is_shut_out(&lab, &fleet);
    assert_eq!(running(&lab, "keyholder.service"), supervisor, "the supervisor was started again");

    let worker = running(&lab, "agent.service");
    a_new_key(&lab, &fleet);
    an_upgrade(&lab);
    a_removal(&lab);
    assert_eq!(running(&lab, "agent.service"), worker, "the worker was touched");
}

/// The unit's main process and run.
fn running(lab: &Lab, unit: &str) -> [String; 2] {
    ["MainPID", "InvocationID"].map(|property| lab.property("mars", unit, property))
}

fn exposure(lab: &Lab) {
    let said = lab.sh("mars", "systemd-analyze security keyholder.service --no-pager");
    let line = said.lines().find(|line| line.contains("Overall exposure level")).expect("an overall level");
    let level = line.split_whitespace().find_map(|word| word.parse::<f32>().ok()).expect("a number");
    assert!(level <= 2.0, "{line}");
}

/// systemd has a reload done when the supervisor was told of it: that it is in force is what the supervisor says.
fn reload(lab: &Lab, node: &'static str, fleet: &str) {
    lab.write(node, FILE, fleet);
    lab.sh(node, "systemctl reload keyholder.service");
    let sum = lab.sh(node, &format!("sha256sum {FILE}"));
    let hash = format!("sha256:{}", sum.split_whitespace().next().expect("a sum"));
    wait(&format!("the new file is in force on {node}"), SOON, || {
        (lab.node(node, node)["fleet_hash"] == hash.as_str()).then_some(())
    });
}

fn a_broken_file(lab: &Lab, fleet: &str) {
    lab.write("mars", FILE, &fleet.replace("watched_by", "watched_bye"));
    let output = lab.try_sh("mars", "systemctl reload keyholder.service");
    assert!(!output.status.success(), "the reload of a broken file succeeded");
    wait("mars says so", SOON, || {
        degraded(lab, "mars", "mars").iter().any(|text| text.contains("old configuration")).then_some(())
    });
    wait("ai-core hears of it", SOON, || {
        degraded(lab, "ai-core", "mars").iter().any(|text| text.contains("old configuration")).then_some(())
    });
    let told = lab.evidence("mars", "degraded");
    assert!(
        told.iter().any(|line| line.contains("reload refused") && line.contains("watched_bye")),
        "{told:?}"
    );
    // All that the old file says is still in force.
    assert_eq!(lab.worker("ai-core", "mars", "agent")["class"], "healthy");
    reload(lab, "mars", fleet);
    wait("all is well again", SOON, || degraded(lab, "ai-core", "mars").is_empty().then_some(()));
}

fn a_worker_more_and_less(lab: &Lab, fleet: &str) {
    let more = fleet.replace("      agent:", "      second: { unit: second.service }\n      agent:");
    assert_ne!(more, fleet);
    reload(lab, "mars", &more);
    wait("the new worker is looked at", SOON, || {
        (lab.worker("mars", "mars", "second")["class"] == "healthy").then_some(())
    });
    // A worker that the watcher's own file does not have is not taken from a report, and the drift is shown.
    wait("ai-core shows the drift", SOON, || {
        let doctor = lab.try_sh("ai-core", "keyholder doctor");
        String::from_utf8_lossy(&doctor.stdout).contains("mars has another fleet file").then_some(())
    });
    assert!(lab.worker("ai-core", "mars", "second").is_null());
    reload(lab, "ai-core", &more);
    wait("ai-core sees it as well", SOON, || {
        (lab.worker("ai-core", "mars", "second")["class"] == "healthy").then_some(())
    });
    let before = lab.property("mars", "second.service", "InvocationID");
    lab.sh("mars", "systemctl kill -s KILL second.service");
    lab.new_run("mars", "second.service", &before, SOON);

    reload(lab, "mars", fleet);
    reload(lab, "ai-core", fleet);
    wait("it is forgotten", SOON, || lab.worker("ai-core", "mars", "second").is_null().then_some(()));
    lab.sh("mars", "systemctl kill -s KILL second.service");
    all_along("it is nobody's business", SECOND, || {
        lab.property("mars", "second.service", "ActiveState") != "active"
    });
}

fn grants(lab: &Lab, fleet: &str) {
    reload(lab, "mars", &fleet.replace(&format!("verbs: {VERBS}"), "verbs: [status]"));
    let (verdict, _) = relaunch(lab, "ai-core", "mars/agent");
    assert_eq!(verdict["refused"]["code"], "no_grant", "{verdict}");
    assert_eq!(lab.try_sh("ai-core", "keyholder relaunch mars/agent").status.code(), Some(5));
    assert_eq!(lab.worker("ai-core", "mars", "agent")["class"], "healthy");
    reload(lab, "mars", &fleet.replace(&format!("verbs: {VERBS}"), "verbs: [relaunch]"));
    wait("ai-core sees nothing any more", SOON, || {
        lab.worker("ai-core", "mars", "agent").is_null().then_some(())
    });
    reload(lab, "mars", fleet);
    wait("ai-core sees the worker again", SOON, || {
        (lab.worker("ai-core", "mars", "agent")["class"] == "healthy").then_some(())
    });
}

fn a_peer_that_is_shut_out(lab: &Lab, fleet: &str) {
    let connections = || {
        let line = "ss -Htn state established '( sport = :7433 )' src 192.0.2.10 dst 192.0.2.40 | wc -l";
        lab.sh("mars", line).trim().parse::<u32>().expect("a number")
    };
    let without =
        fleet.replace("    address: 192.0.2.40:7433", "    disabled: true\n    address: 192.0.2.40:7433");
    assert_ne!(without, fleet);
    assert_eq!(connections(), 1);
    reload(lab, "mars", &without);
    wait("its connection is cut", SOON, || (connections() == 0).then_some(()));
    wait("ai-core says that it is no longer accepted", SOON, || {
        let mars = lab.node("ai-core", "mars");
        (mars["state"] == "unknown").then_some(())
    });
    let refused = lab.evidence("mars", "refused");
    assert!(refused.iter().any(|line| line.contains("no longer accepted")), "{refused:?}");
    let before = lab.property("mars", "agent.service", "InvocationID");
    let (verdict, took) = relaunch(lab, "ai-core", "mars/agent");
    assert_eq!(verdict["refused"]["code"], "unreachable", "{verdict}");
    assert!(took < SOON, "{took:?} to say so");
    assert_eq!(lab.property("mars", "agent.service", "InvocationID"), before);

    reload(lab, "mars", fleet);
    wait("ai-core is let in again", SOON, || (lab.node("ai-core", "mars")["state"] == "up").then_some(()));
    relaunched(&relaunch(lab, "ai-core", "mars/agent").0);
}

/// The key of ai-core is replaced without a gap.
fn a_new_key(lab: &Lab, fleet: &str) {
    let old = lab.sh("ai-core", "keyholder key show").trim().to_owned();
    let new = lab.sh("ai-core", "keyholder key generate --next").trim().to_owned();
    let refused = lab.try_sh("ai-core", "keyholder key switch");
    assert!(!refused.status.success(), "switched to a key that mars does not accept");
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(said.contains("mars") && said.contains(&new), "{said}");
    assert_eq!(lab.sh("ai-core", "keyholder key show").trim(), old);

    let both = fleet.replace(&format!("\"{old}\""), &format!("\"{old}\", \"{new}\""));
    for node in ["mars", "ai-core"] {
        reload(lab, node, &both);
    }
    lab.sh(
        "ai-core",
        "keyholder key probe --next && keyholder key switch && systemctl restart keyholder.service",
    );
    let last = fleet.replace(&old, &new);
    for node in ["mars", "ai-core"] {
        reload(lab, node, &last);
    }
    for (at, of) in [("ai-core", "mars"), ("mars", "ai-core")] {
        wait(&format!("{at} follows {of}"), SOON, || (lab.node(at, of)["state"] == "up").then_some(()));
    }
    let before = running(lab, "agent.service");
    let order = format!("keyholder relaunch mars/agent --expect {} --json", "0".repeat(32));
    let verdict = lab.sh("ai-core", &order);
    assert!(verdict.contains("already_recovered"), "{verdict}");
    assert_eq!(running(lab, "agent.service"), before);
    // Who still has the old key is nobody now.
    lab.sh("ai-core", "mkdir -m 700 /root/stale && cp -p /etc/keyholder/key.old.pem /root/stale/key.pem");
    let probe = lab.try_sh("ai-core", "keyholder key probe mars --key-dir /root/stale");
    assert!(!probe.status.success(), "{}", String::from_utf8_lossy(&probe.stdout));
}

fn an_upgrade(lab: &Lab) {
    let before = running(lab, "keyholder.service");
    // Another binary with the same contents: what follows an ELF file's end is nobody's.
    lab.sh("mars", "mkdir /root/new /root/broken && cp /root/keyholder /root/keyholder-supervisor /root/new");
    lab.sh("mars", "echo another | tee -a /root/new/keyholder >>/root/new/keyholder-supervisor");
    lab.sh("mars", "/root/src/install.sh --binary /root/new/keyholder");
    assert_ne!(running(lab, "keyholder.service"), before);
    lab.sh(
        "mars",
        "cmp /root/new/keyholder-supervisor /proc/$(systemctl show -P MainPID keyholder.service)/exe",
    );
    wait("ai-core follows the new one", SOON, || {
        (lab.node("ai-core", "mars")["state"] == "up").then_some(())
    });
    // One that does not run is not kept.
    let before = running(lab, "keyholder.service");
    lab.write(
        "mars",
        "/root/broken/keyholder-supervisor",
        "#!/bin/sh\n[ \"$1\" = --version ] || exit 1\nexec /root/keyholder-supervisor \"$@\"\n",
    );
    let output = lab.try_sh(
        "mars",
        "cd /root/broken && chmod 755 keyholder-supervisor && cp ../keyholder . && /root/src/install.sh --binary ./keyholder",
    );
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert_ne!(running(lab, "keyholder.service"), before);
    lab.sh("mars", "cmp /root/new/keyholder /usr/local/bin/keyholder");
    lab.sh("mars", "cmp /root/new/keyholder-supervisor /usr/local/libexec/keyholder-supervisor");
    // Nor is one without its supervisor, which nothing is begun with.
    let output = lab.try_sh(
        "mars",
        "rm /root/broken/keyholder-supervisor && /root/src/install.sh --binary /root/broken/keyholder",
    );
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(
        String::from_utf8_lossy(&output.stderr).contains("there is no /root/broken/keyholder-supervisor"),
        "{output:?}"
    );
    wait("all is well on mars", SOON, || {
        lab.try_sh("mars", "keyholder status mars").status.success().then_some(())
    });
}

fn a_removal(lab: &Lab) {
    lab.sh("mars", "/root/src/install.sh --uninstall");
    assert!(!lab.try_sh("mars", "systemctl cat keyholder.socket || command -v keyholder").status.success());
    wait("ai-core says that nobody listens there", SOON, || {
        (lab.node("ai-core", "mars")["state"] == "supervisor_dead").then_some(())
    });
}
