//! An hour of trouble in which nothing is wrong, played second by second in no time: the judge must do nothing and say
//! nothing. And the counter-test: in the same hour a worker that is really stuck, deaf or dead is found in time.
//!
//! The world here is a host under load (beats, readings and the supervisor itself come late or not at all), with
//! `daemon-reload` each second, the journal rotated, the wall clock stepped by a day in both directions, Redis away and back,
//! and the supervisor stopped for 5 to 120 s. What it knows when it runs again is old, and it decides by it before it hears
//! the news, as the real loop may.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::log::{Care, Happened, Opening};
use super::observation::{ActiveState, LoadState, Observation, StopCause, UnitSnapshot};
use super::replay::Case;
use super::state::Action;
use super::transit::Timeouts;
use super::vitals::{Reading, Sign};
use super::{Crowd, Health};
use crate::vocabulary::{InvocationId, Moment, Remedy};

const START: u64 = 100_000_000;
const HOUR: u64 = 3_600_000;
const DAY: u64 = 86_400_000;
/// How many hours are played; `--ignored` plays ten times as many.
const SEEDS: u64 = 300;
/// No reading takes longer; a detector gives up then.
const DEADLINE: u64 = 3_000;

/// SplitMix64: the same seed is the same hour.
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        x ^ (x >> 31)
    }

    fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.roll() % (high - low + 1)
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.roll().is_multiple_of(n)
    }
}

/// What is really wrong with the worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Truth {
    Well,
    Stuck,
    Deaf,
    Dead,
}

/// Where the worker leaves its heartbeat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    File,
    Redis,
    Journal,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Occurrence {
    /// In the world, whether or not the supervisor runs.
    Beats,
    TakesTask,
    ClockSteps,
    RedisGoes,
    RedisReturns,
    Rotates,
    FallsIll,
    SupervisorStops,
    Reloads,
    /// In the supervisor.
    Polls(usize),
    Reads(usize, Option<u64>, bool),
    Sees(usize),
}

struct Hour {
    dice: Dice,
    case: Case,
    queue: BinaryHeap<Reverse<(u64, u64, Occurrence)>>,
    order: u64,
    now: u64,
    truth: Truth,
    ill: bool,
    place: Place,
    /// How long each sign may stand still, and how often it is read.
    limits: [u64; 2],
    wall: i64,
    beat: u64,
    head: u64,
    redis: bool,
    rotated: bool,
    restarts_itself: bool,
    stopped_until: u64,
    /// When what was seen of each sign last began to count again, because nobody could see it.
    blind: [u64; 2],
    read: [u64; 2],
    fell: u64,
    acts: Vec<(u64, Remedy)>,
}

impl Hour {
    fn new(seed: u64, truth: Truth) -> Self {
        let mut dice = Dice(seed);
        let limits = [dice.between(10_000, 120_000), dice.between(10_000, 120_000)];
        let care = Care {
            salt: seed,
            older_than_ms: Some(limits[0]),
            not_draining_for_ms: Some(limits[1]),
            nudge_ms: Some(limits[0] / 2),
            repipe_ms: Some(limits[1] / 2),
            ..Care::default()
        };
        let place = [Place::File, Place::Redis, Place::Journal][dice.between(0, 2) as usize];
        let restarts_itself = dice.one_in(2);
        let mut hour = Self {
            dice,
            case: Case::new(Opening { care, ..Opening::default() }),
            queue: BinaryHeap::new(),
            order: 0,
            now: START,
            truth,
            ill: false,
            place,
            limits,
            wall: 1_700_000_000_000,
            beat: 0,
            head: 0,
            redis: true,
            rotated: false,
            restarts_itself,
            stopped_until: 0,
            blind: [START; 2],
            read: [START; 2],
            fell: 0,
            acts: Vec::new(),
        };
        for event in [
            Occurrence::Beats,
            Occurrence::TakesTask,
            Occurrence::Polls(0),
            Occurrence::Polls(1),
            Occurrence::Sees(0),
        ] {
            hour.after(0, event);
        }
        for (event, most) in [
            (Occurrence::ClockSteps, HOUR / 4),
            (Occurrence::RedisGoes, HOUR / 3),
            (Occurrence::Rotates, HOUR / 3),
            (Occurrence::SupervisorStops, HOUR / 6),
            (Occurrence::Reloads, 1_000),
        ] {
            let first = hour.dice.between(1, most);
            hour.after(first, event);
        }
        let ill = hour.dice.between(HOUR / 6, HOUR / 2);
        hour.after(ill, Occurrence::FallsIll);
        hour
    }

