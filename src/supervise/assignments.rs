//! What the tasks beside the loop are to follow: systemd's units, the detectors' plan, the lanes.

use tokio::sync::watch;

use crate::detect::{Check, Plan};
use crate::vocabulary::{Mode, UnitName, WorkerName};

/// The lists that other tasks work by; a new one replaces the one before.
pub(super) struct Assignments {
    units: watch::Sender<Vec<UnitName>>,
    plan: watch::Sender<Plan>,
    lanes: watch::Sender<Vec<(WorkerName, Mode)>>,
    /// Another address of Redis than the fleet file's, with credentials.
    redis: Option<String>,
}

/// The other ends.
pub(super) struct Assigned {
    pub(super) units: watch::Receiver<Vec<UnitName>>,
    pub(super) plan: watch::Receiver<Plan>,
    pub(super) lanes: watch::Receiver<Vec<(WorkerName, Mode)>>,
}

impl Assignments {
    pub(super) fn new(redis: Option<String>) -> (Self, Assigned) {
        let (units, to_units) = watch::channel(Vec::new());
        let (plan, to_plan) = watch::channel(Plan::default());
        let (lanes, to_lanes) = watch::channel(Vec::new());
        let assigned = Assigned { units: to_units, plan: to_plan, lanes: to_lanes };
        (Self { units, plan, lanes, redis }, assigned)
    }

    /// The units that systemd's signals are followed of.
    pub(super) fn units(&self, units: Vec<UnitName>) {
        self.units.send_replace(units);
    }

    /// What the detectors look at; `redis` is the fleet file's address.
    pub(super) fn checks(&self, looks: Vec<Check>, redis: Option<&String>) {
        self.plan.send_replace(Plan { looks, redis: self.redis(redis) });
    }

    /// Which workers are lanes.
    pub(super) fn lanes(&self, lanes: Vec<(WorkerName, Mode)>) {
        self.lanes.send_replace(lanes);
    }

    /// Where Redis is for this supervisor: as its environment says, else as the fleet file does.
    pub(super) fn redis(&self, of_fleet: Option<&String>) -> Option<String> {
        self.redis.as_ref().or(of_fleet).cloned()
    }
}
