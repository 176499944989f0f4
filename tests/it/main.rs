//! Integration tests.

mod cli;
mod door;
mod fleet;
mod units;
mod journal;
mod queue;
mod store;
