//! Whether what the file promises can be kept: who watches must be allowed to look, and who is to repair must be
//! allowed to act. A promise that nobody can keep is an error; a gap that may be meant is a warning.

use std::collections::{BTreeMap, BTreeSet};

use super::model::Right;
use super::raw::{RawFleet, RawGrant, RawNode, RawScope, RawWorker};
use crate::config::report::{Located, Report};
use crate::vocabulary::{RepairBy, Witness};

/// The grants by who asks and who obeys.
type Granted<'r> = BTreeMap<(&'r str, &'r str), Vec<&'r RawGrant>>;

/// Checks watchers and grants against each other. Only for a file in which every name of a grant and of `watched_by`
/// could be read: otherwise each slip would be reported a second time, as the right that is now missing.
pub(super) fn check(report: &mut Report<'_>, raw: &RawFleet, index: &BTreeMap<&str, &RawNode>) {
    let mut granted = Granted::new();
    for grant in &raw.grants {
        if let Some((from, on)) = grant.from.as_ref().zip(grant.on.as_ref()) {
            disabled(report, grant, index);
            granted.entry((&from.value, &on.value)).or_default().push(grant);
        }
    }
    for grants in granted.values() {
        duplicates(report, grants);
    }
    for node in raw.nodes.iter().filter(|node| !node.disabled) {
        watchers(report, node, index);
        can_look(report, node, index, &granted);
        can_serve(report, node, &granted, Right::Relaunch, |_| true);
        can_serve(report, node, &granted, Right::Nudge, |worker| {
            worker.care.stuck.as_ref().is_some_and(|stuck| stuck.nudge.is_some())
        });
        can_serve(report, node, &granted, Right::Repipe, |worker| {
            raw.redis.is_some() && worker.care.delivery_gap.as_ref().is_some_and(|gap| gap.repipe.is_some())
        });
        can_power(report, node, index, &granted);
    }
}

fn disabled(report: &mut Report<'_>, grant: &RawGrant, index: &BTreeMap<&str, &RawNode>) {
    for name in grant.from.iter().chain(&grant.on) {
        if index.get(name.value.as_str()).is_some_and(|node| node.disabled) {
            report.warn(
                name.at,
                format!("node `{}` is disabled, so this grant has no effect", name.value),
                "harmless while the node is disabled; otherwise take it out",
            );
        }
    }
}

/// A grant that another one contains. Of two equal ones the later is named.
fn duplicates(report: &mut Report<'_>, grants: &[&RawGrant]) {
    for (n, grant) in grants.iter().enumerate() {
        let container = grants
            .iter()
            .enumerate()
            .find(|(other, by)| *other != n && contains(by, grant) && (*other < n || !contains(grant, by)));
        if let Some((_, by)) = container {
            report.warn(
                grant.at,
                format!("the grant on line {} already contains this one", by.at.line),
                "take it out",
            );
        }
    }
}

fn contains(outer: &RawGrant, inner: &RawGrant) -> bool {
    let rights = |grant: &RawGrant| grant.verbs.iter().map(|verb| verb.value).collect::<BTreeSet<_>>();
    let scope = match (&outer.workers, &inner.workers) {
        (Some(RawScope::All), Some(_)) => true,
        (Some(RawScope::Only(outer)), Some(RawScope::Only(inner))) => {
            let outer: BTreeSet<&str> = outer.iter().map(|name| name.value.as_str()).collect();
            inner.iter().all(|name| outer.contains(name.value.as_str()))
        }
        (Some(RawScope::Only(_)), Some(RawScope::All)) | (None, _) | (_, None) => false,
    };
    scope && rights(outer).is_superset(&rights(inner))
}