    fn after(&mut self, ms: u64, event: Occurrence) {
        self.order += 1;
        self.queue.push(Reverse((self.now + ms, self.order, event)));
    }

    fn every(&self, sign: usize) -> u64 {
        (self.limits[sign] / 4).clamp(250, 10_000)
    }

    /// Plays until the hour is over, or until something is done.
    fn play(&mut self) {
        while let Some(Reverse((at, order, event))) = self.queue.pop() {
            if at > START + HOUR || !self.acts.is_empty() {
                return;
            }
            let world = !matches!(event, Occurrence::Polls(_) | Occurrence::Reads(..) | Occurrence::Sees(_));
            if !world && at < self.stopped_until {
                // It waits, in its order, until the supervisor runs again.
                self.queue.push(Reverse((self.stopped_until, order, event)));
                continue;
            }
            self.wakes(at);
            self.now = self.now.max(at);
            self.happen(event);
        }
    }

    /// What the supervisor comes to by itself before `at`.
    fn wakes(&mut self, at: u64) {
        while let Some(wake) = self.case.wake(Moment::from_millis(self.now)) {
            let wake = wake.as_millis().max(self.stopped_until);
            if wake > at || !self.acts.is_empty() {
                return;
            }
            self.now = self.now.max(wake);
            self.look();
            if wake == at {
                return;
            }
        }
    }

    fn tell(&mut self, what: &Happened) {
        let event = self.case.take(what, Moment::from_millis(self.now));
        assert!(event.is_none(), "nobody orders anything here");
        self.look();
    }

    fn look(&mut self) {
        let now = Moment::from_millis(self.now);
        let event = self.case.look(Moment::from_millis(self.now));
        if !self.ill {
            let fell = match &self.case.health {
                Health::Stuck(_) | Health::DeliveryGap(_) | Health::Dead(_) => true,
                Health::Healthy
                | Health::Blind(_)
                | Health::InTransition(_)
                | Health::Idle(_)
                | Health::Unknown(_) => false,
            };
            assert!(!fell, "at {} ms: {:?}", self.now - START, self.case.health);
        }
        for action in self.case.decide(&event, Crowd::default(), now) {
            match action {
                Action::Act(remedy) => self.acts.push((self.now, remedy)),
                Action::Say(say) => assert!(self.ill, "at {} ms it says {say:?}", self.now - START),
            }
        }
    }

