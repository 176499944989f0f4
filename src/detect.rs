//! Detectors: they look, and they change nothing (a canary is a task that does nothing).
//!
//! One task beside the supervisor's loop owns a timetable of all looks. What is due at one moment is read together:
//! files in one go on a thread that may hang with a dead network file system, everything in Redis in one round trip,
//! watchdogs over the bus, the journal by a child, commands by PID 1. Every look has a deadline, and one that fails
//! says that nothing is known. The loop is never waited for: what it does not take is dropped, and the next look comes
//! soon.

mod canary;
mod files;
mod journal;
mod look;
mod mounts;
mod redis;
mod task;
mod timetable;

use tokio::sync::{mpsc, watch};

use crate::judge::{Reading, Sign};
use crate::systemd::Systemd;
use crate::vocabulary::Target;

pub use look::{Check, SignSource};
pub(crate) use mounts::unfit;

/// What a detector read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Vital {
    /// The worker, of this node or of one that it watches.
    pub target: Target,
    /// Which sign of it.
    pub sign: Sign,
    /// What was read.
    pub reading: Reading,
}

/// What is to be looked at.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Plan {
    /// Each of them, at most one per worker and sign.
    pub looks: Vec<Check>,
    /// Where Redis is, with credentials if need be; without it what is there cannot be seen.
    pub redis: Option<String>,
}

/// Looks as `plan` says, now and whenever it changes, and sends what was read, several readings at a time. Each look
/// comes at its own pace whatever it saw before, because a sign that is not read regularly says nothing. A full channel
/// loses readings.
///
/// Spawns its task on the current runtime; it ends when `out` is closed.
pub fn start(plan: watch::Receiver<Plan>, systemd: Systemd, out: mpsc::Sender<Vec<Vital>>) {
    tokio::spawn(task::run(plan, systemd, out));
}
