//! The judge on a recorded log: the same decisions again, by the log's own clock, and what they were about.
//!
//! It answers "why was (not) this done?" long after the fact, shows what another version of the judge would do about an
//! old incident, and lets each incident that was ever met be a test.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Serialize, Serializer};

use super::classify::{Health, Host, classify};
use super::crowd::{Crowd, crowd};
use super::decide::{Rungs, Terms, decide};
use super::idle::remembered;
use super::log::{Absence, Care, Happened, Line, Opening};
use super::observation::Observation;
use super::state::{Action, Event, Phase, WorkerState};
use super::transit::{hangs_at, hung};
use super::vitals::{Proof, Pulse, Sign, Signs};
use crate::vocabulary::{
    Canary, DeliveryGap, Flow, Heartbeat, InvocationId, Mode, Moment, Policy, Remedy, Stuck, Target,
};

mod words;

/// How many turns of the judge one replay may take: a log cannot keep it busy for ever.
const TURNS: usize = 1_000_000;
/// A supervisor that is busy comes to what is due a little late, and what it has heard by then goes first.
const LATE: Duration = Duration::from_millis(50);

/// One line of the story.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Entry {
    /// When, in milliseconds since the log began.
    pub at_ms: u64,
    /// To whom.
    #[serde(serialize_with = "as_text")]
    pub worker: Target,
    /// What kind of line it is.
    pub kind: Kind,
    /// What, in words. It may quote the log, so whoever shows it makes it printable.
    pub text: String,
}

fn as_text<S: Serializer>(target: &Target, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(target)
}

/// The kinds of lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Something was observed.
    Seen,
    /// Somebody wished something.
    Asked,
    /// What was seen means something else now.
    Class,
    /// People are told.
    Says,
    /// What is in hand changed.
    Plan,
    /// Something is done.
    Acts,
    /// What was done ended.
    Ended,
    /// What was done at the time is not what the judge decides here.
    Differs,
    /// How it stands when the log ends.
    End,
}

impl Kind {
    /// Its name, as shown.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Seen => "seen",
            Self::Asked => "asked",
            Self::Class => "class",
            Self::Says => "says",
            Self::Plan => "plan",
            Self::Acts => "ACTS",
            Self::Ended => "ended",
            Self::Differs => "DIFFERS",
            Self::End => "end",
        }
    }
}

/// The log would keep the judge busy for too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the log makes the judge take more than {TURNS} turns; its times are too short for its length")]
pub struct TooManyTurns;

/// All that the judge knows of one worker.
#[derive(Debug, Clone)]
pub(super) struct Case {
    policy: Policy,
    rungs: Rungs,
    stuck: Option<Stuck>,
    gap: Option<DeliveryGap>,
    care: Care,
    host: Host,
    seen: Observation,
    signs: Signs,
    pub(super) health: Health,
    pub(super) state: WorkerState,
}

impl Case {
    pub(super) fn new(opening: Opening) -> Self {
        let Opening { care, host, seen, mut signs, state } = opening;
        if let Some(seen) = &seen {
            signs.look(seen);
        }
        let time = Duration::from_millis;
        // What is read and how it is fixed is no business of the judge; only the times are.
        let stuck = care.older_than_ms.map(|ms| Stuck {
            heartbeat: Heartbeat::Journal,
            older_than: time(ms),
            nudge: None,
        });
        let canary = care.canary_within_ms.map(|ms| Canary { every: time(ms), within: time(ms) });
        let gap = care.not_draining_for_ms.map(|ms| DeliveryGap {
            flow: Flow::Lane(Mode::Write),
            not_draining_for: time(ms),
            canary,
            repipe: None,
        });
        Self {
            policy: care.policy(),
            rungs: care.rungs(),
            stuck,
            gap,
            care,
            host: host.unwrap_or(Host::Running),
            seen: seen.unwrap_or_else(|| Observation::Failed("not looked at yet".to_owned())),
            signs,
            health: Health::Unknown("not looked at yet".to_owned()),
            state,
        }
    }

    pub(super) fn invocation(&self) -> Option<InvocationId> {
        match &self.seen {
            Observation::Unit(unit) => unit.invocation,
            Observation::Failed(_) => None,
        }
    }

