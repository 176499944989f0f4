//! What a watcher does about a neighbour's worker, and about a neighbour that is not there any more. The node itself comes
//! first; the watcher acts on what the node leaves to it, on what stays bad with nobody at it, and on what only the
//! outside can see.

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
pub enum Errand {
    /// Nothing.
    None,
    /// Look again in this time unless something changes.
    LookIn(Duration),
    /// Order this now.
    Order(Remedy),
}

/// Decides about a worker that is seen ailing. One that is not needs nothing from its neighbours.
pub fn errand(sight: Sight, policy: &Policy, rungs: Rungs) -> Errand {
    if sight.spared || !sight.startable || policy.repair_by == RepairBy::Nobody {
        return Errand::None;
    }
    if sight.attended && !sight.left_to_peers {
        return Errand::None;
    }
    let turn = RANK_STEP * sight.rank;
    let wait = if sight.left_to_peers { turn } else { policy.grace + turn };
    match wait.checked_sub(sight.for_) {
        Some(left) if !left.is_zero() => return Errand::LookIn(left),
        Some(_) | None => {}
    }
    let gentle = match sight.class {
        FailureClass::Stuck => rungs.nudge.map(|_| Remedy::Nudge),
        FailureClass::DeliveryGap => rungs.repipe.map(|_| Remedy::Repipe),
        FailureClass::Dead | FailureClass::SupervisorDead | FailureClass::Unreachable => None,
    };
    Errand::Order(gentle.filter(|_| sight.failures == 0).unwrap_or(Remedy::Relaunch))
}

/// What a watcher knows of a node that does not answer at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Blackout {
    /// For how long nobody has reached it, neither this watcher nor another that told it.
    pub for_: Duration,
    /// Whether another watcher still reaches it: then the way between is cut, and the host is up.
    pub reached_by_others: bool,
    /// Whether another watcher that answers has not looked yet: its supervisor has only just started.
    pub not_looked: bool,
    /// Whether this watcher reaches nobody although it watches several: then it is likelier itself that is cut off.
    pub alone: bool,
    /// How many watchers come before this one.
    pub rank: u32,
    /// How many of those answer this one: they know as much, and see to it.
    pub able: u32,
}

/// How much later each further watcher runs the `power` command.
const POWER_STEP: Duration = Duration::from_secs(20);
/// How much later for each that answers and will have run it. The host needs its time to boot, and a second command in the
/// middle of that may switch it off again.
const POWER_DONE: Duration = Duration::from_secs(600);

/// Whether a watcher is to switch the node on now, or when to look again; none if it must not.
pub fn power(blackout: Blackout, after: Duration) -> Option<Duration> {
    if blackout.reached_by_others || blackout.not_looked || blackout.alone {
        return None;
    }
    let turn = POWER_STEP * blackout.rank + POWER_DONE * blackout.able;
    Some((after + turn).saturating_sub(blackout.for_))
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

    fn ask(sight: Sight) -> Errand {
        let time = Some(Duration::from_secs(10));
        errand(sight, &Policy::default(), Rungs { nudge: time, repipe: time })
    }

    #[test]
    fn the_node_itself_comes_first() {
        assert_eq!(ask(sight(0)), Errand::LookIn(Duration::from_secs(5)));
        assert_eq!(ask(sight(5)), Errand::Order(Remedy::Relaunch));
        assert_eq!(ask(Sight { attended: true, ..sight(60) }), Errand::None);
    }

    #[test]
    fn what_is_left_to_the_peers_is_done_at_once_by_the_first_of_them() {
        let left = Sight { left_to_peers: true, ..sight(0) };
        assert_eq!(ask(left), Errand::Order(Remedy::Relaunch));
        assert_eq!(ask(Sight { rank: 1, ..left }), Errand::LookIn(RANK_STEP));
        assert_eq!(
            ask(Sight { rank: 1, for_: RANK_STEP, ..left }),
            Errand::Order(Remedy::Relaunch),
            "the second acts when the first has not"
        );
    }

    #[test]
    fn nothing_is_ordered_against_a_hold_a_quarantine_an_obstacle_or_the_fleet_file() {
        assert_eq!(ask(Sight { spared: true, left_to_peers: true, ..sight(3600) }), Errand::None);
        assert_eq!(ask(Sight { startable: false, ..sight(3600) }), Errand::None);
        let nobody = Policy { repair_by: RepairBy::Nobody, ..Policy::default() };
        assert_eq!(errand(sight(3600), &nobody, Rungs::default()), Errand::None);
    }

    #[test]
    fn each_class_gets_its_own_remedy_and_the_relaunch_when_that_has_not_helped() {
        let stuck = Sight { class: FailureClass::Stuck, ..sight(60) };
        assert_eq!(ask(stuck), Errand::Order(Remedy::Nudge));
        assert_eq!(ask(Sight { failures: 1, ..stuck }), Errand::Order(Remedy::Relaunch));
        let gap = Sight { class: FailureClass::DeliveryGap, ..sight(60) };
        assert_eq!(ask(gap), Errand::Order(Remedy::Repipe));
        assert_eq!(errand(gap, &Policy::default(), Rungs::default()), Errand::Order(Remedy::Relaunch));
    }

    #[test]
    fn power_needs_everybody_to_agree_that_nobody_is_there() {
        let after = Duration::from_secs(30);
        let dark = Blackout {
            for_: Duration::from_secs(30),
            reached_by_others: false,
            not_looked: false,
            alone: false,
            rank: 0,
            able: 0,
        };
        assert_eq!(power(dark, after), Some(Duration::ZERO));
        assert_eq!(power(Blackout { rank: 1, ..dark }, after), Some(POWER_STEP));
        let done = Blackout { rank: 1, able: 1, ..dark };
        assert_eq!(power(done, after), Some(POWER_STEP + POWER_DONE), "the first one has seen to it");
        assert_eq!(power(Blackout { reached_by_others: true, ..dark }, after), None);
        assert_eq!(power(Blackout { not_looked: true, ..dark }, after), None, "its word is waited for");
        assert_eq!(power(Blackout { alone: true, ..dark }, after), None);
    }
}
