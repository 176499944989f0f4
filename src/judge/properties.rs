//! The invariants of the judge, driven by random stories.

use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::vocabulary::{BlastRadius, InvocationId, Moment, Policy, Remedy, RepairBy};

/// One step of a story.
#[derive(Debug, Clone)]
enum StoryStep {
    Pass(u64),
    Seen(Health, u8),
    Done(Ending),
    Ordered(OrderRequest),
    Hold(u64),
    Release,
    Restart,
}

fn health() -> impl Strategy<Value = Health> {
    prop_oneof![
        3 => Just(Health::Healthy),
        1 => Just(Health::Blind("blind".to_owned())),
        2 => Just(Health::Stuck("no beat".to_owned())),
        2 => Just(Health::DeliveryGap("not draining".to_owned())),
        2 => Just(Health::InTransition("starting")),
        2 => Just(Health::Unknown("blind".to_owned())),
        3 => any::<bool>().prop_map(|s| Health::Dead(Death::Crashed { systemd_may_restart: s })),
        2 => Just(Health::Dead(Death::Stopped)),
        1 => Just(Health::Dead(Death::NeverStarted)),
        1 => Just(Health::Dead(Death::TakenDown(Cause::Mended))),
        1 => Just(Health::Dead(Death::TakenDown(Cause::Stopped))),
        1 => Just(Health::Dead(Death::TakenDown(Cause::Failed))),
        1 => Just(Health::Idle(Idle::Done)),
        1 => Just(Health::Dead(Death::NotStartable(StartBlocker::Masked))),
        1 => Just(Health::Dead(Death::Hung(Hang::In(super::Step::Starting)))),
        1 => Just(Health::Dead(Death::Hung(Hang::NeverUp))),
    ]
}

fn step() -> impl Strategy<Value = StoryStep> {
    let ending = prop_oneof![
        3 => (0u8..4).prop_map(|n| Ending::Started(InvocationId::from_bytes([n; 16]))),
        3 => Just(Ending::Failed),
        1 => Just(Ending::Refused(StartBlocker::NotFound)),
        1 => Just(Ending::Untouched),
        2 => Just(Ending::Sent),
    ];
    let remedy =
        prop_oneof![3 => Just(Remedy::Relaunch), 1 => Just(Remedy::Nudge), 1 => Just(Remedy::Repipe)];
    let wish = (remedy, proptest::option::of(0u8..4), any::<bool>()).prop_map(|(remedy, run, force)| {
        OrderRequest { remedy, expect: run.map(|n| InvocationId::from_bytes([n; 16])), force }
    });
    prop_oneof![
        4 => (0u64..200_000).prop_map(StoryStep::Pass),
        8 => (health(), 0u8..4).prop_map(|(health, run)| StoryStep::Seen(health, run)),
        4 => ending.prop_map(StoryStep::Done),
        2 => wish.prop_map(StoryStep::Ordered),
        1 => (0u64..600_000).prop_map(StoryStep::Hold),
        1 => Just(StoryStep::Release),
        1 => Just(StoryStep::Restart),
    ]
}

fn policy() -> impl Strategy<Value = Policy> {
    let by = prop_oneof![Just(RepairBy::Node), Just(RepairBy::Peer), Just(RepairBy::Nobody)];
    (by, 1u32..6, 1u64..600).prop_map(|(repair_by, relaunches, per)| Policy {
        repair_by,
        relaunches,
        per: Duration::from_secs(per),
        ..Policy::default()
    })
}

fn rungs() -> impl Strategy<Value = Rungs> {
    let time = || proptest::option::of((1u64..60).prop_map(Duration::from_secs));
    (time(), time()).prop_map(|(nudge, repipe)| Rungs { nudge, repipe })
}

/// Plays a story and checks after each step what must hold after every step.
struct Play {
    state: WorkerState,
    policy: Policy,
    rungs: Rungs,
    crowd: Crowd,
    now: Moment,
    in_flight: bool,
    last: (Health, u8),
    /// Whether its signs were seen in this run.
    shown: bool,
}

impl Play {
    /// As [`Proof::of`], for a worker of which it is known whether it has moved.
    fn proof(&self) -> Proof {
        let ails = self.last.0.ails();
        Proof { ails, beat: self.shown, flow: self.shown, within: Duration::from_secs(90) }
    }

