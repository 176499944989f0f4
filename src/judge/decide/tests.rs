mod ailing;

use std::time::Duration;

use super::decision::{BACKOFF_FIRST, BACKOFF_MOST, CROWD};
use super::*;
use crate::judge::alerts::ALERT_SETTLE;
use crate::judge::classify::{Cause, Death, Health, StartBlocker};
use crate::judge::crowd::Crowd;
use crate::judge::observation::Observation;
use crate::judge::state::{Ending, Episode, Hold, LOST_AFTER, Phase, Say, Wait};
use crate::judge::transit::Timeouts;
use crate::judge::vitals::Proof;
use crate::vocabulary::{BlastRadius, InvocationId, Policy, Remedy, RepairBy};

const CRASHED: Health = Health::Dead(Death::Crashed { systemd_may_restart: false });
const STOPPED: Health = Health::Dead(Death::Stopped);

/// A worker, a clock and a policy to play a story with.
struct Story {
    state: WorkerState,
    policy: Policy,
    blast_radius: BlastRadius,
    crowd: Crowd,
    now: Moment,
    proof: Proof,
    unit: Observation,
}

impl Story {
    fn new() -> Self {
        Self {
            state: WorkerState::default(),
            policy: Policy::default(),
            blast_radius: BlastRadius::Normal,
            crowd: Crowd::default(),
            proof: Proof::default(),
            now: Moment::from_millis(1_000_000),
            unit: Observation::Failed("not looked at".to_owned()),
        }
    }

    fn event(&mut self, event: Event) -> Vec<Action> {
        if let Event::Seen { health, .. } = &event {
            self.proof.ails = health.ails();
        }
        let terms = Terms {
            policy: &self.policy,
            salt: 7,
            blast_radius: self.blast_radius,
            rungs: Rungs { nudge: Some(secs(10)), repipe: Some(secs(10)) },
            crowd: self.crowd,
            proof: self.proof,
            seen: &self.unit,
        };
        let (state, actions) = decide(&self.state, &event, terms, self.now);
        self.state = state;
        actions
    }

    fn seen(&mut self, health: Health, run: u8) -> Vec<Action> {
        self.event(Event::Seen { health, invocation: Some(InvocationId::from_bytes([run; 16])) })
    }

    fn done(&mut self, run: u8) -> Vec<Action> {
        self.event(Event::Done(Ending::Started(InvocationId::from_bytes([run; 16]))))
    }

    fn pass(&mut self, time: Duration) {
        self.now = self.now + time;
    }

    fn hold(&mut self, time: Duration) -> Vec<Action> {
        self.event(Event::Hold(Hold {
            until: self.now + time,
            why: "deploy".to_owned(),
            by: "root".to_owned(),
            by_peer: false,
        }))
    }
}

fn relaunches(actions: &[Action]) -> usize {
    actions.iter().filter(|action| **action == Action::Act(Remedy::Relaunch)).count()
}

const fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

#[test]
fn a_crash_is_repaired_at_once_and_verified() {
    let mut story = Story::new();
    assert_eq!(relaunches(&story.seen(CRASHED, 1)), 1);
    assert_eq!(relaunches(&story.seen(CRASHED, 1)), 0, "one act at a time");
    story.done(2);
    // A late look at the run before must not count against the new one.
    assert_eq!(story.seen(CRASHED, 1), []);
    story.pass(secs(1));
    assert_eq!(story.seen(Health::Healthy, 2), [Action::Say(Say::Recovered)]);
    assert_eq!(story.state.phase, Phase::Watching);
}

#[test]
fn a_unit_that_systemd_restarts_is_left_to_systemd_first() {
    let mut story = Story::new();
    let crashed = Health::Dead(Death::Crashed { systemd_may_restart: true });
    assert_eq!(relaunches(&story.seen(crashed.clone(), 1)), 0);
    assert_eq!(story.seen(Health::InTransition("systemd restarts it itself"), 1), []);
    story.pass(secs(60));
    assert_eq!(story.seen(Health::InTransition("systemd restarts it itself"), 1), []);
    // The start limit was hit: still down, and nobody is at it.
    assert_eq!(relaunches(&story.seen(crashed, 1)), 1);
}

