//! For how long a worker is broken, and what kind of refusal each hindrance is.

use std::time::Duration;

use crate::judge::Hindrance;
use crate::peer::inbox::Asker;
use crate::peer::wire::{DrillOrder, RefusalCode};
use crate::supervise::worker::Worker;

/// The shortest and the longest lease. Whatever is broken is whole again by then, plus what a remedy may take.
pub(super) const LEASE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(600));

/// For how long a worker is broken at most. A peer may ask for less than the node itself would take, and not for more.
pub(super) fn lease(worker: &Worker, order: DrillOrder, asker: &Asker) -> Duration {
    let own = worker.spec.rehearsal(order.class);
    let lease = match (order.lease_ms, asker.peer()) {
        (0, _) => own,
        (ms, Some(_)) => Duration::from_millis(ms).min(own),
        (ms, None) => Duration::from_millis(ms),
    };
    lease.clamp(LEASE.0, LEASE.1)
}

pub(super) fn code(hindrance: &Hindrance) -> RefusalCode {
    match hindrance {
        Hindrance::NotConfigured(_) | Hindrance::NobodyRepairs => RefusalCode::NotConfigured,
        Hindrance::Critical | Hindrance::CriticalForPeers => RefusalCode::Critical,
        Hindrance::Held => RefusalCode::Held,
        Hindrance::Quarantined => RefusalCode::Quarantined,
        Hindrance::Host
        | Hindrance::Spent
        | Hindrance::Asked(_)
        | Hindrance::UnderWay(_)
        | Hindrance::Degraded(_)
        | Hindrance::Unwell(_)
        | Hindrance::NoHelper
        | Hindrance::Writes(_) => RefusalCode::NotNow,
    }
}
