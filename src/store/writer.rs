//! The thread that owns the database: it takes what is there, writes it as one transaction, hands the records on to the
//! journal, answers questions, and repairs what can be repaired.

mod repair;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::time::{Duration, Instant};

use super::db::{self, Db, Saved};
use super::handle::{Key, Shared, StoreError, StoreRequest};
use super::trouble::Trouble;
use super::{SavedState, Settings};
use crate::journal::{Event, Mail, NumberedRecord, Priority, Record, Stamped, Stamper, rfc3339};
use crate::peer::wire::AuditLine;
use crate::vocabulary::{Moment, NodeName};

/// How long the writer lets records gather before it writes them. They come while an act is under way, and a worker that
/// is being brought back needs the processors more than its record does; the act and its outcome become one transaction.
const LET_ACT: Duration = Duration::from_millis(20);
/// How often the audit is trimmed, in records.
const TRIM_EVERY: i64 = 1000;
/// Which part of the audit, at least one in so many rows, is left to what comes from outside when it is full.
const SHARE: u64 = 4;

/// A record that is not on disk yet.
struct Pending {
    stamped: Stamped,
    /// The journal has it already.
    handed_on: bool,
}

pub(super) struct Writer {
    settings: Settings,
    node: String,
    from: Receiver<Mail>,
    shared: Arc<Shared>,
    stamper: Stamper,
    db: Option<Db>,
    /// What to add to a record's number in this run to get its number in the audit.
    base: Option<i64>,
    /// The number in this run of the last record on disk.
    written: u64,
    pending: VecDeque<Pending>,
    /// Records that had to leave `pending` unwritten.
    overflowed: u64,
    /// Losses of either kind that have been told.
    told: u64,
    /// The newest state of everything that is kept, so that a database that is lost can be made again.
    kept: BTreeMap<Key, Saved>,
    dirty: BTreeSet<Key>,
    /// How many rows the audit has, once counted.
    rows: Option<u64>,
    trouble: Option<(Moment, String)>,
    try_again: Instant,
    /// What was wrong with the journal when it was last looked at.
    journal: Option<String>,
}

impl Writer {
    pub(super) fn new(
        settings: Settings,
        node: &NodeName,
        from: Receiver<Mail>,
        shared: Arc<Shared>,
        stamper: Stamper,
    ) -> Self {
        Self {
            settings,
            node: node.to_string(),
            from,
            shared,
            stamper,
            db: None,
            base: None,
            written: 0,
            pending: VecDeque::new(),
            overflowed: 0,
            told: 0,
            kept: BTreeMap::new(),
            dirty: BTreeSet::new(),
            rows: None,
            trouble: None,
            try_again: Instant::now(),
            journal: None,
        }
    }

    /// Runs until nobody is left who could send anything.
    pub(super) fn run(mut self, loaded: &SyncSender<SavedState>) {
        if self.settings.boot_id.is_empty() {
            let text = "the kernel's boot id cannot be read (/proc/sys/kernel/random/boot_id; hidden by \
                        ProcSubset=pid?): after a restart all saved times count as those of an earlier boot";
            self.shared.scar(text.to_owned());
            self.note(Priority::Warning, text.to_owned());
        }
        self.work(Vec::new());
        let mut found = SavedState::default();
        for (key, saved) in &self.kept {
            let saved = saved.loaded(&self.settings.boot_id);
            match key {
                Key::Worker(name) => drop(found.workers.insert(name.clone(), saved)),
                Key::Rehearsal(name) => drop(found.rehearsals.insert(name.clone(), saved)),
                Key::Alerts => found.alerts = Some(saved),
            }
        }
        let _ = loaded.try_send(found);
        loop {
            let mut asks = self.shared.take_asks();
            let mail = if !asks.is_empty() {
                // Its wake-up call may have been taken out of the queue in the last round.
                Ok(Mail::Wake)
            } else if self.trouble.is_some() {
                self.from.recv_timeout(self.try_again.saturating_duration_since(Instant::now()))
            } else {
                self.from.recv().map_err(|_| RecvTimeoutError::Disconnected)
            };
            // Before the queue is emptied: what was recorded before a question was asked is in its answer.
            asks.extend(self.shared.take_asks());
            let more = match mail {
                Ok(mail) => {
                    self.take(mail);
                    if asks.is_empty() {
                        asks = self.gather();
                    }
                    true
                }
                Err(RecvTimeoutError::Timeout) => true,
                Err(RecvTimeoutError::Disconnected) => false,
            };
            self.take_all();
            self.work(asks);
            if !more {
                return;
            }
        }
    }

