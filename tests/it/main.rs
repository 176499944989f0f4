//! Integration tests.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::wildcard_enum_match_arm,
    clippy::print_stderr,
    reason = "test code: a failed expectation ends the test, also in helpers outside #[test] functions"
)]

mod architecture;
mod catalog;
mod circles;
mod cli;
mod detect;
mod docs;
mod door;
mod executable;
mod fleet;
mod hostile;
mod journal;
mod lane;
mod orphans;
mod queue;
mod redis_server;
mod refusals;
mod replay;
mod sources;
mod store;
mod systemd;
mod units;
mod words;
