//! What the parts of one lane share. One thread, so nothing here is locked, and no borrow is held across a wait.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use ring::digest::{SHA256, digest};
use serde::Serialize;
use tokio::sync::{Notify, Semaphore};

use super::admit::Rules;
use super::ledger::{Ledger, LedgerError};
use super::result::{Status, TaskResult};
use super::says::Says;
use super::sign::hex;
use crate::catalog::Mode;
use crate::notify::Notifier;
use crate::queue::{Backoff, Desk, How, Owner, Piece, QueueError, Server};

/// How many bytes of a task that is too long are kept with the dead.
const KEPT: usize = 1024;
/// How long after a change the status is shown.
const SHOW_AFTER: std::time::Duration = std::time::Duration::from_millis(100);

/// The SHA-256 of a task's bytes in hex: what it goes by everywhere but for people.
pub(super) fn hash_of(raw: &[u8]) -> String {
    hex(digest(&SHA256, raw).as_ref())
}

/// Why the lane takes no tasks at the moment. It tries again.
#[derive(Debug, thiserror::Error)]
pub(super) enum Trouble {
    /// Redis.
    #[error(transparent)]
    Queue(#[from] QueueError),
    /// The ledger.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// Another lane has the queue.
    #[error("the queue {queue} is owned by another lane ({place}); are there two nodes of one name?")]
    Owned {
        /// The queue.
        queue: String,
        /// Where that lane runs.
        place: String,
    },
    /// A task or the queue was no longer ours when it was to be begun.
    #[error("a task was taken out of our hands before it was begun")]
    Lost,
    /// A file of ours.
    #[error("{what}: {source}")]
    File {
        /// Which.
        what: String,
        /// Why.
        source: std::io::Error,
    },
}

/// A task in hand.
#[derive(Debug, Clone)]
struct InHand {
    what: String,
    /// Whether the same bytes were claimed once more.
    copied: bool,
}

/// A dead task in Redis.
#[derive(Debug, Serialize)]
struct Dead<'a> {
    code: &'a str,
    text: &'a str,
    at: String,
    sha256: &'a str,
    bytes: usize,
    /// The task if it is text, else its bytes escaped; cut if it is too long to be one.
    task: super::result::Text,
}

/// The lane.
pub(super) struct Shared {
    pub(super) rules: Rules,
    pub(super) server: Server,
    pub(super) queue: String,
    pub(super) how: How,
    pub(super) state_dir: PathBuf,
    pub(super) ledger: Ledger,
    pub(super) owner: Owner,
    pub(super) says: Says,
    pub(super) slots: Arc<Semaphore>,
    pub(super) all_slots: usize,
    pub(super) backoff: RefCell<Backoff>,
    /// While it is ours to use.
    pub(super) desk: RefCell<Option<Desk>>,
    /// By the hash of its bytes.
    in_hand: RefCell<BTreeMap<String, InHand>>,
    pub(super) notifier: RefCell<Notifier>,
    /// Whether the status is about to be shown.
    showing: Cell<bool>,
    pub(super) ready: Cell<bool>,
    pub(super) leaving: Cell<bool>,
    pub(super) rebuild: Cell<bool>,
    pub(super) trouble: RefCell<Option<Trouble>>,
    /// Something for the pipe to look at.
    pub(super) poke: Notify,
    /// No waiting before the next attempt.
    hurry: Notify,
    /// Something for the main loop to look at.
    pub(super) changed: Notify,
    last_pass: Cell<Instant>,
    state: RefCell<String>,
    done: Cell<u64>,
    last: RefCell<String>,
    unit: Option<String>,
    invocation: Option<String>,
}

/// What a lane is made of.
pub(super) struct Parts {
    pub(super) rules: Rules,
    pub(super) server: Server,
    pub(super) queue: String,
    pub(super) how: How,
    pub(super) slots: usize,
    pub(super) state_dir: PathBuf,
    pub(super) ledger: Ledger,
    pub(super) owner: Owner,
    pub(super) says: Says,
}

impl Shared {
    pub(super) fn new(parts: Parts) -> Self {
        let Parts { rules, server, queue, how, slots, state_dir, ledger, owner, says } = parts;
        Self {
            rules,
            server,
            queue,
            how,
            state_dir,
            ledger,
            owner,
            says,
            slots: Arc::new(Semaphore::new(slots)),
            all_slots: slots,
            backoff: RefCell::default(),
            desk: RefCell::default(),
            in_hand: RefCell::default(),
            notifier: RefCell::new(Notifier::from_environment()),
            showing: Cell::new(false),
            ready: Cell::new(false),
            leaving: Cell::new(false),
            rebuild: Cell::new(false),
            trouble: RefCell::default(),
            poke: Notify::new(),
            hurry: Notify::new(),
            changed: Notify::new(),
            last_pass: Cell::new(Instant::now()),
            state: RefCell::default(),
            done: Cell::new(0),
            last: RefCell::default(),
            unit: unit_of_ours(),
            invocation: std::env::var("INVOCATION_ID").ok().filter(|id| id.len() == 32),
        }
    }

    pub(super) fn lane(&self) -> Mode {
        self.rules.lane
    }

    /// The wall clock, ms since 1970.
    pub(super) fn now_ms(&self) -> i64 {
        jiff::Timestamp::now().as_millisecond()
    }

    /// The pipe has made a step.
    pub(super) fn passed(&self) {
        self.last_pass.set(Instant::now());
    }

    /// How long the pipe has made no step, although it could have.
    pub(super) fn stuck_for(&self) -> std::time::Duration {
        // With every slot taken it has nothing to do; commands have their own deadlines.
        if self.slots.available_permits() == 0 && self.busy() > 0 {
            return std::time::Duration::ZERO;
        }
        self.last_pass.get().elapsed()
    }

