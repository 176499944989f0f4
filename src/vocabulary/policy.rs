//! How a worker is to be looked after: what depends on it, who repairs it, and with which times and limits.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// What depends on a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BlastRadius {
    /// Act and raise an alert at once.
    Critical,
    /// Act at once and report.
    #[default]
    Normal,
    /// Record at once, repair silently.
    Auxiliary,
}

/// Who repairs a dead worker without being asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RepairBy {
    /// The node's own supervisor at once; a watcher if it is still dead after `grace`.
    #[default]
    Node,
    /// The watchers only, after `grace`: for a worker whose own host must not decide.
    Peer,
    /// Nobody; it is watched and reported. Orders from people and peers are still obeyed.
    Nobody,
}

/// The times and limits of one worker's repair.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// Who acts unasked.
    pub repair_by: RepairBy,
    /// How long an ordered stop that nobody declared is respected before the worker is brought back.
    pub undeclared_stop: Duration,
    /// How long a watcher leaves a dead worker to its own node before it acts.
    pub grace: Duration,
    /// How long a restarted worker must stay up before the repair counts as verified.
    pub settle: Duration,
    /// How long systemd may take to start it; none for what the unit's own `TimeoutStartSec=` says.
    pub start_timeout: Option<Duration>,
    /// How long systemd may take for what the unit lets take for ever (`infinity`); none for ever.
    pub endless: Option<Duration>,
    /// The flap guard: this many relaunches, whoever ordered them, …
    pub relaunches: u32,
    /// … within this time; then the worker is quarantined.
    pub per: Duration,
    /// How long a quarantined worker waits between two attempts. Quarantine is slow, never terminal.
    pub quarantine_retry: Duration,
    /// Within what time an auxiliary worker is repaired; zero is at once. It is seen and recorded at once all the same.
    pub repair_window: Duration,
    /// How old the last rehearsal of its remedies may be.
    pub rehearse_every: Duration,
    /// Whether its process may end well: an exit that systemd counts as success is by design.
    pub ends_clean: bool,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            repair_by: RepairBy::Node,
            undeclared_stop: Duration::from_secs(120),
            grace: Duration::from_secs(5),
            settle: Duration::from_secs(1),
            start_timeout: None,
            endless: Some(Duration::from_secs(900)),
            relaunches: 3,
            per: Duration::from_secs(600),
            quarantine_retry: Duration::from_secs(600),
            repair_window: Duration::ZERO,
            rehearse_every: Duration::from_secs(30 * 86_400),
            ends_clean: false,
        }
    }
}
