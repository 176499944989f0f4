//! What the watched nodes say of themselves, and what their silence says.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::core::Core;
use super::neighbours::Neighbour;
use crate::fleet::Node;
use crate::journal::{Event as Kind, Priority, Record};
use crate::peer::desk::Update;
use crate::peer::watch::{PeerEvent, PeerHandle, What};
use crate::peer::wire::NodeState;
use crate::vocabulary::{Moment, NodeName, human};

impl Core {
    /// One node's watch task has news.
    pub(super) fn peer(&mut self, event: PeerEvent, now: Moment) {
        let PeerEvent { node, what } = event;
        let Some(neighbour) = self.neighbours.get_mut(&node) else { return };
        let before = neighbour.state();
        let changed = match what {
            What::Connected { version, fleet_hash } => {
                neighbour.hello(version, fleet_hash);
                let silent = human(now.since(neighbour.since()));
                let back = neighbour.turn(NodeState::Up, "its supervisor answers".to_owned(), now);
                let was_away = before != NodeState::Unknown;
                back.then(|| {
                    let text = if was_away { format!("{node} answers again after {silent}") } else { format!("{node} answers") };
                    (Kind::Peer, Priority::Notice, text)
                })
            }
            What::Snapshot(report) => {
                neighbour.turn(report.state, report.why.clone(), now);
                neighbour.snapshot(report, now);
                let report = neighbour.report(&node, now);
                self.publish_all(Update::Node(report));
                None
            }
            What::Change(report) => {
                neighbour.change(report.clone(), now);
                self.publish_all(Update::Worker(report));
                None
            }
            What::Leaving => neighbour
                .turn(NodeState::Leaving, "it said that it shuts down or reboots".to_owned(), now)
                .then(|| (Kind::Peer, Priority::Notice, format!("{node} shuts down or reboots, and said so"))),
            // A node that said goodbye is silent because it left, until it is heard from again.
            What::Lost { .. } if before == NodeState::Leaving => None,
            What::Lost { state, why } => neighbour.turn(state, why.clone(), now).then(|| {
                let text = match state {
                    NodeState::SupervisorDead => format!("the supervisor of {node} does not answer though its host does; knocking: {why}"),
                    NodeState::Unreachable => format!("{node} cannot be reached: its host is down or cut off, which look the same from here. If it stays so, someone must go there ({why})"),
                    NodeState::Up | NodeState::Starting | NodeState::Leaving | NodeState::Unknown => format!("{node}: {why}"),
                };
                let priority = if state == NodeState::Unreachable { Priority::Error } else { Priority::Warning };
                (if state == NodeState::Unreachable { Kind::Alert } else { Kind::Peer }, priority, text)
            }),
        };
        if let Some((kind, priority, text)) = changed {
            self.recorder.record(Record::local(kind, priority, node.as_str(), text));
            if let Some(neighbour) = self.neighbours.get(&node) {
                self.publish_all(Update::Node(neighbour.report(&node, now)));
            }
        }
    }

    /// Follows the nodes that the fleet file tells this one to watch: `follow` starts a watch, dropping a handle ends it.
    pub(super) fn follow_neighbours(
        &mut self,
        before: &BTreeMap<NodeName, Node>,
        follow: impl Fn(&NodeName, &Node) -> PeerHandle,
        now: Moment,
    ) {
        let mut old = std::mem::take(&mut self.neighbours);
        for (name, node) in Arc::clone(&self.fleet).watched_by(&self.me) {
            let same = before.get(name).is_some_and(|was| was.address == node.address && was.pins == node.pins);
            let neighbour = match old.remove(name) {
                Some(kept) if same => kept,
                Some(_) | None => Neighbour::new(follow(name, node), now),
            };
            self.neighbours.insert(name.clone(), neighbour);
        }
    }
}