    fn happen(&mut self, event: Occurrence) {
        match event {
            Occurrence::Beats => {
                // A loop that is to beat three times within the limit, and is late under load.
                if !self.ill || self.truth == Truth::Deaf {
                    self.beat = (self.wall + self.now as i64) as u64 * 1_000 + self.order % 1_000;
                }
                let next = self.dice.between(self.limits[0] / 6, self.limits[0] * 2 / 5);
                self.after(next, Occurrence::Beats);
            }
            Occurrence::TakesTask => {
                if self.redis && !self.ill {
                    self.head += 1;
                }
                let next = self.dice.between(self.limits[1] / 8, self.limits[1] * 2 / 5);
                self.after(next, Occurrence::TakesTask);
            }
            Occurrence::ClockSteps => {
                self.wall += [DAY as i64, -(DAY as i64)][self.dice.between(0, 1) as usize];
                let next = self.dice.between(1_000, HOUR / 4);
                self.after(next, Occurrence::ClockSteps);
            }
            Occurrence::RedisGoes => {
                self.redis = false;
                let away = self.dice.between(500, HOUR / 10);
                self.after(away, Occurrence::RedisReturns);
            }
            Occurrence::RedisReturns => {
                self.redis = true;
                let next = self.dice.between(60_000, HOUR / 3);
                self.after(next, Occurrence::RedisGoes);
            }
            Occurrence::Rotates => {
                self.rotated = true;
                let next = self.dice.between(60_000, HOUR / 3);
                self.after(next, Occurrence::Rotates);
            }
            Occurrence::SupervisorStops => {
                let stop = self.dice.between(5_000, 120_000);
                self.stopped_until = self.now + stop;
                let next = stop + self.dice.between(20_000, HOUR / 6);
                self.after(next, Occurrence::SupervisorStops);
            }
            Occurrence::FallsIll => {
                if self.truth != Truth::Well {
                    (self.ill, self.fell) = (true, self.now);
                    self.after(1, Occurrence::Sees(0));
                }
            }
            Occurrence::Reloads => {
                // What is seen of a unit around a daemon-reload, and then the truth again.
                let (odd, back) = (self.dice.between(1, 5) as usize, self.dice.between(5, 400));
                self.after(0, Occurrence::Sees(odd));
                self.after(back, Occurrence::Sees(0));
                self.after(1_000, Occurrence::Reloads);
            }
            Occurrence::Sees(what) => {
                let seen = self.seen(what);
                self.tell(&Happened::Seen(Box::new(seen)));
            }
            Occurrence::Polls(sign) => self.polls(sign),
            Occurrence::Reads(sign, mark, failed) => {
                if self.now - self.read[sign] > self.limits[sign] / 2 || failed {
                    self.blind[sign] = self.now;
                }
                self.read[sign] = self.now;
                let reading = match mark {
                    _ if failed => Reading::Failed("no answer in time".to_owned()),
                    Some(mark) => Reading::Mark(mark),
                    None if sign == 1 => Reading::Moving,
                    None => Reading::Silent("no line".to_owned()),
                };
                let sign = if sign == 0 { Sign::Beat } else { Sign::Flow };
                self.tell(&Happened::read(sign, reading));
            }
        }
    }

    /// A detector looks: what it reads comes a little later, much later, too late, or not at all.
    fn polls(&mut self, sign: usize) {
        let mut took = self.dice.between(1, 50);
        if self.dice.one_in(8) {
            took = self.dice.between(50, DEADLINE.min(self.limits[sign] / 5));
        }
        let away = !self.redis && (sign == 1 || self.place == Place::Redis);
        let failed = away || self.dice.one_in(60);
        let rotated = sign == 0 && self.place == Place::Journal && std::mem::take(&mut self.rotated);
        let mark = match sign {
            0 if rotated => None,
            0 => Some(self.beat),
            // The queue is empty at times; never, once nothing reaches the worker any more. Work that waited behind a stuck
            // loop would look like a gap where its limit is the shorter one.
            _ if self.truth == Truth::Stuck && self.ill => None,
            _ if !self.ill && self.dice.one_in(3) => None,
            _ => Some(self.head),
        };
        if !self.dice.one_in(40) {
            self.after(took, Occurrence::Reads(sign, mark, failed));
        }
        let every = self.every(sign);
        let late = if self.dice.one_in(10) { self.dice.between(0, every) } else { 0 };
        self.after(took.max(every + late), Occurrence::Polls(sign));
    }

