//! How the values of the file fit together: names that must exist, values that must differ, pins that must be there.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::model::{Fleet, Grant, Lanes, Node, Right, Scope, Worker};
use super::raw::{RawFleet, RawGrant, RawNode, RawScope, RawWorker};
use super::watch;
use crate::config::report::{At, Located, Report};
use crate::vocabulary::{FleetHash, WorkerName};

/// Checks everything and, if nothing was found, builds the fleet.
pub(super) fn validate(report: &mut Report<'_>, raw: &RawFleet, hash: FleetHash) -> Option<Fleet> {
    let index: BTreeMap<&str, &RawNode> =
        raw.nodes.iter().map(|node| (node.name.value.as_str(), node)).collect();
    addresses(report, raw);
    pins(report, raw);
    raw.nodes.iter().for_each(|node| units(report, node));
    if !raw.has_redis {
        no_redis(report, raw);
    }
    let before = report.errors();
    for node in &raw.nodes {
        for watcher in &node.watched_by {
            if watcher.value == node.name.value {
                report.error(watcher.at, "a node cannot watch itself", "expected another node");
            } else {
                known_node(report, watcher, &index);
            }
        }
    }
    raw.grants.iter().for_each(|grant| grant_names(report, grant, &index));
    if raw.promises_readable && report.errors() == before {
        watch::check(report, raw, &index);
    }
    if report.errors() == 0 { build(raw, hash) } else { None }
}

fn known_node<'r>(
    report: &mut Report<'_>,
    name: &Located<String>,
    index: &BTreeMap<&str, &'r RawNode>,
) -> Option<&'r RawNode> {
    let found = index.get(name.value.as_str()).copied();
    if found.is_none() {
        let help = report.did_you_mean(&name.value, index.keys().copied());
        report.error(name.at, "there is no such node", help);
    }
    found
}

/// Reports each value that has been seen before, with the place of the first.
fn differ<T: Ord>(report: &mut Report<'_>, values: impl Iterator<Item = (T, At, String)>, help: &str) {
    let mut seen: BTreeMap<T, (u32, String)> = BTreeMap::new();
    for (value, at, whose) in values {
        if let Some((line, first)) = seen.get(&value) {
            report.error(at, format!("{first} has the same on line {line}"), help);
        } else {
            seen.insert(value, (at.line, whose));
        }
    }
}

fn addresses(report: &mut Report<'_>, raw: &RawFleet) {
    let all = raw.nodes.iter().filter_map(|node| {
        let address = node.address.as_ref()?;
        let canonical = (address.value.ip().to_canonical(), address.value.port());
        Some((canonical, address.at, format!("node `{}`", node.name.value)))
    });
    differ(report, all, "expected an address of its own for each node");
}

fn units(report: &mut Report<'_>, node: &RawNode) {
    let all = node.workers.iter().filter_map(|worker| {
        let unit = worker.unit.as_ref()?;
        Some((unit.value.as_str(), unit.at, format!("worker `{}`", worker.name.value)))
    });
    differ(report, all, "expected a unit of its own for each worker of a node");
}

/// What can only be seen in Redis, in a fleet without one.
fn no_redis(report: &mut Report<'_>, raw: &RawFleet) {
    for at in raw.nodes.iter().flat_map(|node| &node.workers).flat_map(|worker| &worker.care.needs_redis) {
        report.error(
            *at,
            "this is seen in Redis, and the file does not say where that is",
            "expected `redis: { url: \"redis://HOST:PORT\" }` at the top of the file",
        );
    }
}

/// Peers know each other by pin alone: whoever watches, is watched or is named in a grant needs one.
fn pins(report: &mut Report<'_>, raw: &RawFleet) {
    let all = raw.nodes.iter().flat_map(|node| {
        node.pins.iter().map(|pin| (pin.value, pin.at, format!("node `{}`", node.name.value)))
    });
    differ(report, all, "a key says who a node is: expected a key of its own for each node");

    let watchers = raw.nodes.iter().flat_map(|node| &node.watched_by);
    let granted = raw.grants.iter().flat_map(|grant| grant.from.iter().chain(&grant.on));
    let named: BTreeSet<&str> = watchers.chain(granted).map(|name| name.value.as_str()).collect();
    for node in raw.nodes.iter().filter(|node| !node.has_pins && !node.disabled) {
        if named.contains(node.name.value.as_str()) || !node.watched_by.is_empty() {
            report.error(
                node.name.at,
                format!("node `{}` has no `pins`, so no peer can know it", node.name.value),
                "expected `pins: [\"sha256:…\"]`, from `keyholder key show` on that node",
            );
        }
    }
}

