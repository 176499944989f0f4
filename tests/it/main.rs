//! Integration tests.

mod cli;
mod door;
mod fleet;
mod journal;
mod queue;
mod store;
mod units;
