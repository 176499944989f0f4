//! Workers that run and are of no use, crowds, and what hangs.

use super::*;
use crate::judge::decide::decision::{CROWD_SPREAD, LOOK_AROUND};
use crate::judge::transit::{Hang, Step, hung};
use crate::vocabulary::FailureClass;

fn stuck() -> Health {
    Health::Stuck("no beat".to_owned())
}

#[test]
fn a_stuck_worker_is_nudged_first_and_relaunched_when_that_does_not_help() {
    let mut story = Story::new();
    assert_eq!(story.seen(stuck(), 1), [], "a look at the others first");
    story.pass(LOOK_AROUND);
    let nudge = Action::Act(Remedy::Nudge);
    assert_eq!(story.seen(stuck(), 1), [Action::Say(Say::Ailing(Remedy::Nudge)), nudge]);
    story.event(Event::Done(Ending::Sent));
    assert_eq!(story.seen(stuck(), 1), [], "it gets time to show progress");
    story.pass(secs(10));
    assert!(matches!(story.seen(stuck(), 1)[..], [Action::Say(Say::NoHelp(Remedy::Nudge, _))]));
    story.pass(secs(1));
    assert_eq!(relaunches(&story.seen(stuck(), 1)), 1);
    // It has to stay up and to beat again.
    story.proof.within = secs(15);
    story.done(2);
    story.pass(secs(1));
    assert_eq!(story.seen(Health::Blind("not read yet".to_owned()), 2), []);
    story.pass(secs(1));
    assert_eq!(story.seen(Health::Healthy, 2), [Action::Say(Say::SignBack(FailureClass::Stuck))]);
}

#[test]
fn a_nudge_that_helps_is_enough() {
    let mut story = Story::new();
    story.seen(stuck(), 1);
    story.pass(LOOK_AROUND);
    story.seen(stuck(), 1);
    story.event(Event::Done(Ending::Sent));
    assert_eq!(story.seen(Health::Healthy, 1), [Action::Say(Say::Resumed(Remedy::Nudge))]);
    assert_eq!(story.state.phase, Phase::Watching);
    assert_eq!(story.state.relaunches, []);
}

#[test]
fn a_nudge_that_is_needed_again_and_again_gives_way_to_the_relaunch() {
    let mut story = Story::new();
    for _ in 0..3 {
        story.seen(stuck(), 1);
        story.pass(LOOK_AROUND);
        assert!(story.seen(stuck(), 1).contains(&Action::Act(Remedy::Nudge)));
        story.event(Event::Done(Ending::Sent));
        story.seen(Health::Healthy, 1);
    }
    story.seen(stuck(), 1);
    story.pass(LOOK_AROUND);
    assert_eq!(relaunches(&story.seen(stuck(), 1)), 1);
}

#[test]
fn what_dies_while_it_is_nudged_is_relaunched_and_not_nudged_again() {
    let mut story = Story::new();
    let gap = || Health::DeliveryGap("not draining".to_owned());
    story.seen(gap(), 1);
    story.pass(LOOK_AROUND);
    assert!(story.seen(gap(), 1).contains(&Action::Act(Remedy::Repipe)));
    story.event(Event::Done(Ending::Sent));
    assert_eq!(relaunches(&story.seen(CRASHED, 1)), 1);
}

#[test]
fn the_brake_stops_remedies_and_says_so_once() {
    let mut story = Story::new();
    story.crowd.brake = true;
    story.seen(stuck(), 1);
    story.pass(LOOK_AROUND);
    assert_eq!(story.seen(stuck(), 1), [Action::Say(Say::Braked)]);
    for _ in 0..100 {
        story.pass(secs(10));
        assert_eq!(story.seen(stuck(), 1), []);
    }
    story.crowd.brake = false;
    story.pass(secs(10));
    assert!(story.seen(stuck(), 1).contains(&Action::Act(Remedy::Nudge)), "the brake is no end");
}

#[test]
fn many_that_fall_at_once_come_back_spread_over_time() {
    let mut story = Story::new();
    story.crowd.dead = 20;
    assert_eq!(story.seen(CRASHED, 1), []);
    let due = story.state.wake(&story.policy).unwrap();
    assert!(due.since(story.now) <= CROWD_SPREAD);
    story.pass(CROWD_SPREAD);
    assert_eq!(relaunches(&story.seen(CRASHED, 1)), 1);
}

#[test]
fn the_blast_radius_decides_urgency_only() {
    for (radius, at_once) in
        [(BlastRadius::Critical, true), (BlastRadius::Normal, true), (BlastRadius::Auxiliary, false)]
    {
        let mut story = Story::new();
        story.blast_radius = radius;
        story.policy.repair_window = secs(60);
        assert_eq!(relaunches(&story.seen(CRASHED, 1)), usize::from(at_once), "{radius:?}");
        assert_ne!(story.state.phase, Phase::Watching, "it is seen all the same");
        story.pass(secs(60));
        assert_eq!(relaunches(&story.seen(CRASHED, 1)), usize::from(!at_once), "{radius:?}");
    }
}

