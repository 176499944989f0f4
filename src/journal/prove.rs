//! Who ran a task: decided purely, from records of the journal. `seek` fetches them.
//!
//! Anybody on the host may write any field into the journal except those that journald itself sets (`_SYSTEMD_UNIT`,
//! `_SYSTEMD_INVOCATION_ID`, `_PID`, `_BOOT_ID`, `_TRANSPORT`). So a record counts only if journald says that a lane wrote
//! it, and of a lane's unit only its own process: what it runs for tasks lives in the same unit. That process is the one that
//! spoke of itself before it could have started anything.
//!
//! "It succeeded" is no proof of the path. Proved is: one lane ran it, once, it is the expected one, and the other lane was
//! there at the time, was heard, and says nothing of it. Wherever the journal may have lost something the answer is
//! inconclusive.

mod record;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub(super) use record::{FIELDS, Rec};

use super::event::{EXECUTED, TRANSITION};
use crate::vocabulary::{Mode, TaskId, clipped, printable};

/// A lane takes no task that is older ([`crate::lane::MAX_AGE`]), so nobody can have run it later than that.
const TAKEN_WITHIN_US: i128 = 24 * 3_600 * 1_000_000;
/// How far apart the clocks of a producer and a lane may be ([`crate::lane::MAX_AHEAD`]).
const SKEW_US: i128 = 300 * 1_000_000;
/// How many records are shown: enough to see what is wrong, and a proof stays small on the wire.
const SHOWN: usize = 20;
/// How many of them at most are of strangers.
const FORGED: usize = 5;
/// The longest message that is shown, in characters.
const MAX_MESSAGE: usize = 200;

/// An answer with its evidence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Proof {
    /// The task.
    pub task: TaskId,
    /// The answer.
    pub verdict: ProofVerdict,
    /// Why, in one sentence.
    pub why: String,
    /// The lane that ran it, if exactly one says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lane: Option<Mode>,
    /// The records that it rests on, at most twenty.
    pub evidence: Vec<Evidence>,
}

/// What the journal says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProofVerdict {
    /// That lane ran it, and nobody else.
    Proved,
    /// It was not so.
    Refuted,
    /// The journal cannot say.
    Inconclusive,
}

impl ProofVerdict {
    /// As in the output.
    pub fn name(self) -> &'static str {
        match self {
            Self::Proved => "proved",
            Self::Refuted => "refuted",
            Self::Inconclusive => "inconclusive",
        }
    }
}

/// One record, as far as it matters. All but `text` was set by journald itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Evidence {
    /// What it shows.
    pub shows: Shows,
    /// When, RFC 3339 by the node's clock.
    pub at: String,
    /// `_SYSTEMD_UNIT`.
    pub unit: Option<String>,
    /// `_SYSTEMD_INVOCATION_ID`.
    pub invocation: Option<String>,
    /// `_PID`.
    pub pid: Option<String>,
    /// `_BOOT_ID`.
    pub boot: Option<String>,
    /// `MESSAGE`, which is only what the writer says.
    pub text: String,
}

/// What a record shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Shows {
    /// A lane ran the task.
    Ran,
    /// A lane answered the task and did not run it.
    NotRun,
    /// Somebody else claims something about the task.
    Forged,
    /// The other lane was there and was heard.
    OtherLane,
    /// Something may be missing.
    Gap,
}

/// The journal of one boot around a task.
#[derive(Debug, Clone, Default)]
pub(super) struct Around {
    /// What lanes said of themselves, what PID 1 said of them, and what journald said of itself; oldest first.
    pub records: Vec<Rec>,
    /// The oldest record of that boot.
    pub first: Option<Rec>,
}

pub(super) const WRITE_UNIT: &str = "keyholder-lane-write.service";
pub(super) const READ_UNIT: &str = "keyholder-lane-read.service";
/// What journald says about itself (sd-messages.h): started, stopped, and dropped some of a unit's records.
const JOURNAL_START: &str = "f77379a8490b408bbe5f6940505a777b";
const JOURNAL_STOP: &str = "d93fb3c9c24d451a97cea615ce59c00b";
const JOURNAL_DROPPED: &str = "a596d6fe7bfa4994828e72309e95d61e";
/// What PID 1 says when a run of a unit ends (sd-messages.h): its process exited, it was stopped, failed, or is done.
const ENDS: [&str; 4] = [
    "98e322203f7a4ed290d09fe03c09fe15",
    "9d1aaa27d60140bd96365438aad20286",
    "d9b373ed55a64feb8242e02dbe79a49c",
    "7ad2d189f7e94e70a38c781354912448",
];