#[test]
fn an_undeclared_stop_is_announced_and_repaired_when_due_not_before() {
    let mut story = Story::new();
    assert_eq!(story.seen(STOPPED, 1), [Action::Say(Say::UndeclaredStop(secs(120)))]);
    story.pass(secs(119));
    assert_eq!(story.seen(STOPPED, 1), []);
    story.pass(secs(1));
    assert_eq!(relaunches(&story.seen(STOPPED, 1)), 1);
}

/// systemd waits to restart it, or starts it, or a repair is planned: an operator's stop comes first.
#[test]
fn a_stop_is_respected_whatever_was_planned_before() {
    let plans: [fn(&mut Story); 5] = [
        // It fell, and systemd waits to restart it itself.
        |story| {
            story.seen(Health::Dead(Death::Crashed { systemd_may_restart: true }), 1);
            story.seen(Health::InTransition("systemd restarts it itself"), 1);
        },
        // A repair failed, and the next one is planned.
        |story| {
            story.seen(CRASHED, 1);
            story.event(Event::Done(Ending::Failed));
        },
        |story| {
            story.crowd.dead = CROWD;
            story.seen(CRASHED, 1);
            story.crowd.dead = 0;
        },
        |story| {
            story.policy.repair_by = RepairBy::Peer;
            story.seen(CRASHED, 1);
            story.pass(story.policy.grace);
            story.seen(CRASHED, 1);
            assert_eq!(story.state.phase, Phase::LeftToPeers);
            story.policy.repair_by = RepairBy::Node;
        },
        |story| {
            story.event(Event::Ordered(Remedy::Relaunch));
            story.seen(STOPPED, 1);
            story.event(Event::Done(Ending::Failed));
        },
    ];
    for (n, plan) in plans.into_iter().enumerate() {
        let mut story = Story::new();
        plan(&mut story);
        story.pass(secs(10));
        assert_eq!(story.seen(STOPPED, 1), [Action::Say(Say::UndeclaredStop(secs(120)))], "{n}");
        story.pass(secs(119));
        assert_eq!(story.seen(STOPPED, 1), [], "{n}");
        story.pass(secs(1));
        assert_eq!(relaunches(&story.seen(STOPPED, 1)), 1, "{n}");
    }
}

#[test]
fn a_stop_in_quarantine_puts_the_next_try_off() {
    let mut story = Story::new();
    story.state.phase = Phase::Quarantined { retry: story.now + secs(5), failures: 3 };
    assert_eq!(story.seen(STOPPED, 1), [Action::Say(Say::UndeclaredStop(secs(120)))]);
    story.pass(secs(119));
    assert_eq!(story.seen(STOPPED, 1), []);
    story.pass(secs(1));
    assert_eq!(relaunches(&story.seen(STOPPED, 1)), 1);
    assert!(story.state.quarantined());
}

/// A stop while it was starting is seen in the signals of its jobs; a new supervisor reads the unit's properties alone.
#[test]
fn a_stop_that_systemd_no_longer_shows_is_respected_all_the_same() {
    for shown in [CRASHED, Health::Dead(Death::NeverStarted)] {
        let mut story = Story::new();
        story.seen(STOPPED, 1);
        story.state = story.state.taken_over();
        story.pass(secs(60));
        assert_eq!(story.seen(shown.clone(), 1), [], "{shown:?}");
        story.pass(secs(60));
        assert_eq!(relaunches(&story.seen(shown.clone(), 1)), 1, "{shown:?}");
    }
    // Another run that fell is another matter, and so is one that was up in between.
    let mut story = Story::new();
    story.seen(STOPPED, 1);
    assert_eq!(relaunches(&story.seen(CRASHED, 2)), 1);
    let mut story = Story::new();
    story.seen(STOPPED, 1);
    story.seen(Health::Healthy, 1);
    assert_eq!(relaunches(&story.seen(CRASHED, 1)), 1);
}

const MENDED: Health = Health::Dead(Death::TakenDown(Cause::Mended));

