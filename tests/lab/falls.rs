//! Three nodes that watch each other, and what the scenarios of falls ask about all of them at once.

use std::fmt::Write as _;
use std::process::Command;

use serde_json::Value;

use crate::harness::{Lab, SOON, address, wait};

pub(crate) const NODES: [&str; 3] = ["mars", "ai-core", "venus"];

/// What a node of the fleet file has besides its address and its key.
#[derive(Default)]
pub(crate) struct Part<'a> {
    /// Its workers, a line each.
    pub(crate) workers: &'a str,
    /// More lines of the node, such as its `power`.
    pub(crate) more: &'a str,
}

/// A fleet file over [`NODES`] in this order, each watched by both others, which may do everything. `head` comes after the
/// version.
pub(crate) fn triangle(lab: &Lab, head: &str, parts: [Part<'_>; 3]) -> String {
    let mut yaml = format!("version: 1\n{head}nodes:\n");
    let mut grants = String::from("grants:\n");
    for (node, part) in NODES.into_iter().zip(parts) {
        let pin = lab.sh(node, "keyholder key show");
        let others: Vec<&str> = NODES.into_iter().filter(|other| *other != node).collect();
        let _ =
            writeln!(yaml, "  {node}:\n    address: {}:7433\n    pins: [\"{}\"]", address(node), pin.trim());
        let _ = writeln!(yaml, "    watched_by: [{}]", others.join(", "));
        for line in part.more.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let _ = writeln!(yaml, "    {line}");
        }
        yaml.push_str(if part.workers.trim().is_empty() { "" } else { "    workers:\n" });
        for line in part.workers.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let _ = writeln!(yaml, "      {line}");
        }
        for other in others {
            let _ = writeln!(
                grants,
                "  - {{ from: {other}, on: {node}, workers: [\"*\"], verbs: [status, relaunch, hold, nudge, repipe, power, prove] }}"
            );
        }
    }
    yaml + &grants
}

/// Has Redis on `ai-core` serve the others, too.
pub(crate) fn open_redis(lab: &Lab) {
    lab.sh(
        "ai-core",
        "printf '%s\\n' 'bind 0.0.0.0' 'protected-mode no' 'save \"\"' >>/etc/redis/redis.conf; systemctl start redis-server",
    );
}

impl Lab {
    /// What all supervisors did, oldest first: the node, and the record.
    pub(crate) fn all_acts(&self) -> Vec<String> {
        let of = |node: &&str| {
            let acts = self.evidence(node, "acting");
            acts.into_iter().map(|act| format!("{node}: {act}")).collect::<Vec<_>>()
        };
        NODES.iter().flat_map(of).collect()
    }

    /// What was done since all that was done was this.
    pub(crate) fn acts_since(&self, before: &[String]) -> Vec<String> {
        let mut before = before.to_vec();
        let mut acts = self.all_acts();
        // Equal records are told apart by their number.
        acts.retain(|act| match before.iter().position(|known| known == act) {
            Some(at) => {
                before.swap_remove(at);
                false
            }
            None => true,
        });
        acts
    }

    /// The present runs of some units of every node.
    pub(crate) fn all_runs(&self, units: &[&str]) -> Vec<String> {
        let line = format!("systemctl show -P InvocationID {}", units.join(" "));
        let of = |node: &str| {
            format!("{node}: {}", self.sh(node, &line).split_whitespace().collect::<Vec<_>>().join(" "))
        };
        NODES.map(of).into()
    }

    /// The class that `at` sees a worker in.
    pub(crate) fn class(&self, at: &str, node: &str, worker: &str) -> Value {
        self.worker(at, node, worker)["class"].clone()
    }

    /// Waits until `at` sees a node in this state.
    pub(crate) fn until_state(&self, at: &str, node: &str, state: &str) -> Value {
        wait(&format!("{at} sees {node} {state}"), 2 * SOON, || {
            let seen = self.node(at, node);
            (seen["state"] == state).then_some(seen)
        })
    }

    /// Waits until every node sees every node up and all workers healthy.
    pub(crate) fn all_well(&self) {
        for at in NODES {
            wait(&format!("{at} sees all well"), 2 * SOON, || {
                let nodes = self.status(at);
                let nodes = nodes.as_array()?;
                let well = |node: &Value| {
                    let workers = node["workers"].as_array().into_iter().flatten();
                    node["state"] == "up" && workers.into_iter().all(|worker| worker["class"] == "healthy")
                };
                (nodes.len() == NODES.len() && nodes.iter().all(well)).then_some(())
            });
        }
    }

    /// Runs a command of this host in a node's network.
    pub(crate) fn in_net(&self, node: &str, command: &[&str]) -> String {
        let leader = self.lab(&["leader", node]);
        let output = Command::new("nsenter")
            .args(["-t", leader.trim(), "-n"])
            .args(command)
            .output()
            .expect("nsenter");
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{node}: {command:?}: {out}{err}");
        out.into_owned()
    }

    /// From now on packets of a node that match these conditions of nftables, as they leave or come, are lost.
    pub(crate) fn lose(&self, node: &str, leaving: &[String], coming: &[String]) {
        let rules = |what: &[String]| what.iter().map(|rule| format!("{rule} drop; ")).collect::<String>();
        let table = format!(
            "table inet lab {{\nchain out {{ type filter hook output priority 0; {} }}\nchain in {{ type filter hook input priority 0; {} }}\n}}",
            rules(leaving),
            rules(coming)
        );
        self.in_net(node, &["nft", &table]);
    }

    /// Nothing that root runs on a node reaches Redis, so that its supervisor is blind. Lanes run as somebody else.
    pub(crate) fn hide_redis_from_root(&self, node: &str) {
        let redis = format!("meta skuid 0 ip daddr {} tcp dport 6379", address("ai-core"));
        self.lose(node, &[redis], &[]);
    }

    /// No more of that.
    pub(crate) fn find_again(&self, node: &str) {
        self.in_net(node, &["nft", "delete table inet lab"]);
    }
}
