//! What a watch has been told so far, and how old it is by now.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::subject::Subject;
use crate::peer::wire::{Class, NodeReport, NodeState, ServerFrame, WorkerReport};
use crate::vocabulary::NodeName;

/// The nodes in view.
#[derive(Debug)]
pub(super) struct View {
    nodes: BTreeMap<NodeName, NodeReport>,
    /// Up to when the ages in the reports have been counted.
    at: Instant,
}

/// What a frame has changed.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Changed {
    /// Nothing that is in view.
    Nothing,
    /// A node as a whole, and how it was before, if it was known.
    Node(NodeReport, Option<NodeReport>),
    /// One worker, and the class it had before, if it was known.
    Worker(WorkerReport, Option<Class>),
    /// Nothing but what a lane says of its tasks.
    Lane(WorkerReport),
}

impl View {
    /// Nothing known yet.
    pub(super) fn new(now: Instant) -> Self {
        Self { nodes: BTreeMap::new(), at: now }
    }

    /// Takes a frame in. `here` is the node whose supervisor sent it, `subject` what is looked at (none: everything).
    pub(super) fn take(
        &mut self,
        frame: ServerFrame,
        here: &NodeName,
        subject: Option<&Subject>,
        now: Instant,
    ) -> Changed {
        self.age(now);
        match frame {
            ServerFrame::Snapshot(report) => {
                let report = match subject {
                    Some(subject) => subject.narrow(report),
                    None => Some(report),
                };
                report.map_or(Changed::Nothing, |report| {
                    let before = self.nodes.insert(report.node.clone(), report.clone());
                    Changed::Node(report, before)
                })
            }
            ServerFrame::Change(worker) => self.worker(worker, subject),
            ServerFrame::Leaving => match self.nodes.get_mut(here) {
                Some(report) => {
                    let before = report.clone();
                    report.state = NodeState::Leaving;
                    report.why = "it shuts down or reboots".to_owned();
                    Changed::Node(report.clone(), Some(before))
                }
                None => Changed::Nothing,
            },
            ServerFrame::Keepalive
            | ServerFrame::Hello(_)
            | ServerFrame::Reply(_)
            | ServerFrame::Event(_)
            | ServerFrame::Missed { .. } => Changed::Nothing,
        }
    }

    /// A change of a node that no snapshot has named is left out: the next snapshot has it.
    fn worker(&mut self, worker: WorkerReport, subject: Option<&Subject>) -> Changed {
        if subject.is_some_and(|subject| !subject.covers(&worker)) {
            return Changed::Nothing;
        }
        let Some(report) = self.nodes.get_mut(&worker.node) else { return Changed::Nothing };
        match report.workers.iter_mut().find(|known| known.worker == worker.worker) {
            Some(known) => {
                let before = std::mem::replace(known, worker.clone());
                if before.lane != worker.lane && before.is_as_healthy_as(&worker) {
                    return Changed::Lane(worker);
                }
                Changed::Worker(worker, Some(before.class))
            }
            None => {
                report.workers.push(worker.clone());
                report.workers.sort_by(|a, b| a.worker.cmp(&b.worker));
                Changed::Worker(worker, None)
            }
        }
    }

    /// The reports as of `now`.
    pub(super) fn reports(&mut self, now: Instant) -> Vec<NodeReport> {
        self.age(now);
        self.nodes.values().cloned().collect()
    }

