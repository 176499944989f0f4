//! What the tapes of a node's workers weigh: when every worker has only been seen to run, and when all tapes are full because
//! every worker fell and was repaired again and again.

use keyholder::judge::log::Happened;
use keyholder::judge::tape::{Baseline, Tape};
use keyholder::judge::{
    ActiveState, Ending, Host, LoadState, Observation, Reading, Sign, Signs, StopCause, Timeouts,
    UnitSnapshot, WorkerState,
};
use keyholder::vocabulary::{Moment, Remedy};

use super::cost::Sample;

/// More than a tape keeps.
const FALLS: u64 = 12;

/// Prints by how many kB of anonymous memory this process grew for the short ones, and then for the full ones.
pub(super) fn weigh(workers: u32) {
    let weight = |falls: u64| {
        let before = Sample::of(std::process::id()).anon;
        let tapes: Vec<Tape> = (0..workers).map(|_| tape(falls)).collect();
        let after = Sample::of(std::process::id()).anon;
        // Kept, so that the next ones do not move into their place.
        std::mem::forget(tapes);
        after - before
    };
    println!("{} {}", weight(0), weight(FALLS));
}

fn unit(active: ActiveState, sub: &str) -> Observation {
    Observation::Unit(UnitSnapshot {
        load: LoadState::Loaded,
        active,
        sub: sub.to_owned(),
        result: "start-limit-hit".to_owned(),
        invocation: Some("0123456789abcdef0123456789abcdef".parse().unwrap()),
        job: false,
        refuse_manual_start: false,
        restarts_itself: false,
        restarts: 0,
        stop: StopCause::ByItself,
        exit: Some("exit code 1, after it had run for a while".to_owned()),
        context: Box::default(),
        timeouts: Timeouts::default(),
        control: 0,
        status: None,
    })
}

fn tape(falls: u64) -> Tape {
    let mut tape = Tape::default();
    let run = || "0123456789abcdef0123456789abcdef".parse().unwrap();
    let known = |now| Baseline {
        host: Host::Running,
        seen: unit(ActiveState::Active, "running"),
        signs: Signs::default(),
        state: WorkerState { relaunches: vec![now; 3], ..WorkerState::default() },
    };
    let up = Happened::Seen(Box::new(unit(ActiveState::Active, "running")));
    tape.note(up, Moment::from_millis(0), || known(Moment::from_millis(0)));
    for fall in 0..falls {
        let story = [
            Happened::Seen(Box::new(unit(ActiveState::Failed, "failed"))),
            Happened::Acted(Remedy::Relaunch),
            Happened::Seen(Box::new(unit(ActiveState::Activating, "start"))),
            Happened::Seen(Box::new(unit(ActiveState::Active, "running"))),
            Happened::Done(Ending::Started(run())),
            Happened::read(Sign::Beat, Reading::Mark(fall)),
            Happened::Time,
        ];
        for (step, what) in (0..).zip(story) {
            let now = Moment::from_millis(fall * 10_000 + step);
            tape.note(what, now, || known(now));
        }
    }
    tape
}