    fn feed(&mut self, event: &Event) -> Vec<Action> {
        let before = self.state.clone();
        let unseen = Observation::Failed("not looked at".to_owned());
        let terms = Terms {
            policy: &self.policy,
            salt: 3,
            blast_radius: BlastRadius::Normal,
            rungs: self.rungs,
            crowd: self.crowd,
            proof: self.proof(),
            seen: &unseen,
        };
        let (state, actions) = decide(&before, event, terms, self.now);
        if let Phase::Settling { episode: Episode { ails: Some(class), .. }, .. } = before.phase {
            let said =
                actions.iter().any(|action| matches!(action, Action::Say(Say::Recovered | Say::SignBack(_))));
            assert!(!said || terms.proof.shows(class), "called recovered although its sign is missing");
            assert!(
                !said || terms.proof.ails.is_none(),
                "called recovered although its detector says otherwise"
            );
        }
        let acts: Vec<Remedy> = actions
            .iter()
            .filter_map(|action| match action {
                Action::Act(remedy) => Some(*remedy),
                Action::Say(_) => None,
            })
            .collect();
        assert!(acts.len() <= 1);
        if let Some(remedy) = acts.first() {
            assert!(!self.in_flight, "two actions in flight after {event:?} on {before:?}");
            assert!(matches!(state.phase, Phase::Repairing { .. }), "every action is awaited");
            self.in_flight = true;
            if let Event::Seen { health, .. } = event {
                match health {
                    Health::Dead(Death::TakenDown(Cause::Mended)) => {
                        panic!("acted although the cause is looked after")
                    }
                    Health::Dead(_) => assert_eq!(*remedy, Remedy::Relaunch, "the dead are never nudged"),
                    Health::Stuck(_) => assert_ne!(*remedy, Remedy::Repipe),
                    Health::DeliveryGap(_) => assert_ne!(*remedy, Remedy::Nudge),
                    Health::Healthy
                    | Health::Blind(_)
                    | Health::InTransition(_)
                    | Health::Idle(_)
                    | Health::Unknown(_) => {
                        panic!("acted on {health:?}")
                    }
                }
                assert!(state.held(self.now).is_none(), "acted against a hold");
                assert_ne!(self.policy.repair_by, RepairBy::Nobody, "acted although told not to");
                let spent = before.recent(&self.policy, self.now) >= self.policy.relaunches as usize;
                let gentle = *remedy != Remedy::Relaunch;
                assert!(gentle || !spent || before.quarantined(), "acted beyond the flap guard");
                let run = Some(InvocationId::from_bytes([self.last.1; 16]));
                let new_stop = before.stopped.is_none_or(|stopped: Stopped| stopped.run != run);
                let new_stop = new_stop && !before.taken_down;
                assert!(!(*health == Health::Dead(Death::Stopped) && new_stop), "acted against a new stop");
                let braked = self.crowd.brake && !matches!(health, Health::Dead(_)) && !before.quarantined();
                assert!(!braked, "acted against the brake");
            }
        }
        if let Phase::Settling { .. } | Phase::Verifying { .. } = state.phase {
            self.in_flight = false; // The verification is on.
        }
        let limit = self.policy.relaunches as usize;
        assert!(state.relaunches.len() <= limit && state.gentle.len() <= limit, "the history is bounded");
        if let Some(wake) = state.wake(&self.policy) {
            assert!(wake <= self.now + Duration::from_secs(3600), "everything planned comes within the hour");
        }
        self.state = state;
        actions
    }

    fn step(&mut self, step: &StoryStep) {
        match step {
            StoryStep::Pass(ms) => self.now = self.now + Duration::from_millis(*ms),
            StoryStep::Seen(health, run) => {
                self.last = (health.clone(), *run);
                self.look();
            }
            StoryStep::Done(ending) => {
                if let Phase::Repairing { .. } = self.state.phase {
                    self.in_flight = false;
                }
                self.feed(&Event::Done(*ending));
            }
            StoryStep::Ordered(wish) => {
                let run = InvocationId::from_bytes([self.last.1; 16]);
                let admitted =
                    admit(&self.state, &self.last.0, Some(run), Host::Running, *wish, &self.policy, self.now);
                if admitted == Ok(Admitted::Start) {
                    self.feed(&Event::Ordered(wish.remedy));
                }
            }
            StoryStep::Hold(ms) => {
                let until = self.now + Duration::from_millis(*ms);
                self.feed(&Event::Hold(Hold {
                    until,
                    why: "x".to_owned(),
                    by: "root".to_owned(),
                    by_peer: false,
                }));
            }
            StoryStep::Release => {
                self.feed(&Event::Release);
            }
            StoryStep::Restart => {
                self.state = self.state.clone().taken_over();
                self.in_flight = false;
            }
        }
    }

    fn look(&mut self) -> Vec<Action> {
        if let Phase::Repairing { until: Some(until), .. } = self.state.phase
            && self.now >= until
        {
            self.in_flight = false; // Given up as lost.
        }
        let invocation = Some(InvocationId::from_bytes([self.last.1; 16]));
        self.feed(&Event::Seen { health: self.last.0.clone(), invocation })
    }
}

