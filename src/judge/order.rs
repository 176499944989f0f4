//! May an ordered remedy be carried out? Decided before anything is touched.

use std::time::Duration;

use super::classify::{Death, Health, Host, StartBlocker};
use super::idle::Idle;
use super::state::{Phase, WorkerState};
use crate::vocabulary::{InvocationId, Moment, Policy, Remedy};

/// What is wished with an ordered remedy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OrderRequest {
    /// Which remedy.
    pub remedy: Remedy,
    /// Only if the worker still runs (or last ran) under this invocation.
    pub expect: Option<InvocationId>,
    /// Override a hold, a quarantine and the flap guard.
    pub force: bool,
}

/// How an order is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admitted {
    /// Start a relaunch.
    Start,
    /// The same one is in flight, or has still to show whether it helped; its outcome serves this order, too.
    Join,
    /// The worker already runs under another invocation than the one the order is about.
    AlreadyRecovered(InvocationId),
}

/// Why an order is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rejection {
    /// The host shuts down.
    Leaving,
    /// The worker is on hold.
    Held {
        /// How much longer.
        left: Duration,
        /// Why, in the holder's words.
        why: String,
        /// Who holds.
        by: String,
    },
    /// The worker is in quarantine.
    Quarantined,
    /// The flap guard's budget is spent.
    TooOften,
    /// systemd would refuse.
    NotStartable(StartBlocker),
    /// A unit with which it cannot run together runs, and would be stopped.
    Conflicts(String),
    /// It does not run, so there is nothing to nudge.
    NotRunning,
    /// Another remedy is under way.
    UnderWay(Remedy),
    /// systemd is in the middle of something with the unit, in these words. An order that is about one run does not cut into it.
    InTransition(&'static str),
}

/// Admits an order or says why not. An order may act on a worker that cannot be observed: somebody else decided.
/// `invocation` is the run that was seen last. Only root on the node may force, which the door has checked.
pub fn admit(
    state: &WorkerState,
    health: &Health,
    invocation: Option<InvocationId>,
    host: Host,
    wish: OrderRequest,
    policy: &Policy,
    now: Moment,
) -> Result<Admitted, Rejection> {
    if host == Host::Stopping {
        return Err(Rejection::Leaving);
    }
    if let Phase::Repairing { remedy, .. } = state.phase {
        return if remedy == wish.remedy { Ok(Admitted::Join) } else { Err(Rejection::UnderWay(remedy)) };
    }
    // A fresh relaunch that is still settling counts as running even if the look at it is not in yet.
    let running = match (&state.phase, health) {
        (Phase::Settling { invocation, .. }, _) => Some(*invocation),
        (
            _,
            Health::Healthy
            | Health::Blind(_)
            | Health::Stuck(_)
            | Health::DeliveryGap(_)
            | Health::InTransition(_),
        ) => invocation,
        (_, Health::Dead(_) | Health::Idle(_) | Health::Unknown(_)) => None,
    };
    if let (Some(expected), Some(running)) = (wish.expect, running)
        && expected != running
    {
        return Ok(Admitted::AlreadyRecovered(running));
    }
    // Whoever ordered what systemd does, perhaps this supervisor before it was restarted: the run that the order is about is
    // being replaced already.
    if let (Health::InTransition(what), Some(_), false) = (health, wish.expect, wish.force) {
        return Err(Rejection::InTransition(what));
    }
    match (health, wish.remedy) {
        (Health::Dead(Death::NotStartable(obstacle)), Remedy::Relaunch) => {
            return Err(Rejection::NotStartable(*obstacle));
        }
        (Health::Idle(Idle::Conflicts(unit)), Remedy::Relaunch) if !wish.force => {
            return Err(Rejection::Conflicts(unit.clone()));
        }
        // The dead are never nudged.
        (
            Health::Dead(_) | Health::Idle(_) | Health::InTransition(_) | Health::Unknown(_),
            Remedy::Nudge | Remedy::Repipe,
        ) => return Err(Rejection::NotRunning),
        (
            Health::Healthy
            | Health::Blind(_)
            | Health::Stuck(_)
            | Health::DeliveryGap(_)
            | Health::InTransition(_)
            | Health::Dead(_)
            | Health::Idle(_)
            | Health::Unknown(_),
            _,
        ) => {}
    }
    if wish.force {
        return Ok(Admitted::Start);
    }
    if let Phase::Verifying { remedy, .. } = state.phase
        && remedy == wish.remedy
    {
        return Ok(Admitted::Join);
    }
    if let Some(hold) = state.held(now) {
        return Err(Rejection::Held {
            left: hold.until.since(now),
            why: hold.why.clone(),
            by: hold.by.clone(),
        });
    }
    if state.quarantined() {
        return Err(Rejection::Quarantined);
    }
    if wish.remedy == Remedy::Relaunch
        && state.recent(policy, now) >= usize::try_from(policy.relaunches).unwrap_or(usize::MAX)
    {
        return Err(Rejection::TooOften);
    }
    Ok(Admitted::Start)
}

#[cfg(test)]
mod tests {
    use super::super::state::{Episode, Hold};
    use super::*;

    const NOW: Moment = Moment::from_millis(100_000);

    fn run(n: u8) -> InvocationId {
        InvocationId::from_bytes([n; 16])
    }

