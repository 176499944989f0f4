//! Integration tests.

mod cli;
mod door;
mod fleet;
mod units;
