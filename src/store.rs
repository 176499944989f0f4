//! What must survive a restart, and the evidence: one SQLite file `state.db`, written by one thread that nobody waits
//! for.
//!
//! Whatever happens to the disk, the supervisor runs on: its calls here return at once, the newest state of each
//! worker and the newest records stay in memory, [`StoreHandle::degraded`] says what is wrong and what to do, and the
//! thread goes on by itself when the disk is back.

mod db;
mod files;
mod handle;
mod offline;
mod trouble;
mod writer;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::sync_channel;
use std::thread;
use std::time::Duration;

pub use handle::{StoreError, StoreHandle};
pub use offline::{OfflineError, read_audit};

use crate::journal::{Journal, Recorder, Stamper};
use crate::vocabulary::{Moment, NodeName, WorkerName};
use handle::Shared;
use writer::Writer;

/// The database's name in the state directory.
pub const FILE: &str = "state.db";

/// Everything that keeps evidence and state, as the supervisor holds it.
#[derive(Debug)]
pub struct Evidence {
    /// Where records go: into the audit, then into the journal.
    pub recorder: Recorder,
    /// Where worker state goes, and where the audit is read.
    pub store: StoreHandle,
    /// What the run before left.
    pub loaded: SavedState,
}

/// What the run before left. Empty when there was none, or when it cannot be read (which
/// [`StoreHandle::degraded`] then says).
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct SavedState {
    /// The newest state of each worker, also of workers that the fleet file no longer has.
    pub workers: BTreeMap<WorkerName, SavedWorker>,
    /// What is known of rehearsals, by the names that it was saved under.
    pub rehearsals: BTreeMap<String, SavedWorker>,
    /// The alerts that were open.
    pub alerts: Option<SavedWorker>,
}

/// A worker's state as it was saved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SavedWorker {
    /// The state, in the words of whoever saved it.
    pub json: String,
    /// Whether the host has not been booted since, so that the moments in it still mean something. False also when
    /// that is not known.
    pub same_boot: bool,
    /// When it was saved, by the clock of the boot it was saved in.
    pub saved_at_moment: Moment,
    /// The wall clock then, in milliseconds since 1970.
    pub saved_wall_ms: i64,
}

/// What a test may set otherwise.
#[derive(Debug, Clone)]
struct Settings {
    dir: PathBuf,
    /// How many records may wait for the thread.
    queue: usize,
    /// How many records that are not on disk yet are kept, the newest.
    pending: usize,
    /// How many rows the audit keeps.
    rows: u64,
    /// How often a disk that failed is tried again.
    retry: Duration,
    /// How long the start may wait for what the run before left.
    load: Duration,
    /// Names the host's present boot; empty if that is not known.
    boot_id: String,
}

impl Settings {
    fn new(dir: &Path) -> Self {
        let boot_id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        Self {
            dir: dir.to_owned(),
            // About 100 KB, taken at once; a burst of ten records for each of fifty workers.
            queue: 512,
            pending: 1024,
            rows: 100_000,
            retry: Duration::from_secs(5),
            load: Duration::from_secs(2),
            boot_id: boot_id.trim().to_owned(),
        }
    }
}

/// Starts the two threads, one for the database in `dir` (made if it is not there, mode 0700) and one for the journal,
/// and waits at most 2 s for what the run before left. Never fails: with a broken disk it begins empty and degraded.
pub fn start(dir: &Path, node: &NodeName) -> Evidence {
    start_with(Settings::new(dir), node, Journal::start(node))
}

fn start_with(settings: Settings, node: &NodeName, journal: io::Result<Journal>) -> Evidence {
    let (to, from) = sync_channel(settings.queue);
    let (loaded_to, loaded_from) = sync_channel(1);
    let stamper = Stamper::default();
    let shared = std::sync::Arc::new(Shared::new(journal));
    let recorder = Recorder::evidence(to.clone(), stamper.clone(), shared.dropped.clone());
    let wait = settings.load;
    let writer = Writer::new(settings, node, from, shared.clone(), stamper);
    // SQLite needs some 20 KB of stack for our statements; the default of 2 MB is only virtual, but says nothing.
    let spawned = thread::Builder::new()
        .name("store".to_owned())
        .stack_size(512 * 1024)
        .spawn(move || writer.run(&loaded_to));
    if let Err(error) = spawned {
        shared.say(Some(format!("the thread for the state database could not be started ({error})")));
    }
    let loaded = loaded_from.recv_timeout(wait).unwrap_or_default();
    Evidence { recorder, store: StoreHandle::new(to, shared), loaded }
}

#[cfg(test)]
mod tests;