proptest! {
    // So many, because the rare orders of events are the ones that nobody thinks of.
    #![proptest_config(ProptestConfig { cases: 100_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_invariants_hold_in_every_story(
        policy in policy(),
        rungs in rungs(),
        brake in prop::bool::weighted(0.2),
        shown in any::<bool>(),
        steps in prop::collection::vec(step(), 1..40),
    ) {
        let mut play = Play {
            state: WorkerState::default(),
            policy,
            rungs,
            crowd: Crowd { dead: 0, brake },
            now: Moment::from_millis(1_000_000),
            in_flight: false,
            last: (Health::Unknown("not yet".to_owned()), 0),
            shown,
        };
        for step in &steps {
            play.step(step);
        }
        // Whatever happened: once it stays up, the ladder ends, and no hold lasts for ever.
        if let Phase::Repairing { .. } = play.state.phase {
            play.in_flight = false;
            play.feed(&Event::Done(Ending::Failed));
        }
        play.last = (Health::Healthy, 3);
        play.shown = true;
        for _ in 0..3 {
            play.look();
            play.now = play.now + Duration::from_secs(700);
        }
        play.look();
        prop_assert_eq!(&play.state.phase, &Phase::Watching);
        prop_assert!(play.state.hold.is_none());
    }

}

/// A worker that ran well is read at even pace and stands still from some moment on: when its class says so.
fn found_after(limit: u64, polls: u64, ticks_before: u64, blind_at: Option<u64>) -> u64 {
    let (mut track, every) = (Track::default(), limit / polls);
    for tick in 0.. {
        let now = Moment::from_millis(tick * every);
        let reading = match (tick, blind_at) {
            (tick, Some(at)) if tick == ticks_before + at => Reading::Failed("away".to_owned()),
            (tick, _) => Reading::Mark(tick.min(ticks_before)),
        };
        let failed = matches!(reading, Reading::Failed(_));
        let pulse = track.take(reading, Duration::from_millis(limit), "no beat", now);
        assert_eq!(failed, matches!(pulse, Pulse::Unseen(_)), "what could not be read is not guessed");
        if let Pulse::Still(_) = pulse {
            return (tick - ticks_before) * every;
        }
    }
    unreachable!("the ticks have no end")
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_stands_still_is_found_within_its_limit_and_two_looks_and_not_before(
        limit in 1_000u64..600_000,
        polls in 3u64..20,
        before in 0u64..50,
        blind in 1u64..3,
    ) {
        let every = limit / polls;
        let after = found_after(limit, polls, before, None);
        prop_assert!((limit..=limit + 2 * every).contains(&after), "{after}");
        // One blind look, and it gets the whole time again.
        let after = found_after(limit, polls, before, Some(blind));
        prop_assert!((limit + blind * every..=limit + (blind + 3) * every).contains(&after), "{after}");
    }

    #[test]
    fn the_signs_decide_nothing_about_a_unit_that_is_not_up(still in any::<bool>(), flow in any::<bool>()) {
        let pulse = |still: bool| if still { Pulse::Still("x".to_owned()) } else { Pulse::Unseen("y".to_owned()) };
        let vitals = Vitals { beat: pulse(still), flow: pulse(flow) };
        let seen = Observation::Failed("the bus is away".to_owned());
        prop_assert!(matches!(classify(&seen, &vitals, Host::Running, false), Health::Unknown(_)));
    }
}

proptest! {
    // Each of these plays two hours second by second.
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_worker_that_is_dead_for_good_is_retried_for_ever_but_slowly(policy in policy(), steps in prop::collection::vec(step(), 1..30)) {
        prop_assume!(policy.repair_by == RepairBy::Node);
        let mut play = Play {
            state: WorkerState::default(),
            policy,
            rungs: Rungs::default(),
            crowd: Crowd::default(),
            now: Moment::from_millis(1_000_000),
            in_flight: false,
            last: (Health::Unknown("not yet".to_owned()), 0),
            shown: true,
        };
        for step in &steps {
            play.step(step);
        }
        play.last = (Health::Dead(Death::Crashed { systemd_may_restart: false }), 3);
        let mut tries = 0;
        for second in 0..7200 {
            play.now = play.now + Duration::from_secs(1);
            if let Phase::Repairing { .. } = play.state.phase {
                play.in_flight = false;
                play.feed(&Event::Done(Ending::Failed));
            }
            if play.look().contains(&Action::Act(Remedy::Relaunch)) && second >= 3600 {
                tries += 1;
            }
        }
        prop_assert!(tries >= 5, "quarantine is never terminal: {tries} tries in its second hour");
        let most = 3600 / play.policy.per.as_secs().max(1) * u64::from(play.policy.relaunches) + 8;
        prop_assert!(tries <= most, "{tries} tries in an hour, {most} allowed");
    }
}
