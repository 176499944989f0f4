//! What people read. Every function here is pure: reports in, text out, so that each screen that shows them says the
//! same, and everything that came from outside is made printable on its way.

mod drill;
mod explain;
mod fleet;
mod lane;
mod look;
mod order;
mod record;
mod replay;
mod table;
#[cfg(test)]
mod tests;

use std::time::Duration;

pub use drill::{Rehearsed, drilled, rehearsals, rehearsed};
pub use explain::{explanation, node_explanation};
pub use fleet::{change, fleet, node_change};
pub use lane::lane_change;
pub use look::Look;
pub use order::{held, refused, relaunched, released, remedied};
pub(super) use record::tone;
pub use record::{Trail, audit, missed};
pub use replay::story;

use super::screen::Tone;
use crate::peer::wire::{Class, NodeState, WorkerReport};
use crate::vocabulary::human;

fn ms(ms: u64) -> String {
    human(Duration::from_millis(ms))
}

fn us(us: u64) -> String {
    human(Duration::from_micros(us))
}

pub(super) fn class(class: Class) -> (&'static str, Tone) {
    let tone = match class {
        Class::Healthy => Tone::Good,
        Class::Starting | Class::Held => Tone::Fair,
        Class::Dead | Class::Stuck | Class::DeliveryGap | Class::Unknown => Tone::Bad,
    };
    (class.name(), tone)
}

/// A worker's class in the word that people are shown, and its tone.
pub(super) fn word(worker: &WorkerReport) -> (&'static str, Tone) {
    (worker.word(), class(worker.class).1)
}

pub(super) fn state(state: NodeState) -> (&'static str, Tone) {
    let tone = match state {
        NodeState::Up => Tone::Good,
        NodeState::Starting | NodeState::Leaving => Tone::Fair,
        NodeState::SupervisorDead | NodeState::Unreachable | NodeState::CutOff | NodeState::Unknown => {
            Tone::Bad
        }
    };
    (state.name(), tone)
}

/// Whether the workers' states in the report of such a node are only the last known ones.
fn silent(state: NodeState) -> bool {
    match state {
        NodeState::Up | NodeState::Starting => false,
        NodeState::Leaving
        | NodeState::SupervisorDead
        | NodeState::Unreachable
        | NodeState::CutOff
        | NodeState::Unknown => true,
    }
}
