use super::super::classify::Death;
use super::super::state::{Episode, Hold};
use super::*;
use crate::vocabulary::Remedy;

const LEASE: Duration = Duration::from_secs(60);
const CRASHED: Health = Health::Dead(Death::Stopped);

fn at(secs: u64) -> Moment {
    Moment::from_millis(1_000_000 + secs * 1_000)
}

fn run(n: u8) -> Option<InvocationId> {
    Some(InvocationId::from_bytes([n; 16]))
}

fn drill(class: FailureClass) -> Drill {
    let state = WorkerState { relaunches: vec![at(0)], ..WorkerState::default() };
    Drill::new(class, ("ai-core".to_owned(), true), LEASE, run(1), &state, at(0))
}

fn seen<'a>(health: &'a Health, n: u8, phase: &'a Phase) -> Trigger<'a> {
    Trigger::Seen { health, invocation: run(n), phase }
}

fn stuck() -> Health {
    Health::Stuck("no beat".to_owned())
}

fn settling() -> Phase {
    Phase::Settling {
        until: at(9),
        invocation: InvocationId::from_bytes([2; 16]),
        episode: Episode::default(),
        sign_by: None,
    }
}

fn over(drill: &Drill) -> Option<&DrillEnd> {
    match &drill.stage {
        Stage::Over { end, .. } => Some(end),
        Stage::Breaking | Stage::Broken | Stage::Restoring { .. } => None,
    }
}

#[test]
fn found_repaired_from_outside_and_settled_is_passed() {
    let mut drill = drill(FailureClass::Dead);
    assert_eq!(drill.take(seen(&Health::Healthy, 1, &Phase::Watching), at(0)), None, "not broken yet");
    // What was seen may overtake the answer to the order.
    assert_eq!(drill.take(seen(&CRASHED, 1, &Phase::Watching), at(1)), None);
    assert_eq!(drill.take(Trigger::Break(Ok(())), at(1)), None);
    assert!(drill.found && drill.is_on());
    drill.take(Trigger::Remedy(Some("ai-core")), at(2));
    drill.take(Trigger::Remedy(Some("venus")), at(2));
    assert_eq!(drill.take(seen(&Health::Healthy, 2, &settling()), at(3)), None, "it has to stay up");
    assert_eq!(drill.take(seen(&Health::Healthy, 2, &Phase::Watching), at(4)), Some(DrillEffect::Report));
    assert_eq!((over(&drill), drill.helped.as_deref()), (Some(&DrillEnd::Passed), Some("ai-core")));
    assert_eq!(drill.take(seen(&CRASHED, 2, &Phase::Watching), at(5)), None, "what follows is no rehearsal");
}

#[test]
fn a_nudge_that_helps_needs_no_new_run() {
    let mut drill = drill(FailureClass::Stuck);
    drill.take(Trigger::Break(Ok(())), at(0));
    assert_eq!(drill.take(seen(&Health::Healthy, 1, &Phase::Watching), at(1)), None, "not found yet");
    drill.take(seen(&stuck(), 1, &Phase::Watching), at(10));
    drill.take(Trigger::Remedy(Some("venus")), at(11));
    assert_eq!(drill.take(seen(&Health::Healthy, 1, &Phase::Watching), at(12)), Some(DrillEffect::Report));
    assert_eq!(over(&drill), Some(&DrillEnd::Passed));
}

#[test]
fn a_watcher_that_sees_it_first_has_found_it_and_what_it_did_is_waited_for() {
    let mut drill = drill(FailureClass::DeliveryGap);
    drill.take(Trigger::Break(Ok(())), at(0));
    drill.take(Trigger::Remedy(Some("ai-core")), at(10));
    let repiping = Phase::Verifying { until: at(40), remedy: Remedy::Repipe, episode: Episode::default() };
    assert_eq!(drill.take(seen(&Health::Healthy, 1, &repiping), at(10)), None, "not seen to have helped yet");
    assert_eq!(drill.take(seen(&Health::Healthy, 1, &Phase::Watching), at(12)), Some(DrillEffect::Report));
    assert_eq!(over(&drill), Some(&DrillEnd::Passed));
}

