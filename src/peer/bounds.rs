//! What a peer may report, and how much of it is kept: only names that the fleet file has, each once, and texts of a bounded
//! length. A node that reports anything else takes no memory here; what was dropped is counted.

use std::collections::BTreeSet;

use super::wire::{LaneReport, NodeReport, Rehearsal, WorkerReport};
use crate::fleet::Fleet;
use crate::vocabulary::{LANE_STATUS_TASKS, NodeName, WorkerName, cut};

/// The longest sentence that a peer's report keeps, in bytes. No sentence of a supervisor comes near it.
const SENTENCE: usize = 1000;
/// The longest name that a lane's report keeps, in bytes: what a lane itself may write.
const NAME: usize = 400;
/// How many sentences a peer may say about what is degraded on it.
const DEGRADED: usize = 16;
/// How many classes of a worker can be rehearsed.
const CLASSES: usize = 3;
/// The longest version that is kept, in bytes.
const VERSION: usize = 64;

/// What the fleet file in force knows: a peer can report about its own workers and about the other nodes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Known {
    workers: BTreeSet<WorkerName>,
    nodes: BTreeSet<NodeName>,
}

impl Known {
    /// What `node` can report about.
    pub fn of(fleet: &Fleet, node: &NodeName) -> Self {
        let workers = fleet.nodes.get(node).into_iter().flat_map(|node| node.workers.keys().cloned());
        Self { workers: workers.collect(), nodes: fleet.nodes.keys().cloned().collect() }
    }

    /// Cuts a node's report down to what is known. Returns how many entries were dropped.
    pub fn screen(&self, report: &mut NodeReport) -> usize {
        let NodeReport { node: _, state: _, why, version, fleet_hash: _, degraded, sees, rehearsed, workers } =
            report;
        let entries = |report: [usize; 4]| report.into_iter().sum::<usize>();
        let before = entries([degraded.len(), sees.len(), rehearsed.len(), workers.len()]);
        cut(why, SENTENCE);
        version.iter_mut().for_each(|version| cut(version, VERSION));
        degraded.truncate(DEGRADED);
        degraded.iter_mut().for_each(|sentence| cut(sentence, SENTENCE));
        let mut once = BTreeSet::new();
        sees.retain(|sight| self.nodes.contains(&sight.node) && once.insert(sight.node.clone()));
        let mut once = BTreeSet::new();
        rehearsed.retain(|last| {
            last.node.as_ref().is_some_and(|node| self.nodes.contains(node) && once.insert(node.clone()))
        });
        rehearsed.iter_mut().for_each(clip_rehearsal);
        let mut once = BTreeSet::new();
        workers.retain(|worker| self.workers.contains(&worker.worker) && once.insert(worker.worker.clone()));
        workers.iter_mut().for_each(clip_worker);
        let kept = entries([degraded.len(), sees.len(), rehearsed.len(), workers.len()]);
        // What was announced took room as well.
        degraded.shrink_to_fit();
        sees.shrink_to_fit();
        rehearsed.shrink_to_fit();
        workers.shrink_to_fit();
        before - kept
    }

    /// Cuts a worker's report down; false if there is no such worker.
    pub fn screen_worker(&self, report: &mut WorkerReport) -> bool {
        clip_worker(report);
        self.workers.contains(&report.worker)
    }
}

fn clip_worker(report: &mut WorkerReport) {
    let WorkerReport { why, doing, last_act, lane, rehearsed, .. } = report;
    for sentence in [why, doing].into_iter().chain(last_act) {
        cut(sentence, SENTENCE);
    }
    rehearsed.truncate(CLASSES);
    rehearsed.shrink_to_fit();
    rehearsed.iter_mut().for_each(clip_rehearsal);
    lane.iter_mut().for_each(|lane| clip_lane(lane));
}

fn clip_rehearsal(last: &mut Rehearsal) {
    cut(&mut last.why, SENTENCE);
    last.by.iter_mut().for_each(|by| cut(by, NAME));
}

fn clip_lane(lane: &mut LaneReport) {
    cut(&mut lane.queue, NAME);
    lane.in_flight.truncate(LANE_STATUS_TASKS);
    lane.in_flight.shrink_to_fit();
    for task in &mut lane.in_flight {
        cut(&mut task.id, NAME);
        cut(&mut task.action, NAME);
    }
    if let Some(last) = &mut lane.last {
        cut(&mut last.id, NAME);
        last.action.iter_mut().for_each(|action| cut(action, NAME));
    }
}

#[cfg(test)]
#[path = "bounds/tests.rs"]
mod tests;
