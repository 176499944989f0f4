//! Signs of progress: what a detector reads now and then becomes "it moves", "it stands still" or "that cannot be said".
//!
//! Everything is counted from what changed between two readings on this host's own clock. A time that a worker or the
//! wall clock wrote down decides nothing, so a stepped clock makes nobody stuck.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::observation::Observation;
use crate::vocabulary::{DeliveryGap, InvocationId, Moment, Stuck};

/// What a detector read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Reading {
    /// Something that changes whenever there is progress: a modification time, the oldest element of a queue.
    Mark(u64),
    /// There is progress, or nothing to make progress with.
    Moving,
    /// There is no sign at all; the text says which one is missing.
    Silent(String),
    /// It could not be read; the text says why.
    Failed(String),
}

/// What the readings say.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Pulse {
    /// Nobody looks.
    #[default]
    Unwatched,
    /// It moves, or has not stood still for long enough to say otherwise.
    Moving,
    /// It has stood still for longer than allowed; the text is the evidence.
    Still(String),
    /// It could not be read; the text says why.
    Unseen(String),
}

/// What is known of a worker beyond its unit.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Vitals {
    /// Whether its loop makes progress.
    pub beat: Pulse,
    /// Whether its work flows.
    pub flow: Pulse,
}

/// Which sign of progress a reading is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Sign {
    /// The heartbeat of its loop.
    Beat,
    /// The head of its queue.
    Flow,
    /// The no-op task that was sent through its queue.
    Canary,
}

/// All readings of one worker, joined.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Signs {
    beat: Track,
    flow: Track,
    canary: Track,
    flow_pulse: Pulse,
    canary_pulse: Pulse,
    beat_pulse: Pulse,
    /// The run that they are about.
    run: Option<InvocationId>,
}

impl Signs {
    /// The unit was looked at. What was seen of one run says nothing about the next; a look that failed says nothing of runs.
    pub fn look(&mut self, seen: &Observation) {
        let run = match seen {
            Observation::Unit(unit) => unit.invocation,
            Observation::Failed(_) => None,
        };
        if run.is_some() && run != self.run {
            *self = Self { run, ..Self::default() };
        }
    }

    /// Takes a reading in; the care that the fleet file describes says how long a sign may be missing. A reading that
    /// nobody asked for any more is dropped.
    pub fn take(
        &mut self,
        sign: Sign,
        reading: Reading,
        stuck: Option<&Stuck>,
        gap: Option<&DeliveryGap>,
        now: Moment,
    ) {
        match (sign, stuck, gap) {
            (Sign::Beat, Some(stuck), _) => {
                self.beat_pulse = self.beat.take(reading, stuck.older_than, "no heartbeat", now);
            }
            (Sign::Flow, _, Some(gap)) => {
                let what = "work waits and none was taken";
                self.flow_pulse = self.flow.take(reading, gap.not_draining_for, what, now);
            }
            (Sign::Canary, _, Some(DeliveryGap { canary: Some(canary), .. })) => {
                let what = "the canary was not answered";
                self.canary_pulse = self.canary.take(reading, canary.within, what, now);
            }
            (Sign::Beat, None, _) | (Sign::Flow, _, None) | (Sign::Canary, _, _) => {}
        }
    }

    /// What they say together. Either way of seeing the work stand still is enough.
    pub fn vitals(&self) -> Vitals {
        let flow = match (&self.flow_pulse, &self.canary_pulse) {
            (still @ Pulse::Still(_), _) | (_, still @ Pulse::Still(_)) => still,
            (unseen @ Pulse::Unseen(_), _) | (_, unseen @ Pulse::Unseen(_)) => unseen,
            (moving @ Pulse::Moving, _) | (_, moving @ Pulse::Moving) => moving,
            (Pulse::Unwatched, Pulse::Unwatched) => &Pulse::Unwatched,
        };
        Vitals { beat: self.beat_pulse.clone(), flow: flow.clone() }
    }
}

/// Readings of one kind, joined over time.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Track {
    mark: Option<u64>,
    /// The last progress that was seen, or the moment from which the time counts.
    moved: Option<Moment>,
    read: Option<Moment>,
    /// It was found to stand still, and has not been seen to move since.
    still: bool,
}

impl Track {
    /// For a while nobody could look. Everybody gets the whole time again, since what was not seen may have moved; but what
    /// stood still before is not called well until it does move.
    fn was_blind(&mut self) {
        self.moved = None;
        if !self.still {
            self.mark = None;
        }
    }

