//! What the supervisor's loop holds of the store. Nothing here waits for the disk.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{Instant, timeout, timeout_at};

use crate::journal::{Inside, Journal, Mail, wall_ms};
use crate::peer::wire::AuditLine;
use crate::vocabulary::{Moment, WorkerName, human};

/// How long the audit may take to be read.
const AUDIT: Duration = Duration::from_secs(2);
/// After how long a disk that does not answer is called degraded.
const HUNG: Duration = Duration::from_secs(5);
/// How many questions may wait for the thread; each waits 2 s at most.
const ASKS: usize = 64;
/// How many workers' states wait for the thread: four times what a frame reports of one node.
const WORKERS: usize = 4096;
/// The longest state of one worker, in bytes. A real one has a few hundred.
const MAX_JSON: usize = 64 * 1024;

/// A question to the store was not answered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// The disk takes its time, or too many ask.
    #[error("the state database did not answer in time; look at the disk of the state directory")]
    Late,
    /// The database cannot be used.
    #[error("the state database cannot be used: {0}")]
    Degraded(String),
    /// The state is on disk, the journal does not follow.
    #[error("the state is on disk, but the journal does not follow: {0}")]
    Journal(String),
}

/// What a state is kept under.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Key {
    Worker(WorkerName),
    /// A rehearsal, or the one that is under way.
    Rehearsal(String),
    /// The open alerts.
    Alerts,
}

/// A state that waits for the thread.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) json: String,
    pub(super) moment: Moment,
    pub(super) wall_ms: i64,
}

#[derive(Debug)]
pub(super) enum StoreRequest {
    Audit(u32, oneshot::Sender<Result<Vec<AuditLine>, StoreError>>),
    Flush(oneshot::Sender<Result<(), StoreError>>),
}

/// What handle and thread share. Each lock is held for a few instructions, by the thread as well.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) journal: Option<Journal>,
    no_journal: Option<String>,
    saves: Mutex<BTreeMap<Key, Waiting>>,
    asks: Mutex<Vec<StoreRequest>>,
    /// What is wrong with the database.
    trouble: Mutex<Option<String>>,
    /// What went wrong and cannot be undone in this run: a damaged file was set aside.
    scar: Mutex<Option<String>>,
    /// The thread's time inside SQLite.
    pub(super) inside: Inside,
    /// Records that did not fit into the queue.
    pub(super) dropped: Arc<AtomicU64>,
    /// States that were too large or too many.
    refused: AtomicU64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    pub(super) fn new(journal: io::Result<Journal>) -> Self {
        let (journal, no_journal) = match journal {
            Ok(journal) => (Some(journal), None),
            Err(error) => (None, Some(format!("the thread for the journal could not be started ({error})"))),
        };
        Self {
            journal,
            no_journal,
            saves: Mutex::default(),
            asks: Mutex::default(),
            trouble: Mutex::default(),
            scar: Mutex::default(),
            inside: Inside::default(),
            dropped: Arc::default(),
            refused: AtomicU64::new(0),
        }
    }

    pub(super) fn say(&self, trouble: Option<String>) {
        *lock(&self.trouble) = trouble;
    }

    pub(super) fn scar(&self, text: String) {
        *lock(&self.scar) = Some(text);
    }

    pub(super) fn take_saves(&self) -> BTreeMap<Key, Waiting> {
        std::mem::take(&mut lock(&self.saves))
    }

    pub(super) fn take_asks(&self) -> Vec<StoreRequest> {
        std::mem::take(&mut lock(&self.asks))
    }
}

/// The supervisor's end of the store. Cheap to clone.
#[derive(Debug, Clone)]
pub struct StoreHandle {
    to: SyncSender<Mail>,
    shared: Arc<Shared>,
}

impl StoreHandle {
    pub(super) fn new(to: SyncSender<Mail>, shared: Arc<Shared>) -> Self {
        Self { to, shared }
    }

    /// Has a worker's newest state written, some time soon; an older one that still waits is forgotten. Never blocks.
    /// A state over 64 KiB is not kept, which [`degraded`](Self::degraded) says.
    pub fn save_worker(&self, worker: &WorkerName, json: String) {
        self.save(Key::Worker(worker.clone()), json);
    }