#[test]
fn what_another_worker_took_down_waits_for_it_and_comes_with_it() {
    for back in [STOPPED, CRASHED, Health::Dead(Death::NeverStarted)] {
        let mut story = Story::new();
        assert_eq!(story.seen(MENDED, 1), [Action::Say(Say::TakenDown(None))]);
        for _ in 0..100 {
            story.pass(secs(60));
            assert_eq!(story.seen(MENDED, 1), [], "its start would start the other one");
        }
        story.state = story.state.taken_over();
        let follows = story.seen(back.clone(), 1);
        assert_eq!(relaunches(&follows), 1, "{back:?}");
        assert!(
            !follows.iter().any(|action| matches!(action, Action::Say(Say::UndeclaredStop(_)))),
            "{back:?}"
        );
    }
}

#[test]
fn what_was_never_started_gets_a_moment_in_which_whoever_installs_it_may_start_it() {
    let never = || Health::Dead(Death::NeverStarted);
    let mut story = Story::new();
    assert_eq!(story.seen(never(), 0), []);
    story.pass(ALERT_SETTLE - secs(1));
    assert_eq!(story.seen(never(), 0), []);
    assert_eq!(story.seen(Health::Healthy, 1), [Action::Say(Say::CameBack)]);
    // Nobody does.
    assert_eq!(story.seen(never(), 0), []);
    story.pass(ALERT_SETTLE);
    assert_eq!(relaunches(&story.seen(never(), 0)), 1);
}

#[test]
fn what_went_down_with_another_is_no_stop_of_its_own_after_a_release_either() {
    let mut story = Story::new();
    story.policy.relaunches = 0;
    story.seen(MENDED, 1);
    assert_eq!(relaunches(&story.seen(STOPPED, 1)), 0);
    assert!(story.state.quarantined(), "it fell too often");
    story.policy.relaunches = 3;
    story.event(Event::Release);
    let released = story.seen(STOPPED, 1);
    assert_eq!(relaunches(&released), 1, "{released:?}");
    story.done(2);
    // A stop of the run that is up now is an operator's.
    let stopped = story.seen(STOPPED, 2);
    assert_eq!(relaunches(&stopped), 0, "{stopped:?}");
}

#[test]
fn what_was_stopped_with_a_stranger_is_left_for_as_long_as_a_stop_that_nobody_declared() {
    let stopped = || Health::Dead(Death::TakenDown(Cause::Stopped));
    let mut story = Story::new();
    assert_eq!(story.seen(stopped(), 1), [Action::Say(Say::TakenDown(Some(secs(120))))]);
    story.pass(secs(119));
    assert_eq!(story.seen(stopped(), 1), []);
    story.pass(secs(1));
    assert_eq!(relaunches(&story.seen(stopped(), 1)), 1);
}

#[test]
fn what_a_stranger_keeps_down_is_tried_like_any_other_and_leaves_its_quarantine_with_the_cause() {
    let failed = || Health::Dead(Death::TakenDown(Cause::Failed));
    let mut story = Story::new();
    story.policy.relaunches = 1;
    assert_eq!(relaunches(&story.seen(failed(), 1)), 1);
    story.event(Event::Done(Ending::Failed));
    story.pass(secs(1));
    story.seen(failed(), 1);
    assert!(story.state.quarantined());
    story.pass(secs(1));
    assert_eq!(story.seen(failed(), 1), []);
    assert_eq!(relaunches(&story.seen(STOPPED, 1)), 1, "the cause is fixed");
    story.done(2);
    story.pass(secs(1));
    assert_eq!(story.seen(Health::Healthy, 2), [Action::Say(Say::Recovered)]);
    assert_eq!(story.state.phase, Phase::Watching);
    // In quarantine it waits for a cause that somebody is at.
    story.state.phase = Phase::Quarantined { retry: story.now, failures: 1 };
    assert_eq!(story.seen(MENDED, 2), []);
    assert_eq!(relaunches(&story.seen(CRASHED, 2)), 1);
}

