//! Everything refused is in the audit, and a flood of refusals is not a flood of lines.
//!
//! Each source has a few lines of its own; what follows is counted and told in one line. Each peer and each user of this host has
//! an allowance of lines. All strangers together share one, however many addresses they call from, so they take nothing from the
//! others; and the number of sources that are told apart is bounded.

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::journal::{Event, Priority, Record, Recorder};
use crate::vocabulary::{Allowance, NodeName, human};

/// How many refusals of one source are told one by one before they are counted.
const TOLD_APART: u32 = 5;
/// The same of a peer's connections that ended before the door answered: they come together when this host has stalled.
const ENDED_APART: u32 = 1;
/// How many strangers are told apart; all others share one count.
const STRANGERS: usize = 4;
/// How many peers and users of this host are told apart.
const NAMED: usize = 128;
/// How many lines a peer, a user or all strangers together get at once, and how soon there is another.
const LINES: (u32, Duration) = (20, Duration::from_secs(60));
/// How often counts are told, if there is a line left.
const PERIOD: Duration = Duration::from_secs(1);
/// How many addresses of a count are told apart.
const ADDRESSES: usize = 128;

#[derive(Debug)]
struct Source {
    /// What is counted.
    event: Event,
    /// How many refusals in this burst.
    told: u32,
    /// How many since the last line, since when, the last one's reason, and from which addresses.
    counted: u64,
    since: Instant,
    last: String,
    addresses: BTreeSet<IpAddr>,
}

impl Source {
    fn new(now: Instant) -> Self {
        Self {
            event: Event::Refused,
            told: 0,
            counted: 0,
            since: now,
            last: String::new(),
            addresses: BTreeSet::new(),
        }
    }

    fn count(&mut self, stranger: Option<IpAddr>, text: String, now: Instant) {
        if self.counted == 0 {
            self.since = now;
        }
        self.counted += 1;
        self.last = text;
        self.addresses.extend(stranger.filter(|_| self.addresses.len() < ADDRESSES));
    }
}

#[derive(Debug)]
struct Sources {
    /// By source; the empty name stands for all that found no place.
    by: HashMap<String, Source>,
    /// The lines that are left: by peer or user, and under the empty name for all others.
    lines: HashMap<String, Allowance>,
    began: Instant,
    /// Whether a task tells the counts.
    telling: bool,
}

impl Sources {
    /// Under which name a source is counted.
    fn place(&self, by: &str) -> String {
        let of_kind = |stranger| self.by.keys().filter(|by| is_stranger(by) == stranger).count();
        let room = if is_stranger(by) { of_kind(true) < STRANGERS } else { of_kind(false) < NAMED };
        if room || self.by.contains_key(by) { by.to_owned() } else { String::new() }
    }

    /// Takes one of the lines that a source has left.
    fn take_line(&mut self, by: &str, now: Instant) -> bool {
        let now = now.saturating_duration_since(self.began);
        let mut name = if is_stranger(by) { "" } else { by };
        if self.lines.len() >= NAMED && !self.lines.contains_key(name) {
            self.lines.retain(|_, lines| !lines.is_whole(now));
            if self.lines.len() >= NAMED {
                name = "";
            }
        }
        let new = || Allowance::new(LINES.0, LINES.1);
        self.lines.entry(name.to_owned()).or_insert_with(new).take(now)
    }
}

/// Whoever has proved a key or is on this host has a name.
fn is_stranger(by: &str) -> bool {
    by.is_empty() || by.parse::<IpAddr>().is_ok()
}

/// Where refusals are taken down. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct Refusals {
    recorder: Recorder,
    sources: Arc<Mutex<Sources>>,
}

impl Refusals {
    /// Writes through `recorder`.
    pub(super) fn new(recorder: Recorder) -> Self {
        let (by, lines) = (HashMap::new(), HashMap::new());
        let sources = Sources { by, lines, began: Instant::now(), telling: false };
        Self { recorder, sources: Arc::new(Mutex::new(sources)) }
    }

    /// Takes a refusal down: at once, or as one more of its source's count.
    pub(super) fn tell(&self, record: Record) {
        self.take(Record { event: Event::Refused, priority: Priority::Warning, ..record }, TOLD_APART);
    }

    /// The same for a connection from a peer's address that ended before the door answered it. Nobody was refused.
    pub(super) fn ended(&self, peer: &NodeName, from: IpAddr) {
        let text = format!(
            "a connection from the address of {peer} ended before it was answered: this host was slow, or {peer} has gone away"
        );
        let record = Record::local(Event::Peer, Priority::Info, peer.as_str(), text);
        self.take(Record { by: format!("{from} ({peer})"), ..record }, ENDED_APART);
    }

    fn take(&self, record: Record, at_most: u32) {
        let now = Instant::now();
        let mut sources = self.sources.lock().unwrap_or_else(PoisonError::into_inner);
        let name = sources.place(&record.by);
        let told = sources.by.get(&name).map_or(0, |source| source.told);
        // What found no place of its own is counted only.
        let apart = !name.is_empty() && told < at_most && sources.take_line(&name, now);
        let source = sources.by.entry(name).or_insert_with(|| Source::new(now));
        if apart {
            source.told += 1;
            self.recorder.record(record);
        } else {
            source.event = record.event;
            source.count(record.by.parse().ok(), record.text, now);
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
            let now = Instant::now();
            let mut sources = self.sources.lock().unwrap_or_else(PoisonError::into_inner);
            // A source that was quiet for a whole period starts afresh.
            sources.by.retain(|_, source| source.counted > 0 || std::mem::take(&mut source.told) > 0);
            // Where there is one line for several, it is for the one that has most to tell.
            let mut counted: Vec<(u64, String)> =
                sources.by.iter().map(|(by, source)| (source.counted, by.clone())).collect();
            counted.sort_unstable_by(|one, other| other.cmp(one));
            for (_, by) in counted.into_iter().filter(|(counted, _)| *counted > 0) {
                if sources.take_line(&by, now)
                    && let Some(source) = sources.by.get_mut(&by)
                {
                    self.recorder.record(count(&by, source, now));
                    *source = Source { told: TOLD_APART, ..Source::new(now) };
                }
            }
            if sources.by.is_empty() {
                sources.telling = false;
                return;
            }
        }
    }
}

fn count(by: &str, source: &Source, now: Instant) -> Record {
    let from = match source.addresses.len() {
        0 | 1 => String::new(),
        ADDRESSES => format!(" from {ADDRESSES} addresses or more"),
        n => format!(" from {n} addresses"),
    };
    let by = if by.is_empty() { "other sources" } else { by };
    let within = human(now.saturating_duration_since(source.since));
    let counted = source.counted;
    let (priority, text) = if source.event == Event::Refused {
        (
            Priority::Warning,
            format!("{counted} more refused within {within}{from}; the last: {}", source.last),
        )
    } else {
        (Priority::Info, format!("{counted} more within {within}: {}", source.last))
    };
    Record { by: by.to_owned(), ..Record::local(source.event, priority, "", text) }
}

#[cfg(test)]
#[path = "refusals/tests.rs"]
mod tests;
