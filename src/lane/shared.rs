//! What the parts of one lane share. One thread, so nothing here is locked, and no borrow is held across a wait.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ring::digest::{SHA256, digest};
use serde::Serialize;
use tokio::sync::{Notify, Semaphore};

use super::admit::Rules;
use super::journal_writer::JournalWriter;
use super::ledger::{Begun, Ledger, LedgerError};
use super::result::{Status, TaskResult};
use super::unstored::Unstored;
use crate::catalog::Mode;
use crate::notify::Notifier;
use crate::queue::{Backoff, Connection, How, Owned, Owner, Piece, QueueError, Server};
use crate::vocabulary::{InFlight, LastTask, Moment, NodeName, hex};

/// How many bytes of a task that is too long are kept with the dead.
const KEPT: usize = 1024;
/// How long after a change the status is shown.
const SHOW_AFTER: Duration = Duration::from_millis(100);

/// How long a lane that was told to be deaf stays so if nobody has it hear again: whoever told it may be gone.
pub(super) const DEAF: Duration = Duration::from_secs(120);

/// How many results wait for their record at most: more than the journal's own queue has room for, and what does not get into
/// that is lost and said to be.
const UNSAID: usize = 2048;
/// After which time without taking tasks a lane is no longer called healthy: by then a server that was restarted is back.
const NO_TASKS: Duration = Duration::from_secs(5);

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

/// What becomes of tasks while the lane is in a state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Taking {
    /// They are taken.
    Tasks,
    /// They are taken, and something is wrong all the same.
    TasksStill,
    /// None is taken.
    Nothing,
}

/// A task in hand.
#[derive(Debug, Clone)]
pub(super) struct InHand {
    what: String,
    /// Once it is run.
    pub(super) begun: Option<InFlight>,
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
    lane: Mode,
    node: NodeName,
    rules: RefCell<Rc<Rules>>,
    /// Why newer rules than these were refused.
    refused: RefCell<Option<String>>,
    pub(super) server: Server,
    pub(super) queue: String,
    pub(super) how: How,
    pub(super) state_dir: PathBuf,
    pub(super) ledger: Ledger,
    /// Results that the ledger could not take yet, by the hash of the task's bytes.
    pub(super) unstored: RefCell<BTreeMap<String, Unstored>>,
    pub(super) owner: Owner,
    pub(super) journal: JournalWriter,
    pub(super) slots: Arc<Semaphore>,
    pub(super) all_slots: usize,
    pub(super) backoff: RefCell<Backoff>,
    /// While it is ours to use.
    pub(super) connection: RefCell<Option<Connection>>,
    /// By the hash of its bytes.
    pub(super) in_hand: RefCell<BTreeMap<String, InHand>>,
    pub(super) notifier: RefCell<Notifier>,
    /// Whether the status is about to be shown.
    showing: Cell<bool>,
    pub(super) ready: Cell<bool>,
    /// What is published and may not be in the journal yet: up to which mark, and the task's hash.
    unsaid: RefCell<VecDeque<(u64, String)>>,
    /// Whether what a lane before this one had left unpublished is published.
    pub(super) recovered: Cell<bool>,
    pub(super) leaving: Cell<bool>,
    /// How many tasks wait for the clock to be set.
    pub(super) await_clock: Cell<u32>,
    /// Whether it has waited in vain for the clock to be set.
    pub(super) waited_for_clock: Cell<bool>,
    pub(super) rebuild: Cell<bool>,
    /// Until when it takes no tasks because somebody rehearses that.
    deaf_until: Cell<Option<Instant>>,
    pub(super) trouble: RefCell<Option<Trouble>>,
    /// Something for the pipe to look at.
    pub(super) poke: Notify,
    /// No waiting before the next attempt.
    hurry: Notify,
    /// Something for the main loop to look at.
    pub(super) changed: Notify,
    /// Something for whoever looks after the lane to see.
    pub(super) news: Notify,
    last_pass: Cell<Instant>,
    pub(super) passes: Cell<u64>,
    pub(super) pass_at: Cell<Moment>,
    /// How many tasks wait, and when that was last asked.
    pub(super) waiting: Cell<Option<u64>>,
    pub(super) asked: Cell<Option<Instant>>,
    state: RefCell<String>,
    /// Since when it takes no tasks, and why.
    no_tasks: RefCell<Option<(Moment, String)>>,
    /// Whether it has had the queue before, and whether another lane has had it since.
    had_queue: Cell<bool>,
    pub(super) lost_queue: Cell<bool>,
    pub(super) done: Cell<u64>,
    pub(super) last: RefCell<Option<LastTask>>,
    unit: Option<String>,
    pub(super) invocation: Option<String>,
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
    pub(super) journal: JournalWriter,
}

