//! Seeing from outside that a thread hangs in a call which has no deadline of its own.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::vocabulary::Moment;

/// For how long a thread has been inside calls that may hang.
#[derive(Debug, Default)]
pub(crate) struct Inside {
    /// Milliseconds since boot when it went in, 0 if it is out.
    since: AtomicU64,
}

impl Inside {
    /// Runs what may hang. Not for nesting: the inner call would end the outer one's time.
    pub(crate) fn run<T>(&self, f: impl FnOnce() -> T) -> T {
        self.since.store(Moment::now().as_millis().max(1), Ordering::Relaxed);
        let result = f();
        self.since.store(0, Ordering::Relaxed);
        result
    }

    /// For how long the present call has been running, if that is longer than `limit`.
    pub(crate) fn longer_than(&self, limit: Duration) -> Option<Duration> {
        let since = self.since.load(Ordering::Relaxed);
        let inside = Moment::now().since(Moment::from_millis(since));
        (since != 0 && inside > limit).then_some(inside)
    }
}
