//! The judge: pure decisions. No I/O, no clock, no randomness; what happened comes in, what is to be done goes out.

mod classify;
mod crowd;
mod decide;
mod drill;
mod neighbour;
mod observation;
mod order;
mod state;
mod vitals;

pub use classify::{Death, Health, Host, Obstacle, classify};
pub use crowd::{Crowd, crowd};
pub use decide::{LOST_AFTER, Rungs, Terms, backoff, decide};
pub use drill::{Deed, Drill, End, Ground, Hindrance, Sign, Stage, rehearsable};
pub use neighbour::{Errand, Sight, errand};
pub use observation::{ActiveState, LoadState, Observation, StopCause, UnitSnapshot};
pub use order::{Admitted, Objection, Wish, admit};
pub use state::{Action, Ending, Episode, Event, Hold, Phase, Say, Wait, WorkerState};
pub use vitals::{Pulse, Reading, Track, Vitals};

#[cfg(test)]
mod properties;
