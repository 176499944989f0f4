//! Pure judgement: no I/O, no async, no clock.

mod observation;

pub use observation::{ActiveState, LoadState, Observation, StopCause, UnitSnapshot};
