//! Urgency follows the blast radius, sensitivity does not: the same observations are the same health, found at the same
//! moment, whatever depends on the worker.

use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::vocabulary::{
    BlastRadius, DeliveryGap, Flow, Heartbeat, InvocationId, Moment, Policy, Remedy, Stuck,
};

const RADII: [BlastRadius; 3] = [BlastRadius::Critical, BlastRadius::Normal, BlastRadius::Auxiliary];
/// The window of the auxiliary worker.
const WINDOW: Duration = Duration::from_secs(300);

fn run() -> InvocationId {
    InvocationId::from_bytes([1; 16])
}

/// What is seen of a worker in one moment, and how long after the one before.
#[derive(Debug, Clone)]
struct Look {
    after: Duration,
    unit: Observation,
    beat: Option<Reading>,
    flow: Option<Reading>,
}

/// What became of it under one blast radius.
#[derive(Debug, Default, PartialEq)]
struct Announced {
    /// The health after each look.
    health: Vec<(Moment, Health)>,
    /// Each act.
    acts: Vec<(Moment, Remedy)>,
    /// Each thing that was said.
    said: Vec<(Moment, Say)>,
}

impl Announced {
    /// When it was first found not to be well.
    fn found(&self) -> Option<Moment> {
        let ill = |health: &Health| !matches!(health, Health::Healthy);
        self.health.iter().find(|(_, health)| ill(health)).map(|(at, _)| *at)
    }
}

/// The whole way from readings to decisions, as the supervisor goes it.
fn told(radius: BlastRadius, looks: &[Look], window: Duration) -> Announced {
    let stuck = Stuck { heartbeat: Heartbeat::Journal, older_than: Duration::from_secs(20), nudge: None };
    let gap = DeliveryGap {
        flow: Flow::Queue { key: "q".to_owned(), busy: None },
        not_draining_for: Duration::from_secs(30),
        canary: None,
        repipe: None,
    };
    let policy = Policy { repair_window: window, ..Policy::default() };
    let (mut signs, mut state, mut told) = (Signs::default(), WorkerState::default(), Announced::default());
    let mut now = Moment::from_millis(1_000_000);
    for look in looks {
        now = now + look.after;
        for (sign, reading) in [(Sign::Beat, &look.beat), (Sign::Flow, &look.flow)] {
            if let Some(reading) = reading {
                signs.take(sign, reading.clone(), Some(&stuck), Some(&gap), now);
            }
        }
        let terms = Terms {
            policy: &policy,
            salt: 7,
            blast_radius: radius,
            rungs: Rungs { nudge: Some(Duration::from_secs(5)), repipe: None },
            crowd: Crowd::default(),
            proof: Proof::default(),
            seen: &look.unit,
        };
        let health = classify(&look.unit, &signs.vitals(), Host::Running, false);
        told.health.push((now, health.clone()));
        let (next, actions) = decide(&state, &Event::Seen { health, invocation: Some(run()) }, terms, now);
        state = next;
        for action in actions {
            match action {
                Action::Act(remedy) => told.acts.push((now, remedy)),
                Action::Say(say) => told.said.push((now, say)),
            }
        }
    }
    told
}

fn unit(active: ActiveState, sub: &str, stop: StopCause) -> Observation {
    Observation::Unit(UnitSnapshot {
        load: LoadState::Loaded,
        active,
        sub: sub.to_owned(),
        result: "success".to_owned(),
        invocation: Some(run()),
        job: false,
        refuse_manual_start: false,
        restarts_itself: false,
        restarts: 0,
        stop,
        exit: None,
        context: Box::default(),
        timeouts: Timeouts::default(),
        control: 0,
        status: None,
    })
}

fn running() -> Observation {
    unit(ActiveState::Active, "running", StopCause::Never)
}

fn looks() -> impl Strategy<Value = Vec<Look>> {
    let unit = prop_oneof![
        6 => Just(running()),
        1 => Just(unit(ActiveState::Failed, "failed", StopCause::ByItself)),
        1 => Just(unit(ActiveState::Inactive, "dead", StopCause::Ordered)),
        1 => Just(unit(ActiveState::Activating, "start", StopCause::Never)),
        1 => Just(Observation::Failed("the bus does not answer".to_owned())),
    ];
    let reading = || {
        proptest::option::weighted(
            0.9,
            prop_oneof![
                3 => Just(Reading::Mark(1)),
                1 => (0u64..4).prop_map(Reading::Mark),
                2 => Just(Reading::Silent("the key is gone".to_owned())),
                1 => Just(Reading::Moving),
                1 => Just(Reading::Failed("Redis is down".to_owned())),
            ],
        )
    };
    let look = (1u64..9, unit, reading(), reading()).prop_map(|(after, unit, beat, flow)| Look {
        after: Duration::from_secs(after),
        unit,
        beat,
        flow,
    });
    proptest::collection::vec(look, 1..60)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn the_same_observations_are_the_same_health_at_the_same_time(looks in looks()) {
        let [critical, normal, auxiliary] = RADII.map(|radius| told(radius, &looks, WINDOW));
        for other in [&normal, &auxiliary] {
            prop_assert_eq!(&critical.health, &other.health);
            prop_assert_eq!(critical.found(), other.found());
        }
        // What is done for these two is the same as well; only how loudly it is said differs, and that is not decided here.
        prop_assert_eq!(&critical.acts, &normal.acts);
        prop_assert_eq!(&critical.said, &normal.said);
    }

    #[test]
    fn without_a_window_nothing_at_all_differs(looks in looks()) {
        let [critical, normal, auxiliary] = RADII.map(|radius| told(radius, &looks, Duration::ZERO));
        prop_assert_eq!(&critical, &normal);
        prop_assert_eq!(&critical, &auxiliary);
    }
}

/// The one thing that may wait is the repair of what nothing depends on, and it waits because its operator said so.
#[test]
fn a_window_delays_the_repair_and_not_the_finding() {
    let crashed = || unit(ActiveState::Failed, "failed", StopCause::ByItself);
    let look = |secs, unit| Look { after: Duration::from_secs(secs), unit, beat: None, flow: None };
    let looks = [look(1, running()), look(1, crashed()), look(200, crashed()), look(200, crashed())];
    let start = Moment::from_millis(1_000_000);
    let at = |secs| start + Duration::from_secs(secs);
    for radius in RADII {
        let told = told(radius, &looks, WINDOW);
        assert_eq!(told.found(), Some(at(2)), "{radius:?}");
        let first = told.acts.first().map(|(at, _)| *at);
        let wanted = if radius == BlastRadius::Auxiliary { at(402) } else { at(2) };
        assert_eq!(first, Some(wanted), "{radius:?}");
    }
}