fn watchers(report: &mut Report<'_>, node: &RawNode, index: &BTreeMap<&str, &RawNode>) {
    let name = &node.name.value;
    if node.watched_by.is_empty() {
        report.warn(
            node.name.at,
            format!("nobody watches node `{name}`"),
            "if its supervisor dies nobody will know; name a peer in `watched_by`",
        );
    } else if node.watched_by.iter().all(|by| index.get(by.value.as_str()).is_some_and(|by| by.disabled)) {
        report.warn(
            node.name.at,
            format!("nobody watches node `{name}`: each of its watchers is disabled"),
            "if its supervisor dies nobody will know; name another peer in `watched_by`",
        );
    }
}

/// A watcher without `status` is refused everything it would see.
fn can_look(
    report: &mut Report<'_>,
    node: &RawNode,
    index: &BTreeMap<&str, &RawNode>,
    granted: &Granted<'_>,
) {
    let on = &node.name.value;
    for by in &node.watched_by {
        let enabled = index.get(by.value.as_str()).is_some_and(|watcher| !watcher.disabled);
        let workers: Vec<&RawWorker> = node.workers.iter().collect();
        let blind = without(granted, &by.value, on, &workers, Right::Status);
        if enabled && !blind.is_empty() {
            report.warn(
                by.at,
                format!("`{}` watches `{on}` but may not see {}", by.value, names(&blind, workers.len())),
                format!("grant it: {}", line(&by.value, on, Right::Status.name())),
            );
        }
    }
}

/// Who must serve what. With `repair_by: peer` a relaunch that no peer may order is an error, because nobody ever could;
/// else it is a warning, because a second pair of hands was promised by `watched_by`.
fn can_serve(
    report: &mut Report<'_>,
    node: &RawNode,
    granted: &Granted<'_>,
    right: Right,
    needs: impl Fn(&RawWorker) -> bool,
) {
    let (on, verb) = (&node.name.value, right.name());
    let workers: Vec<&RawWorker> = node.workers.iter().filter(|worker| needs(worker)).collect();
    let mut unable: Vec<(&Located<String>, BTreeSet<&str>, Vec<&RawWorker>)> = Vec::new();
    for by in &node.watched_by {
        let lacking = without(granted, &by.value, on, &workers, right);
        unable.push((by, lacking.iter().map(|worker| worker.name.value.as_str()).collect(), Vec::new()));
    }
    let mut alone = Vec::new();
    for worker in &workers {
        let name = worker.name.value.as_str();
        let nobody = unable.iter().all(|(_, lacking, _)| lacking.contains(name));
        match worker.policy.repair_by {
            RepairBy::Peer if nobody && right == Right::Relaunch => report.error(
                worker.repair_at,
                format!("only peers may repair `{on}/{name}`, and no peer that watches `{on}` may"),
                "expected a grant of `relaunch` to a node in `watched_by`, or `repair_by: node`",
            ),
            RepairBy::Peer => {
                let some = unable.iter_mut().filter(|(_, lacking, _)| lacking.contains(name));
                some.for_each(|(_, _, workers)| workers.push(worker));
            }
            RepairBy::Node if nobody => alone.push(*worker),
            RepairBy::Node | RepairBy::Nobody => {}
        }
    }
    for (by, _, cannot) in unable.iter().filter(|(_, _, cannot)| !cannot.is_empty()) {
        report.warn(
            by.at,
            format!("`{}` may not {verb} {}, which only peers repair", by.value, names(cannot, 0)),
            format!("grant it: {}", line(&by.value, on, verb)),
        );
    }
    // A node that nobody watches has had its own warning.
    if !alone.is_empty() && !node.watched_by.is_empty() {
        let help = if right == Right::Relaunch {
            format!("if `{on}` itself cannot repair it, nobody will; grant `relaunch` to a watcher")
        } else {
            format!("what only a watcher can see is not fixed that way then; grant `{verb}` to a watcher")
        };
        let all = node.workers.len();
        report.warn(node.name.at, format!("no watcher of `{on}` may {verb} {}", names(&alone, all)), help);
    }
}

