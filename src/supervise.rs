//! The supervisor: one task that owns the state of this node's workers. It feeds the judge and carries out what the
//! judge decides; everything slow happens elsewhere and comes back as a message.

mod acts;
mod alarm;
mod assignments;
mod away;
mod blackouts;
mod core;
mod drill;
mod evidence;
#[cfg(test)]
mod explored;
mod forward;
mod gentle;
pub(crate) mod handlers;
pub mod kernel;
mod lanes;
mod loops;
mod neighbours;
mod orders;
mod own_host;
mod peers;
mod power;
mod publisher;
mod refusals;
mod report;
mod run;
mod say;
mod setup;
mod tape;
mod troubles;
mod waiters;
mod watcher_jobs;
mod worker;

pub use own_host::OPEN_THE_DOOR;
pub use setup::{Setup, SuperviseError};

/// Runs the supervisor until SIGTERM or SIGINT.
pub fn supervise(setup: Setup) -> Result<(), SuperviseError> {
    // One thread: the supervisor is small, and what is on one thread cannot race.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(SuperviseError::Runtime)?;
    runtime.block_on(run::run(setup))
}