    fn seen(&self, what: usize) -> Observation {
        let dead = self.ill && self.truth == Truth::Dead;
        let unit = UnitSnapshot {
            load: LoadState::Loaded,
            active: if dead { ActiveState::Failed } else { ActiveState::Active },
            sub: if dead { "failed" } else { "running" }.to_owned(),
            result: "success".to_owned(),
            invocation: Some(InvocationId::from_bytes([1; 16])),
            job: false,
            refuse_manual_start: false,
            restarts_itself: self.restarts_itself,
            restarts: 0,
            stop: if dead { StopCause::ByItself } else { StopCause::Never },
            exit: None,
            context: Box::default(),
            timeouts: Timeouts::default(),
            control: 0,
            status: None,
        };
        Observation::Unit(match what {
            1 => return Observation::Failed("the bus does not answer".to_owned()),
            2 if !dead => UnitSnapshot { active: ActiveState::Reloading, sub: "reload".to_owned(), ..unit },
            3 if !dead => UnitSnapshot { active: ActiveState::Activating, sub: "start".to_owned(), ..unit },
            4 => UnitSnapshot { job: true, ..unit },
            5 => UnitSnapshot { load: LoadState::Stub, ..unit },
            _ => unit,
        })
    }
}

/// Plays many hours on all cores.
fn hours(seeds: std::ops::Range<u64>, check: impl Fn(u64) + Sync) {
    let cores = std::thread::available_parallelism().map_or(1, usize::from) as u64;
    std::thread::scope(|scope| {
        for core in 0..cores {
            let (seeds, check) = (seeds.clone(), &check);
            scope.spawn(move || seeds.filter(|seed| seed % cores == core).for_each(check));
        }
    });
}

fn well(seed: u64) {
    let mut hour = Hour::new(seed, Truth::Well);
    hour.play();
    assert!(hour.acts.is_empty(), "seed {seed}: {:?}", hour.acts);
    assert!(hour.now >= START + HOUR - 1_000, "seed {seed}: the hour ended early");
}

/// Found within the time that the fleet file names, two looks, and whatever nobody could see.
fn found(seed: u64, truth: Truth) {
    let mut hour = Hour::new(seed, truth);
    hour.play();
    let (sign, remedy) = match truth {
        Truth::Well => return,
        Truth::Stuck => (0, Remedy::Nudge),
        Truth::Deaf => (1, Remedy::Repipe),
        Truth::Dead => (0, Remedy::Relaunch),
    };
    let Some((at, did)) = hour.acts.first().copied() else { panic!("seed {seed}: {truth:?} was not found") };
    assert_eq!(did, remedy, "seed {seed}");
    let since = hour.fell.max(hour.stopped_until.min(at));
    let bound = if truth == Truth::Dead {
        // The reload of each second may hide it, and systemd may be about to restart it.
        since + 2_000
    } else {
        // Two looks, each of which may come late by as much again, and one that may be missing.
        let looks = 5 * hour.every(sign) + 2 * DEADLINE;
        let (look_around, reload) = (1_000, 500);
        since.max(hour.blind[sign]) + hour.limits[sign] + looks + look_around + reload
    };
    assert!(at >= hour.fell, "seed {seed}: {truth:?} was found before it was");
    assert!(at <= bound, "seed {seed}: {truth:?} took {} ms, {} allowed", at - hour.fell, bound - hour.fell);
}

#[test]
fn in_an_hour_of_noise_nothing_is_done_and_nothing_is_said() {
    hours(0..SEEDS, well);
}

#[test]
fn in_the_same_noise_what_is_really_wrong_is_found_in_time() {
    for truth in [Truth::Stuck, Truth::Deaf, Truth::Dead] {
        hours(0..SEEDS, |seed| found(seed, truth));
    }
}

#[test]
#[ignore = "minutes: 5,000 hours of noise and as many of each ill"]
fn thousands_of_hours_of_noise() {
    hours(0..5_000, well);
    for truth in [Truth::Stuck, Truth::Deaf, Truth::Dead] {
        hours(0..5_000, |seed| found(seed, truth));
    }
}