/// An actuator that nobody may use is none.
fn can_power(
    report: &mut Report<'_>,
    node: &RawNode,
    index: &BTreeMap<&str, &RawNode>,
    granted: &Granted<'_>,
) {
    let Some(power) = &node.power else { return };
    let on = node.name.value.as_str();
    let allowed = |by: &str| {
        let grants = granted.get(&(by, on)).map(Vec::as_slice).unwrap_or_default();
        grants.iter().flat_map(|grant| &grant.verbs).any(|verb| verb.value == Right::Power)
    };
    let mut watchers = node
        .watched_by
        .iter()
        .filter(|by| index.get(by.value.as_str()).is_some_and(|watcher| !watcher.disabled));
    let first = watchers.clone().next();
    if !watchers.any(|by| allowed(&by.value)) {
        let help = first.map_or_else(
            || "only a watcher can use it: name a peer in `watched_by`".to_owned(),
            |by| format!("grant it: {}", line(&by.value, on, Right::Power.name())),
        );
        report.warn(power.at, format!("nobody may switch `{on}` on again"), help);
    }
    if power.value.witness.is_some() {
        if power.value.witness
            == node.address.as_ref().map(|own| Witness::At(own.value.ip().to_canonical(), None))
        {
            let help = "expected an address that answers while this node is down, such as `witness: gateway`";
            report.warn(power.at, format!("`{on}` is no witness of its own silence"), help);
        }
        return;
    }
    let enabled =
        || node.watched_by.iter().filter(|by| index.get(by.value.as_str()).is_some_and(|by| !by.disabled));
    let watches_another = |by: &str| {
        let watched = |other: &&&RawNode| {
            !other.disabled && other.name.value != on && other.watched_by.iter().any(|name| name.value == by)
        };
        index.values().any(|other| watched(&other))
    };
    for by in enabled().filter(|by| allowed(&by.value) && !watches_another(&by.value)) {
        report.warn(
            power.at,
            format!("`{}` will not run `power` of `{on}` by itself: it watches no other node, so it cannot tell that it is not itself cut off", by.value),
            "add a witness that it has to reach: `witness: gateway` or `witness: ADDRESS`; by hand: keyholder power NODE",
        );
    }
}

/// The workers for which `from` lacks a right on node `on`.
fn without<'r>(
    granted: &Granted<'_>,
    from: &str,
    on: &str,
    workers: &[&'r RawWorker],
    right: Right,
) -> Vec<&'r RawWorker> {
    let grants = granted.get(&(from, on)).map(Vec::as_slice).unwrap_or_default();
    let with = || grants.iter().filter(|grant| grant.verbs.iter().any(|verb| verb.value == right));
    if with().any(|grant| matches!(grant.workers, Some(RawScope::All))) {
        return Vec::new();
    }
    let allowed: BTreeSet<&str> = with()
        .filter_map(|grant| match &grant.workers {
            Some(RawScope::Only(names)) => Some(names),
            Some(RawScope::All) | None => None,
        })
        .flatten()
        .map(|name| name.value.as_str())
        .collect();
    workers.iter().filter(|worker| !allowed.contains(worker.name.value.as_str())).copied().collect()
}

/// Workers in words; all of them if there are that many.
fn names(workers: &[&RawWorker], all: usize) -> String {
    const LISTED: usize = 4;
    if workers.len() == all && all > 1 {
        return "any of its workers".to_owned();
    }
    let listed: Vec<String> =
        workers.iter().take(LISTED).map(|worker| format!("`{}`", worker.name.value)).collect();
    let more = workers.len().saturating_sub(LISTED);
    if more > 0 { format!("{} and {more} more", listed.join(", ")) } else { listed.join(", ") }
}

fn line(from: &str, on: &str, verb: &str) -> String {
    format!("- {{ from: {from}, on: {on}, workers: [\"*\"], verbs: [{verb}] }}")
}
