//! Integration tests.

mod units;
mod fleet;
mod cli;
mod door;
