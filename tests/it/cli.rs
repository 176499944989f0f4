//! The real binary against a supervisor that says what the test wants.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "helpers of tests")]

mod alert;
mod drills;
mod events;
mod failures;
pub(crate) mod fake;
mod follower;
mod help;
mod matrix;
mod orders;
mod screen;
mod status;
mod terminal;
mod watching;
