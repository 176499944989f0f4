//! What the watched nodes say of themselves, and what their silence says.

use std::sync::Arc;

use super::core::Core;
use super::neighbours::Neighbour;
use crate::fleet::Fleet;
use crate::journal::{Event as Kind, Priority, Record};
use crate::peer::desk::Update;
use crate::peer::watch::{PeerEvent, PeerHandle, PeerNews};
use crate::peer::wire::NodeState;
use crate::vocabulary::{Moment, NodeName, human};

impl Core {
    /// One node's watch task has news.
    pub(super) fn peer(&mut self, event: PeerEvent, now: Moment) {
        let PeerEvent { node, what } = event;
        let Some(neighbour) = self.neighbours.get_mut(&node) else { return };
        let before = neighbour.state();
        let changed = match what {
            PeerNews::Connected(hello) => {
                let anew = neighbour.hello(hello);
                let silent = human(now.since(neighbour.since()));
                let back = neighbour.turn(NodeState::Up, "its supervisor answers".to_owned(), now);
                let text = match (back, before == NodeState::Unknown, anew) {
                    (true, false, _) => Some(format!("{node} answers again after {silent}")),
                    (true, true, _) => Some(format!("{node} answers")),
                    // Too quick for a loss to be noticed, but somebody should know of it.
                    (false, _, true) => Some(format!("the supervisor of {node} died or was restarted; a new run of it answered the knock")),
                    (false, _, false) => None,
                };
                text.map(|text| (Kind::Peer, Priority::Notice, text))
            }
            PeerNews::Snapshot(report) => {
                neighbour.turn(report.state, report.why.clone(), now);
                neighbour.snapshot(report, now);
                let report = neighbour.report(&node, now);
                self.publish_all(Update::Node(report));
                None
            }
            PeerNews::Change(report) => {
                neighbour.change(report.clone(), now);
                self.publish_all(Update::Worker(report));
                None
            }
            PeerNews::Leaving => neighbour
                .turn(NodeState::Leaving, "it said that it shuts down or reboots".to_owned(), now)
                .then(|| (Kind::Peer, Priority::Notice, format!("{node} shuts down or reboots, and said so"))),
            // A node that said goodbye is silent because it left, until it is heard from again.
            PeerNews::Lost { .. } if before == NodeState::Leaving => None,
            PeerNews::Lost { state, why } => neighbour.turn(state, why.clone(), now).then(|| {
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

    /// Follows the nodes that the fleet file tells this one to watch. After a reload every watch starts anew, since its
    /// hello names the fleet file; what is known of a node stays known meanwhile.
    pub(super) fn follow_neighbours(
        &mut self,
        follow: impl Fn(&Fleet, &NodeName) -> Option<PeerHandle>,
        now: Moment,
    ) {
        let mut known = std::mem::take(&mut self.neighbours);
        let fleet = Arc::clone(&self.fleet);
        for (name, _) in fleet.watched_by(&self.me) {
            let Some(handle) = follow(&fleet, name) else { continue };
            let neighbour = match known.remove(name) {
                Some(mut neighbour) => {
                    neighbour.handle = handle;
                    neighbour
                }
                None => Neighbour::new(handle, now),
            };
            self.neighbours.insert(name.clone(), neighbour);
        }
    }
}