    /// Takes in what happened, as the supervisor does; what is left is what `decide` is to be told beside the look.
    pub(super) fn take(&mut self, what: &Happened, now: Moment) -> Option<Event> {
        let read = match what {
            Happened::Seen(seen) => {
                self.signs.look(seen);
                self.seen = (**seen).clone();
                return None;
            }
            Happened::Host(host) => {
                self.host = *host;
                return None;
            }
            Happened::Opens(opening) => {
                *self = Self::new(*opening.clone());
                return None;
            }
            Happened::Away(absence) => {
                self.state.count_again(absence.until_ms);
                return None;
            }
            Happened::Time | Happened::Acted(_) => return None,
            Happened::Done(ending) => return Some(Event::Done(*ending)),
            Happened::Ordered(remedy) => return Some(Event::Ordered(*remedy)),
            Happened::Hold(hold) => return Some(Event::Hold((**hold).clone())),
            Happened::Release => return Some(Event::Release),
            Happened::Beat(reading) => (Sign::Beat, reading),
            Happened::Flow(reading) => (Sign::Flow, reading),
            Happened::Canary(reading) => (Sign::Canary, reading),
        };
        self.signs.take(read.0, read.1.clone(), self.stuck.as_ref(), self.gap.as_ref(), now);
        None
    }

    /// Judges what is known; the event that follows.
    pub(super) fn look(&mut self, now: Moment) -> Event {
        let health = classify(&self.seen, &self.signs.vitals(), self.host, self.policy.ends_clean);
        let health = remembered(health, self.state.skipped.as_deref());
        self.health = hung(health, self.state.transit, &self.seen, &self.policy, now);
        Event::Seen { health: self.health.clone(), invocation: self.invocation() }
    }

    /// Answers an event.
    pub(super) fn decide(&mut self, event: &Event, crowd: Crowd, now: Moment) -> Vec<Action> {
        let terms = Terms {
            policy: &self.policy,
            salt: self.care.salt,
            blast_radius: self.care.blast_radius,
            rungs: self.rungs,
            crowd,
            proof: Proof::of(&self.health, &self.signs, self.stuck.as_ref(), self.gap.as_ref()),
            seen: &self.seen,
        };
        let (state, actions) = decide(&self.state, event, terms, now);
        self.state = state;
        actions
    }

    /// Whether something is due already.
    pub(super) fn is_due(&self, now: Moment) -> bool {
        self.wakes().is_some_and(|at| at <= now)
    }

    /// When it has to be looked at again by itself; what is overdue waits for news.
    pub(super) fn wake(&self, now: Moment) -> Option<Moment> {
        self.wakes().filter(|at| *at > now)
    }

    fn wakes(&self) -> Option<Moment> {
        let hangs = hangs_at(self.state.transit, &self.seen, &self.policy);
        self.state.wake(&self.policy).into_iter().chain(hangs).min()
    }
}

/// Plays a log and tells the story.
///
/// # Errors
/// [`TooManyTurns`]: the log is longer than anything that was ever recorded.
pub fn replay(lines: &[Line]) -> Result<Vec<Entry>, TooManyTurns> {
    let mut play = play(lines)?;
    play.close();
    Ok(play.entries)
}

fn play(lines: &[Line]) -> Result<Play, TooManyTurns> {
    let start = lines.first().map(|line| line.at_ms).unwrap_or_default();
    let recorded = lines.iter().any(|line| matches!(line.what, Happened::Acted(_)));
    let mut play = Play { start, recorded, now: start, ..Play::default() };
    for line in lines {
        if let Happened::Away(absence) = &line.what {
            play.away.entry(line.worker.clone()).or_default().push(*absence);
        }
    }
    for line in lines {
        play.until(line)?;
        play.now = line.at_ms;
        play.line(line)?;
    }
    Ok(play)
}

#[derive(Default)]
struct Play {
    cases: BTreeMap<Target, Played>,
    entries: Vec<Entry>,
    start: Moment,
    now: Moment,
    /// Whether a supervisor wrote the log, with what it did.
    recorded: bool,
    /// When the supervisor was away, by worker: each absence ends no sooner than the one before.
    away: BTreeMap<Target, Vec<Absence>>,
    turns: usize,
}