fn grant_names(report: &mut Report<'_>, grant: &RawGrant, index: &BTreeMap<&str, &RawNode>) {
    if let Some(from) = &grant.from {
        known_node(report, from, index);
    }
    let Some(on) = &grant.on else { return };
    if grant.from.as_ref().is_some_and(|from| from.value == on.value) {
        report.error(
            on.at,
            "a node needs no grant on itself",
            "expected another node: root on a node may everything there",
        );
        return;
    }
    let Some(node) = known_node(report, on, index) else { return };
    if let Some(power) = grant.verbs.iter().find(|verb| verb.value == Right::Power)
        && matches!(grant.workers, Some(RawScope::Only(_)))
    {
        report.error(
            power.at,
            "a node's power cannot be granted for some of its workers",
            "expected `workers: [\"*\"]` in this grant, or `power` in one of its own",
        );
    }
    let Some(RawScope::Only(names)) = &grant.workers else { return };
    let known: BTreeSet<&str> = node.workers.iter().map(|worker| worker.name.value.as_str()).collect();
    for name in names.iter().filter(|name| !known.contains(name.value.as_str())) {
        let help = report.did_you_mean(&name.value, known.iter().copied());
        report.error(name.at, format!("node `{}` has no such worker", on.value), help);
    }
}

/// Everything is there by now, or a problem has been reported for it.
fn build(raw: &RawFleet, hash: FleetHash) -> Option<Fleet> {
    let build_node = |node| build_node(node, raw.redis.is_some());
    let nodes = raw.nodes.iter().map(|node| Some((node.parsed.clone()?, build_node(node)?)));
    let grants = raw.grants.iter().map(build_grant);
    Some(Fleet {
        hash,
        redis: raw.redis.clone(),
        task_keys: raw.task_keys.iter().cloned().collect(),
        approver_keys: raw.approver_keys.iter().cloned().collect(),
        lanes: Lanes { read_routing: raw.read_routing },
        nodes: nodes.collect::<Option<_>>()?,
        grants: grants.collect::<Option<_>>()?,
    })
}

fn build_node(node: &RawNode, redis: bool) -> Option<Node> {
    let build_worker = |worker| build_worker(worker, redis);
    Some(Node {
        address: node.address.as_ref()?.value,
        pins: node.pins.iter().map(|pin| pin.value).collect(),
        watched_by: node.watched_by.iter().map(|name| name.value.parse().ok()).collect::<Option<_>>()?,
        disabled: node.disabled,
        insecure_unsigned_write: node.insecure_unsigned_write,
        power: node.power.as_ref().map(|power| power.value.clone()),
        workers: node.workers.iter().map(build_worker).collect::<Option<_>>()?,
    })
}

fn build_worker(worker: &RawWorker, redis: bool) -> Option<(WorkerName, Arc<Worker>)> {
    let unit = worker.unit.as_ref()?.value.clone();
    let (lane, blast_radius, policy) = (worker.lane, worker.blast_radius, worker.policy.clone());
    let stuck = worker.care.stuck.clone();
    // A lane's own queue is looked at without a word only where there is a Redis to look into.
    let delivery_gap = worker.care.delivery_gap.clone().filter(|_| redis);
    let built = Worker { unit, lane, blast_radius, policy, stuck, delivery_gap };
    Some((worker.parsed.clone()?, Arc::new(built)))
}

fn build_grant(grant: &RawGrant) -> Option<Grant> {
    Some(Grant {
        from: grant.from.as_ref()?.value.parse().ok()?,
        on: grant.on.as_ref()?.value.parse().ok()?,
        workers: match grant.workers.as_ref()? {
            RawScope::All => Scope::All,
            RawScope::Only(names) => {
                Scope::Only(names.iter().map(|name| name.value.parse().ok()).collect::<Option<_>>()?)
            }
        },
        rights: grant.verbs.iter().map(|verb| verb.value).collect(),
    })
}