/// A stuck worker is relaunched, and nothing of the new run has been seen to move yet.
fn relaunched_for_no_beat() -> Story {
    let mut story = Story::new();
    story.seen(stuck(), 1);
    story.pass(LOOK_AROUND);
    story.seen(stuck(), 1);
    story.event(Event::Done(Ending::Failed));
    story.pass(secs(1));
    assert_eq!(relaunches(&story.seen(stuck(), 1)), 1);
    story.proof = Proof { beat: false, within: secs(15), ..story.proof };
    story.done(2);
    story
}

#[test]
fn a_relaunch_for_a_missing_sign_has_helped_when_the_sign_is_there() {
    let mut story = relaunched_for_no_beat();
    for _ in 0..10 {
        story.pass(secs(1));
        assert_eq!(story.seen(Health::Healthy, 2), [], "it stays up, and nothing more is known");
        assert!(matches!(story.state.phase, Phase::Settling { .. }));
    }
    story.proof.beat = true;
    story.pass(secs(1));
    assert_eq!(story.seen(Health::Healthy, 2), [Action::Say(Say::SignBack(FailureClass::Stuck))]);
    assert_eq!(story.state.phase, Phase::Watching);
}

#[test]
fn a_worker_whose_own_detector_says_that_it_is_stuck_has_not_recovered_and_ends_in_quarantine() {
    let mut story = relaunched_for_no_beat();
    let (mut tries, mut quarantined) = (1, false);
    for _ in 0..60 {
        story.pass(secs(1));
        let actions = story.seen(stuck(), 2);
        assert!(
            !actions.iter().any(|act| matches!(act, Action::Say(Say::Recovered | Say::SignBack(_)))),
            "{actions:?}"
        );
        quarantined |= actions.iter().any(|act| matches!(act, Action::Say(Say::Quarantined(_))));
        if relaunches(&actions) > 0 {
            tries += 1;
            story.done(2);
        }
    }
    assert_eq!((tries, quarantined), (3, true));
}

#[test]
fn whether_a_relaunch_helped_that_nobody_can_see_is_said_at_the_deadline() {
    let mut story = relaunched_for_no_beat();
    let mut said = Vec::new();
    for _ in 0..30 {
        story.pass(secs(1));
        said.extend(story.seen(Health::Blind("redis is away".to_owned()), 2));
    }
    assert_eq!(said, [Action::Say(Say::Unverified(Remedy::Relaunch))]);
    assert_eq!(story.state.phase, Phase::Watching);
}

#[test]
fn a_nudge_that_ends_the_run_has_not_helped_before_the_next_one_beats() {
    let mut story = Story::new();
    story.seen(stuck(), 1);
    story.pass(LOOK_AROUND);
    story.seen(stuck(), 1);
    story.event(Event::Done(Ending::Sent));
    story.proof.beat = false;
    assert_eq!(story.seen(Health::Healthy, 2), []);
    story.pass(secs(10));
    assert_eq!(story.seen(Health::Healthy, 2), [Action::Say(Say::Unverified(Remedy::Nudge))]);
}

fn starting(run: u8) -> Observation {
    use crate::judge::observation::{ActiveState, UnitSnapshot};
    Observation::Unit(UnitSnapshot {
        invocation: Some(InvocationId::from_bytes([run; 16])),
        job: true,
        ..UnitSnapshot::plain(ActiveState::Activating, "start")
    })
}

#[test]
fn a_start_that_hangs_is_said_once_and_ends_in_quarantine_however_long_its_attempts_take() {
    let mut story = Story::new();
    let look = |story: &mut Story, run| {
        story.unit = starting(run);
        let health = Health::InTransition("starting");
        let health = hung(health, story.state.transit, &story.unit, &story.policy, story.now);
        story.seen(health, run)
    };
    assert_eq!(look(&mut story, 1), [], "it is being started");
    let (mut said, mut tries) = (Vec::new(), 0);
    for minute in 0..120 {
        story.pass(secs(60));
        let actions = look(&mut story, 1 + tries);
        said.extend(
            actions
                .iter()
                .filter(|action| matches!(action, Action::Say(Say::Hangs(_) | Say::Quarantined(_))))
                .copied(),
        );
        if relaunches(&actions) > 0 {
            tries += 1;
            // Longer than the flap guard looks back.
            story.pass(story.policy.per);
            story.event(Event::Done(Ending::Failed));
        }
        if story.state.quarantined() {
            assert_eq!((tries, minute < 119), (3, true));
            break;
        }
    }
    let quarantined = Action::Say(Say::Quarantined(story.policy.quarantine_retry));
    assert_eq!(said, [Action::Say(Say::Hangs(Hang::In(Step::Starting))), quarantined]);
}

#[test]
fn a_condition_that_was_not_met_is_remembered_when_systemd_forgets_it() {
    use crate::judge::idle::{Idle, remembered};
    let mut story = Story::new();
    let skipped = Health::Idle(Idle::Skipped("ConditionPathExists=/x".to_owned()));
    assert_eq!(story.seen(skipped.clone(), 1), []);
    let forgotten = Health::Dead(Death::NeverStarted);
    let health = remembered(forgotten.clone(), story.state.skipped.as_deref());
    assert_eq!(health, skipped);
    assert_eq!(story.seen(health, 1), []);
    // Once it has run, that it is down again is another story.
    story.seen(Health::Healthy, 2);
    assert_eq!(remembered(forgotten.clone(), story.state.skipped.as_deref()), forgotten);
}
