//! Signs of progress: what a detector reads now and then becomes "it moves", "it stands still" or "that cannot be said".
//!
//! Everything is counted from what changed between two readings on this host's own clock. A time that a worker or the
//! wall clock wrote down decides nothing, so a stepped clock makes nobody stuck.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::classify::Health;
use super::observation::Observation;
use crate::vocabulary::{DeliveryGap, FailureClass, InvocationId, Moment, Stuck};

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

/// What a relaunch of a worker that ran has to be followed by: the sign that was missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Proof {
    /// What the worker ails from at this moment, if it runs.
    pub ails: Option<FailureClass>,
    /// Whether its loop was seen to move in this run, or nobody looks.
    pub beat: bool,
    /// The same of its work.
    pub flow: bool,
    /// How long the sign may take to be seen, from when the worker is up.
    pub within: Duration,
}

impl Default for Proof {
    fn default() -> Self {
        Self { ails: None, beat: true, flow: true, within: Duration::ZERO }
    }
}

impl Proof {
    /// What is known of a worker.
    pub fn of(health: &Health, signs: &Signs, stuck: Option<&Stuck>, gap: Option<&DeliveryGap>) -> Self {
        let ails = health.ails();
        let canary = gap.and_then(|gap| gap.canary).map(|canary| canary.within);
        let limits = [stuck.map(|stuck| stuck.older_than), gap.map(|gap| gap.not_draining_for), canary];
        // A detector looks four times within each limit, so that it has said by then that the sign does not come.
        let within = limits.into_iter().flatten().max().unwrap_or_default() * 3 / 2;
        Self {
            ails,
            beat: stuck.is_none() || signs.beat.shown,
            flow: gap.is_none() || signs.flow.shown || signs.canary.shown,
            within,
        }
    }

    /// Whether the sign whose absence is this class was seen.
    pub fn shows(&self, class: FailureClass) -> bool {
        match class {
            FailureClass::Stuck => self.beat,
            FailureClass::DeliveryGap => self.flow,
            FailureClass::Dead | FailureClass::SupervisorDead | FailureClass::Unreachable => true,
        }
    }
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
    /// This run has not been up yet: whoever is still being started need not give a sign.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    down: bool,
}

impl Signs {
    /// The unit was looked at. What was seen of one run says nothing about the next, and what was seen before it was up says
    /// nothing either; a look that failed says nothing of runs.
    pub fn look(&mut self, seen: &Observation) {
        let Observation::Unit(unit) = seen else { return };
        let up = unit.active.up();
        let another = unit.invocation.is_some() && unit.invocation != self.run;
        if another || (self.down && up) {
            *self = Self { run: unit.invocation.or(self.run), down: !up, ..Self::default() };
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
        // Times count from when it is up.
        if self.down {
            return;
        }
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
    /// It was seen to move: not only that something is there, but that it changes.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    shown: bool,
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
        let known = self.mark.is_some();
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
        self.shown |= match &reading {
            Reading::Moving => true,
            // The first mark may be one that an earlier run has left.
            Reading::Mark(_) => moved && known,
            Reading::Silent(_) | Reading::Failed(_) => false,
        };
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
    use super::super::observation::{ActiveState, StopCause, UnitSnapshot};
    use super::*;
    use crate::vocabulary::{Canary, Flow, Heartbeat, Mode};

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

    fn unit(active: ActiveState, run: u8) -> Observation {
        Observation::Unit(UnitSnapshot {
            invocation: Some(InvocationId::from_bytes([run; 16])),
            restarts_itself: true,
            stop: StopCause::ByItself,
            ..UnitSnapshot::plain(active, "")
        })
    }

    #[test]
    fn every_sign_of_life_counts_from_when_the_unit_is_up() {
        let stuck = Stuck { heartbeat: Heartbeat::Journal, older_than: LIMIT, nudge: None };
        let canary = Canary { every: LIMIT, within: LIMIT };
        let gap = DeliveryGap {
            flow: Flow::Lane(Mode::Write),
            not_draining_for: LIMIT,
            canary: Some(canary),
            repipe: None,
        };
        let mut signs = Signs::default();
        let read = |signs: &mut Signs, secs: u64| {
            for (sign, reading) in [
                (Sign::Beat, Reading::Silent("no key".to_owned())),
                (Sign::Flow, Reading::Mark(1)),
                (Sign::Canary, Reading::Silent("no answer".to_owned())),
            ] {
                signs.take(sign, reading, Some(&stuck), Some(&gap), at(secs));
            }
            signs.vitals()
        };
        signs.look(&unit(ActiveState::Activating, 1));
        for secs in (0..200).step_by(10) {
            assert_eq!(read(&mut signs, secs), Vitals::default(), "{secs}");
        }
        signs.look(&unit(ActiveState::Active, 1));
        for secs in (200..260).step_by(10) {
            let vitals = read(&mut signs, secs);
            assert!(vitals.beat == Pulse::Moving && vitals.flow == Pulse::Moving, "{secs}: {vitals:?}");
        }
        let vitals = read(&mut signs, 260);
        assert!(matches!((&vitals.beat, &vitals.flow), (Pulse::Still(_), Pulse::Still(_))), "{vitals:?}");
        // A restart by hand: the same again, from when the next run is up.
        signs.look(&unit(ActiveState::Activating, 2));
        read(&mut signs, 300);
        signs.look(&unit(ActiveState::Active, 2));
        assert_eq!(read(&mut signs, 310).beat, Pulse::Moving);
        // A reload is no start, nor is what is seen of a unit while PID 1 reloads.
        signs.look(&unit(ActiveState::Reloading, 2));
        signs.look(&unit(ActiveState::Activating, 2));
        signs.look(&unit(ActiveState::Active, 2));
        for secs in (320..=370).step_by(10) {
            read(&mut signs, secs);
        }
        assert!(matches!(signs.vitals().beat, Pulse::Still(_)));
    }

    #[test]
    fn what_an_earlier_run_has_left_is_no_sign_of_this_one() {
        let stuck = Stuck { heartbeat: Heartbeat::Journal, older_than: LIMIT, nudge: None };
        let mut signs = Signs::default();
        signs.look(&unit(ActiveState::Active, 1));
        let shows = |signs: &mut Signs, reading: Reading, secs: u64| {
            signs.take(Sign::Beat, reading, Some(&stuck), None, at(secs));
            Proof::of(&Health::Healthy, signs, Some(&stuck), None).shows(FailureClass::Stuck)
        };
        assert!(!shows(&mut signs, Reading::Mark(1), 0), "a file that was there before");
        assert!(!shows(&mut signs, Reading::Mark(1), 10));
        assert!(shows(&mut signs, Reading::Mark(2), 20));
        signs.look(&unit(ActiveState::Active, 2));
        assert!(!shows(&mut signs, Reading::Silent("x".to_owned()), 30));
        assert!(shows(&mut signs, Reading::Moving, 40));
        assert!(
            Proof::of(&Health::Healthy, &Signs::default(), None, None).shows(FailureClass::Stuck),
            "nobody looks"
        );
    }
}
