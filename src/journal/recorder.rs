//! The handle through which everybody writes records without ever waiting.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError};

use tokio::sync::broadcast;

use super::record::{MAX_NAME, MAX_TEXT, Mail, Record, Stamped, wall_ms};
use super::tap::{EventLine, Tap};
use crate::vocabulary::cut;

/// Numbers the records of one run, and tells them to whoever listens.
#[derive(Debug, Clone, Default)]
pub(crate) struct Stamper {
    last: Arc<AtomicU64>,
    tap: Tap,
}

impl Stamper {
    /// Numbers and dates a record, and cuts it to the length that is kept.
    pub(crate) fn stamp(&self, mut record: Record) -> Stamped {
        cut(&mut record.text, MAX_TEXT);
        cut(&mut record.by, MAX_NAME);
        cut(&mut record.subject, MAX_NAME);
        let no = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        let stamped = Stamped { no, at_ms: wall_ms(), record };
        self.tap.tell(&stamped);
        stamped
    }

    /// Where what is stamped is told.
    pub(crate) fn tap(&self) -> &Tap {
        &self.tap
    }
}

/// The writing end. Cheap to clone; recording never blocks, and what had to be dropped is counted.
#[derive(Debug, Clone)]
pub struct Recorder {
    to: To,
    stamper: Stamper,
    dropped: Arc<AtomicU64>,
}

#[derive(Debug, Clone)]
enum To {
    Evidence(SyncSender<Mail>),
    Plain(SyncSender<Record>),
}

impl Recorder {
    /// A recorder that feeds `to`, as it comes: for tests and tools. The supervisor's comes from
    /// [`start`](crate::store::start).
    pub fn new(to: SyncSender<Record>) -> Self {
        Self { to: To::Plain(to), stamper: Stamper::default(), dropped: Arc::default() }
    }

    /// A recorder that feeds the evidence thread.
    pub(crate) fn evidence(to: SyncSender<Mail>, stamper: Stamper, dropped: Arc<AtomicU64>) -> Self {
        Self { to: To::Evidence(to), stamper, dropped }
    }

    /// Takes a record down, or counts it as dropped if the writer is that far behind.
    pub fn record(&self, record: Record) {
        let stamped = self.stamper.stamp(record);
        let taken = match &self.to {
            To::Evidence(to) => taken(to.try_send(Mail::Record(stamped))),
            To::Plain(to) => taken(to.try_send(stamped.record)),
        };
        if !taken {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Every record from here on, as it happens. Who lags behind is told by the channel how many it has lost.
    pub fn events(&self) -> broadcast::Receiver<Arc<EventLine>> {
        self.stamper.tap().all()
    }

    /// What a person is called for, from here on: alerts and their ends.
    pub fn alerts(&self) -> broadcast::Receiver<Arc<EventLine>> {
        self.stamper.tap().alerts()
    }

    #[cfg(test)]
    pub(super) fn tap(&self) -> &Tap {
        self.stamper.tap()
    }

    /// How many records were dropped since the start.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}

fn taken<T>(sent: Result<(), TrySendError<T>>) -> bool {
    match sent {
        Ok(()) => true,
        Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::{Event, Priority};

    #[test]
    fn a_record_of_any_length_is_cut_to_what_is_kept() {
        let long = Record::local(Event::Refused, Priority::Info, "ü".repeat(9_999), "€".repeat(9_999));
        let kept = Stamper::default().stamp(long).record;
        assert!(kept.text.len() <= MAX_TEXT && kept.text.ends_with('…'), "{}", kept.text.len());
        assert!(kept.subject.len() <= MAX_NAME);
        let mut exact = "x".repeat(MAX_TEXT);
        cut(&mut exact, MAX_TEXT);
        assert_eq!(exact.len(), MAX_TEXT);
    }

    #[test]
    fn what_is_dropped_is_counted_and_keeps_its_number() {
        let (to, from) = std::sync::mpsc::sync_channel(1);
        let recorder = Recorder::evidence(to, Stamper::default(), Arc::default());
        for _ in 0..3 {
            recorder.record(Record::local(Event::Peer, Priority::Info, "", "x"));
        }
        assert_eq!(recorder.dropped(), 2);
        assert!(matches!(from.recv(), Ok(Mail::Record(Stamped { no: 1, .. }))));
        recorder.record(Record::local(Event::Peer, Priority::Info, "", "x"));
        assert!(matches!(from.recv(), Ok(Mail::Record(Stamped { no: 4, .. }))));
    }
}
