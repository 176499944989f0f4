//! Everything refused is one audit line, and a flood of refusals is not a flood of lines.
//!
//! Each source has a few lines of its own; what follows is counted and told in one line per second. Both the number of
//! sources that are told apart and the lines per second are bounded, so neither memory nor disk is at anybody's mercy.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::journal::{Event, Priority, Record, Recorder};

/// How many refusals of one source are told one by one before they are counted.
const TOLD_APART: u32 = 5;
/// How many sources are told apart; all others share one count.
const SOURCES: usize = 16;
/// How often counts are told.
const PERIOD: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
struct Source {
    /// How many refusals in this burst.
    told: u32,
    /// How many since the last line, and the last one's reason.
    counted: u64,
    last: String,
}

#[derive(Debug, Default)]
struct Sources {
    /// By source; the empty name stands for all that found no place.
    by: HashMap<String, Source>,
    telling: bool,
}

/// Writes refusals into the audit trail.
#[derive(Debug, Clone)]
pub(super) struct Refusals {
    recorder: Recorder,
    sources: Arc<Mutex<Sources>>,
}

impl Refusals {
    /// Writes through `recorder`.
    pub(super) fn new(recorder: Recorder) -> Self {
        Self { recorder, sources: Arc::default() }
    }

    /// Takes a refusal down: at once, or as one more of its source's count.
    pub(super) fn tell(&self, mut record: Record) {
        record.event = Event::Refused;
        record.priority = Priority::Warning;
        let mut sources = self.sources.lock().unwrap_or_else(PoisonError::into_inner);
        let known = sources.by.contains_key(&record.by) || sources.by.len() < SOURCES;
        let source = sources.by.entry(if known { record.by.clone() } else { String::new() }).or_default();
        if source.told < TOLD_APART {
            source.told += 1;
            self.recorder.record(record);
        } else {
            source.counted += 1;
            source.last = record.text;
        }
        if !std::mem::replace(&mut sources.telling, true) {
            drop(sources);
            tokio::spawn(self.clone().tell_counts());
        }
    }

    /// Runs as long as there is a burst, so an idle door has no timer.
    async fn tell_counts(self) {
        loop {
            tokio::time::sleep(PERIOD).await;
            let mut sources = self.sources.lock().unwrap_or_else(PoisonError::into_inner);
            // A source that was quiet for a whole period starts afresh.
            sources.by.retain(|_, source| source.counted > 0 || std::mem::take(&mut source.told) > 0);
            for (by, source) in &mut sources.by {
                if source.counted == 0 {
                    continue;
                }
                source.told = TOLD_APART;
                self.recorder.record(count(by, std::mem::take(&mut source.counted), &source.last));
            }
            if sources.by.is_empty() {
                sources.telling = false;
                return;
            }
        }
    }
}

fn count(by: &str, counted: u64, last: &str) -> Record {
    let by = if by.is_empty() { "other sources" } else { by };
    let text = format!("{counted} more refused within {} s; the last: {last}", PERIOD.as_secs());
    Record { by: by.to_owned(), ..Record::local(Event::Refused, Priority::Warning, "", text) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(by: &str) -> Record {
        Record { by: by.to_owned(), ..Record::local(Event::Refused, Priority::Warning, "", "no certificate") }
    }

    #[tokio::test(start_paused = true)]
    async fn a_few_are_told_one_by_one_and_a_flood_is_counted() {
        let (to, lines) = std::sync::mpsc::sync_channel(1000);
        let refusals = Refusals::new(Recorder::new(to));
        for _ in 0..1000 {
            refusals.tell(refusal("192.0.2.1"));
        }
        refusals.tell(refusal("192.0.2.2"));
        assert_eq!(lines.try_iter().count(), 6);
        tokio::time::sleep(PERIOD * 2).await;
        let told: Vec<Record> = lines.try_iter().collect();
        assert_eq!(told.len(), 1);
        assert!(told[0].text.starts_with("995 more refused within 1 s"), "{}", told[0].text);
        assert_eq!(told[0].by, "192.0.2.1");
    }

    #[tokio::test(start_paused = true)]
    async fn lines_and_memory_stay_bounded_however_many_sources_there_are() {
        let (to, lines) = std::sync::mpsc::sync_channel(100_000);
        let refusals = Refusals::new(Recorder::new(to));
        for second in 0..10 {
            for source in 0..2000 {
                refusals.tell(refusal(&format!("2001:db8::{second}:{source}")));
            }
            tokio::time::sleep(PERIOD).await;
        }
        assert!(refusals.sources.lock().unwrap().by.len() <= SOURCES + 1);
        assert!(lines.try_iter().count() <= 10 * (SOURCES + 1) * 6);
    }

    #[tokio::test(start_paused = true)]
    async fn after_a_quiet_while_a_source_is_told_one_by_one_again_and_no_timer_is_left() {
        let (to, lines) = std::sync::mpsc::sync_channel(1000);
        let refusals = Refusals::new(Recorder::new(to));
        for _ in 0..9 {
            refusals.tell(refusal("192.0.2.1"));
        }
        tokio::time::sleep(PERIOD * 5).await;
        assert!(refusals.sources.lock().unwrap().by.is_empty());
        assert!(!refusals.sources.lock().unwrap().telling);
        lines.try_iter().count();
        refusals.tell(refusal("192.0.2.1"));
        assert_eq!(lines.try_iter().count(), 1);
    }
}