#[test]
fn what_is_down_by_design_is_left_down_and_what_was_planned_is_forgotten() {
    let idle = || Health::Idle(crate::judge::Idle::Done);
    for phase in [
        Phase::Watching,
        Phase::Waiting { due: Moment::from_millis(1_000_001), why: Wait::Backoff, failures: 1 },
        Phase::Quarantined { retry: Moment::from_millis(1_000_001), failures: 3 },
        Phase::LeftToPeers,
        Phase::Stranded,
    ] {
        let mut story = Story::new();
        story.state.phase = phase.clone();
        for _ in 0..3 {
            assert_eq!(story.seen(idle(), 1), [], "{phase:?}");
            assert_eq!(story.state.phase, Phase::Watching);
            story.pass(secs(600));
        }
    }
}

#[test]
fn a_stopped_worker_that_is_started_by_hand_is_left_alone() {
    let mut story = Story::new();
    story.seen(STOPPED, 1);
    story.pass(secs(60));
    assert_eq!(story.seen(Health::Healthy, 2), [Action::Say(Say::CameBack)]);
    story.pass(secs(600));
    assert_eq!(story.seen(Health::Healthy, 2), []);
}

#[test]
fn a_held_worker_stays_down_until_the_hold_ends_and_no_longer() {
    // Also one that was stopped: this stop was declared, and until when.
    for down in [STOPPED, CRASHED] {
        let mut story = Story::new();
        story.hold(secs(1800));
        assert_eq!(story.seen(down.clone(), 1), []);
        story.pass(secs(1799));
        assert_eq!(story.seen(down.clone(), 1), []);
        assert_eq!(story.state.wake(&story.policy), Some(story.now + secs(1)));
        story.pass(secs(1));
        assert_eq!(story.seen(down, 1), [Action::Say(Say::HoldEnded), Action::Act(Remedy::Relaunch)]);
    }
}

#[test]
fn a_released_worker_is_brought_back_at_once() {
    let mut story = Story::new();
    story.hold(secs(1800));
    story.seen(STOPPED, 1);
    assert_eq!(story.event(Event::Release), []);
    assert_eq!(story.seen(STOPPED, 1), [Action::Act(Remedy::Relaunch)]);
}

#[test]
fn what_cannot_be_started_is_no_alarm_while_it_is_held() {
    let mut story = Story::new();
    story.hold(secs(60));
    let gone = Health::Dead(Death::NotStartable(StartBlocker::NotFound));
    assert_eq!(story.seen(gone.clone(), 1), []);
    story.pass(secs(60));
    let said = [Say::HoldEnded, Say::Stranded(StartBlocker::NotFound)].map(Action::Say);
    assert_eq!(story.seen(gone, 1), said);
}

#[test]
fn a_failed_order_on_a_worker_that_nobody_is_to_repair_is_said_and_not_repeated() {
    let mut story = Story::new();
    story.policy.repair_by = RepairBy::Nobody;
    story.seen(CRASHED, 1);
    story.event(Event::Ordered(Remedy::Relaunch));
    story.done(2);
    assert_eq!(story.seen(CRASHED, 2), [Action::Say(Say::LeftToPeople)]);
    story.pass(secs(3600));
    assert_eq!(story.seen(CRASHED, 2), []);
}

#[test]
fn a_hold_takes_back_what_was_planned() {
    let mut story = Story::new();
    story.seen(STOPPED, 1);
    story.hold(secs(600));
    story.pass(secs(300));
    assert_eq!(story.seen(STOPPED, 1), []);
}

#[test]
fn a_worker_that_keeps_falling_is_quarantined_retried_slowly_and_comes_back_by_itself() {
    let mut story = Story::new();
    let (mut tries, mut quarantined) = (0, 0);
    for _ in 0..10_000 {
        let actions = story.seen(CRASHED, 1);
        quarantined += actions.iter().filter(|a| matches!(a, Action::Say(Say::Quarantined(_)))).count();
        if relaunches(&actions) > 0 {
            tries += 1;
            story.event(Event::Done(Ending::Failed));
        }
        story.pass(secs(1));
    }
    assert_eq!(quarantined, 1, "one alert per episode");
    assert!((15..=20).contains(&tries), "3 at once, then one in ten minutes: {tries}");
    assert!(story.state.quarantined());
    story.seen(Health::Healthy, 9);
    story.pass(secs(1));
    assert_eq!(story.seen(Health::Healthy, 9), [Action::Say(Say::Recovered)]);
    assert!(!story.state.quarantined());
}