    /// Moves every age and every remaining time on to `now`, in whole milliseconds.
    fn age(&mut self, now: Instant) {
        let passed = Duration::from_millis(
            u64::try_from(now.saturating_duration_since(self.at).as_millis()).unwrap_or(u64::MAX),
        );
        self.at += passed;
        for worker in self.nodes.values_mut().flat_map(|report| &mut report.workers) {
            worker.age_by(passed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn worker(node: &str, name: &str, class: Class) -> WorkerReport {
        WorkerReport {
            unit: "x.service".parse().unwrap(),
            for_ms: 1_000,
            due_in_ms: Some(5_000),
            last_act_ms: Some(0),
            ..WorkerReport::plain(node, name, class)
        }
    }

    fn node(name: &str, workers: Vec<WorkerReport>) -> NodeReport {
        NodeReport {
            node: name.parse().unwrap(),
            state: NodeState::Up,
            why: String::new(),
            version: None,
            fleet_hash: None,
            degraded: Vec::new(),
            sees: Vec::new(),
            rehearsed: Vec::new(),
            workers,
        }
    }

    #[test]
    fn changes_fall_into_place_and_everything_ages() {
        let (start, here) = (Instant::now(), "mars".parse().unwrap());
        let mut view = View::new(start);
        let first = node("mars", vec![worker("mars", "b", Class::Healthy)]);
        view.take(ServerFrame::Snapshot(first), &here, None, start);
        let later = start + Duration::from_secs(3);
        for (name, before) in [("b", Some(Class::Healthy)), ("a", None)] {
            let dead = worker("mars", name, Class::Dead);
            let changed = view.take(ServerFrame::Change(dead.clone()), &here, None, later);
            assert_eq!(changed, Changed::Worker(dead, before));
        }
        let reports = view.reports(later + Duration::from_secs(6));
        let told: Vec<_> = reports[0]
            .workers
            .iter()
            .map(|w| (w.worker.as_str(), w.for_ms, w.due_in_ms, w.last_act_ms))
            .collect();
        assert_eq!(told, [("a", 7_000, Some(0), Some(6_000)), ("b", 7_000, Some(0), Some(6_000))]);
        let changed = view.take(ServerFrame::Leaving, &here, None, later);
        assert!(matches!(changed, Changed::Node(report, Some(before))
            if (before.state, report.state) == (NodeState::Up, NodeState::Leaving)));
    }

    #[test]
    fn what_a_lane_runs_ages_and_what_it_has_done_stays() {
        let (start, here) = (Instant::now(), "mars".parse().unwrap());
        let mut view = View::new(start);
        let status = serde_json::json!({ "queue": "q", "connected": true, "waiting": 3, "running": 1, "done": 7,
            "in_flight": [{ "id": "1", "action": "a", "for_ms": 500, "idempotent": false }],
            "last": { "id": "0", "action": "b", "status": "ok", "ago_ms": 800 }, "silent_ms": null });
        let lane = Some(serde_json::from_value(status).unwrap());
        let busy = WorkerReport { lane, ..worker("mars", "write", Class::Healthy) };
        view.take(ServerFrame::Snapshot(node("mars", vec![busy.clone()])), &here, None, start);
        let mut changed = worker("mars", "write", Class::Healthy);
        assert!(matches!(
            view.take(ServerFrame::Change(changed.clone()), &here, None, start),
            Changed::Lane(_)
        ));
        changed.why = "killed".to_owned();
        assert!(matches!(
            view.take(ServerFrame::Change(changed), &here, None, start),
            Changed::Worker(_, Some(Class::Healthy))
        ));
        view.take(ServerFrame::Change(busy), &here, None, start);
        let reports = view.reports(start + Duration::from_secs(2));
        let lane = reports[0].workers[0].lane.clone().unwrap();
        assert_eq!((lane.waiting, lane.done, lane.silent_ms), (Some(3), 7, None));
        assert_eq!((lane.in_flight[0].for_ms, lane.last.unwrap().ago_ms), (2_500, 2_800));
    }

    #[test]
    fn only_what_is_asked_about_is_seen() {
        let (now, here) = (Instant::now(), "mars".parse().unwrap());
        let subject: Subject = "mars/a".parse().unwrap();
        let mut view = View::new(now);
        let both = node("mars", vec![worker("mars", "a", Class::Healthy), worker("mars", "b", Class::Dead)]);
        view.take(ServerFrame::Snapshot(both), &here, Some(&subject), now);
        view.take(ServerFrame::Snapshot(node("venus", Vec::new())), &here, Some(&subject), now);
        for (node, name) in [("mars", "b"), ("venus", "a"), ("earth", "a")] {
            let change = ServerFrame::Change(worker(node, name, Class::Dead));
            assert_eq!(view.take(change, &here, Some(&subject), now), Changed::Nothing);
        }
        let reports = view.reports(now);
        assert_eq!((reports.len(), reports[0].workers.len()), (1, 1));
        assert_eq!(reports[0].workers[0].class, Class::Healthy);
    }
}
