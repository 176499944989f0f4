//! Which falls of a worker can be rehearsed: those that something would find, and that can be brought about without harm.

use std::time::Duration;

use super::model::Worker;
use crate::vocabulary::{FailureClass, Flow, RepairBy, Repipe};

/// What is left for finding a death, for its repair from next door and for a proof, unless the worker's own times are longer.
const LEAST: Duration = Duration::from_secs(60);

impl Worker {
    /// Why a fall of this class cannot be rehearsed with this worker; none if it can.
    pub fn no_rehearsal(&self, class: FailureClass) -> Option<&'static str> {
        if self.policy.repair_by == RepairBy::Nobody {
            return Some("fleet.yaml has nobody repair it (`repair_by: nobody`)");
        }
        match class {
            FailureClass::Dead => None,
            FailureClass::Stuck if self.stuck.is_some() => None,
            FailureClass::Stuck => Some("fleet.yaml names no `stuck`, so nothing would find it"),
            FailureClass::DeliveryGap => match &self.delivery_gap {
                None => Some("fleet.yaml names no `delivery_gap`, so nothing would find it"),
                Some(gap) => match (&gap.flow, &gap.repipe) {
                    (_, Some(Repipe::Restart(_))) => None,
                    (Flow::Lane(_), _) if self.lane.is_some() => None,
                    (Flow::Lane(_) | Flow::Queue { .. }, Some(Repipe::Hangup) | None) => {
                        Some("only a lane can be told to be deaf, and it has no pipe that could be stopped")
                    }
                },
            },
            FailureClass::SupervisorDead | FailureClass::Unreachable => {
                Some("that is a class of nodes, not of workers")
            }
        }
    }

    /// How long a rehearsal of this class takes at the most if all goes well.
    pub fn rehearsal(&self, class: FailureClass) -> Duration {
        let limit = match class {
            FailureClass::Stuck => self.stuck.as_ref().map(|stuck| stuck.older_than),
            FailureClass::DeliveryGap => self.delivery_gap.as_ref().map(|gap| gap.not_draining_for),
            FailureClass::Dead | FailureClass::SupervisorDead | FailureClass::Unreachable => None,
        };
        // A detector looks four times within its limit and may have looked just before; a gentle remedy that does not help
        // is given half the limit.
        LEAST.max(self.policy.settle * 2) + limit.unwrap_or_default() * 2
    }
}
