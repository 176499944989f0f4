//! Whoever follows this node is sent each change: its watchers, and the clients of the local socket.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::broadcast;

use crate::peer::inbox::{Update, View};
use crate::peer::wire::{NodeReport, WorkerReport};
use crate::vocabulary::Moment;

/// How many changes a subscriber may lag behind before it is sent a whole snapshot instead.
const CHANGES_KEPT: usize = 128;
/// How soon a change of what is degraded may follow another: the sentences count seconds and records.
const DEGRADED_AGAIN: Duration = Duration::from_secs(1);

/// The two channels on which changes go out. That nobody listens is fine.
pub(super) struct Publisher {
    /// Changes of this node, for its watchers.
    own: broadcast::Sender<Arc<Update>>,
    /// Changes of all nodes in view, for the local socket.
    all: broadcast::Sender<Arc<Update>>,
    /// What was degraded when this node was last published, and when that was.
    degraded: (Vec<String>, Moment),
}

impl Publisher {
    pub(super) fn new(now: Moment) -> Self {
        let channel = || broadcast::channel(CHANGES_KEPT).0;
        Self { own: channel(), all: channel(), degraded: (Vec::new(), now) }
    }

    pub(super) fn subscribe(&self, view: View) -> broadcast::Receiver<Arc<Update>> {
        match view {
            View::Node => self.own.subscribe(),
            View::Fleet => self.all.subscribe(),
        }
    }

    /// Whether any watcher follows this node.
    pub(super) fn is_watched(&self) -> bool {
        self.own.receiver_count() > 0
    }

    /// A worker of this node, as it is now.
    pub(super) fn worker(&self, report: WorkerReport) {
        self.both(Update::Worker(report));
    }

    /// This node as a whole.
    pub(super) fn node(&mut self, report: NodeReport, now: Moment) {
        self.degraded = (report.degraded.clone(), now);
        self.both(Update::Node(report));
    }

    /// Another node, or a worker of it: for the local socket only.
    pub(super) fn neighbour(&self, update: Update) {
        let _ = self.all.send(Arc::new(update));
    }

    /// This host goes down.
    pub(super) fn leaving(&self) {
        let _ = self.own.send(Arc::new(Update::Leaving));
    }

    /// Whether it is time to say that something else is degraded than was published last.
    pub(super) fn is_news(&self, degraded: impl FnOnce() -> Vec<String>, now: Moment) -> bool {
        let (told, at) = &self.degraded;
        now.since(*at) >= DEGRADED_AGAIN && degraded() != *told
    }

    fn both(&self, update: Update) {
        let update = Arc::new(update);
        let _ = self.own.send(update.clone());
        let _ = self.all.send(update);
    }
}
