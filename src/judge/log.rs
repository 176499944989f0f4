//! What a judge was told, line by line: the log that `keyholder explain --record` prints and `--replay` reads.
//!
//! One JSON value a line. The first says which form the log has; each worker begins with a line `opens` that says what was
//! known and which times and limits were in force; every other line is one thing that happened. A log is data from
//! outside: it is read strictly, bounded before anything is parsed, and nothing in it reaches a terminal as it is.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::classify::Host;
use super::crowd::Crowd;
use super::decide::Rungs;
use super::observation::Observation;
use super::state::{Ending, Hold, WorkerState};
use super::vitals::{Reading, Sign, Signs};
use crate::vocabulary::{BlastRadius, Moment, Policy, Remedy, RepairBy, Target};

/// The form that this version writes and reads.
pub const VERSION: u32 = 1;
/// The longest log that is read, in bytes: a node with 1,000 workers in trouble fits.
pub const MAX_LOG: usize = 16 << 20;
/// The longest line that is read, in bytes.
pub const MAX_LINE: usize = 32 << 10;
/// How many workers one log may be about.
pub const MAX_WORKERS: usize = 1_000;

/// The first line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Head {
    /// The form that the log has.
    pub keyholder_log: u32,
}

impl Default for Head {
    fn default() -> Self {
        Self { keyholder_log: VERSION }
    }
}

/// Something that happened to one worker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Line {
    /// When, on the supervisor's own clock (milliseconds since its kernel booted, which no stepped clock moves).
    pub at_ms: Moment,
    /// To whom.
    #[serde(with = "as_text")]
    pub worker: Target,
    /// What the node's workers were like at that moment. Left out in a log of a whole node, which shows it itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub crowd: Option<Crowd>,
    /// What.
    pub what: Happened,
}

/// What can happen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Happened {
    /// The log begins, for this worker.
    Opens(Box<Opening>),
    /// Its unit was looked at.
    Seen(Box<Observation>),
    /// Its heartbeat was read.
    Beat(Reading),
    /// The head of its queue was read.
    Flow(Reading),
    /// Its canary was looked for.
    Canary(Reading),
    /// Its host changed.
    Host(Host),
    /// The supervisor that wrote the log was away.
    Away(Absence),
    /// Nothing but time.
    Time,
    /// The supervisor that wrote the log did this.
    Acted(Remedy),
    /// What was done ended.
    Done(Ending),
    /// A remedy was ordered and admitted.
    Ordered(Remedy),
    /// Somebody declared that it may be down.
    Hold(Box<Hold>),
    /// Somebody ended a hold or a quarantine.
    Release,
}

/// A supervisor that was stopped, or starved of its processor. What came due meanwhile waited, and it decided nothing by what it
/// saw until it had looked at everything again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Absence {
    /// When it should have come back.
    pub since_ms: Moment,
    /// When it had looked at everything.
    pub until_ms: Moment,
}

/// What was known of a worker when its log began.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Opening {
    /// The times and limits in force.
    pub care: Care,
    /// What its host was doing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<Host>,
    /// What had been seen of its unit; nothing if it had not been looked at yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seen: Option<Observation>,
    /// What had been seen of its progress.
    #[serde(skip_serializing_if = "is_default")]
    pub signs: Signs,
    /// What was in hand.
    #[serde(skip_serializing_if = "is_default")]
    pub state: WorkerState,
}

/// Everything in the fleet file that a decision depends on. Whatever a log leaves out is the fleet file's default; what
/// has none is not watched or not there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Care {
    /// The number that spreads this worker's retries.
    pub salt: u64,
    /// What depends on it.
    pub blast_radius: BlastRadius,
    /// Who acts unasked.
    pub repair_by: RepairBy,
    /// [`Policy::undeclared_stop`], in milliseconds, as all that follow.
    pub undeclared_stop_ms: u64,
    /// [`Policy::grace`].
    pub grace_ms: u64,
    /// [`Policy::settle`].
    pub settle_ms: u64,
    /// [`Policy::start_timeout`]; left out, the unit's own timeout counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_timeout_ms: Option<u64>,
    /// [`Policy::endless`]; 0 for none.
    #[serde(skip_serializing_if = "is_default_cap")]
    pub endless_ms: u64,
    /// [`Policy::relaunches`].
    pub relaunches: u32,
    /// [`Policy::per`].
    pub per_ms: u64,
    /// [`Policy::quarantine_retry`].
    pub quarantine_retry_ms: u64,
    /// [`Policy::repair_window`].
    pub repair_window_ms: u64,
    /// Without a heartbeat for this long it is stuck.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub older_than_ms: Option<u64>,
    /// With work waiting and none taken for this long nothing reaches it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_draining_for_ms: Option<u64>,
    /// Within this time a canary has to be answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub canary_within_ms: Option<u64>,
    /// [`Policy::ends_clean`].
    #[serde(skip_serializing_if = "is_default")]
    pub ends_clean: bool,
    /// How long it has after a nudge to show progress.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nudge_ms: Option<u64>,
    /// How long it has after a repipe.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repipe_ms: Option<u64>,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

