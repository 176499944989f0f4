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
    /// A node as a whole.
    Node(NodeReport),
    /// One worker, and the class it had before, if it was known.
    Worker(WorkerReport, Option<Class>),
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
                    self.nodes.insert(report.node.clone(), report.clone());
                    Changed::Node(report)
                })
            }
            ServerFrame::Change(worker) => self.worker(worker, subject),
            ServerFrame::Leaving => match self.nodes.get_mut(here) {
                Some(report) => {
                    report.state = NodeState::Leaving;
                    report.why = "it shuts down or reboots".to_owned();
                    Changed::Node(report.clone())
                }
                None => Changed::Nothing,
            },
            ServerFrame::Keepalive | ServerFrame::Hello(_) | ServerFrame::Reply(_) => Changed::Nothing,
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
                let before = known.class;
                *known = worker.clone();
                Changed::Worker(worker, Some(before))
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
        let passed = u64::try_from(now.saturating_duration_since(self.at).as_millis()).unwrap_or(u64::MAX);
        self.at += Duration::from_millis(passed);
        for worker in self.nodes.values_mut().flat_map(|report| &mut report.workers) {
            worker.for_ms = worker.for_ms.saturating_add(passed);
            for ago in worker.last_act_ms.iter_mut() {
                *ago = ago.saturating_add(passed);
            }
            for left in worker.due_in_ms.iter_mut().chain(&mut worker.held_for_ms) {
                *left = left.saturating_sub(passed);
            }
        }
    }
}