impl Shared {
    pub(super) fn new(parts: Parts) -> Self {
        let Parts { rules, server, queue, how, slots, state_dir, ledger, owner, journal } = parts;
        Self {
            lane: rules.lane,
            node: rules.catalog.node.clone(),
            rules: RefCell::new(rules.into()),
            refused: RefCell::default(),
            server,
            queue,
            how,
            state_dir,
            ledger,
            unstored: RefCell::default(),
            owner,
            journal,
            slots: Arc::new(Semaphore::new(slots)),
            all_slots: slots,
            backoff: RefCell::default(),
            connection: RefCell::default(),
            in_hand: RefCell::default(),
            notifier: RefCell::new(Notifier::from_environment()),
            showing: Cell::new(false),
            ready: Cell::new(false),
            unsaid: RefCell::default(),
            recovered: Cell::new(false),
            leaving: Cell::new(false),
            await_clock: Cell::new(0),
            waited_for_clock: Cell::new(false),
            rebuild: Cell::new(false),
            deaf_until: Cell::default(),
            trouble: RefCell::default(),
            poke: Notify::new(),
            hurry: Notify::new(),
            changed: Notify::new(),
            news: Notify::new(),
            last_pass: Cell::new(Instant::now()),
            passes: Cell::default(),
            pass_at: Cell::new(Moment::now()),
            waiting: Cell::default(),
            asked: Cell::default(),
            state: RefCell::default(),
            no_tasks: RefCell::default(),
            had_queue: Cell::new(false),
            lost_queue: Cell::new(false),
            done: Cell::new(0),
            last: RefCell::default(),
            unit: unit_of_ours(),
            invocation: std::env::var("INVOCATION_ID").ok().filter(|id| id.len() == 32),
        }
    }

    pub(super) fn lane(&self) -> Mode {
        self.lane
    }

    pub(super) fn node(&self) -> &NodeName {
        &self.node
    }

    /// What the lane goes by at present.
    pub(super) fn rules(&self) -> Rc<Rules> {
        self.rules.borrow().clone()
    }

    /// Newer rules, or why there are none.
    pub(super) fn adopt(&self, rules: Result<Rules, String>) {
        *self.refused.borrow_mut() = match rules {
            Ok(rules) => {
                *self.rules.borrow_mut() = rules.into();
                None
            }
            Err(why) => Some(why),
        };
    }

    /// The wall clock, ms since 1970.
    pub(super) fn now_ms(&self) -> i64 {
        jiff::Timestamp::now().as_millisecond()
    }

    /// The pipe has made a step.
    pub(super) fn passed(&self) {
        self.last_pass.set(Instant::now());
        self.passes.set(self.passes.get().saturating_add(1));
        self.pass_at.set(Moment::now());
        self.news.notify_one();
    }

    /// A rehearsal: it takes no tasks for [`DEAF`], and all else goes on.
    pub(super) fn deafen(&self) {
        self.deaf_until.set(Some(Instant::now() + DEAF));
    }

    /// The rehearsal is over.
    pub(super) fn hear(&self) {
        self.deaf_until.set(None);
    }