#[test]
fn release_ends_a_quarantine_at_once() {
    let mut story = Story::new();
    story.state.phase = Phase::Quarantined { retry: story.now + secs(600), failures: 1 };
    story.state.relaunches = vec![story.now; 3];
    story.event(Event::Release);
    assert_eq!(relaunches(&story.seen(CRASHED, 1)), 1);
}

#[test]
fn a_worker_that_dies_while_it_settles_was_not_repaired() {
    let mut story = Story::new();
    story.seen(CRASHED, 1);
    story.done(2);
    let actions = story.seen(CRASHED, 2);
    assert!(matches!(actions.first(), Some(Action::Say(Say::TryAgain(_)))), "{actions:?}");
}

#[test]
fn what_cannot_be_started_is_said_once_and_not_tried() {
    let mut story = Story::new();
    let masked = Health::Dead(Death::NotStartable(StartBlocker::Masked));
    assert_eq!(story.seen(masked.clone(), 1), [Action::Say(Say::Stranded(StartBlocker::Masked))]);
    story.pass(secs(3600));
    assert_eq!(story.seen(masked, 1), []);
    assert_eq!(relaunches(&story.seen(CRASHED, 1)), 1, "unmasked: repaired at once");
}

#[test]
fn a_worker_left_to_the_peers_is_handed_over_after_the_grace() {
    let mut story = Story::new();
    story.policy.repair_by = RepairBy::Peer;
    assert_eq!(story.seen(CRASHED, 1), []);
    story.pass(secs(5));
    assert_eq!(story.seen(CRASHED, 1), [Action::Say(Say::LeftToPeers)]);
    assert_eq!(story.state.phase, Phase::LeftToPeers);
    assert_eq!(relaunches(&story.event(Event::Ordered(Remedy::Relaunch))), 1);
}

#[test]
fn a_relaunch_that_never_answers_is_given_up() {
    let mut story = Story::new();
    story.seen(CRASHED, 1);
    story.pass(Timeouts::default().relaunch(&story.policy) + LOST_AFTER + secs(1));
    assert!(matches!(story.seen(CRASHED, 1).first(), Some(Action::Say(Say::TryAgain(_)))));
    // Its late answer does no harm.
    assert_eq!(story.done(2), []);
}

#[test]
fn backoff_doubles_within_bounds_and_differs_between_workers() {
    for failures in 1..40 {
        let full = BACKOFF_FIRST.saturating_mul(1 << (failures - 1).min(16)).min(BACKOFF_MOST);
        let wait = backoff(failures, 7);
        assert!(wait >= full / 2 && wait <= full, "{failures}: {wait:?}");
    }
    let distinct: std::collections::BTreeSet<_> = (0..20).map(|salt| backoff(4, salt)).collect();
    assert!(distinct.len() > 15, "{distinct:?}");
}

#[test]
fn a_restart_of_the_supervisor_forgets_neither_hold_nor_flap_guard() {
    let mut story = Story::new();
    story.hold(secs(600));
    story.state.phase = Phase::Repairing {
        since: story.now,
        remedy: Remedy::Relaunch,
        episode: Episode::default(),
        until: None,
    };
    story.state.relaunches = vec![story.now; 2];
    let json = serde_json::to_string(&story.state).unwrap();
    let back: WorkerState = serde_json::from_str(&json).unwrap();
    let taken = back.clone().taken_over();
    assert_eq!((taken.hold, taken.relaunches.len(), taken.phase), (back.hold.clone(), 2, Phase::Watching));
    let rebooted = back.after_reboot(story.now, secs(100), Moment::from_millis(5));
    assert_eq!(rebooted.hold.unwrap().until, Moment::from_millis(500_005));
    assert!(rebooted.relaunches.is_empty());
}
