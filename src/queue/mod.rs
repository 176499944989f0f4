//! Redis, for the lanes; relaunching never needs it. The only place that imports `redis`.

mod preflight;

pub use preflight::{Finding, Level, QueueError, preflight};