    /// Takes what comes within [`LET_ACT`], or until somebody asks something.
    fn gather(&mut self) -> Vec<StoreRequest> {
        let until = Instant::now() + LET_ACT;
        while self.pending.len() < self.settings.pending {
            let Ok(mail) = self.from.recv_timeout(until.saturating_duration_since(Instant::now())) else {
                break;
            };
            self.take(mail);
            let asks = self.shared.take_asks();
            if !asks.is_empty() {
                return asks;
            }
        }
        Vec::new()
    }

    /// Empties the queue, as far as what is in it can be kept.
    fn take_all(&mut self) {
        for _ in 0..self.settings.queue {
            if self.trouble.is_none() && self.pending.len() >= self.settings.pending {
                break;
            }
            let Ok(mail) = self.from.try_recv() else { break };
            self.take(mail);
        }
    }

    fn take(&mut self, mail: Mail) {
        match mail {
            Mail::Record(stamped) => self.keep(stamped),
            Mail::Wake => {}
        }
    }

    fn keep(&mut self, stamped: Stamped) {
        if self.pending.len() >= self.settings.pending {
            self.pending.pop_front();
            self.overflowed += 1;
        }
        self.pending.push_back(Pending { stamped, handed_on: false });
    }

    /// A record of our own.
    fn note(&mut self, priority: Priority, text: String) {
        let record = Record::local(Event::Degraded, priority, self.node.clone(), text);
        let stamped = self.stamper.stamp(record);
        self.keep(stamped);
    }

    fn work(&mut self, asks: Vec<StoreRequest>) {
        for (key, waiting) in self.shared.take_saves() {
            self.dirty.insert(key.clone());
            let boot_id = self.settings.boot_id.clone();
            let saved =
                Saved { json: waiting.json, boot_id, moment: waiting.moment, wall_ms: waiting.wall_ms };
            self.kept.insert(key, saved);
        }
        if asks.iter().any(|ask| matches!(ask, StoreRequest::Flush(_))) {
            self.try_again = Instant::now();
        }
        self.write();
        self.tell_losses();
        self.watch_journal();
        for ask in asks {
            self.answer(ask);
        }
    }

    /// Writes what waits, if it is time to try, and hands the records on whether that worked or not.
    fn write(&mut self) {
        let nothing = self.pending.is_empty() && self.dirty.is_empty() && self.db.is_some();
        if !nothing && (self.trouble.is_none() || Instant::now() >= self.try_again) {
            let shared = self.shared.clone();
            match shared.inside.run(|| self.try_write()) {
                Ok(()) => self.out_of_trouble(),
                Err(trouble) => self.in_trouble(&trouble),
            }
        }
        self.hand_on();
    }

    fn try_write(&mut self) -> Result<(), Trouble> {
        self.connect()?;
        let (Some(db), Some(base)) = (&mut self.db, self.base) else { return Ok(()) };
        db.still_there()?;
        let seq = |no| base.saturating_add_unsigned(no);
        let records = self.pending.iter().map(|pending| (seq(pending.stamped.no), &pending.stamped));
        let kept = self.dirty.iter().filter_map(|key| self.kept.get_key_value(key));
        db.write(records, kept)?;
        let before = seq(self.written);
        self.written = self.pending.back().map_or(self.written, |pending| pending.stamped.no);
        self.rows = self.rows.map(|rows| rows + self.pending.len() as u64);
        self.dirty.clear();
        self.hand_on();
        self.pending.clear();
        if before / TRIM_EVERY != seq(self.written) / TRIM_EVERY { self.trim() } else { Ok(()) }
    }