#[test]
fn what_is_mended_before_it_is_found_or_without_help_has_shown_nothing() {
    let mut early = drill(FailureClass::Stuck);
    early.take(Trigger::Break(Ok(())), at(0));
    early.take(seen(&CRASHED, 1, &Phase::Watching), at(1));
    assert!(!early.found, "dead is not stuck");
    assert_eq!(early.take(seen(&Health::Healthy, 2, &Phase::Watching), at(2)), Some(DrillEffect::Report));
    assert_eq!(over(&early), Some(&DrillEnd::NotFound));

    let mut alone = drill(FailureClass::Dead);
    alone.take(Trigger::Break(Ok(())), at(0));
    alone.take(seen(&CRASHED, 1, &Phase::Watching), at(1));
    alone.take(Trigger::Remedy(None), at(1));
    alone.take(seen(&Health::Healthy, 2, &Phase::Watching), at(2));
    assert_eq!(over(&alone), Some(&DrillEnd::NotHelped), "root on the node is no watcher");
}

#[test]
fn when_the_lease_ends_the_node_restores_the_worker() {
    for (health, why) in [(stuck(), DrillEnd::NobodyCame), (Health::Healthy, DrillEnd::UnseenToTheEnd)] {
        let mut drill = drill(FailureClass::Stuck);
        drill.take(Trigger::Break(Ok(())), at(0));
        assert_eq!(drill.take(seen(&health, 1, &Phase::Watching), at(59)), None);
        assert_eq!(drill.wake(), Some(at(60)));
        assert_eq!(drill.take(seen(&health, 1, &Phase::LeftToPeers), at(60)), Some(DrillEffect::Restore));
        assert!(!drill.is_on(), "from here on the node looks after it as always");
        assert_eq!(drill.take(seen(&stuck(), 1, &Phase::Watching), at(61)), None);
        assert_eq!(
            drill.take(seen(&Health::Healthy, 1, &Phase::Watching), at(62)),
            Some(DrillEffect::Report)
        );
        assert_eq!(drill.stage, Stage::Over { end: why, well: true });
    }
}

#[test]
fn a_remedy_that_is_under_way_at_the_end_gets_a_last_chance_and_no_more() {
    let repairing = Phase::Repairing {
        since: at(59),
        remedy: Remedy::Relaunch,
        episode: Episode::default(),
        until: None,
    };
    let mut drill = drill(FailureClass::Dead);
    drill.take(Trigger::Break(Ok(())), at(0));
    assert_eq!(drill.take(seen(&CRASHED, 1, &repairing), at(60)), None);
    assert_eq!(drill.wake(), Some(at(60)), "it is looked at again and again from here on");
    assert_eq!(drill.take(seen(&CRASHED, 1, &repairing), at(90)), Some(DrillEffect::Restore));
    assert_eq!(drill.take(seen(&CRASHED, 1, &Phase::Watching), at(150)), Some(DrillEffect::Report));
    assert_eq!(drill.stage, Stage::Over { end: DrillEnd::NobodyCame, well: false });
}

#[test]
fn what_could_not_be_broken_or_was_inherited_is_restored_at_once() {
    let mut refused = drill(FailureClass::Dead);
    assert_eq!(refused.take(Trigger::Break(Err("no bus".to_owned())), at(1)), Some(DrillEffect::Restore));
    assert_eq!(refused.take(seen(&Health::Healthy, 1, &Phase::Watching), at(1)), Some(DrillEffect::Report));
    assert_eq!(over(&refused), Some(&DrillEnd::NotBroken("no bus".to_owned())));

    let mut old = drill(FailureClass::Stuck);
    old.take(Trigger::Break(Ok(())), at(0));
    let saved = serde_json::to_string(&old).unwrap();
    let mut old: Drill = serde_json::from_str(&saved).unwrap();
    assert_eq!(old.take(Trigger::Inherited, at(2)), Some(DrillEffect::Restore));
}