    fn ask(state: &WorkerState, health: &Health, wish: OrderRequest) -> Result<Admitted, Rejection> {
        admit(state, health, Some(run(1)), Host::Running, wish, &Policy::default(), NOW)
    }

    const CRASHED: Health = Health::Dead(Death::Crashed { systemd_may_restart: false });

    #[test]
    fn a_stale_expectation_touches_nothing() {
        let order = OrderRequest { expect: Some(run(9)), ..OrderRequest::default() };
        let state = WorkerState::default();
        assert_eq!(ask(&state, &Health::Healthy, order), Ok(Admitted::AlreadyRecovered(run(1))));
        // Dead under another run than expected is still dead.
        assert_eq!(ask(&state, &CRASHED, order), Ok(Admitted::Start));
        // The look at the fresh run may be late; the settling phase knows better.
        let settling =
            Phase::Settling { until: NOW, invocation: run(2), episode: Episode::default(), sign_by: None };
        let state = WorkerState { phase: settling, ..state };
        assert_eq!(ask(&state, &CRASHED, order), Ok(Admitted::AlreadyRecovered(run(2))));
    }

    #[test]
    fn an_order_about_one_run_does_not_cut_into_what_systemd_does_with_the_unit() {
        let state = WorkerState::default();
        let health = Health::InTransition("systemd has a job queued for it");
        let order = OrderRequest { expect: Some(run(1)), ..OrderRequest::default() };
        assert!(matches!(ask(&state, &health, order), Err(Rejection::InTransition(_))));
        assert_eq!(ask(&state, &health, OrderRequest { force: true, ..order }), Ok(Admitted::Start));
        assert_eq!(
            ask(&state, &health, OrderRequest::default()),
            Ok(Admitted::Start),
            "a person who names no run"
        );
    }

    #[test]
    fn a_second_order_joins_the_first() {
        let phase = Phase::Repairing {
            since: NOW,
            remedy: Remedy::Relaunch,
            episode: Episode::default(),
            until: None,
        };
        let state = WorkerState { phase, ..WorkerState::default() };
        assert_eq!(ask(&state, &CRASHED, OrderRequest::default()), Ok(Admitted::Join));
    }

    #[test]
    fn a_gentle_remedy_is_not_repeated_before_it_has_shown_whether_it_helped() {
        let phase = Phase::Verifying { until: NOW, remedy: Remedy::Repipe, episode: Episode::default() };
        let state = WorkerState { phase, ..WorkerState::default() };
        let blind = Health::Blind("Redis is away".to_owned());
        let again = OrderRequest { remedy: Remedy::Repipe, ..OrderRequest::default() };
        assert_eq!(ask(&state, &blind, again), Ok(Admitted::Join));
        assert_eq!(ask(&state, &blind, OrderRequest { force: true, ..again }), Ok(Admitted::Start));
        assert_eq!(ask(&state, &blind, OrderRequest::default()), Ok(Admitted::Start), "the next rung");
    }

    #[test]
    fn holds_quarantine_and_the_flap_guard_stop_everybody_but_root() {
        let force = OrderRequest { force: true, ..OrderRequest::default() };
        let hold = Hold {
            until: NOW + Duration::from_secs(1),
            why: "deploy".to_owned(),
            by: "root".to_owned(),
            by_peer: false,
        };
        let states = [
            WorkerState { hold: Some(hold), ..WorkerState::default() },
            WorkerState { phase: Phase::Quarantined { retry: NOW, failures: 0 }, ..WorkerState::default() },
            WorkerState { relaunches: vec![NOW; 3], ..WorkerState::default() },
        ];
        for state in states {
            assert!(ask(&state, &CRASHED, OrderRequest::default()).is_err(), "{state:?}");
            assert_eq!(ask(&state, &CRASHED, force), Ok(Admitted::Start), "{state:?}");
        }
    }

    #[test]
    fn what_would_stop_another_unit_is_started_only_by_force() {
        let state = WorkerState::default();
        let conflicts = Health::Idle(Idle::Conflicts("green.service".to_owned()));
        let refused = Err(Rejection::Conflicts("green.service".to_owned()));
        assert_eq!(ask(&state, &conflicts, OrderRequest::default()), refused);
        let force = OrderRequest { force: true, ..OrderRequest::default() };
        assert_eq!(ask(&state, &conflicts, force), Ok(Admitted::Start));
        // Whoever wants a unit that is down for another reason has it.
        assert_eq!(ask(&state, &Health::Idle(Idle::Done), OrderRequest::default()), Ok(Admitted::Start));
        let nudge = OrderRequest { remedy: Remedy::Nudge, ..OrderRequest::default() };
        assert_eq!(ask(&state, &Health::Idle(Idle::Done), nudge), Err(Rejection::NotRunning));
    }

    #[test]
    fn nothing_is_started_on_a_host_that_leaves_or_against_systemd() {
        let state = WorkerState::default();
        let force = OrderRequest { force: true, ..OrderRequest::default() };
        let leaving = admit(&state, &CRASHED, None, Host::Stopping, force, &Policy::default(), NOW);
        assert_eq!(leaving, Err(Rejection::Leaving));
        let masked = Health::Dead(Death::NotStartable(StartBlocker::Masked));
        assert_eq!(ask(&state, &masked, force), Err(Rejection::NotStartable(StartBlocker::Masked)));
    }
}
