//! What a tape has taken down is what a replay decides.

use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use super::*;
use crate::judge::log::{Absence, MAX_LINE, read};
use crate::judge::observation::{ActiveState, StopCause, UnitSnapshot};
use crate::judge::state::{Ending, Hold};
use crate::judge::tape::{Baseline, Tape};
use crate::judge::vitals::Reading;

const START: Moment = Moment::from_millis(1_000_000);

fn unit(active: ActiveState, run: u8, stop: StopCause) -> Observation {
    Observation::Unit(UnitSnapshot {
        invocation: Some(InvocationId::from_bytes([run; 16])),
        restarts_itself: run.is_multiple_of(2),
        stop,
        ..UnitSnapshot::plain(active, "x")
    })
}

fn reading() -> impl Strategy<Value = Reading> {
    prop_oneof![
        4 => (0u64..3).prop_map(Reading::Mark),
        2 => Just(Reading::Moving),
        1 => Just(Reading::Silent("no key".to_owned())),
        2 => Just(Reading::Failed("away".to_owned())),
    ]
}

fn happened() -> impl Strategy<Value = Happened> {
    let seen = (0usize..6, 0u8..4).prop_map(|(which, run)| {
        Happened::Seen(Box::new(match which {
            0 | 1 => unit(ActiveState::Active, run, StopCause::Never),
            2 => unit(ActiveState::Failed, run, StopCause::ByItself),
            3 => unit(ActiveState::Inactive, run, StopCause::Ordered),
            4 => unit(ActiveState::Activating, run, StopCause::Never),
            _ => Observation::Failed("the bus is away".to_owned()),
        }))
    });
    let ending = prop_oneof![
        2 => (0u8..4).prop_map(|run| Ending::Started(InvocationId::from_bytes([run; 16]))),
        1 => Just(Ending::Failed),
        2 => Just(Ending::Sent),
    ];
    prop_oneof![
        4 => seen,
        12 => reading().prop_map(Happened::Beat),
        6 => reading().prop_map(Happened::Flow),
        3 => reading().prop_map(Happened::Canary),
        4 => ending.prop_map(Happened::Done),
        1 => Just(Happened::Ordered(Remedy::Relaunch)),
        1 => Just(Happened::Host(Host::Starting)),
        2 => Just(Happened::Host(Host::Running)),
        1 => Just(Happened::Release),
    ]
}

/// A supervisor as far as its tape is concerned.
struct Recorder {
    case: Case,
    tape: Tape,
    crowd: Crowd,
    now: Moment,
    /// Until when it looks at everything again after an absence.
    catching_up: Option<Moment>,
}

impl Recorder {
    fn note(&mut self, what: Happened) {
        let Case { host, seen, signs, state, .. } = self.case.clone();
        self.tape.note(what, self.now, || Baseline { host, seen, signs, state });
    }

    fn stall(&mut self, ms: u64) {
        // It went to sleep with nothing left to do.
        if self.catching_up.is_none() && self.case.is_due(self.now) {
            self.look();
        }
        // It had slept for a moment at least before it should have come back.
        let since_ms = self.now + Duration::from_millis(1);
        self.now = since_ms + Duration::from_millis(ms);
        let until_ms = self.now + Duration::from_secs(2);
        self.catching_up = Some(until_ms);
        self.note(Happened::Away(Absence { since_ms, until_ms }));
        self.case.state.count_again(until_ms);
    }

    fn decide(&mut self, event: &Event) {
        if let (Some(_), Event::Seen { .. }) = (self.catching_up, event) {
            return;
        }
        let Case { host, seen, signs, state, .. } = self.case.clone();
        self.tape.crowd(self.crowd, self.now, || Baseline { host, seen, signs, state });
        let before = self.case.clone();
        let actions = self.case.decide(event, self.crowd, self.now);
        if self.case.state != before.state {
            let Case { host, seen, signs, state, .. } = before;
            self.tape.time(self.now, || Baseline { host, seen, signs, state });
        }
        for action in actions {
            if let Action::Act(remedy) = action {
                self.note(Happened::Acted(remedy));
            }
        }
    }

    fn look(&mut self) {
        let event = self.case.look(self.now);
        self.decide(&event);
        if self.case.is_due(self.now) {
            let event = self.case.look(self.now);
            self.decide(&event);
        }
    }

    fn pass(&mut self, ms: u64) {
        let until = self.now + Duration::from_millis(ms);
        loop {
            let at = match self.catching_up {
                Some(at) if at <= until => {
                    self.catching_up = None;
                    at
                }
                Some(_) => break,
                None => match self.case.wake(self.now).filter(|at| *at < until) {
                    Some(at) => at,
                    None => break,
                },
            };
            self.now = at;
            self.look();
        }
        self.now = until;
    }

