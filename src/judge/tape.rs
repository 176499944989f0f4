//! What the judge was told of one worker lately, kept so that it can be replayed: `keyholder explain --record`.
//!
//! The tape is bounded and says nothing about what it has forgotten: it is kept in two chapters, each of which opens with
//! all that was known by then. When the second is full the first is dropped.

use super::classify::Host;
use super::crowd::Crowd;
use super::log::{Absence, Care, Happened, Line, Opening};
use super::observation::Observation;
use super::state::WorkerState;
use super::vitals::{Reading, Sign, Signs};
use crate::vocabulary::{Moment, Target};

/// How many things that happened one chapter holds. A fall and its repair are about eight, so a tape shows two to four
/// of them. Full, it weighs 5 kB (`tests/bench/watch`), most of it looks at the unit; a worker that never fell needs 1 kB.
const CHAPTER: usize = 16;

/// What is known of a worker at one moment, from which a replay can go on.
#[derive(Debug, Clone)]
pub struct Baseline {
    /// What its host is doing.
    pub host: Host,
    /// What was seen of its unit.
    pub seen: Observation,
    /// What was seen of its progress.
    pub signs: Signs,
    /// What is in hand.
    pub state: WorkerState,
}

/// The tape of one worker.
#[derive(Debug, Clone, Default)]
pub struct Tape {
    // Boxed: most workers never get to a second chapter.
    before: Option<Box<Chapter>>,
    now: Option<Box<Chapter>>,
    crowd: Crowd,
    /// The last absence of the supervisor.
    away: Option<Absence>,
    /// How many readings in a row said the same, by sign.
    rows: [Row; 3],
}

#[derive(Debug, Clone)]
struct Chapter {
    at: Moment,
    crowd: Crowd,
    known: Baseline,
    happened: Vec<(Moment, Option<Crowd>, Happened)>,
}

/// Readings of one sign that said the same one after the other.
#[derive(Debug, Clone, Copy, Default)]
struct Row {
    mark: Option<u64>,
    says: Says,
    length: usize,
    /// The marks of the last reading on the tape and of the one before it.
    last: Option<u64>,
    before: Option<u64>,
}

/// What readings can say for long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Says {
    Moves,
    Fails,
    #[default]
    Else,
}

impl Tape {
    /// Takes down what is about to happen. `known` is what is known before it.
    pub fn note(&mut self, what: Happened, now: Moment, known: impl FnOnce() -> Baseline) {
        if let Happened::Seen(_) = what {
            // It may be another run, of which nothing has been seen to move.
            self.rows.iter_mut().for_each(|row| row.length = 0);
        }
        if let Some((sign, reading)) = what.reading()
            && self.repeats(sign, reading)
            && let Some(chapter) = &mut self.now
            && let Some(last) =
                chapter.happened.iter().rposition(|(_, _, old)| old.reading().is_some_and(|(s, _)| s == sign))
        {
            let (_, crowd, _) = chapter.happened.remove(last);
            chapter.happened.push((now, crowd, what));
            return;
        }
        // Absences between which nothing happened are one: a host that stalls for long must not have all else forgotten.
        if let Happened::Away(more) = &what {
            self.away = Some(*more);
            let last = self.now.as_mut().and_then(|chapter| chapter.happened.last_mut());
            if let Some((at, _, Happened::Away(last))) = last {
                (*at, last.until_ms) = (now, more.until_ms);
                return;
            }
        }
        if self.now.as_ref().is_none_or(|chapter| chapter.happened.len() >= CHAPTER) {
            // One that goes on is told again, since the chapter that told it may be dropped before it ends.
            let away = self.away.filter(|away| now < away.until_ms && !matches!(what, Happened::Away(_)));
            let happened = away.map(|away| (now, None, Happened::Away(away))).into_iter().collect();
            let fresh = Chapter { at: now, crowd: self.crowd, known: known(), happened };
            self.before = self.now.replace(Box::new(fresh));
        }
        if let Some(chapter) = &mut self.now {
            chapter.happened.push((now, None, what));
        }
    }