fn ground<'a>(health: &'a Health, state: &'a WorkerState, policy: &'a Policy) -> Ground<'a> {
    Ground {
        class: FailureClass::Dead,
        host: Host::Running,
        under_way: None,
        degraded: None,
        health,
        state,
        policy,
        blast_radius: BlastRadius::Normal,
        by_peer: false,
        asked: None,
        yes: false,
        not_configured: None,
        helper: true,
        write: None,
    }
}

#[test]
fn nothing_is_broken_unless_all_is_well_and_help_is_there() {
    let (state, policy) = (WorkerState::default(), Policy::default());
    let ask = |ground: Ground<'_>| rehearsable(&ground, at(0));
    let good = ground(&Health::Healthy, &state, &policy);
    assert_eq!(ask(good.clone()), Ok(()));
    let critical = Ground { blast_radius: BlastRadius::Critical, ..good.clone() };
    assert_eq!(ask(critical.clone()), Err(Hindrance::Critical));
    assert_eq!(ask(Ground { yes: true, ..critical.clone() }), Ok(()));
    // What a peer says of that is worth nothing.
    let of_peer = Ground { yes: true, by_peer: true, ..critical };
    assert_eq!(ask(of_peer), Err(Hindrance::CriticalForPeers));
    assert_eq!(ask(Ground { by_peer: true, ..good.clone() }), Ok(()));
    let asked = Ground { by_peer: true, asked: Some("x".into()), ..good.clone() };
    assert_eq!(ask(asked), Err(Hindrance::Asked("x".into())));
    assert_eq!(ask(Ground { not_configured: Some("x"), ..good.clone() }), Err(Hindrance::NotConfigured("x")));
    assert_eq!(ask(Ground { host: Host::Stopping, ..good.clone() }), Err(Hindrance::Host));
    assert!(matches!(
        ask(Ground { under_way: Some("x".into()), ..good.clone() }),
        Err(Hindrance::UnderWay(_))
    ));
    assert!(matches!(
        ask(Ground { degraded: Some("x".into()), ..good.clone() }),
        Err(Hindrance::Degraded(_))
    ));
    assert!(matches!(ask(Ground { write: Some("x".into()), ..good.clone() }), Err(Hindrance::Writes(_))));
    assert_eq!(ask(Ground { helper: false, ..good.clone() }), Err(Hindrance::NoHelper));
    for health in [CRASHED, stuck(), Health::Blind("x".into()), Health::Unknown("x".into())] {
        assert!(matches!(ask(Ground { health: &health, ..good.clone() }), Err(Hindrance::Unwell(_))));
    }
    let hold = Hold { until: at(1), why: "deploy".to_owned(), by: "root".to_owned(), by_peer: false };
    let quarantined = Phase::Quarantined { retry: at(9), failures: 0 };
    for (state, hindrance) in [
        (WorkerState { hold: Some(hold), ..WorkerState::default() }, Hindrance::Held),
        (WorkerState { phase: quarantined, ..WorkerState::default() }, Hindrance::Quarantined),
        (WorkerState { relaunches: vec![at(0); 3], ..WorkerState::default() }, Hindrance::Spent),
    ] {
        assert_eq!(ask(Ground { state: &state, ..good.clone() }), Err(hindrance));
    }
    let state = WorkerState { phase: settling(), ..WorkerState::default() };
    assert!(matches!(ask(Ground { state: &state, ..good.clone() }), Err(Hindrance::Unwell(_))));
    let nobody = Policy { repair_by: RepairBy::Nobody, ..Policy::default() };
    assert_eq!(ask(Ground { policy: &nobody, ..good }), Err(Hindrance::NobodyRepairs));
}
