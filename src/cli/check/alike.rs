//! What the detectors of a worker cannot tell apart, as it is configured.

use crate::fleet::{Loaded, Worker};
use crate::vocabulary::Flow;

/// The warnings, with these before them.
pub(super) fn told(mut loaded: Loaded, file: &str) -> Loaded {
    let workers = loaded.fleet.nodes.iter().flat_map(|(node, on)| {
        on.workers.iter().filter_map(move |(name, worker)| Some((format!("{node}/{name}"), alike(worker)?)))
    });
    let found: Vec<_> = workers.collect();
    for (worker, (what, help)) in found.into_iter().rev() {
        loaded.warnings = loaded.warnings.and_first(file, &format!("`{worker}`: {what}"), help);
    }
    loaded
}

/// What of one worker looks the same, and what would tell it apart.
fn alike(worker: &Worker) -> Option<(String, &'static str)> {
    match &worker.delivery_gap.as_ref()?.flow {
        Flow::Queue { busy: None, .. } => Some((
            "one long job cannot be told apart from a queue that does not reach it, and is ended by the relaunch".to_owned(),
            "name the key that is there while it works (`busy` in `backlog`), or make `not_draining_for` longer than its \
             longest job",
        )),
        Flow::Queue { busy: Some(key), .. } if worker.stuck.is_none() => Some((
            format!("while {key} is there, a job that hangs cannot be told apart from one that runs"),
            "add `stuck` with a heartbeat of the loop that works, or let the key expire",
        )),
        Flow::Queue { .. } | Flow::Lane(_) => None,
    }
}
