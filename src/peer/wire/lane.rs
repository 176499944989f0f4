//! What the frames say about a worker that is a lane.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::vocabulary::{LaneStatus, Moment, TaskStatus};

/// A lane by its own word. Times are durations as of the report, and go on where it is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LaneReport {
    /// Which queue it serves.
    pub queue: String,
    /// Whether it has the queue.
    pub connected: bool,
    /// How many tasks waited there when it last knew; none while it is not connected.
    pub waiting: Option<u64>,
    /// How many tasks it runs.
    pub running: u64,
    /// The oldest of them, oldest first.
    pub in_flight: Vec<TaskReport>,
    /// How many tasks it has answered since its start, the refused ones included.
    pub done: u64,
    /// The last of these.
    pub last: Option<LastReport>,
    /// For how long it has said nothing, in milliseconds, although it should have: then all of this is old.
    pub silent_ms: Option<u64>,
}

/// A task that runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TaskReport {
    /// Its id.
    pub id: String,
    /// Its action.
    pub action: String,
    /// For how long, in milliseconds.
    pub for_ms: u64,
    /// Whether it may be run again if its lane dies in it.
    pub idempotent: bool,
}

/// A task that was answered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LastReport {
    /// Its id, or the hash of its bytes.
    pub id: String,
    /// What it asked for, if that could be read.
    pub action: Option<String>,
    /// How it ended.
    pub status: TaskStatus,
    /// How long ago, in milliseconds.
    pub ago_ms: u64,
}

fn ms(time: Duration) -> u64 {
    time.as_millis().try_into().unwrap_or(u64::MAX)
}

impl LaneReport {
    /// What a lane's word reads at `now`; `silent` says that it should have said more since.
    pub fn of(status: &LaneStatus, silent: bool, now: Moment) -> Self {
        Self {
            queue: status.queue.clone(),
            connected: status.connected,
            waiting: status.waiting,
            running: status.running,
            in_flight: status
                .in_flight
                .iter()
                .map(|task| TaskReport {
                    id: task.id.clone(),
                    action: task.action.clone(),
                    for_ms: ms(now.since(task.since)),
                    idempotent: task.idempotent,
                })
                .collect(),
            done: status.done,
            last: status.last.as_ref().map(|last| LastReport {
                id: last.id.clone(),
                action: last.action.clone(),
                status: last.status,
                ago_ms: ms(now.since(last.at)),
            }),
            silent_ms: silent.then(|| ms(now.since(status.at))),
        }
    }

    /// Makes of it what it reads `ms` milliseconds later.
    pub(super) fn age_by(&mut self, ms: u64) {
        let ages = self.in_flight.iter_mut().map(|task| &mut task.for_ms);
        let ages = ages.chain(self.last.iter_mut().map(|last| &mut last.ago_ms)).chain(&mut self.silent_ms);
        for age in ages {
            *age = age.saturating_add(ms);
        }
    }
}