fn unit(lane: Mode) -> &'static str {
    match lane {
        Mode::Read => READ_UNIT,
        Mode::Write => WRITE_UNIT,
    }
}

fn lane_of(unit: &str) -> Option<Mode> {
    [Mode::Read, Mode::Write].into_iter().find(|lane| self::unit(*lane) == unit)
}

fn other(lane: Mode) -> Mode {
    match lane {
        Mode::Read => Mode::Write,
        Mode::Write => Mode::Read,
    }
}

/// Whether a record that could be read was written outside of the lanes' units.
pub(super) fn is_strangers(rec: &Rec) -> bool {
    !rec.is_garbled() && rec.unit().and_then(lane_of).is_none()
}

/// The boot in which a lane speaks of the task: whose surroundings are wanted.
pub(super) fn boot_of(claims: &[Rec]) -> Option<&str> {
    let by_lane = claims.iter().rev().find(|rec| rec.unit().and_then(lane_of).is_some());
    by_lane.and_then(|rec| rec.get("_BOOT_ID"))
}

/// Decides. `claims` is every record that names the task, oldest first; `whole` says whether all of it could be read.
pub(super) fn prove(
    task: &TaskId,
    expected: Option<Mode>,
    claims: &[Rec],
    around: &Around,
    whole: bool,
) -> Proof {
    let mut case = Case { task, evidence: Vec::new() };
    let speakers = speakers(&around.records);
    let (mut ran, mut not_run, mut forged) = (Vec::new(), Vec::new(), Vec::new());
    for rec in claims {
        match lane_of(rec.unit().unwrap_or_default()) {
            Some(lane) if genuine(rec, task, lane, &speakers) => match rec.get("KEYHOLDER_STATUS") {
                Some("ok" | "failed" | "killed" | "timed_out") => ran.push((lane, rec)),
                Some(_) | None => not_run.push((lane, rec)),
            },
            // A lane's own words from before what is known of its process: neither proof nor forgery.
            Some(lane) if unknown_speaker(rec, lane, &speakers) => {
                case.show(Shows::Gap, rec);
                return case.inconclusive("the beginning of that lane's run is not in the journal, so it is not known whether these are its own words");
            }
            Some(_) | None => forged.push(rec),
        }
    }
    first_hand(&mut ran);
    first_hand(&mut not_run);
    ran.iter().for_each(|(_, rec)| case.show(Shows::Ran, rec));
    not_run.iter().for_each(|(_, rec)| case.show(Shows::NotRun, rec));
    forged.iter().take(FORGED).for_each(|rec| case.show(Shows::Forged, rec));
    if !whole || claims.iter().any(Rec::is_garbled) {
        return case
            .inconclusive("the journal has more about it than is read, or could not be read to the end");
    }
    let [(lane, rec)] = *ran.as_slice() else {
        return none_or_many(case, &ran, &not_run, &forged);
    };
    if let Some(expected) = expected.filter(|expected| *expected != lane) {
        return case
            .refuted(format!("the {lane} lane ran it, and the {expected} lane should have"), Some(lane));
    }
    case.path(lane, rec, around, &speakers)
}

/// A lane that comes up after a death says again what the one before it may not have got to say. Where that one did say it
/// this is the same run told twice; where it did not, it is told once, however often a lane had to come up for it.
fn first_hand(told: &mut Vec<(Mode, &Rec)>) {
    for lane in [Mode::Read, Mode::Write] {
        let again = |rec: &Rec| rec.get("KEYHOLDER_RECOVERED").is_some();
        let mut known = told.iter().any(|(of, rec)| *of == lane && !again(rec));
        told.retain(|(of, rec)| *of != lane || !again(rec) || !std::mem::replace(&mut known, true));
    }
}

