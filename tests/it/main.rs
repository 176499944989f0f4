//! Integration tests.

mod units;
mod fleet;
mod cli;