    /// The same for what is known of a rehearsal. There is no way to remove it; `null` says that there is nothing.
    pub fn save_rehearsal(&self, name: &str, json: String) {
        self.save(Key::Rehearsal(name.to_owned()), json);
    }

    /// The same for the open alerts.
    pub fn save_alerts(&self, json: String) {
        self.save(Key::Alerts, json);
    }

    fn save(&self, key: Key, json: String) {
        let waiting = Waiting { json, moment: Moment::now(), wall_ms: wall_ms() };
        let mut saves = lock(&self.shared.saves);
        if waiting.json.len() > MAX_JSON || (saves.len() >= WORKERS && !saves.contains_key(&key)) {
            drop(saves);
            self.shared.refused.fetch_add(1, Ordering::Relaxed);
            return;
        }
        // The thread has been woken for whatever waits already.
        let wake = saves.is_empty();
        saves.insert(key, waiting);
        drop(saves);
        if wake {
            self.wake();
        }
    }

    /// The newest `last` lines of the audit, oldest first; at most 1,000, and at most what fits into one frame. What
    /// could not be written yet is among them.
    ///
    /// # Errors
    /// When the database cannot be read, or not within 2 s.
    pub fn audit(&self, last: u32) -> impl Future<Output = Result<Vec<AuditLine>, StoreError>> + use<> {
        let (answer, wait) = oneshot::channel();
        self.ask(StoreRequest::Audit(last, answer));
        async { timeout(AUDIT, wait).await.ok().and_then(Result::ok).unwrap_or(Err(StoreError::Late)) }
    }

    /// Waits, at most for `deadline`, until everything recorded and saved so far is on disk and with journald. For a
    /// clean stop; nothing has to be flushed for correctness.
    ///
    /// # Errors
    /// What did not get there, and why.
    pub async fn flush(&self, deadline: Duration) -> Result<(), StoreError> {
        let until = Instant::now() + deadline;
        let (answer, wait) = oneshot::channel();
        self.ask(StoreRequest::Flush(answer));
        timeout_at(until, wait).await.ok().and_then(Result::ok).unwrap_or(Err(StoreError::Late))?;
        let Some(journal) = &self.shared.journal else { return Ok(()) };
        let (done, wait) = oneshot::channel();
        journal.flush(done);
        match timeout_at(until, wait).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) | Err(_) => Err(StoreError::Journal(
                journal.degraded().unwrap_or_else(|| "it did not take everything in time".to_owned()),
            )),
        }
    }

    /// What is wrong with the state directory or the journal: a sentence each, with the way out; empty when all is
    /// well. Cheap enough for each status report.
    pub fn degraded(&self) -> Vec<String> {
        let shared = &self.shared;
        let trouble = lock(&shared.trouble).clone().or_else(|| {
            let hung = human(shared.inside.longer_than(HUNG)?);
            Some(format!("the disk of the state directory has not answered for {hung}; look at it (`dmesg`)"))
        });
        let refused = match shared.refused.load(Ordering::Relaxed) {
            0 => None,
            n => Some(format!(
                "{n} worker states were too large or too many to be kept; after a restart they will be missing"
            )),
        };
        let journal =
            shared.journal.as_ref().map_or_else(|| shared.no_journal.clone(), |journal| journal.degraded());
        [trouble, lock(&shared.scar).clone(), refused, journal].into_iter().flatten().collect()
    }

    #[cfg(test)]
    pub(super) fn shared(&self) -> &Shared {
        &self.shared
    }

    fn ask(&self, ask: StoreRequest) {
        let mut asks = lock(&self.shared.asks);
        // Dropping the question answers it: its asker is told that it came too late.
        if asks.len() < ASKS {
            asks.push(ask);
        }
        drop(asks);
        self.wake();
    }

    fn wake(&self) {
        // A full queue means that the thread has mail, after which it looks for the rest as well.
        let _ = self.to.try_send(Mail::Wake);
    }
}