struct Played {
    case: Case,
    /// What the log says of the others.
    crowd: Option<Crowd>,
    /// What was decided here and is not in the log yet.
    unconfirmed: Option<Remedy>,
    /// Whether nothing has happened since its log opened.
    fresh: bool,
}

impl Play {
    fn tell(&mut self, worker: &Target, kind: Kind, text: impl Into<String>) {
        let at_ms = u64::try_from(self.now.since(self.start).as_millis()).unwrap_or(u64::MAX);
        self.entries.push(Entry { at_ms, worker: worker.clone(), kind, text: text.into() });
    }

    fn turn(&mut self) -> Result<(), TooManyTurns> {
        self.turns += 1;
        if self.turns > TURNS { Err(TooManyTurns) } else { Ok(()) }
    }

    /// What comes due by itself before the next line.
    fn until(&mut self, next: &Line) -> Result<(), TooManyTurns> {
        loop {
            let due =
                self.cases.iter().filter_map(|(name, played)| Some((self.due(name, &played.case)?, name)));
            let Some((at, name)) = due.min() else { return Ok(()) };
            // Who was away had done by then what was due before.
            let away = matches!(next.what, Happened::Away(_));
            let late = self.recorded && !away && *name == next.worker && next.at_ms <= at + LATE;
            if at >= next.at_ms || late {
                return Ok(());
            }
            let name = name.clone();
            self.turn()?;
            self.now = at;
            self.look(&name);
        }
    }

    /// When a worker has to be looked at by itself. What comes due in an absence waits for its end.
    fn due(&self, name: &Target, case: &Case) -> Option<Moment> {
        let wake = case.wake(self.now).filter(|at| !self.is_away(name, *at));
        let absences = self.absences(name);
        let next = absences.partition_point(|absence| absence.until_ms <= self.now);
        wake.into_iter().chain(absences.get(next).map(|absence| absence.until_ms)).min()
    }

    fn absences(&self, name: &Target) -> &[Absence] {
        self.away.get(name).map(Vec::as_slice).unwrap_or_default()
    }

    /// Whether the supervisor was away then.
    fn is_away(&self, name: &Target, at: Moment) -> bool {
        let absences = self.absences(name);
        let begun = absences.partition_point(|absence| absence.since_ms <= at);
        begun.checked_sub(1).and_then(|last| absences.get(last)).is_some_and(|last| at < last.until_ms)
    }

    fn line(&mut self, line: &Line) -> Result<(), TooManyTurns> {
        self.turn()?;
        let name = &line.worker;
        if let Happened::Opens(opening) = &line.what {
            let case = Case::new(*opening.clone());
            self.tell(name, Kind::Seen, words::observation(&case.seen));
            let played = Played { case, crowd: line.crowd, unconfirmed: None, fresh: true };
            self.cases.insert(name.clone(), played);
            self.look(name);
            return Ok(());
        }
        let now = self.now;
        let Some(played) = self.cases.get_mut(name) else { return Ok(()) };
        played.crowd = line.crowd.or(played.crowd);
        let before = played.case.signs.vitals();
        let event = played.case.take(&line.what, now);
        let after = played.case.signs.vitals();
        match &line.what {
            Happened::Acted(remedy) => {
                self.look(name);
                self.acted(name, *remedy);
                self.opened(name);
                return Ok(());
            }
            Happened::Seen(seen) => self.tell(name, Kind::Seen, words::observation(seen)),
            Happened::Host(host) => self.tell(name, Kind::Seen, words::host(*host)),
            Happened::Done(ending) => self.tell(name, Kind::Ended, words::ending(*ending)),
            Happened::Ordered(remedy) => self.tell(name, Kind::Asked, format!("a {remedy} is ordered")),
            Happened::Release => self.tell(name, Kind::Asked, "it is released"),
            Happened::Hold(hold) => self.tell(name, Kind::Asked, words::hold(hold, now)),
            Happened::Away(absence) => {
                self.tell(name, Kind::Seen, words::absence(*absence, now));
                return Ok(());
            }
            Happened::Beat(_)
            | Happened::Flow(_)
            | Happened::Canary(_)
            | Happened::Time
            | Happened::Opens(_) => {}
        }
        for (what, before, after) in
            [("heartbeat", before.beat, after.beat), ("flow of its work", before.flow, after.flow)]
        {
            if before != after && after != Pulse::Unwatched {
                self.tell(name, Kind::Seen, words::pulse(what, &after));
            }
        }
        if let Some(event) = event {
            self.judge(name, &event);
        }
        self.look(name);
        self.opened(name);
        Ok(())
    }