    fn happen(&mut self, what: Happened) {
        self.note(what.clone());
        if let Some(event) = self.case.take(&what, self.now) {
            self.decide(&event);
        }
        self.look();
    }
}

fn care() -> Care {
    Care {
        older_than_ms: Some(20_000),
        not_draining_for_ms: Some(30_000),
        canary_within_ms: Some(25_000),
        nudge_ms: Some(10_000),
        repipe_ms: Some(12_000),
        ..Care::default()
    }
}

proptest! {
    // The same stories each time: one in some hundred thousand, with an absence in it, still ends otherwise.
    #![proptest_config(ProptestConfig {
        cases: 3_000,
        rng_seed: RngSeed::Fixed(20_261_201),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn a_replay_ends_where_the_supervisor_ended(
        steps in prop::collection::vec((0u64..12_000, happened(), 0usize..7, 0u64..40_000), 1..160),
    ) {
        let opening = Opening { care: care(), ..Opening::default() };
        let case = Case::new(opening);
        let (tape, crowd) = (Tape::default(), Crowd::default());
        let mut recorder = Recorder { case, tape, crowd, now: START, catching_up: None };
        for (pass, what, dead, stall) in steps {
            recorder.pass(pass);
            // One time in eight.
            if let Some(ms) = stall.checked_sub(35_000) {
                recorder.stall(ms);
            }
            recorder.crowd = Crowd { dead, brake: dead == 6 };
            recorder.happen(what);
        }
        recorder.note(Happened::Time);
        recorder.look();
        let target: Target = "mars/agent".parse().unwrap();
        let lines = recorder.tape.log(&target, &care());
        prop_assert!(lines.len() <= 65, "{}", lines.len());
        // Through the text and back, as a file would.
        let mut text = serde_json::to_string(&crate::judge::log::Head::default()).unwrap();
        for line in &lines {
            let line = serde_json::to_string(line).unwrap();
            prop_assert!(line.len() <= MAX_LINE);
            text.push('\n');
            text.push_str(&line);
        }
        let again = read(&text).unwrap();
        prop_assert_eq!(&again, &lines);
        let mut play = play(&again).unwrap();
        let case = &play.cases[&target].case;
        prop_assert_eq!(&case.state, &recorder.case.state);
        prop_assert_eq!(&case.health, &recorder.case.health);
        play.close();
        let differs: Vec<_> = play.entries.iter().filter(|entry| entry.kind == Kind::Differs).collect();
        prop_assert!(differs.is_empty(), "{differs:?}");
    }

    #[test]
    fn no_log_makes_it_panic(care in (any::<u64>(), any::<u64>(), any::<u32>(), any::<u64>(), any::<u64>()), steps in prop::collection::vec((any::<u32>(), happened()), 0..30)) {
        let (a, b, c, d, e) = care;
        let care = Care {
            salt: a,
            undeclared_stop_ms: b,
            grace_ms: a,
            settle_ms: d,
            start_timeout_ms: Some(e),
            endless_ms: d,
            relaunches: c,
            per_ms: b,
            quarantine_retry_ms: d,
            repair_window_ms: e,
            older_than_ms: Some(a),
            not_draining_for_ms: Some(b),
            canary_within_ms: Some(d),
            nudge_ms: Some(e),
            repipe_ms: Some(a),
            ..Care::default()
        };
        let worker: Target = "mars/agent".parse().unwrap();
        let opening = Opening { care, ..Opening::default() };
        let line = |at_ms, what| Line { at_ms, worker: worker.clone(), crowd: None, what };
        let mut now = Moment::from_millis(d);
        let mut lines = vec![line(now, Happened::Opens(Box::new(opening)))];
        for (pass, what) in steps {
            now = now + Duration::from_millis(u64::from(pass));
            lines.push(line(now, what));
        }
        // Too many turns is an answer, too.
        let _ = replay(&lines);
    }
}

#[test]
fn a_log_that_keeps_the_judge_busy_is_given_up() {
    let worker: Target = "mars/agent".parse().unwrap();
    let care = Care { quarantine_retry_ms: 1, relaunches: 0, ..Care::default() };
    let hold = Hold { until: START, why: "x".to_owned(), by: "x".to_owned(), by_peer: false };
    let state = WorkerState { hold: Some(hold), ..WorkerState::default() };
    let seen = Some(unit(ActiveState::Failed, 1, StopCause::ByItself));
    let opening = Opening { care, seen, state, ..Opening::default() };
    let line = |at_ms, what| Line { at_ms, worker: worker.clone(), crowd: None, what };
    let far = START + Duration::from_secs(86_400 * 365);
    let lines = [line(START, Happened::Opens(Box::new(opening))), line(far, Happened::Time)];
    // Whatever it decides each millisecond, it ends.
    let _ = replay(&lines);
}
