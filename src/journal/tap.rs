//! Records as they happen, for whoever listens right now. The audit keeps them; this only tells, and waits for nobody.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use serde::{Deserialize, Serialize};
use tokio::sync::broadcast;

use super::event::Event;
use super::record::{Stamped, rfc3339};

/// How many records a listener may lag behind before it is told how many it has lost.
const KEPT: usize = 128;
/// The same for alerts alone.
const ALERTS_KEPT: usize = 32;
/// What to add to a record's number is not known yet.
const UNKNOWN: i64 = i64::MIN;

/// One record, as it is told while it happens.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EventLine {
    /// Its number in the audit; gaps show what was lost.
    pub seq: u64,
    /// The wall clock when it was taken down, RFC 3339 in UTC. For people only.
    pub at: String,
    /// What kind of record it is.
    pub event: String,
    /// How urgent it is, as in syslog: 3 somebody must look, 4 somebody should know, 5 an act, 6 for the trail.
    pub priority: u8,
    /// The kind's number in the journal.
    pub message_id: String,
    /// Who caused it: `local`, a node's name, or `root`/`uid N` over the local socket.
    pub by: String,
    /// The worker or node concerned, if there is one.
    pub subject: String,
    /// What was seen, done or refused and why.
    pub text: String,
}

/// Where listeners are told from.
#[derive(Debug, Clone)]
pub(crate) struct Tap {
    base: Arc<AtomicI64>,
    all: broadcast::Sender<Arc<EventLine>>,
    alerts: broadcast::Sender<Arc<EventLine>>,
}

impl Default for Tap {
    fn default() -> Self {
        Self {
            base: Arc::new(AtomicI64::new(UNKNOWN)),
            all: broadcast::channel(KEPT).0,
            alerts: broadcast::channel(ALERTS_KEPT).0,
        }
    }
}

impl Tap {
    /// From here on a record's number in the audit is its number in this run and `base`.
    pub(crate) fn numbers_from(&self, base: i64) {
        self.base.store(base, Ordering::Relaxed);
    }

    /// Tells whoever listens. Costs next to nothing while nobody does.
    pub(super) fn tell(&self, stamped: &Stamped) {
        let record = &stamped.record;
        let alert = matches!(record.event, Event::Alert | Event::AlertEnded);
        let listens = |to: &broadcast::Sender<_>| to.receiver_count() > 0;
        let anybody = listens(&self.all) || (alert && listens(&self.alerts));
        if !anybody {
            return;
        }
        let base = Some(self.base.load(Ordering::Relaxed)).filter(|base| *base != UNKNOWN).unwrap_or(0);
        let line = Arc::new(EventLine {
            seq: base.saturating_add_unsigned(stamped.no).try_into().unwrap_or(stamped.no),
            at: rfc3339(stamped.at_ms),
            event: record.event.name().to_owned(),
            priority: record.priority.number(),
            message_id: record.event.message_id().to_owned(),
            by: record.by.clone(),
            subject: record.subject.clone(),
            text: record.text.clone(),
        });
        // Whoever has gone meanwhile misses nothing.
        if alert {
            let _ = self.alerts.send(line.clone());
        }
        let _ = self.all.send(line);
    }

    pub(super) fn all(&self) -> broadcast::Receiver<Arc<EventLine>> {
        self.all.subscribe()
    }

    pub(super) fn alerts(&self) -> broadcast::Receiver<Arc<EventLine>> {
        self.alerts.subscribe()
    }
}

#[cfg(test)]
mod tests {
    use broadcast::error::TryRecvError;

    use super::super::event::Priority;
    use super::super::record::Record;
    use super::super::recorder::Recorder;
    use super::*;

    fn record(event: Event, priority: Priority, text: &str) -> Record {
        Record::local(event, priority, "mars/agent", text)
    }

    #[test]
    fn every_record_is_told_with_the_number_it_has_in_the_audit() {
        let (to, _from) = std::sync::mpsc::sync_channel(8);
        let recorder = Recorder::new(to);
        recorder.record(record(Event::Observed, Priority::Info, "before anybody listens"));
        let (mut all, mut alerts) = (recorder.events(), recorder.alerts());
        recorder.tap().numbers_from(4710);
        recorder.record(record(Event::Observed, Priority::Warning, "dead"));
        recorder.record(record(Event::Alert, Priority::Warning, "stopped"));
        recorder.record(record(Event::Degraded, Priority::Error, "the bus is lost"));
        recorder.record(record(Event::AlertEnded, Priority::Notice, "it is over"));
        let told: Vec<_> =
            std::iter::from_fn(|| all.try_recv().ok()).map(|line| (line.seq, line.priority)).collect();
        assert_eq!(told, [(4712, 4), (4713, 4), (4714, 3), (4715, 5)]);
        let loud: Vec<_> =
            std::iter::from_fn(|| alerts.try_recv().ok()).map(|line| line.text.clone()).collect();
        assert_eq!(loud, ["stopped", "it is over"], "what has no end calls nobody");
    }

    #[test]
    fn who_is_too_slow_is_told_how_much_is_lost() {
        let (to, _from) = std::sync::mpsc::sync_channel(1);
        let recorder = Recorder::new(to);
        let mut all = recorder.events();
        for _ in 0..KEPT + 7 {
            recorder.record(record(Event::Peer, Priority::Info, "x"));
        }
        assert_eq!(all.try_recv(), Err(TryRecvError::Lagged(7)));
        assert_eq!(all.try_recv().unwrap().seq, 8, "also what the evidence thread had no room for is told");
    }
}
