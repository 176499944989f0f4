//! Integration tests.

mod units;
mod fleet;
