//! Integration tests.

mod units;
mod fleet;
mod cli;
mod door;
mod journal;
mod queue;
mod store;
