//! From what it means to what is done. Pure and total; the supervisor is only the loop around it.

mod ailing;
mod decision;
mod fallen;
mod ordered;
mod repair;
mod seen;

use super::state::{Action, Event, WorkerState};
use crate::vocabulary::Moment;
use decision::Decision;
pub use decision::{Rungs, Terms, backoff};

/// Answers an event with the new state and what is to be done, in this order.
pub fn decide(
    state: &WorkerState,
    event: &Event,
    terms: Terms<'_>,
    now: Moment,
) -> (WorkerState, Vec<Action>) {
    let mut turn = Decision { state: state.clone(), actions: Vec::new(), terms, now, run: None };
    turn.forget();
    match event {
        Event::Seen { health, invocation } => {
            turn.on_its_way(health);
            turn.seen(health, *invocation);
        }
        Event::Done(ending) => turn.done(*ending),
        Event::Ordered(remedy) => turn.ordered(*remedy),
        Event::Hold(hold) => turn.hold(hold),
        Event::Release => turn.release(),
    }
    (turn.state, turn.actions)
}

#[cfg(test)]
mod tests;
