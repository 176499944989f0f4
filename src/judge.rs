//! The judge: pure decisions. No I/O, no clock, no randomness; what happened comes in, what is to be done goes out.

mod alerts;
mod asked;
mod blackout;
mod classify;
mod crowd;
mod decide;
mod drill;
mod hold;
mod idle;
pub mod log;
mod neighbour;
mod observation;
mod order;
pub mod replay;
mod state;
pub mod tape;
mod transit;
mod vitals;

pub use alerts::{ALERT_SETTLE, Alert, Alerts};
pub use asked::Asked;
pub use blackout::{Blackout, BlackoutCause, Found, PingReply, Power, Probe, Word, causes, power};
pub use classify::{Cause, Death, Health, Host, StartBlocker, classify};
pub use crowd::{Crowd, crowd};
pub use decide::{Rungs, Terms, backoff, decide};
pub use drill::{Drill, DrillEffect, DrillEnd, Ground, Hindrance, Stage, Trigger, rehearsable};
pub use hold::{OfRoot, Releases, may_hold, may_release};
pub use idle::{Idle, remembered};
pub use neighbour::{RANK_STEP, Sight, WatcherJob, watcher_job};
pub use observation::{
    ActiveState, Context, LoadState, Observation, Other, Standing, StopCause, Tie, UnitSnapshot,
};
pub use order::{Admitted, OrderRequest, Rejection, admit};
pub use state::{Action, Ending, Episode, Event, Hold, LOST_AFTER, Phase, Say, Stopped, Wait, WorkerState};
pub use transit::{Hang, Step, Timeouts, Transit, hangs_at, hung};
pub use vitals::{Proof, Pulse, Reading, Sign, Signs, Track, Vitals};

#[cfg(test)]
mod false_alarms;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod radii;
