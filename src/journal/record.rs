//! One record of the evidence.

use std::time::SystemTime;

use super::event::{Event, Priority};
use crate::vocabulary::{Pin, ReqId};

/// One record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// What happened.
    pub event: Event,
    /// How urgent it is.
    pub priority: Priority,
    /// Who caused it: `local` for the supervisor itself, else a peer's name, `root` or `uid N`, or a source address.
    pub by: String,
    /// The key that proved it, for peers.
    pub pin: Option<Pin>,
    /// The request, if there was one.
    pub req_id: Option<ReqId>,
    /// The verb, if there was one.
    pub verb: Option<&'static str>,
    /// What it is about: `node/worker`, a node, or empty.
    pub subject: String,
    /// One clear sentence.
    pub text: String,
}

impl Record {
    /// A record of the supervisor's own doing.
    pub fn local(
        event: Event,
        priority: Priority,
        subject: impl Into<String>,
        text: impl Into<String>,
    ) -> Self {
        Self {
            event,
            priority,
            by: "local".to_owned(),
            pin: None,
            req_id: None,
            verb: None,
            subject: subject.into(),
            text: text.into(),
        }
    }
}

/// The longest sentence that is kept, in bytes; a longer one is cut and ends in `…`. It bounds memory and disk: 100,000
/// records of this length are 200 MB, and no honest record comes near it.
pub const MAX_TEXT: usize = 2000;
/// The longest `by` or `subject` that is kept, in bytes: two names of 63 fit.
pub(super) const MAX_NAME: usize = 200;

/// A record with its number and the wall clock at the time it was taken down, not when the disk was ready for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stamped {
    /// Counts from 1 within this run, dropped records included: that is how a loss shows as a gap.
    pub(crate) no: u64,
    /// Milliseconds since 1970 by the wall clock.
    pub(crate) at_ms: i64,
    /// The record.
    pub(crate) record: Record,
}

/// What travels to the evidence thread.
#[derive(Debug)]
pub(crate) enum Mail {
    /// A record to keep.
    Record(Stamped),
    /// Look at what else is there to do.
    Wake,
}

/// The wall clock `ms` milliseconds after 1970 as RFC 3339 in UTC.
pub(crate) fn rfc3339(ms: i64) -> String {
    jiff::Timestamp::from_millisecond(ms).map(|at| format!("{at:.3}")).unwrap_or_default()
}

/// The wall clock in milliseconds since 1970, negative before; for people only.
pub(crate) fn wall_ms() -> i64 {
    let ms = |d: std::time::Duration| i64::try_from(d.as_millis()).unwrap_or(i64::MAX);
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or_else(|e| -ms(e.duration()), ms)
}