fn is_default_cap(cap: &u64) -> bool {
    Policy::default().endless.map(ms) == Some(*cap)
}

fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

impl Default for Care {
    fn default() -> Self {
        Self::of(&Policy::default(), Rungs::default(), BlastRadius::default(), 0)
    }
}

impl Happened {
    /// A reading of a sign.
    pub fn read(sign: Sign, reading: Reading) -> Self {
        match sign {
            Sign::Beat => Self::Beat(reading),
            Sign::Flow => Self::Flow(reading),
            Sign::Canary => Self::Canary(reading),
        }
    }
}

impl Care {
    /// The part of it that every worker has.
    pub fn of(policy: &Policy, rungs: Rungs, blast_radius: BlastRadius, salt: u64) -> Self {
        Self {
            salt,
            blast_radius,
            repair_by: policy.repair_by,
            undeclared_stop_ms: ms(policy.undeclared_stop),
            grace_ms: ms(policy.grace),
            settle_ms: ms(policy.settle),
            start_timeout_ms: policy.start_timeout.map(ms),
            endless_ms: policy.endless.map(ms).unwrap_or_default(),
            relaunches: policy.relaunches,
            per_ms: ms(policy.per),
            quarantine_retry_ms: ms(policy.quarantine_retry),
            repair_window_ms: ms(policy.repair_window),
            older_than_ms: None,
            not_draining_for_ms: None,
            canary_within_ms: None,
            ends_clean: policy.ends_clean,
            nudge_ms: rungs.nudge.map(ms),
            repipe_ms: rungs.repipe.map(ms),
        }
    }

    /// The times and limits, in the judge's terms.
    pub fn policy(&self) -> Policy {
        let time = Duration::from_millis;
        Policy {
            repair_by: self.repair_by,
            undeclared_stop: time(self.undeclared_stop_ms),
            grace: time(self.grace_ms),
            settle: time(self.settle_ms),
            start_timeout: self.start_timeout_ms.map(time),
            endless: Some(time(self.endless_ms)).filter(|cap| !cap.is_zero()),
            relaunches: self.relaunches,
            per: time(self.per_ms),
            quarantine_retry: time(self.quarantine_retry_ms),
            repair_window: time(self.repair_window_ms),
            ends_clean: self.ends_clean,
            ..Policy::default()
        }
    }

    /// The gentle remedies.
    pub fn rungs(&self) -> Rungs {
        let time = |ms: Option<u64>| ms.map(Duration::from_millis);
        Rungs { nudge: time(self.nudge_ms), repipe: time(self.repipe_ms) }
    }
}

/// Why a log cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LogError {
    /// It is too long.
    #[error("the log has more than {} MiB; record fewer workers, or cut its oldest lines off", MAX_LOG >> 20)]
    TooLong,
    /// Its first line is not one of ours.
    #[error(
        "the first line is not {{\"keyholder_log\":{VERSION}}}; make a log with: keyholder explain NODE/WORKER --record"
    )]
    Head,
    /// A line is wrong.
    #[error("line {number} of the log: {why}")]
    Line {
        /// Which; the first is 1.
        number: usize,
        /// What is wrong with it.
        why: String,
    },
}

fn unopened(line: &Line) -> String {
    format!("no line `opens` for {} before it", line.worker)
}

