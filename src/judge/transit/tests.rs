use super::*;

const START: Moment = Moment::from_millis(1_000_000);

fn unit(active: ActiveState, sub: &str, run: u8) -> UnitSnapshot {
    UnitSnapshot { invocation: Some(InvocationId::from_bytes([run; 16])), ..UnitSnapshot::plain(active, sub) }
}

fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

/// When a unit that stays at `looks.last()` hangs, each look a second after the one before; and how.
fn hangs(looks: &[UnitSnapshot], policy: &Policy) -> Option<(Duration, Hang)> {
    let (mut transit, mut now) = (None, START);
    for look in looks {
        now = now + secs(1);
        let seen = Observation::Unit(look.clone());
        transit = Transit::after(transit, &seen, now);
    }
    let seen = Observation::Unit(looks.last().unwrap().clone());
    let at = hangs_at(transit, &seen, policy)?;
    let before = hung(Health::InTransition("x"), transit, &seen, policy, at - Duration::from_millis(1));
    assert_eq!(before, Health::InTransition("x"), "not before its time");
    let Health::Dead(Death::Hung(hang)) = hung(Health::InTransition("x"), transit, &seen, policy, at) else {
        panic!("it hangs")
    };
    Some((at.since(now), hang))
}

#[test]
fn each_step_has_a_deadline_from_the_units_own_timeouts() {
    let timeouts = Timeouts {
        start_ms: Some(20_000),
        stop_ms: Some(30_000),
        abort_ms: Some(3_000),
        restart_ms: Some(60_000),
        job_ms: Some(40_000),
    };
    let queued = UnitSnapshot { job: true, ..unit(ActiveState::Inactive, "dead", 1) };
    let cases = [
        (unit(ActiveState::Activating, "start-pre", 1), Step::Starting, 20),
        (unit(ActiveState::Activating, "start", 1), Step::Starting, 20),
        (unit(ActiveState::Activating, "auto-restart", 1), Step::Restarting, 60),
        (unit(ActiveState::Deactivating, "stop-sigterm", 1), Step::Stopping, 30),
        (unit(ActiveState::Deactivating, "stop-watchdog", 1), Step::Aborting, 3),
        (queued, Step::Waiting, 40),
    ];
    for (unit, step, limit) in cases {
        let unit = UnitSnapshot { timeouts, ..unit };
        let told = hangs(std::slice::from_ref(&unit), &Policy::default());
        assert_eq!(told, Some((secs(limit) + SLACK, Hang::In(step))), "{unit:?}");
    }
    for up in [unit(ActiveState::Active, "running", 1), unit(ActiveState::Reloading, "reload", 1)] {
        assert_eq!(hangs(&[up], &Policy::default()), None);
    }
    assert_eq!(hangs(&[unit(ActiveState::Failed, "failed", 1)], &Policy::default()), None, "that is a death");
}

#[test]
fn what_may_take_for_ever_has_a_cap_of_ours_or_the_fleet_files_limit_and_a_lane_has_none() {
    let endless = Timeouts { start_ms: None, stop_ms: None, ..Timeouts::default() };
    let starting = UnitSnapshot { timeouts: endless, ..unit(ActiveState::Activating, "start", 1) };
    let stopping = UnitSnapshot { timeouts: endless, ..unit(ActiveState::Deactivating, "stop-sigterm", 1) };
    let (normal, lane) = (Policy::default(), Policy { endless: None, ..Policy::default() });
    let own = Policy { start_timeout: Some(secs(7)), ..lane.clone() };
    for (unit, step) in [(&starting, Step::Starting), (&stopping, Step::Stopping)] {
        let told = hangs(std::slice::from_ref(unit), &normal);
        assert_eq!(told, Some((secs(900) + SLACK, Hang::In(step))));
        assert_eq!(hangs(std::slice::from_ref(unit), &lane), None);
    }
    let told = hangs(std::slice::from_ref(&starting), &own);
    assert_eq!(told, Some((secs(7) + SLACK, Hang::In(Step::Starting))), "the fleet file overrides the unit");
}

#[test]
fn progress_counts_again_and_attempts_that_all_fail_do_not() {
    let (pre, start) =
        (unit(ActiveState::Activating, "start-pre", 1), unit(ActiveState::Activating, "start", 1));
    let second = UnitSnapshot { control: 7, ..pre.clone() };
    let more = UnitSnapshot { status: Some("recovering 40%".to_owned()), ..start.clone() };
    let policy = Policy::default();
    let whole = Some((secs(90) + SLACK, Hang::In(Step::Starting)));
    assert_eq!(hangs(&[pre.clone(), second, start.clone(), more], &policy), whole, "it gets on");
    // Each attempt has its whole start timeout; all together have the time that one attempt may take.
    let wait = unit(ActiveState::Activating, "auto-restart", 1);
    let again = unit(ActiveState::Activating, "start", 2);
    let brief = Timeouts { stop_ms: Some(0), restart_ms: Some(0), ..Timeouts::default() };
    let looks = [start, wait, again].map(|unit| UnitSnapshot { timeouts: brief, ..unit });
    assert_eq!(hangs(&looks, &policy), Some((secs(90) + SLACK - secs(2), Hang::NeverUp)));
    // On its way to the next attempt systemd passes through `failed`; a unit that stays down is another story.
    let failed =
        UnitSnapshot { restarts_itself: true, timeouts: brief, ..unit(ActiveState::Failed, "failed", 1) };
    let [first, wait, again] = looks.clone();
    let through = [first.clone(), failed.clone(), wait, again.clone()];
    assert_eq!(hangs(&through, &policy), Some((secs(90) + SLACK - secs(3), Hang::NeverUp)));
    let stayed = [vec![first], vec![failed; 7], vec![again]].concat();
    assert_eq!(hangs(&stayed, &policy), Some((secs(90) + SLACK, Hang::In(Step::Starting))));
    let endless = looks.map(|unit| UnitSnapshot { timeouts: Timeouts { start_ms: None, ..brief }, ..unit });
    let lane = Policy { endless: None, ..policy };
    assert_eq!(hangs(&endless, &lane), None, "a lane that waits for its Redis");
}

#[test]
fn a_relaunch_is_waited_for_as_long_as_systemd_itself_may_take() {
    let timeouts = Timeouts { start_ms: Some(40_000), stop_ms: Some(300_000), ..Timeouts::default() };
    let policy = Policy::default();
    assert_eq!(timeouts.relaunch(&policy), secs(340) + Duration::from_millis(100) + SLACK);
    let own = Policy { start_timeout: Some(secs(100)), ..policy.clone() };
    assert_eq!(timeouts.relaunch(&own), secs(400) + Duration::from_millis(100) + SLACK);
    let endless = Timeouts { start_ms: None, ..timeouts };
    let lane = Policy { endless: None, ..policy };
    assert_eq!(endless.relaunch(&lane), secs(390) + Duration::from_millis(100) + SLACK);
}

#[test]
fn a_look_that_failed_and_a_supervisor_that_was_away_make_nobody_hang() {
    let seen = Observation::Unit(unit(ActiveState::Activating, "start", 1));
    let transit = Transit::after(None, &seen, START);
    assert_eq!(Transit::after(transit, &Observation::Failed("x".to_owned()), START + secs(99)), transit);
    let mut transit = transit.unwrap();
    transit.count_again(START + secs(3600));
    let policy = Policy::default();
    assert_eq!(hangs_at(Some(transit), &seen, &policy), Some(START + secs(3600 + 90) + SLACK));
}