    /// Takes a reading in. `limit` is how long it may stand still, `what` names the sign.
    pub fn take(&mut self, reading: Reading, limit: Duration, what: &str, now: Moment) -> Pulse {
        // Who has not looked for half the time has not seen it stand still: this process may have been stopped, the host
        // suspended.
        if self.read.is_some_and(|read| now.since(read) > limit / 2) {
            self.was_blind();
        }
        let moved = match &reading {
            Reading::Failed(why) => {
                self.was_blind();
                self.read = Some(now);
                return Pulse::Unseen(why.clone());
            }
            Reading::Moving => {
                // What comes after an empty queue counts from its own coming, also if it looks like what was there before.
                self.mark = None;
                true
            }
            Reading::Mark(mark) => self.mark.replace(*mark) != Some(*mark),
            Reading::Silent(_) => false,
        };
        self.read = Some(now);
        self.still &= !moved;
        let since = match self.moved {
            Some(since) if !moved => since,
            Some(_) | None => *self.moved.insert(now),
        };
        if now.since(since) < limit {
            return if self.still {
                Pulse::Unseen(
                    "it stood still, then it could not be looked at for a while; it has not moved since"
                        .to_owned(),
                )
            } else {
                Pulse::Moving
            };
        }
        self.still = true;
        let limit = crate::vocabulary::human(limit);
        Pulse::Still(match reading {
            Reading::Silent(missing) => format!("{missing} for {limit}"),
            Reading::Mark(_) | Reading::Moving | Reading::Failed(_) => format!("{what} for {limit}"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(60);

    fn at(secs: u64) -> Moment {
        Moment::from_millis(secs * 1_000)
    }

    fn read(track: &mut Track, reading: Reading, secs: u64) -> Pulse {
        track.take(reading, LIMIT, "no beat", at(secs))
    }

    #[test]
    fn it_stands_still_only_after_the_whole_time_of_looking() {
        let mut track = Track::default();
        for secs in (100..160).step_by(10) {
            assert_eq!(read(&mut track, Reading::Mark(1), secs), Pulse::Moving, "{secs}");
        }
        assert_eq!(read(&mut track, Reading::Mark(1), 160), Pulse::Still("no beat for 1m 00s".to_owned()));
        assert_eq!(read(&mut track, Reading::Mark(2), 170), Pulse::Moving);
        assert_eq!(read(&mut track, Reading::Silent("the key is gone".to_owned()), 180), Pulse::Moving);
    }

    #[test]
    fn the_same_work_given_again_after_an_empty_queue_is_new() {
        let mut track = Track::default();
        read(&mut track, Reading::Mark(1), 0);
        for secs in (10..=100).step_by(10) {
            read(&mut track, Reading::Moving, secs);
        }
        for secs in (110..170).step_by(10) {
            assert_eq!(read(&mut track, Reading::Mark(1), secs), Pulse::Moving, "{secs}");
        }
        assert!(matches!(read(&mut track, Reading::Mark(1), 170), Pulse::Still(_)));
    }

    #[test]
    fn a_blind_time_counts_against_nobody() {
        let mut track = Track::default();
        for secs in (0..60).step_by(10) {
            read(&mut track, Reading::Mark(1), secs);
        }
        assert_eq!(
            read(&mut track, Reading::Failed("down".to_owned()), 60),
            Pulse::Unseen("down".to_owned())
        );
        assert_eq!(read(&mut track, Reading::Mark(1), 70), Pulse::Moving);
        // The watcher itself slept.
        assert_eq!(read(&mut track, Reading::Mark(1), 400), Pulse::Moving);
    }

    #[test]
    fn what_stood_still_is_not_well_because_nobody_looked_for_a_while() {
        let found = || {
            let mut track = Track::default();
            for secs in (0..=60).step_by(10) {
                read(&mut track, Reading::Mark(1), secs);
            }
            track
        };
        // The watcher slept, or could not read it.
        let mut slept = found();
        let mut failed = found();
        read(&mut failed, Reading::Failed("down".to_owned()), 70);
        for track in [&mut slept, &mut failed] {
            for secs in (100..160).step_by(10) {
                let pulse = read(track, Reading::Mark(1), secs);
                assert!(matches!(&pulse, Pulse::Unseen(_)), "{secs}: {pulse:?}");
            }
            let pulse = read(track, Reading::Mark(1), 160);
            assert!(matches!(&pulse, Pulse::Still(_)), "the whole time again, and no more: {pulse:?}");
            assert_eq!(read(track, Reading::Mark(2), 170), Pulse::Moving);
        }
        let mut moved = found();
        assert_eq!(read(&mut moved, Reading::Mark(2), 100), Pulse::Moving, "it moved meanwhile");
        assert_eq!(read(&mut moved, Reading::Mark(2), 110), Pulse::Moving);
    }
}
