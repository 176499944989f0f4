//! The judge: pure decisions. No I/O, no clock, no randomness; what happened comes in, what is to be done goes out.

mod classify;
mod crowd;
mod decide;
mod drill;
pub mod log;
mod neighbour;
mod observation;
mod order;
pub mod replay;
mod state;
pub mod tape;
mod transit;
mod vitals;

pub use classify::{Death, Health, Host, Obstacle, classify};
pub use crowd::{Crowd, crowd};
pub use decide::{LOST_AFTER, Rungs, Terms, backoff, decide};
pub use drill::{Cue, Deed, Drill, End, Ground, Hindrance, Stage, rehearsable};
pub use neighbour::{Blackout, Errand, RANK_STEP, Sight, errand, power};
pub use observation::{ActiveState, LoadState, Observation, StopCause, UnitSnapshot};
pub use order::{Admitted, Objection, Wish, admit};
pub use state::{Action, Ending, Episode, Event, Hold, Phase, Say, Wait, WorkerState};
pub use transit::{Hang, Step, Timeouts, Transit, hangs_at, hung};
pub use vitals::{Pulse, Reading, Sign, Signs, Track, Vitals};

#[cfg(test)]
mod false_alarms;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod radii;