    /// Takes down that time alone is about to change something, unless something else has just happened as well. A reading may
    /// be taken back when the next one says the same.
    pub fn time(&mut self, now: Moment, known: impl FnOnce() -> Baseline) {
        let fresh = |chapter: &Chapter| {
            chapter.happened.last().is_some_and(|(at, _, what)| *at == now && what.reading().is_none())
        };
        if !self.now.as_deref().is_some_and(fresh) {
            self.note(Happened::Time, now, known);
        }
    }

    /// Takes down what the node's workers are like, if that has changed since the last time.
    pub fn crowd(&mut self, crowd: Crowd, now: Moment, known: impl FnOnce() -> Baseline) {
        if crowd == self.crowd {
            return;
        }
        self.time(now, known);
        self.crowd = crowd;
        if let Some((_, noted, _)) = self.now.as_mut().and_then(|chapter| chapter.happened.last_mut()) {
            *noted = Some(crowd);
        }
    }

    /// Forgets everything: what follows goes by other times and limits.
    pub fn rewind(&mut self) {
        *self = Self::default();
    }

    /// The log, oldest first.
    pub fn log(&self, worker: &Target, care: &Care) -> Vec<Line> {
        let Some(first) = self.before.as_ref().or(self.now.as_ref()) else { return Vec::new() };
        let line = |at_ms, crowd, what| Line { at_ms, worker: worker.clone(), crowd, what };
        let Baseline { host, seen, signs, state } = first.known.clone();
        let opening = Opening { care: care.clone(), host: Some(host), seen: Some(seen), signs, state };
        let opens = line(first.at, Some(first.crowd), Happened::Opens(Box::new(opening)));
        let chapters = self.before.iter().chain(&self.now);
        let happened = chapters.flat_map(|chapter| chapter.happened.iter().cloned());
        std::iter::once(opens).chain(happened.map(|(at, crowd, what)| line(at, crowd, what))).collect()
    }

    /// Whether a reading says what the three before it said, so that the last of them is not missed: progress on progress
    /// leaves a track as the newest alone would, and so does one failure after another. The first two show that it moves.
    fn repeats(&mut self, sign: Sign, reading: &Reading) -> bool {
        let place = match sign {
            Sign::Beat => 0,
            Sign::Flow => 1,
            Sign::Canary => 2,
        };
        let Some(row) = self.rows.get_mut(place) else { return false };
        let says = match reading {
            Reading::Moving => Says::Moves,
            Reading::Mark(mark) if row.mark.replace(*mark) != Some(*mark) => Says::Moves,
            Reading::Failed(_) => Says::Fails,
            Reading::Mark(_) | Reading::Silent(_) => Says::Else,
        };
        row.length = if says == row.says && says != Says::Else { row.length.saturating_add(1) } else { 1 };
        row.says = says;
        let mark = match reading {
            Reading::Mark(mark) => Some(*mark),
            Reading::Moving | Reading::Failed(_) | Reading::Silent(_) => None,
        };
        // A mark that comes back to what it was before would look, without the one between, as if it had not moved.
        let repeats = row.length > 3 && (mark.is_none() || mark != row.before);
        if !repeats {
            row.before = row.last;
        }
        row.last = mark;
        repeats
    }
}

impl Happened {
    /// The reading, if it is one.
    fn reading(&self) -> Option<(Sign, &Reading)> {
        match self {
            Self::Beat(reading) => Some((Sign::Beat, reading)),
            Self::Flow(reading) => Some((Sign::Flow, reading)),
            Self::Canary(reading) => Some((Sign::Canary, reading)),
            Self::Opens(_)
            | Self::Seen(_)
            | Self::Host(_)
            | Self::Away(_)
            | Self::Time
            | Self::Acted(_)
            | Self::Done(_)
            | Self::Ordered(_)
            | Self::Hold(_)
            | Self::Release => None,
        }
    }
}