fn none_or_many(case: Case<'_>, ran: &[(Mode, &Rec)], not_run: &[(Mode, &Rec)], forged: &[&Rec]) -> Proof {
    if let [(first, _), rest @ ..] = ran
        && !rest.is_empty()
    {
        let both = rest.iter().any(|(lane, _)| lane != first);
        return case.refuted(
            if both {
                "both lanes ran it".to_owned()
            } else {
                format!("the {first} lane ran it more than once")
            },
            None,
        );
    }
    match not_run.last() {
        Some((lane, rec)) if rec.get("KEYHOLDER_STATUS") == Some("refused") => {
            case.refuted(format!("the {lane} lane refused it, and nobody ran it"), None)
        }
        Some((lane, _)) => case.inconclusive(&format!(
            "the {lane} lane died in it: it was begun there, and how far it came is not known"
        )),
        None if !forged.is_empty() => {
            case.refuted("what claims to have run it is no lane".to_owned(), None)
        }
        None => case.inconclusive(
            "no lane of this node has said anything about it: it may still wait, belong to another node, or be older than the \
             journal",
        ),
    }
}

/// The process of each run of a lane: (unit, run) -> pid. Whoever spoke first was there before anything it could start.
type Speakers<'r> = BTreeMap<(Mode, &'r str), &'r str>;

fn speakers(records: &[Rec]) -> Speakers<'_> {
    let mut speakers = Speakers::new();
    for rec in records.iter().filter(|rec| rec.get("MESSAGE_ID") == Some(TRANSITION)) {
        if let Some((lane, run, pid)) = speaker(rec) {
            speakers.entry((lane, run)).or_insert(pid);
        }
    }
    speakers
}

fn speaker(rec: &Rec) -> Option<(Mode, &str, &str)> {
    Some((lane_of(rec.unit()?)?, rec.get("_SYSTEMD_INVOCATION_ID")?, rec.get("_PID")?))
}

fn genuine(rec: &Rec, task: &TaskId, lane: Mode, speakers: &Speakers<'_>) -> bool {
    rec.get("KEYHOLDER_TASK_ID") == Some(task.as_str())
        && rec.get("MESSAGE_ID") == Some(EXECUTED)
        && rec.get("KEYHOLDER_LANE") == Some(lane.name())
        && speaker(rec).is_some_and(|(lane, run, pid)| speakers.get(&(lane, run)) == Some(&pid))
}

fn unknown_speaker(rec: &Rec, lane: Mode, speakers: &Speakers<'_>) -> bool {
    rec.get("_SYSTEMD_INVOCATION_ID").is_none_or(|run| !speakers.contains_key(&(lane, run)))
}

/// A question on its way to an answer.
struct Case<'t> {
    task: &'t TaskId,
    evidence: Vec<Evidence>,
}

