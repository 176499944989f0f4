//! What the watched nodes say of themselves, and what their silence says.

use std::sync::Arc;

use super::core::Core;
use super::neighbours::{Neighbour, Return, dropped_in_words};
use crate::fleet::Fleet;
use crate::journal::{Event as Kind, Priority, Record};
use crate::judge::PingReply;
use crate::peer::inbox::Update;
use crate::peer::watch::{PeerEvent, PeerHandle, PeerNews};
use crate::peer::wire::{NodeReport, NodeState};
use crate::vocabulary::{Moment, NodeName, human};

/// What is recorded of a neighbour: the kind, how urgent it is, and a sentence.
type News = (Kind, Priority, String);

/// A neighbour fell silent.
fn lost(
    node: &NodeName,
    neighbour: &mut Neighbour,
    state: NodeState,
    why: String,
    now: Moment,
) -> Option<News> {
    if !neighbour.turn(state, why.clone(), now) {
        return None;
    }
    Some(match state {
        NodeState::Unreachable => (
            Kind::Peer,
            Priority::Warning,
            format!(
                "{node} cannot be reached: its host is down or cut off, which look the same from here. If it stays so, someone must go there ({why})"
            ),
        ),
        NodeState::CutOff => (Kind::Peer, Priority::Warning, format!("{node}: {why}")),
        NodeState::SupervisorDead => (
            Kind::Peer,
            Priority::Warning,
            format!("the supervisor of {node} does not answer though its host does; knocking: {why}"),
        ),
        NodeState::Up | NodeState::Starting | NodeState::Leaving | NodeState::Unknown => {
            (Kind::Peer, Priority::Warning, format!("{node}: {why}"))
        }
    })
}

impl Core {
    /// One node's watch task has news.
    pub(super) fn peer(&mut self, event: PeerEvent, now: Moment) {
        let PeerEvent { node, what } = event;
        let Some(neighbour) = self.neighbours.get_mut(&node) else { return };
        let before = neighbour.state();
        let changed = match what {
            PeerNews::Connected(hello) => {
                // The snapshot that follows says what state it is in. A new run after no noticed loss was too quick for a
                // watcher to see, but somebody should know of it.
                (neighbour.hello(hello, now) && before == NodeState::Up).then(|| {
                    let text = format!(
                        "the supervisor of {node} died or was restarted; a new run of it answered the knock"
                    );
                    (Kind::Peer, Priority::Notice, text)
                })
            }
            PeerNews::Snapshot(report) => {
                let silent = human(now.since(neighbour.since()));
                let turned = neighbour.turn(report.state, report.why.clone(), now);
                neighbour.snapshot(report, now);
                if let Some(report) = self.neighbour_report(&node, now) {
                    self.publisher.neighbour(Update::Node(report));
                }
                self.publish_silent(now);
                let text = match before {
                    NodeState::Up | NodeState::Starting => None,
                    NodeState::Unknown => Some(format!("{node} answers")),
                    NodeState::Leaving
                    | NodeState::SupervisorDead
                    | NodeState::Unreachable
                    | NodeState::CutOff => Some(format!("{node} answers again after {silent}")),
                };
                if let Some(text) = text.filter(|_| turned) {
                    self.record_change(&node, (Kind::Peer, Priority::Notice, text), now);
                }
                None
            }
            PeerNews::Change(report) => {
                neighbour.change(report.clone(), now);
                self.publisher.neighbour(Update::Worker(report));
                None
            }
            PeerNews::Dropped(entries) => neighbour
                .dropped(entries)
                .then(|| (Kind::Degraded, Priority::Warning, dropped_in_words(&node, entries))),
            PeerNews::Leaving => neighbour
                .turn(NodeState::Leaving, "it said that it shuts down or reboots".to_owned(), now)
                .then(|| {
                    (Kind::Peer, Priority::Notice, format!("{node} shuts down or reboots, and said so"))
                }),
            // A node that said goodbye is silent because it left, for as long as that takes.
            PeerNews::Lost { state, why } if before == NodeState::Leaving => {
                neighbour.silent_since_goodbye(state, why);
                None
            }
            PeerNews::Lost { state, why } => {
                self.neighbours.get_mut(&node).and_then(|known| lost(&node, known, state, why, now))
            }
        };
        self.tell_of(&node, changed, now);
        self.look_at_neighbour(&node, now);
        // Its other watchers are told how it looks from here: what is out of reach of one may be up for another.
        if self.neighbours.get(&node).is_some_and(|neighbour| neighbour.state() != before) {
            self.publish_node(now);
        }
    }

