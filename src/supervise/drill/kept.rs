//! What came of a rehearsal, as it is shown and as it is written down.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::peer::wire::{DrillReport, Rehearsal};
use crate::store::SavedWorker;
use crate::vocabulary::{FailureClass, Moment, NodeName};

/// What came of a rehearsal, and when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::supervise) struct Kept {
    last: Last,
    /// When that was, or when this supervisor has read of it …
    at: Moment,
    /// … and how long ago it was by then.
    before: Duration,
}

/// What is written down.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Last {
    class: FailureClass,
    passed: bool,
    why: String,
    by: Option<String>,
    detect_ms: Option<u64>,
    repair_ms: Option<u64>,
}

/// The name that a rehearsal is kept under.
pub(super) fn key(subject: &str, class: FailureClass) -> String {
    format!("{subject} {class}")
}

impl Kept {
    pub(super) fn new(report: &DrillReport, now: Moment) -> Self {
        let ms = |us: u64| us.div_ceil(1000);
        let last = Last {
            class: report.class,
            passed: report.passed,
            why: report.why.clone(),
            by: report.by.clone(),
            detect_ms: report.detect_us.map(ms),
            repair_ms: report.repair_us.map(ms),
        };
        Self { last, at: now, before: Duration::ZERO }
    }

    /// As it is shown; with the node if it was its supervisor.
    pub(in crate::supervise) fn report(&self, node: Option<&NodeName>, now: Moment) -> Rehearsal {
        let Last { class, passed, why, by, detect_ms, repair_ms } = self.last.clone();
        let ago = self.before + now.since(self.at);
        let ago_ms = u64::try_from(ago.as_millis()).unwrap_or(u64::MAX);
        Rehearsal { node: node.cloned(), class, passed, why, by, ago_ms, detect_ms, repair_ms }
    }

    /// The class that was rehearsed.
    pub(super) fn class(&self) -> FailureClass {
        self.last.class
    }

    /// As it is written down.
    pub(super) fn to_json(&self) -> Option<String> {
        // A struct of plain values always serialises.
        serde_json::to_string(&self.last).ok()
    }

    /// What was written down. `away` is how long ago that was by the wall clock, which is all there is after a reboot.
    pub(super) fn saved(saved: &SavedWorker, away: Duration, now: Moment) -> Option<Self> {
        let last = serde_json::from_str::<Last>(&saved.json).ok()?;
        let (at, before) =
            if saved.same_boot { (saved.saved_at_moment, Duration::ZERO) } else { (now, away) };
        Some(Self { last, at, before })
    }
}