    fn opened(&mut self, name: &Target) {
        if let Some(played) = self.cases.get_mut(name) {
            played.fresh = false;
        }
    }

    /// Looks as the supervisor does: once for the news, and once more if it has made something due.
    fn look(&mut self, name: &Target) {
        self.look_once(name);
        if self.cases.get(name).is_some_and(|played| played.case.is_due(self.now)) {
            self.look_once(name);
        }
    }

    fn look_once(&mut self, name: &Target) {
        let Some(played) = self.cases.get_mut(name) else { return };
        let before = played.case.health.clone();
        let event = played.case.look(self.now);
        let after = &played.case.health;
        if *after != before {
            let text = words::health(after);
            self.tell(name, Kind::Class, text);
        }
        self.judge(name, &event);
    }

    fn judge(&mut self, name: &Target, event: &Event) {
        if matches!(event, Event::Seen { .. }) && self.is_away(name, self.now) {
            return;
        }
        let others = crowd(self.cases.values().map(|played| &played.case.health));
        let now = self.now;
        let Some(played) = self.cases.get_mut(name) else { return };
        let before = played.case.state.phase.clone();
        let actions = played.case.decide(event, played.crowd.unwrap_or(others), now);
        let after = played.case.state.phase.clone();
        for action in &actions {
            match action {
                Action::Act(remedy) => {
                    self.unconfirmed(name);
                    self.tell(name, Kind::Acts, remedy.name());
                    if let Some(played) = self.cases.get_mut(name) {
                        played.unconfirmed = Some(*remedy);
                    }
                }
                Action::Say(say) => self.tell(name, Kind::Says, words::say(*say)),
            }
        }
        if words::differ(&before, &after) {
            self.tell(name, Kind::Plan, words::plan(&after, now));
        }
    }

    /// The log says that this was done then.
    fn acted(&mut self, name: &Target, remedy: Remedy) {
        let Some(played) = self.cases.get_mut(name) else { return };
        // The log may open between the decision and its line.
        let under_way =
            matches!(played.case.state.phase, Phase::Repairing { remedy: known, .. } if known == remedy);
        if played.unconfirmed == Some(remedy) || (played.fresh && under_way) {
            played.unconfirmed = None;
        } else {
            self.tell(
                name,
                Kind::Differs,
                format!("a {remedy} was done then; this judge does not decide it"),
            );
        }
    }

    /// Something was decided here that the log does not know of, if a supervisor wrote it.
    fn unconfirmed(&mut self, name: &Target) {
        let Some(played) = self.cases.get_mut(name) else { return };
        if let Some(remedy) = played.unconfirmed.take().filter(|_| self.recorded) {
            self.tell(name, Kind::Differs, format!("the {remedy} was not done then"));
        }
    }

    fn close(&mut self) {
        let names: Vec<Target> = self.cases.keys().cloned().collect();
        for name in names {
            self.unconfirmed(&name);
            let Some(played) = self.cases.get(&name) else { continue };
            let class = words::health(&played.case.health);
            let text = match &played.case.state.phase {
                Phase::Watching => class,
                phase @ (Phase::Waiting { .. }
                | Phase::LeftToPeers
                | Phase::Repairing { .. }
                | Phase::Settling { .. }
                | Phase::Verifying { .. }
                | Phase::Quarantined { .. }
                | Phase::Stranded) => format!("{class}; {}", words::plan(phase, self.now)),
            };
            self.tell(&name, Kind::End, text);
        }
    }
}

#[cfg(test)]
mod tests;
