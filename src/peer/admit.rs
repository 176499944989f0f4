//! May this asker have this done? Pure: the fleet file and the request in, yes or a refusal with its way out.

use super::inbox::Asker;
use super::wire::{Refusal, RefusalCode, Request, Verb};
use crate::fleet::{Fleet, Right};
use crate::vocabulary::{BootNonce, NodeName, WorkerName};

/// Checks a request that has arrived at node `me`, whose present run is `nonce`. Deny by default.
///
/// # Errors
/// The [`Refusal`] to answer with. Nothing has been touched then.
pub fn admit(
    fleet: &Fleet,
    me: &NodeName,
    nonce: &BootNonce,
    asker: &Asker,
    request: &Request,
) -> Result<(), Refusal> {
    if request.boot_nonce != *nonce {
        return Err(Refusal::new(
            RefusalCode::StaleNonce,
            format!(
                "the request was made for an earlier run of the supervisor on {me}: connect again and ask again"
            ),
        ));
    }
    match asker {
        Asker::Peer { node, .. } => admit_peer(fleet, me, node, request),
        Asker::Local { uid } => admit_local(fleet, me, *uid, request),
    }
}

/// Whether `peer` may see `worker` of node `me`.
pub fn may_see(fleet: &Fleet, me: &NodeName, peer: &NodeName, worker: &WorkerName) -> bool {
    fleet.allows(peer, me, worker, Right::Status)
}

/// Whether `peer` follows node `me`: listed as a watcher and granted to see at least one worker.
pub fn may_watch(fleet: &Fleet, me: &NodeName, peer: &NodeName) -> bool {
    fleet
        .nodes
        .get(me)
        .is_some_and(|node| node.watched_by.contains(peer) && any(fleet, me, peer, Right::Status))
}

/// Whether `peer` has `right` on at least one worker of node `me`.
fn any(fleet: &Fleet, me: &NodeName, peer: &NodeName, right: Right) -> bool {
    let workers = fleet.nodes.get(me).map(|node| &node.workers);
    workers.is_some_and(|workers| workers.keys().any(|worker| fleet.allows(peer, me, worker, right)))
}

fn admit_peer(fleet: &Fleet, me: &NodeName, peer: &NodeName, request: &Request) -> Result<(), Refusal> {
    if request.target_node != *me {
        return Err(Refusal::new(
            RefusalCode::WrongNode,
            format!(
                "this is {me}, and peers are served for their own node only: ask {} itself",
                request.target_node
            ),
        ));
    }
    let verb = request.verb.name();
    let Some(right) = request.verb.right() else {
        return Err(Refusal::new(
            RefusalCode::LocalOnly,
            format!("{verb} is served on the local socket only: run it on {me}"),
        ));
    };
    let no_grant = |worker: &str| {
        Refusal::new(
            RefusalCode::NoGrant,
            format!(
                "{peer} may not {verb} {me}/{worker}: the fleet.yaml of {me} would need the grant \
                 {{ from: {peer}, on: {me}, workers: [{worker}], verbs: [{}] }}",
                right.name()
            ),
        )
    };
    match &request.worker {
        None if needs_worker(&request.verb) => return Err(no_worker(verb, me)),
        // The supervisor looks after all workers: who may rehearse some of them may not kill it.
        None if right == Right::Drill && !fleet.allows_node(peer, me, right) => {
            return Err(no_grant("\"*\""));
        }
        None if !any(fleet, me, peer, right) => return Err(no_grant("\"*\"")),
        None => {}
        // The grant first: who has no rights does not learn which workers there are.
        Some(worker) if !fleet.allows(peer, me, worker, right) => return Err(no_grant(worker.as_str())),
        Some(worker) => exists(fleet, me, worker)?,
    }
    let forced = matches!(&request.verb, Verb::Relaunch(order) if order.force)
        || matches!(&request.verb, Verb::Nudge(order) | Verb::Repipe(order) if order.force);
    if forced {
        return Err(Refusal::new(
            RefusalCode::NotRoot,
            format!(
                "a hold or a quarantine is overridden by root on {me} only: ask without force, or run it there"
            ),
        ));
    }
    Ok(())
}

fn admit_local(fleet: &Fleet, me: &NodeName, uid: u32, request: &Request) -> Result<(), Refusal> {
    let verb = request.verb.name();
    if request.verb.acts() && uid != 0 {
        return Err(Refusal::new(
            RefusalCode::NotRoot,
            format!("only root may {verb}, and this is uid {uid}: use sudo"),
        ));
    }
    let target = &request.target_node;
    // What is run here is about another node: the supervisor itself knows whether it watches that one.
    if let Verb::Power { .. } = request.verb {
        return Ok(());
    }
    if request.verb.right().is_none() {
        // These are about this supervisor's own knowledge.
        return if target == me {
            Ok(())
        } else {
            Err(Refusal::new(RefusalCode::WrongNode, format!("this is {me}: run {verb} on {target} itself")))
        };
    }
    let unknown = |why: &str| Refusal::new(RefusalCode::UnknownNode, format!("{target} {why}"));
    let node = fleet.nodes.get(target).ok_or_else(|| {
        unknown(&format!(
            "is not in fleet.yaml, which knows {}",
            names(fleet.nodes.keys().map(NodeName::as_str))
        ))
    })?;
    if node.disabled && target != me {
        return Err(unknown("is disabled in fleet.yaml: remove `disabled: true` there first"));
    }
    match &request.worker {
        // How a node looks from here.
        None if matches!(request.verb, Verb::Explain {}) => Ok(()),
        None if needs_worker(&request.verb) => Err(no_worker(verb, target)),
        None => Ok(()),
        Some(worker) => exists(fleet, target, worker),
    }
}

fn needs_worker(verb: &Verb) -> bool {
    match verb {
        Verb::Relaunch(_)
        | Verb::Nudge(_)
        | Verb::Repipe(_)
        | Verb::Hold { .. }
        | Verb::Release {}
        | Verb::Explain {} => true,
        // A rehearsal is of a worker, or of a node's supervisor.
        Verb::Status {}
        | Verb::Power { .. }
        | Verb::Drill(_)
        | Verb::Audit { .. }
        | Verb::Fleet {}
        | Verb::Prove { .. }
        | Verb::Requeue(_)
        | Verb::Drop(_)
        | Verb::Watch {}
        | Verb::Events {} => false,
    }
}

fn exists(fleet: &Fleet, on: &NodeName, worker: &WorkerName) -> Result<(), Refusal> {
    let workers = fleet.nodes.get(on).map(|node| &node.workers);
    if workers.is_some_and(|workers| workers.contains_key(worker)) {
        return Ok(());
    }
    let known = names(workers.into_iter().flat_map(|workers| workers.keys()).map(WorkerName::as_str));
    Err(Refusal::new(
        RefusalCode::UnknownWorker,
        format!("{on} has no worker {worker} in fleet.yaml; it has {known}"),
    ))
}

fn no_worker(verb: &str, node: &NodeName) -> Refusal {
    Refusal::new(RefusalCode::NoWorker, format!("{verb} needs a worker: name one as {node}/WORKER"))
}

/// At most ten names, so that a refusal stays readable.
fn names<'a>(all: impl Iterator<Item = &'a str>) -> String {
    let all: Vec<&str> = all.collect();
    match all.len() {
        0 => "none".to_owned(),
        1..=10 => all.join(", "),
        more => {
            format!("{} and {} more", all.iter().take(10).copied().collect::<Vec<_>>().join(", "), more - 10)
        }
    }
}

#[cfg(test)]
mod tests;
