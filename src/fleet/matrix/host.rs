//! What the node that hosts Redis means for all the others.

use std::net::IpAddr;

use crate::fleet::{Fleet, Worker};
use crate::vocabulary::{FailureClass, Flow, Heartbeat, NodeName, WorkerName};

/// How many workers are named for a class.
const NAMED: usize = 6;

/// What holds for several rows: for all, or as far as it matters for what is shown of them.
pub(super) fn notes(fleet: &Fleet, shown: Option<Selection<'_>>) -> Vec<String> {
    let mut notes = Vec::new();
    let disabled: Vec<&str> =
        fleet.nodes.iter().filter(|(_, node)| node.disabled).map(|(name, _)| name.as_str()).collect();
    if !disabled.is_empty() && shown.is_none() {
        notes.push(format!("Disabled, and left out: {}.", disabled.join(", ")));
    }
    let Some(url) = &fleet.redis else { return notes };
    let hosts = hosts(url);
    let many = hosts.len() > 1;
    for host in &hosts {
        let node = if is_loopback(host) { None } else { node_of(fleet, host) };
        if shown.is_some_and(|shown| !shown.hosts(node) && !shown.asks(fleet, node.filter(|_| !many))) {
            continue;
        }
        if is_loopback(host) {
            notes.push(format!(
                "Redis is said to be on {host}: each node asks its own, and sees only its own queues."
            ));
        } else if let Some(node) = node {
            notes.push(on_node(fleet, node, many));
        } else {
            notes.push(format!(
                "Redis is on {host}, which is no node of this fleet: nobody here watches that host. {}",
                while_away("While it is down", fleet, None)
            ));
        }
    }
    notes
}

/// What is shown of the table: a node, or one worker of it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Selection<'a> {
    pub(super) node: &'a NodeName,
    pub(super) worker: Option<&'a WorkerName>,
}

impl Selection<'_> {
    /// Whether the node itself is shown, and Redis is on it.
    fn hosts(self, node: Option<&NodeName>) -> bool {
        self.worker.is_none() && node == Some(self.node)
    }

    /// Whether a detector of anything shown asks Redis; what is on `except` falls with it anyway.
    fn asks(self, fleet: &Fleet, except: Option<&NodeName>) -> bool {
        let workers =
            fleet.nodes.get(self.node).filter(|_| except != Some(self.node)).map(|node| &node.workers);
        workers.into_iter().flatten().any(|(name, worker)| {
            self.worker.is_none_or(|shown| shown == name)
                && FailureClass::OF_WORKERS.into_iter().any(|class| asks(worker, class))
        })
    }
}

/// What a worker whose progress is seen in Redis depends on, for whoever asks about that one.
pub fn seen_in_redis(fleet: &Fleet, worker: &Worker) -> Option<String> {
    let classes = [FailureClass::Stuck, FailureClass::DeliveryGap];
    let classes: Vec<&str> =
        classes.into_iter().filter(|class| asks(worker, *class)).map(FailureClass::name).collect();
    let hosts = hosts(fleet.redis.as_ref().filter(|_| !classes.is_empty())?).join(", ");
    Some(format!(
        "whether it is {} is seen in Redis (on {hosts}); while that is away nobody can see it, and unknown never acts",
        classes.join(" or ")
    ))
}

fn on_node(fleet: &Fleet, node: &NodeName, many: bool) -> String {
    if many {
        return format!(
            "A sentinel of Redis is on {node}. {}",
            while_away("While Redis moves, or its sentinels cannot agree", fleet, None)
        );
    }
    format!("Redis is on {node}. {}", while_away(&format!("While {node} is down"), fleet, Some(node)))
}

/// What is lost from sight on all nodes but `except`, whose workers are down then anyway.
fn while_away(when: &str, fleet: &Fleet, except: Option<&NodeName>) -> String {
    const REST: &str =
        "Lanes wait and go on by themselves; dead workers are found and brought back all the same.";
    let lost: Vec<String> = FailureClass::OF_WORKERS
        .into_iter()
        .map(|class| (class, looked_up(fleet, class, except)))
        .filter(|(_, workers)| !workers.is_empty())
        .map(|(class, workers)| {
            let named = workers.iter().take(NAMED).map(String::as_str).collect::<Vec<_>>().join(", ");
            let more = workers.len().saturating_sub(NAMED);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            format!("{class} of {named}{more}")
        })
        .collect();
    if lost.is_empty() {
        return format!("{when}, nothing else is lost from sight. {REST}");
    }
    let turned = except.map_or_else(String::new, |node| {
        format!(" It is not so the other way round: {node} goes on seeing its own when another node is down.")
    });
    format!(
        "{when}, nobody can see {}; what is not seen is unknown, and unknown never acts. {REST}{turned}",
        lost.join("; ")
    )
}

/// Whether the detector of a class asks Redis about the worker.
fn asks(worker: &Worker, class: FailureClass) -> bool {
    match class {
        FailureClass::Stuck => {
            worker.stuck.as_ref().is_some_and(|stuck| matches!(stuck.heartbeat, Heartbeat::Redis(_)))
        }
        FailureClass::DeliveryGap => worker
            .delivery_gap
            .as_ref()
            .is_some_and(|gap| matches!(gap.flow, Flow::Queue { .. } | Flow::Lane(_))),
        FailureClass::Dead | FailureClass::SupervisorDead | FailureClass::Unreachable => false,
    }
}

/// The workers for which the detector of a class asks Redis.
fn looked_up(fleet: &Fleet, class: FailureClass, except: Option<&NodeName>) -> Vec<String> {
    let nodes = fleet.nodes.iter().filter(|(name, node)| !node.disabled && Some(*name) != except);
    let workers =
        nodes.flat_map(|(node, spec)| spec.workers.iter().map(move |(name, spec)| (node, name, spec)));
    workers.filter(|(_, _, spec)| asks(spec, class)).map(|(node, name, _)| format!("{node}/{name}")).collect()
}

/// The hosts of a URL that has been checked (`redis.rs`): one, or the sentinels. User and password stay out.
fn hosts(url: &str) -> Vec<String> {
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    if scheme.ends_with("unix") {
        return vec!["localhost".to_owned()];
    }
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let hosts = authority.rsplit_once('@').map_or(authority, |(_, hosts)| hosts);
    let host = |text: &str| match text.strip_prefix('[') {
        Some(v6) => v6.split(']').next().unwrap_or_default().to_owned(),
        None => text.split(':').next().unwrap_or_default().to_owned(),
    };
    hosts.split(',').map(host).collect()
}

fn is_loopback(host: &str) -> bool {
    host.eq_ignore_ascii_case("localhost")
        || host.parse::<IpAddr>().is_ok_and(|ip| ip.to_canonical().is_loopback())
}

/// The node that is meant: by its name, also as the first part of a longer one, or by its address.
fn node_of<'f>(fleet: &'f Fleet, host: &str) -> Option<&'f NodeName> {
    if let Ok(ip) = host.parse::<IpAddr>() {
        let same = |node: &IpAddr| node.to_canonical() == ip.to_canonical();
        return fleet.nodes.iter().find(|(_, node)| same(&node.address.ip())).map(|(name, _)| name);
    }
    let named = |host: &str| fleet.nodes.keys().find(|name| name.as_str().eq_ignore_ascii_case(host));
    named(host).or_else(|| named(host.split('.').next().unwrap_or_default()))
}
