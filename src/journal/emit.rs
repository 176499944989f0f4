//! The thread that writes records into the journal. It may hang there for as long as it likes: nobody waits for it, what
//! does not fit into its queue is counted, and the audit has every record already.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use tokio::sync::oneshot;

use super::event::{Event, Priority};
use super::inside::Inside;
use super::journald::Journald;
use super::record::Record;
use super::sink::{NumberedRecord, Sink};
use crate::vocabulary::{Moment, NodeName, human};

/// How many records wait for journald, about 80 KB: some minutes of a busy night.
const QUEUE: usize = 512;
/// After how long one that takes nothing is called degraded: journald is restarted within a second or so on updates.
const BLOCKED: Duration = Duration::from_secs(5);
/// How often one that is not there is looked for, while something waits for it.
const RETRY: Duration = Duration::from_secs(5);

enum Post {
    NumberedRecord(NumberedRecord),
    Wake,
}

#[derive(Debug, Default)]
struct EmitterState {
    /// The thread's time inside the sink.
    inside: Inside,
    /// Records that did not fit into the queue.
    lost: AtomicU64,
    /// Why the sink is not ready.
    absent: Mutex<Option<String>>,
    /// Who waits for everything so far to be written.
    flushes: Mutex<Vec<oneshot::Sender<()>>>,
}

/// The queue in front of the journal.
#[derive(Debug, Clone)]
pub(crate) struct Journal {
    to: SyncSender<Post>,
    shared: Arc<EmitterState>,
}

impl Journal {
    /// Starts the thread that writes to journald. Without journald it keeps looking for it.
    pub(crate) fn start(node: &NodeName) -> io::Result<Self> {
        Self::start_with(Journald::new(node.clone()), QUEUE, RETRY, node)
    }

    fn start_with(sink: impl Sink, queue: usize, retry: Duration, node: &NodeName) -> io::Result<Self> {
        let (to, from) = sync_channel(queue);
        let shared = Arc::<EmitterState>::default();
        let mut writer = Writer {
            sink,
            shared: shared.clone(),
            node: node.to_string(),
            retry,
            batch: queue,
            absent_since: None,
            told: 0,
        };
        thread::Builder::new().name("journal".to_owned()).stack_size(256 * 1024).spawn(move || {
            writer.run(&from);
        })?;
        Ok(Self { to, shared })
    }

    /// Hands a record on, or counts it as lost. Never blocks.
    pub(crate) fn hand_on(&self, line: NumberedRecord) {
        match self.to.try_send(Post::NumberedRecord(line)) {
            Ok(()) => {}
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {
                self.shared.lost.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Has `done` answered when everything handed on so far is written; drops it at once if that cannot be awaited.
    pub(crate) fn flush(&self, done: oneshot::Sender<()>) {
        lock(&self.shared.flushes).push(done);
        let _ = self.to.try_send(Post::Wake);
        if self.degraded().is_some() {
            lock(&self.shared.flushes).clear();
        }
    }

    /// What is wrong with the journal, if anything is: one sentence.
    pub(crate) fn degraded(&self) -> Option<String> {
        self.degraded_after(BLOCKED)
    }

    fn degraded_after(&self, blocked: Duration) -> Option<String> {
        let cause = lock(&self.shared.absent).clone().or_else(|| {
            let hung = self.shared.inside.longer_than(blocked)?;
            Some(format!("it has taken nothing for {}", human(hung)))
        })?;
        let lost = match self.shared.lost.load(Ordering::Relaxed) {
            0 => String::new(),
            n => format!(", {n} records passed it by"),
        };
        Some(format!(
            "journald is not following ({cause}{lost}): the evidence is in the audit (`keyholder audit`); look at \
             `systemctl status systemd-journald`"
        ))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Writer<S> {
    sink: S,
    shared: Arc<EmitterState>,
    node: String,
    retry: Duration,
    /// How many records are written between two probes: as many as the queue holds.
    batch: usize,
    absent_since: Option<Moment>,
    told: u64,
}

impl<S: Sink> Writer<S> {
    fn run(&mut self, from: &Receiver<Post>) {
        loop {
            // Taken before the queue is emptied: what was handed on before somebody began to wait is written by then.
            let mut flushes = std::mem::take(&mut *lock(&self.shared.flushes));
            let first = if flushes.is_empty() { from.recv() } else { Ok(Post::Wake) };
            let Ok(first) = first else { return };
            flushes.extend(lock(&self.shared.flushes).drain(..));
            while !self.ready() {
                flushes.clear();
                lock(&self.shared.flushes).clear();
                thread::sleep(self.retry);
            }
            self.write(first);
            for post in from.try_iter().take(self.batch) {
                self.write(post);
            }
            self.tell_losses();
            for done in flushes {
                let _ = done.send(());
            }
        }
    }

    fn ready(&mut self) -> bool {
        match self.shared.inside.run(|| self.sink.ready()) {
            Err(error) => {
                *lock(&self.shared.absent) = Some(format!("/run/systemd/journal/socket: {error}"));
                self.absent_since.get_or_insert_with(Moment::now);
                false
            }
            Ok(()) => {
                *lock(&self.shared.absent) = None;
                if let Some(since) = self.absent_since.take() {
                    let after = human(Moment::now().since(since));
                    self.note(format!("journald is back after {after}; what waited for it follows"));
                }
                true
            }
        }
    }

    fn write(&mut self, post: Post) {
        match post {
            Post::NumberedRecord(line) => self.shared.inside.run(|| self.sink.write(&line)),
            Post::Wake => {}
        }
    }

    fn tell_losses(&mut self) {
        let lost = self.shared.lost.load(Ordering::Relaxed);
        if lost > self.told {
            let missing = lost - self.told;
            self.told = lost;
            self.note(format!(
                "{missing} records are missing here, because journald did not follow; KEYHOLDER_SEQ has a gap and \
                 `keyholder audit` has them"
            ));
        }
    }

    fn note(&mut self, text: String) {
        let record = Record::local(Event::Degraded, Priority::Warning, self.node.clone(), text);
        self.shared.inside.run(|| self.sink.write(&NumberedRecord { seq: None, record }));
    }
}

#[cfg(test)]
mod tests;
