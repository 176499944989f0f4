//! What a watcher does about a neighbour's worker. The node itself comes first; the watcher acts on what the node
//! leaves to it, or on what stays dead with nobody at it.

use std::time::Duration;

use crate::vocabulary::{Policy, RepairBy};

/// What a watcher knows of a neighbour's dead worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sight {
    /// How long it has been dead.
    pub dead_for: Duration,
    /// Whether its node is at it or has a repair planned.
    pub attended: bool,
    /// Whether its node leaves it to the watchers, and the time for that has come.
    pub left_to_peers: bool,
    /// Whether it is on hold or in quarantine.
    pub spared: bool,
    /// Whether systemd would start it if asked.
    pub startable: bool,
}

/// What a watcher does about a neighbour's worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Errand {
    /// Nothing.
    None,
    /// Look again in this time unless something changes.
    LookIn(Duration),
    /// Order a relaunch now.
    Relaunch,
}

/// Decides about a worker that is seen dead. One that is not seen dead needs nothing from its neighbours.
pub fn errand(sight: Sight, policy: &Policy) -> Errand {
    if sight.spared || !sight.startable || policy.repair_by == RepairBy::Nobody {
        return Errand::None;
    }
    if sight.left_to_peers {
        return Errand::Relaunch;
    }
    if sight.attended {
        return Errand::None;
    }
    match policy.grace.checked_sub(sight.dead_for) {
        Some(left) if !left.is_zero() => Errand::LookIn(left),
        _ => Errand::Relaunch,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dead(secs: u64) -> Sight {
        Sight { dead_for: Duration::from_secs(secs), startable: true, ..Sight::default() }
    }

    fn ask(sight: Sight) -> Errand {
        errand(sight, &Policy::default())
    }

    #[test]
    fn the_node_itself_comes_first() {
        assert_eq!(ask(dead(0)), Errand::LookIn(Duration::from_secs(5)));
        assert_eq!(ask(dead(5)), Errand::Relaunch);
        assert_eq!(ask(Sight { attended: true, ..dead(60) }), Errand::None);
    }

    #[test]
    fn what_is_left_to_the_peers_is_done_at_once() {
        assert_eq!(ask(Sight { left_to_peers: true, ..dead(0) }), Errand::Relaunch);
    }

    #[test]
    fn nothing_is_ordered_against_a_hold_a_quarantine_an_obstacle_or_the_fleet_file() {
        assert_eq!(ask(Sight { spared: true, left_to_peers: true, ..dead(3600) }), Errand::None);
        assert_eq!(ask(Sight { startable: false, ..dead(3600) }), Errand::None);
        let nobody = Policy { repair_by: RepairBy::Nobody, ..Policy::default() };
        assert_eq!(errand(dead(3600), &nobody), Errand::None);
    }
}