    /// Whether it takes no tasks because somebody rehearses that.
    pub(super) fn is_deaf(&self) -> bool {
        self.deaf_until.get().is_some_and(|until| Instant::now() < until)
    }

    /// How long the pipe has made no step, although it could have.
    pub(super) fn stuck_for(&self) -> Duration {
        // With every slot taken it has nothing to do; commands have their own deadlines.
        if self.slots.available_permits() == 0 && self.busy() > 0 {
            return Duration::ZERO;
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
        let what = "a new task".to_owned();
        in_hand.insert(hash.to_owned(), InHand { what, begun: None, copied: false });
        true
    }

    /// Whether a task in hand was claimed once more since this was asked last.
    pub(super) fn copied(&self, hash: &str) -> bool {
        self.in_hand.borrow_mut().get_mut(hash).is_some_and(|in_hand| std::mem::take(&mut in_hand.copied))
    }

    /// A task in hand is run.
    pub(super) fn runs_now(self: &Rc<Self>, hash: &str, begun: InFlight) {
        if let Some(in_hand) = self.in_hand.borrow_mut().get_mut(hash) {
            in_hand.what = format!("{} ({})", begun.action, begun.id);
            in_hand.begun = Some(begun);
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

    pub(super) fn connection(&self) -> Option<Connection> {
        self.connection.borrow().clone()
    }

    /// Something failed: the pipe is built again.
    pub(super) fn fail(&self, trouble: Trouble) {
        self.connection.borrow_mut().take();
        self.news.notify_one();
        self.trouble.borrow_mut().get_or_insert(trouble);
        self.rebuild.set(true);
        self.poke.notify_one();
    }

    /// A new state of the lane, said and shown once. `state` tells states apart, `text` is for people.
    pub(super) fn enter(&self, state: &str, taking: Taking, text: String) {
        if *self.state.borrow() == state {
            return;
        }
        state.clone_into(&mut self.state.borrow_mut());
        let warning = taking != Taking::Tasks;
        {
            let mut no_tasks = self.no_tasks.borrow_mut();
            let since = no_tasks.take().map_or_else(Moment::now, |(since, _)| since);
            *no_tasks = (taking == Taking::Nothing).then(|| (since, text.clone()));
        }
        self.showing.set(false);
        self.notifier.borrow_mut().status(text.clone());
        self.journal.transition(warning, text);
    }

    /// Why it has taken no tasks for [`NO_TASKS`] and more.
    pub(super) fn no_tasks(&self) -> Option<String> {
        let no_tasks = self.no_tasks.borrow();
        no_tasks
            .as_ref()
            .filter(|(since, _)| Moment::now().since(*since) >= NO_TASKS)
            .map(|(_, why)| why.clone())
    }

    /// The queue is this lane's. JournalWriter what is to be said of it if that was otherwise before.
    pub(super) fn has_queue(&self, owned: &Owned) -> Option<&'static str> {
        let (had, lost) = (self.had_queue.replace(true), self.lost_queue.replace(false));
        match (owned, had, lost) {
            (_, _, true) => Some("the queue is this lane's again"),
            (Owned::Taken, true, false) => {
                Some("its owner key was gone from the server, and is this lane's again")
            }
            (Owned::Taken | Owned::Kept | Owned::ByAnother(_), _, false) => None,
        }
    }

    /// Shows the status while all is well, soon: of tasks that take a millisecond only the last is worth PID 1's time. What is
    /// entered meanwhile is newer and stays.
    pub(super) fn show(self: &Rc<Self>) {
        self.news.notify_one();
        if self.showing.replace(true) {
            return;
        }
        let shared = self.clone();
        tokio::task::spawn_local(async move {
            tokio::time::sleep(SHOW_AFTER).await;
            if shared.showing.replace(false) {
                shared.show_now();
            }
        });
    }

    fn show_now(&self) {
        if self.connection.borrow().is_none() || self.leaving.get() || self.is_deaf() {
            return;
        }
        let in_hand = self.in_hand.borrow();
        let now = match in_hand.values().next() {
            None => "waiting for tasks".to_owned(),
            Some(one) if in_hand.len() == 1 => format!("running {}", one.what),
            Some(_) => format!("running {} of at most {}", in_hand.len(), self.all_slots),
        };
        let done = self.done.get();
        let last = self.last.borrow().as_ref().map_or_else(String::new, |last| {
            format!(", last: {} {}", last.action.as_deref().unwrap_or("?"), last.status)
        });
        let stale = if self.refused.borrow().is_some() {
            "; BY AN OLD CATALOG, the new one was refused: see the journal"
        } else {
            ""
        };
        self.notifier.borrow_mut().status(format!("{}: {now}; {done} done{last}{stale}", self.queue));
    }

    /// A task's result is in Redis. It stays open in the ledger until the journal has its record, too: a lane that comes up
    /// after this one's death then says it.
    pub(super) fn published(&self, hash: &str) -> Result<(), LedgerError> {
        if self.unsaid.borrow().len() >= UNSAID {
            return self.ledger.published(hash);
        }
        self.unsaid.borrow_mut().push_back((self.journal.mark(), hash.to_owned()));
        self.settle_said()
    }

    /// The result of a run is in Redis, and what may run again has it from here on in the ledger, too: in one step with
    /// [`published`](Self::published) if the journal was quicker than Redis.
    pub(super) fn answered(&self, hash: &str, begun: &Begun, result: &str) -> Result<(), LedgerError> {
        if self.journal.said(self.journal.mark()) {
            return self.ledger.answered(hash, result);
        }
        if begun.again {
            self.ledger.finish(hash, begun, result)?;
        }
        self.published(hash)
    }

    /// Closes in the ledger what has got into the journal meanwhile.
    pub(super) fn settle_said(&self) -> Result<(), LedgerError> {
        loop {
            let next = self.unsaid.borrow().front().filter(|(mark, _)| self.journal.said(*mark)).cloned();
            let Some((_, hash)) = next else { return Ok(()) };
            self.ledger.published(&hash)?;
            self.unsaid.borrow_mut().pop_front();
        }
    }

    /// A task is done.
    pub(super) fn count(&self, result: &TaskResult) {
        self.done.set(self.done.get() + 1);
        let (id, action) = (result.id.clone(), result.action.clone());
        *self.last.borrow_mut() = Some(LastTask { id, action, status: result.status, at: Moment::now() });
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
            node: self.node.clone(),
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

    /// An entry for the dead of what is too long to be read; the server puts in what it goes by.
    pub(super) fn dead_unread(&self, text: &str) -> String {
        let at = format!("{:.3}", jiff::Timestamp::now());
        let (code, task) = ("malformed", super::result::Text::of(Vec::new()));
        let entry = self.json(&Dead { code, text, at, sha256: "sha1-@SHA1@", bytes: 0, task });
        entry.replacen("\"bytes\":0", "\"bytes\":@BYTES@", 1)
    }

    /// Waits, unless somebody is in a hurry.
    pub(super) async fn wait(&self, time: Duration) {
        tokio::select! {
            () = tokio::time::sleep(time) => {}
            () = self.hurry.notified() => {}
        }
    }

    /// Waits, unless there is something for the pipe to look at.
    pub(super) async fn wait_or_poke(&self, time: Duration) {
        tokio::select! {
            () = tokio::time::sleep(time) => {}
            () = self.poke.notified() => {}
        }
    }

    /// Has the pipe look around now instead of when its wait is over.
    pub(super) fn wake(self: &Rc<Self>) {
        self.poke.notify_one();
        self.hurry.notify_one();
        if let Some(connection) = self.connection() {
            // If it fails, the pipe notices for itself.
            tokio::task::spawn_local(async move { drop(connection.wake_claimer().await) });
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