/// Reads a log.
///
/// # Errors
/// [`LogError`] for anything but a log of this form; nothing of it is used then.
pub fn read(log: &str) -> Result<Vec<Line>, LogError> {
    if log.len() > MAX_LOG {
        return Err(LogError::TooLong);
    }
    let mut texts = log.lines();
    let head = texts.next().filter(|text| text.len() <= MAX_LINE).ok_or(LogError::Head)?;
    let head: Head = serde_json::from_str(head).map_err(|_| LogError::Head)?;
    if head != Head::default() {
        return Err(LogError::Head);
    }
    let mut lines: Vec<Line> = Vec::new();
    let mut known = BTreeMap::new();
    for (place, text) in texts.enumerate() {
        let wrong = |why: String| LogError::Line { number: place + 2, why };
        if text.len() > MAX_LINE {
            return Err(wrong(format!("it has more than {} KiB", MAX_LINE >> 10)));
        }
        let line: Line = serde_json::from_str(text)
            .map_err(|error| wrong(error.to_string().replace(" at line 1 column ", " at column ")))?;
        if lines.last().is_some_and(|before| before.at_ms > line.at_ms) {
            return Err(wrong("it is earlier than the line before it".to_owned()));
        }
        match &line.what {
            Happened::Opens(_) => {
                known.entry(line.worker.clone()).or_insert(None);
                if known.len() > MAX_WORKERS {
                    return Err(wrong(format!("a log is about at most {MAX_WORKERS} workers")));
                }
            }
            Happened::Away(absence) => {
                let Some(last) = known.get_mut(&line.worker) else { return Err(wrong(unopened(&line))) };
                let told =
                    |last: Absence| last.since_ms > absence.since_ms || last.until_ms > absence.until_ms;
                let over = absence.since_ms > line.at_ms || line.at_ms > absence.until_ms;
                if over || last.is_some_and(told) {
                    return Err(wrong("an absence is told when it ends, and one after the other".to_owned()));
                }
                *last = Some(*absence);
            }
            Happened::Seen(_)
            | Happened::Beat(_)
            | Happened::Flow(_)
            | Happened::Canary(_)
            | Happened::Host(_)
            | Happened::Time
            | Happened::Acted(_)
            | Happened::Done(_)
            | Happened::Ordered(_)
            | Happened::Hold(_)
            | Happened::Release => {
                if !known.contains_key(&line.worker) {
                    return Err(wrong(unopened(&line)));
                }
            }
        }
        lines.push(line);
    }
    Ok(lines)
}

mod as_text {
    use serde::{Deserialize, Deserializer, Serializer};

    use crate::vocabulary::Target;

    pub(super) fn serialize<S: Serializer>(target: &Target, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(target)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Target, D::Error> {
        String::deserialize(from)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPENS: &str = r#"{"at_ms":5,"worker":"mars/agent","what":{"opens":{}}}"#;

    fn log(lines: &[&str]) -> String {
        format!("{{\"keyholder_log\":1}}\n{}\n", lines.join("\n"))
    }

    #[test]
    fn a_log_is_read_strictly() {
        assert_eq!(read(&log(&[OPENS])).unwrap().len(), 1);
        for (line, word) in [
            (r#"{"at_ms":4,"worker":"mars/agent","what":"time"}"#, "earlier"),
            (r#"{"at_ms":6,"worker":"mars/other","what":"time"}"#, "mars/other"),
            (r#"{"at_ms":6,"worker":"mars/agent","what":"time","x":1}"#, "unknown field"),
            (r#"{"at_ms":6,"at_ms":7,"worker":"mars/agent","what":"time"}"#, "duplicate"),
            (r#"{"at_ms":6,"worker":"../x","what":"time"}"#, "node name"),
            (
                r#"{"at_ms":6,"worker":"mars/agent","what":{"away":{"since_ms":7,"until_ms":9}}}"#,
                "an absence is told when it ends",
            ),
            (
                r#"{"at_ms":6,"worker":"mars/agent","what":{"away":{"since_ms":5,"until_ms":5}}}"#,
                "an absence is told when it ends",
            ),
            (r#"{"at_ms":6,"worker":"mars/x","what":{"away":{"since_ms":5,"until_ms":9}}}"#, "mars/x"),
            (r#"{"at_ms":6,"worker":"mars/agent","what":"panic"}"#, "unknown variant"),
            (r#"{"at_ms":6,"worker":"mars/agent","what":{"beat":{"mark":-1}}}"#, "integer"),
            (r#"{"at_ms":6,"worker":"mars/agent","what":{"opens":{"care":{"grace":5}}}}"#, "unknown field"),
            ("", "EOF"),
            ("[]", "invalid"),
        ] {
            let Err(LogError::Line { number: 3, why }) = read(&log(&[OPENS, line])) else { panic!("{line}") };
            assert!(why.contains(word), "{line}: {why}");
        }
        let long = format!("{OPENS}{}", " ".repeat(MAX_LINE));
        assert!(matches!(read(&log(&[&long])), Err(LogError::Line { number: 2, .. })));
    }

    #[test]
    fn what_is_no_log_is_said_to_be_none() {
        for text in ["", "\n", "{}", "{\"keyholder_log\":2}", OPENS, "{\"keyholder_log\":1,\"x\":0}"] {
            assert_eq!(read(text), Err(LogError::Head), "{text}");
        }
        assert_eq!(read(&" ".repeat(MAX_LOG + 1)), Err(LogError::TooLong));
    }

    #[test]
    fn what_is_written_is_read() {
        let lines = read(&log(&[OPENS])).unwrap();
        let again: Vec<String> = lines.iter().map(|line| serde_json::to_string(line).unwrap()).collect();
        let again: Vec<&str> = again.iter().map(String::as_str).collect();
        assert_eq!(read(&log(&again)).unwrap(), lines);
        assert_eq!(Care::default().policy(), Policy::default());
    }
}