    /// Whether this process is working on the task.
    pub(super) fn runs(&self, hash: &str) -> bool {
        self.in_hand.borrow().contains_key(hash)
    }

    /// Takes a task in hand. False if the same bytes are in hand: then whoever serves them looks once more when it is done.
    pub(super) fn take(&self, hash: &str) -> bool {
        let mut in_hand = self.in_hand.borrow_mut();
        if let Some(same) = in_hand.get_mut(hash) {
            same.copied = true;
            return false;
        }
        in_hand.insert(hash.to_owned(), InHand { what: "a new task".to_owned(), copied: false });
        true
    }

    /// Whether a task in hand was claimed once more since this was asked last.
    pub(super) fn copied(&self, hash: &str) -> bool {
        self.in_hand.borrow_mut().get_mut(hash).is_some_and(|in_hand| std::mem::take(&mut in_hand.copied))
    }

    /// What a task in hand is, in words.
    pub(super) fn runs_now(self: &Rc<Self>, hash: &str, what: String) {
        if let Some(in_hand) = self.in_hand.borrow_mut().get_mut(hash) {
            in_hand.what = what;
        }
        self.show();
    }

    /// A task is out of hand.
    pub(super) fn release(self: &Rc<Self>, hash: &str) {
        self.in_hand.borrow_mut().remove(hash);
        self.show();
    }

    /// How many tasks are in hand.
    pub(super) fn busy(&self) -> usize {
        self.in_hand.borrow().len()
    }

    pub(super) fn desk(&self) -> Option<Desk> {
        self.desk.borrow().clone()
    }

    /// Something failed: the pipe is built anew.
    pub(super) fn fail(&self, trouble: Trouble) {
        self.desk.borrow_mut().take();
        self.trouble.borrow_mut().get_or_insert(trouble);
        self.rebuild.set(true);
        self.poke.notify_one();
    }

    /// A new state of the lane, said and shown once. `state` tells states apart, `text` is for people.
    pub(super) fn enter(&self, state: &str, warning: bool, text: String) {
        if *self.state.borrow() == state {
            return;
        }
        state.clone_into(&mut self.state.borrow_mut());
        self.notifier.borrow_mut().status(text.clone());
        self.says.transition(warning, text);
    }

    /// Shows the status while all is well, soon: of tasks that take a millisecond only the last is worth PID 1's time.
    pub(super) fn show(self: &Rc<Self>) {
        if self.showing.replace(true) {
            return;
        }
        let shared = self.clone();
        tokio::task::spawn_local(async move {
            tokio::time::sleep(SHOW_AFTER).await;
            shared.showing.set(false);
            shared.show_now();
        });
    }

    fn show_now(&self) {
        if self.desk.borrow().is_none() || self.leaving.get() {
            return;
        }
        let in_hand = self.in_hand.borrow();
        let now = match in_hand.values().next() {
            None => "waiting for tasks".to_owned(),
            Some(one) if in_hand.len() == 1 => format!("running {}", one.what),
            Some(_) => format!("running {} of at most {}", in_hand.len(), self.all_slots),
        };
        let done = self.done.get();
        let last = self.last.borrow();
        let last = if last.is_empty() { String::new() } else { format!(", last: {last}") };
        self.notifier.borrow_mut().status(format!("{}: {now}; {done} done{last}", self.queue));
    }

    /// A task is done.
    pub(super) fn count(&self, result: &TaskResult) {
        self.done.set(self.done.get() + 1);
        let action = result.action.as_deref().unwrap_or("?");
        *self.last.borrow_mut() = format!("{action} {}", result.status.name());
    }

    /// A result to be filled in.
    pub(super) fn result(&self, id: String, action: Option<String>, status: Status) -> TaskResult {
        TaskResult {
            id,
            action,
            status,
            refusal: None,
            note: None,
            ran: None,
            node: self.rules.catalog.node.clone(),
            lane: self.lane(),
            unit: self.unit.clone(),
            invocation: self.invocation.clone(),
            at: format!("{:.3}", jiff::Timestamp::now()),
        }
    }

    /// A result as it is published. Nothing in it can fail to be written.
    pub(super) fn json(&self, what: &impl Serialize) -> String {
        serde_json::to_string(what).unwrap_or_default()
    }

    /// An entry for the dead.
    pub(super) fn dead(&self, piece: Piece<'_>, code: &str, text: &str) -> String {
        let cut = if piece.raw.len() > super::task::MAX_TASK { KEPT } else { piece.raw.len() };
        let task = super::result::Text::of(piece.raw.get(..cut).unwrap_or_default().to_vec());
        let at = format!("{:.3}", jiff::Timestamp::now());
        self.json(&Dead { code, text, at, sha256: piece.hash, bytes: piece.raw.len(), task })
    }

    /// Waits, unless somebody is in a hurry.
    pub(super) async fn wait(&self, time: std::time::Duration) {
        tokio::select! {
            () = tokio::time::sleep(time) => {}
            () = self.hurry.notified() => {}
        }
    }

    /// Has the pipe look around now instead of when its wait is over.
    pub(super) fn wake(self: &Rc<Self>) {
        self.poke.notify_one();
        self.hurry.notify_one();
        if let Some(desk) = self.desk() {
            // If it fails, the pipe notices for itself.
            tokio::task::spawn_local(async move { drop(desk.wake_claimer().await) });
        }
    }
}

/// The unit that this process belongs to, from its control group, as PID 1 made it.
fn unit_of_ours() -> Option<String> {
    let groups = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    groups
        .lines()
        .filter_map(|line| line.rsplit('/').next())
        .find(|last| last.ends_with(".service"))
        .map(str::to_owned)
}