    fn trim(&mut self) -> Result<(), Trouble> {
        let Some(db) = &self.db else { return Ok(()) };
        let rows = self.rows.map_or_else(|| db.count(), Ok)?;
        let surplus = rows.saturating_sub(self.settings.rows);
        if surplus == 0 {
            self.rows = Some(rows);
            return Ok(());
        }
        db.trim(surplus, self.settings.rows / SHARE)?;
        self.rows = Some(rows - surplus);
        Ok(())
    }

    /// Opens the database if it is not open.
    fn connect(&mut self) -> Result<(), Trouble> {
        if self.db.is_some() {
            return Ok(());
        }
        let db = Db::open(&self.settings.dir)?;
        let found = db.kept()?;
        let last = db.last_seq()?;
        for (key, saved) in &self.kept {
            if found.get(key) != Some(saved) {
                self.dirty.insert(key.clone());
            }
        }
        for (key, saved) in found {
            // What is in memory is newer.
            self.kept.entry(key).or_insert(saved);
        }
        // The same file may have more than we know of (a commit whose `fsync` failed) and goes on with its numbers;
        // another one goes on from its own last.
        let newest = self.pending.back().map_or(self.written, |pending| pending.stamped.no);
        self.base = self
            .base
            .filter(|base| {
                let known = base.saturating_add_unsigned(self.written);
                (known..=base.saturating_add_unsigned(newest)).contains(&last)
            })
            .or_else(|| Some(last.saturating_sub_unsigned(self.written)));
        if let Some(base) = self.base {
            self.stamper.tap().numbers_from(base);
        }
        self.rows = None;
        self.db = Some(db);
        Ok(())
    }

    fn seq(&self, stamped: &Stamped) -> Option<i64> {
        self.base.map(|base| base.saturating_add_unsigned(stamped.no))
    }

    fn hand_on(&mut self) {
        let base = self.base;
        let Some(journal) = &self.shared.journal else { return };
        for pending in self.pending.iter_mut().filter(|pending| !pending.handed_on) {
            let seq = base.map(|base| base.saturating_add_unsigned(pending.stamped.no));
            journal.hand_on(NumberedRecord { seq, record: pending.stamped.record.clone() });
            pending.handed_on = true;
        }
    }

    fn answer(&mut self, ask: StoreRequest) {
        match ask {
            StoreRequest::Audit(last, answer) => {
                if !answer.is_closed() {
                    let _ = answer.send(self.audit(last));
                }
            }
            StoreRequest::Flush(answer) => {
                let result = match &self.trouble {
                    None => Ok(()),
                    Some((_, text)) => Err(StoreError::Degraded(text.clone())),
                };
                let _ = answer.send(result);
            }
        }
    }

    fn audit(&mut self, last: u32) -> Result<Vec<AuditLine>, StoreError> {
        let on_disk =
            self.db.as_ref().map_or_else(|| Ok(Vec::new()), |db| self.shared.inside.run(|| db.last(last)));
        let mut lines = on_disk.map_err(|trouble| {
            // Damage may show here long before it shows in writing, which touches the newest pages only.
            self.in_trouble(&trouble);
            StoreError::Degraded(trouble.to_string())
        })?;
        lines.extend(self.pending.iter().map(|Pending { stamped, .. }| AuditLine {
            seq: self.seq(stamped).and_then(|seq| seq.try_into().ok()).unwrap_or(stamped.no),
            at: rfc3339(stamped.at_ms),
            event: stamped.record.event.name().to_owned(),
            by: stamped.record.by.clone(),
            subject: stamped.record.subject.clone(),
            text: stamped.record.text.clone(),
            priority: stamped.record.priority.number(),
        }));
        db::fit(&mut lines, last);
        Ok(lines)
    }
}