impl Case<'_> {
    fn show(&mut self, shows: Shows, rec: &Rec) {
        if self.evidence.len() < SHOWN {
            let field = |name: &str| rec.get(name).map(|text| clipped(&printable(text), 80).into_owned());
            let text = clipped(&printable(rec.get("MESSAGE").unwrap_or_default()), MAX_MESSAGE).into_owned();
            self.evidence.push(Evidence {
                shows,
                at: rec.at(),
                unit: field("_SYSTEMD_UNIT"),
                invocation: field("_SYSTEMD_INVOCATION_ID"),
                pid: field("_PID"),
                boot: field("_BOOT_ID"),
                text,
            });
        }
    }

    fn answer(self, verdict: ProofVerdict, why: String, lane: Option<Mode>) -> Proof {
        Proof { task: self.task.clone(), verdict, why, lane, evidence: self.evidence }
    }

    fn inconclusive(self, why: &str) -> Proof {
        self.answer(ProofVerdict::Inconclusive, why.to_owned(), None)
    }

    fn refuted(self, why: String, lane: Option<Mode>) -> Proof {
        self.answer(ProofVerdict::Refuted, why, lane)
    }

    /// One lane says that it ran the task. Could another have done so and not be seen?
    fn path(mut self, lane: Mode, ran: &Rec, around: &Around, speakers: &Speakers<'_>) -> Proof {
        let boot = ran.get("_BOOT_ID");
        let Some(end) = ran.mono() else {
            return self.inconclusive("the record has no time");
        };
        // When it was asked for, on the scale of this boot's monotonic clock, which nobody sets back.
        let made =
            self.task.made_ms().zip(ran.real()).map(|(ms, real)| end - (real - i128::from(ms) * 1_000));
        let asked = made.unwrap_or(end - TAKEN_WITHIN_US).min(end);
        let last = made.map_or(end, |made| made + SKEW_US) + TAKEN_WITHIN_US;
        match around.first.as_ref().filter(|rec| rec.get("_BOOT_ID") == boot).and_then(Rec::mono) {
            Some(first) if first <= asked => {}
            Some(_) | None => {
                if let Some(first) = &around.first {
                    self.show(Shows::Gap, first);
                }
                return self.inconclusive(match made {
                    Some(_) => "the journal of this boot begins only after the task was asked for",
                    None => {
                        "the journal of this boot is younger than a day, and the task's id does not say when it was asked for \
                         (those of `keyholder run` do)"
                    }
                });
            }
        }
        let here: Vec<&Rec> =
            around.records.iter().filter(|rec| rec.is_garbled() || rec.get("_BOOT_ID") == boot).collect();
        // Before a lane ran at all it could not have run this.
        let lanes_since = here.iter().filter(|rec| rec.is_about_a_lane()).filter_map(|rec| rec.mono()).min();
        let window = lanes_since.unwrap_or(0).max(asked - SKEW_US)..=last;
        if let Some(gap) =
            here.iter().find(|rec| rec.is_gap() && rec.mono().is_none_or(|at| window.contains(&at)))
        {
            self.show(Shows::Gap, gap);
            return self.inconclusive(
                "the journal may have lost records while the task could have been run elsewhere",
            );
        }
        let other = other(lane);
        let Some(heard) = alive(other, end, &here, speakers) else {
            return self.inconclusive(&format!(
                "the {other} lane was not there at the time, or was not heard, so that it says nothing proves nothing"
            ));
        };
        self.show(Shows::OtherLane, heard);
        let why = format!("the {lane} lane ran it, once; the {other} lane was there and has nothing of it");
        self.answer(ProofVerdict::Proved, why, Some(lane))
    }
}

/// What that lane said of itself in the run that was up at `at`, if there was one.
fn alive<'r>(lane: Mode, at: i128, here: &[&'r Rec], speakers: &Speakers<'_>) -> Option<&'r Rec> {
    let heard = here.iter().rev().find(|rec| {
        rec.get("MESSAGE_ID") == Some(TRANSITION)
            && rec.mono().is_some_and(|then| then <= at)
            && speaker(rec).is_some_and(|(of, run, pid)| of == lane && speakers.get(&(of, run)) == Some(&pid))
    })?;
    let run = heard.get("_SYSTEMD_INVOCATION_ID")?;
    let ended = here.iter().any(|rec| {
        rec.get("_PID") == Some("1")
            && rec.get("UNIT") == Some(unit(lane))
            && rec.get("INVOCATION_ID").is_none_or(|of| of == run)
            && rec.get("MESSAGE_ID").is_some_and(|id| ENDS.contains(&id))
            && rec.mono().is_none_or(|then| then <= at && heard.mono().is_none_or(|heard| then >= heard))
    });
    (!ended).then_some(*heard)
}

impl Rec {
    fn unit(&self) -> Option<&str> {
        self.get("_SYSTEMD_UNIT")
    }

    fn is_about_a_lane(&self) -> bool {
        let by_lane = self.unit().and_then(lane_of).is_some();
        by_lane || (self.get("_PID") == Some("1") && self.get("UNIT").and_then(lane_of).is_some())
    }

    /// Whether it says that records may be missing: journald was away, dropped some, or a lane could not get rid of its own.
    fn is_gap(&self) -> bool {
        let message = self.get("MESSAGE").unwrap_or_default();
        match (self.get("_TRANSPORT"), self.get("MESSAGE_ID")) {
            (Some("driver"), Some(JOURNAL_START | JOURNAL_STOP)) => true,
            (Some("driver"), Some(JOURNAL_DROPPED)) => message.contains("keyholder-lane"),
            (_, Some(TRANSITION)) if self.get("KEYHOLDER_MISSING").is_some() => true,
            (_, _) => self.is_garbled(),
        }
    }
}
