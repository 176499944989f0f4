//! What people read. Every function here is pure: reports in, text out, so that each screen that shows them says the
//! same, and everything that came from outside is made printable on its way.

mod audit;
mod explain;
mod fleet;
mod order;
mod table;
#[cfg(test)]
mod tests;

use std::time::Duration;

pub use audit::audit;
pub use explain::explanation;
pub use fleet::{Look, change, fleet, node_change};
pub use order::{held, refused, relaunched, released};

use super::screen::Tone;
use crate::peer::wire::{Class, NodeState};
use crate::vocabulary::human;

fn ms(ms: u64) -> String {
    human(Duration::from_millis(ms))
}

fn us(us: u64) -> String {
    human(Duration::from_micros(us))
}

fn class(class: Class) -> (&'static str, Tone) {
    match class {
        Class::Healthy => ("healthy", Tone::Good),
        Class::Starting => ("starting", Tone::Fair),
        Class::Held => ("held", Tone::Fair),
        Class::Dead => ("dead", Tone::Bad),
        Class::Unknown => ("unknown", Tone::Bad),
    }
}

fn state(state: NodeState) -> (&'static str, Tone) {
    match state {
        NodeState::Up => ("up", Tone::Good),
        NodeState::Starting => ("starting", Tone::Fair),
        NodeState::Leaving => ("leaving", Tone::Fair),
        NodeState::SupervisorDead => ("supervisor-dead", Tone::Bad),
        NodeState::Unreachable => ("unreachable", Tone::Bad),
        NodeState::Unknown => ("unknown", Tone::Bad),
    }
}

/// Whether the workers' states in the report of such a node are only the last known ones.
fn silent(state: NodeState) -> bool {
    match state {
        NodeState::Up | NodeState::Starting => false,
        NodeState::Leaving | NodeState::SupervisorDead | NodeState::Unreachable | NodeState::Unknown => true,
    }
}