    /// A neighbour that said goodbye and has not come back in good time is no longer excused. Returns when to look again.
    pub(super) fn await_return(&mut self, now: Moment) -> Option<Moment> {
        let mut wake = None::<Moment>;
        let mut told = Vec::new();
        for (node, neighbour) in &mut self.neighbours {
            match neighbour.overdue(now) {
                Return::Due(at) => wake = Some(wake.map_or(at, |earlier| earlier.min(at))),
                Return::Overdue(state, why) => {
                    let why = format!("it said that it shuts down or reboots and has not come back; {why}");
                    told.push((node.clone(), lost(node, neighbour, state, why, now)));
                }
                Return::NotAwaited => {}
            }
        }
        for (node, news) in told {
            self.tell_of(&node, news, now);
            self.look_at_neighbour(&node, now);
        }
        wake
    }

    /// A neighbour as seen from here, and by whom else.
    pub(super) fn neighbour_report(&self, node: &NodeName, now: Moment) -> Option<NodeReport> {
        let mut report = self.neighbours.get(node)?.report(node, now);
        let others = self.others_in_words(node, now);
        if let Some(PingReply::Came(how)) = self.neighbours.get(node)?.probed(now).map(|probe| &probe.node) {
            report.why = format!("{}; its host is up: {how}", report.why);
        }
        match report.state {
            NodeState::Unreachable | NodeState::SupervisorDead | NodeState::CutOff if !others.is_empty() => {
                report.why = format!("{} ({others})", report.why);
            }
            NodeState::Unreachable => {
                report.why = format!("{} (there is no other watcher to ask)", report.why);
            }
            NodeState::Up
            | NodeState::Starting
            | NodeState::Leaving
            | NodeState::SupervisorDead
            | NodeState::CutOff
            | NodeState::Unknown => {}
        }
        Some(report)
    }

    /// Shows the nodes that are out of reach again, after another watcher has said how it sees them.
    pub(super) fn publish_silent(&self, now: Moment) {
        for (node, neighbour) in &self.neighbours {
            if matches!(neighbour.state(), NodeState::Unreachable | NodeState::CutOff)
                && let Some(report) = self.neighbour_report(node, now)
            {
                self.publisher.neighbour(Update::Node(report));
            }
        }
    }

    fn record_change(&mut self, node: &NodeName, (kind, priority, text): News, now: Moment) {
        let record = Record::local(kind, priority, node.as_str(), text);
        let neighbour = self.neighbours.get_mut(node);
        if let Some(record) = neighbour.and_then(|neighbour| neighbour.tell(record, now)) {
            self.handles.recorder.record(record);
        }
    }

    /// Records what was counted of neighbours that turn again and again; returns when to ask again.
    pub(super) fn tell_counted(&mut self, now: Moment) -> Option<Moment> {
        let mut wake = None::<Moment>;
        for neighbour in self.neighbours.values_mut() {
            match neighbour.told(now) {
                Ok(record) => self.handles.recorder.record(record),
                Err(again) => wake = [wake, again].into_iter().flatten().min(),
            }
        }
        wake
    }

    fn tell_of(&mut self, node: &NodeName, news: Option<News>, now: Moment) {
        if let Some(news) = news {
            self.record_change(node, news, now);
            if let Some(report) = self.neighbour_report(node, now) {
                self.publisher.neighbour(Update::Node(report));
            }
        }
    }

    /// Follows the nodes that the fleet file tells this one to watch. After a reload every watch starts again, since its
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
                    neighbour.another_fleet(handle);
                    neighbour
                }
                None => Neighbour::new(handle, now),
            };
            self.neighbours.insert(name.clone(), neighbour);
        }
    }
}
