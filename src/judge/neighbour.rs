//! What a watcher does about a neighbour's worker. The node itself comes first; the watcher acts on what the node leaves to it,
//! on what stays bad with nobody at it, and on what only the outside can see.

use std::time::Duration;

use super::decide::Rungs;
use crate::vocabulary::{FailureClass, Policy, Remedy, RepairBy};

/// How much later each further watcher acts than the one before it. `expect` makes doubles harmless; this makes them rare.
pub const RANK_STEP: Duration = Duration::from_secs(2);

/// What a watcher knows of a neighbour's worker that is not well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sight {
    /// How it fell.
    pub class: FailureClass,
    /// For how long; if it is left to the watchers, for how long that.
    pub for_: Duration,
    /// Whether its node is at it or has a repair planned.
    pub attended: bool,
    /// Whether its node leaves it to the watchers, and the time for that has come.
    pub left_to_peers: bool,
    /// Whether it is on hold or in quarantine.
    pub spared: bool,
    /// Whether systemd would start it if asked.
    pub startable: bool,
    /// How many orders of this watcher have not helped in this episode.
    pub failures: u32,
    /// How many watchers come before this one.
    pub rank: u32,
}

/// What a watcher does about a neighbour's worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WatcherJob {
    /// Nothing.
    None,
    /// Look again in this time unless something changes.
    LookIn(Duration),
    /// Order this now.
    Order(Remedy),
}

/// Decides about a worker that is seen ailing. One that is not needs nothing from its neighbours.
pub fn watcher_job(sight: Sight, policy: &Policy, rungs: Rungs) -> WatcherJob {
    if sight.spared || !sight.startable || policy.repair_by == RepairBy::Nobody {
        return WatcherJob::None;
    }
    if sight.attended && !sight.left_to_peers {
        return WatcherJob::None;
    }
    let turn = RANK_STEP * sight.rank;
    let wait = if sight.left_to_peers { turn } else { policy.grace + turn };
    match wait.checked_sub(sight.for_) {
        Some(left) if !left.is_zero() => return WatcherJob::LookIn(left),
        Some(_) | None => {}
    }
    let gentle = match sight.class {
        FailureClass::Stuck => rungs.nudge.map(|_| Remedy::Nudge),
        FailureClass::DeliveryGap => rungs.repipe.map(|_| Remedy::Repipe),
        FailureClass::Dead | FailureClass::SupervisorDead | FailureClass::Unreachable => None,
    };
    WatcherJob::Order(gentle.filter(|_| sight.failures == 0).unwrap_or(Remedy::Relaunch))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sight(secs: u64) -> Sight {
        Sight {
            class: FailureClass::Dead,
            for_: Duration::from_secs(secs),
            attended: false,
            left_to_peers: false,
            spared: false,
            startable: true,
            failures: 0,
            rank: 0,
        }
    }

    fn ask(sight: Sight) -> WatcherJob {
        let time = Some(Duration::from_secs(10));
        watcher_job(sight, &Policy::default(), Rungs { nudge: time, repipe: time })
    }

    #[test]
    fn the_node_itself_comes_first() {
        assert_eq!(ask(sight(0)), WatcherJob::LookIn(Duration::from_secs(5)));
        assert_eq!(ask(sight(5)), WatcherJob::Order(Remedy::Relaunch));
        assert_eq!(ask(Sight { attended: true, ..sight(60) }), WatcherJob::None);
    }

    #[test]
    fn what_is_left_to_the_peers_is_done_at_once_by_the_first_of_them() {
        let left = Sight { left_to_peers: true, ..sight(0) };
        assert_eq!(ask(left), WatcherJob::Order(Remedy::Relaunch));
        assert_eq!(ask(Sight { rank: 1, ..left }), WatcherJob::LookIn(RANK_STEP));
        assert_eq!(
            ask(Sight { rank: 1, for_: RANK_STEP, ..left }),
            WatcherJob::Order(Remedy::Relaunch),
            "the second acts when the first has not"
        );
    }

    #[test]
    fn nothing_is_ordered_against_a_hold_a_quarantine_an_obstacle_or_the_fleet_file() {
        assert_eq!(ask(Sight { spared: true, left_to_peers: true, ..sight(3600) }), WatcherJob::None);
        assert_eq!(ask(Sight { startable: false, ..sight(3600) }), WatcherJob::None);
        let nobody = Policy { repair_by: RepairBy::Nobody, ..Policy::default() };
        assert_eq!(watcher_job(sight(3600), &nobody, Rungs::default()), WatcherJob::None);
    }

    #[test]
    fn each_class_gets_its_own_remedy_and_the_relaunch_when_that_has_not_helped() {
        let stuck = Sight { class: FailureClass::Stuck, ..sight(60) };
        assert_eq!(ask(stuck), WatcherJob::Order(Remedy::Nudge));
        assert_eq!(ask(Sight { failures: 1, ..stuck }), WatcherJob::Order(Remedy::Relaunch));
        let gap = Sight { class: FailureClass::DeliveryGap, ..sight(60) };
        assert_eq!(ask(gap), WatcherJob::Order(Remedy::Repipe));
        assert_eq!(
            watcher_job(gap, &Policy::default(), Rungs::default()),
            WatcherJob::Order(Remedy::Relaunch)
        );
    }
}
