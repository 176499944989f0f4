//! Integration tests.

mod journal;
mod queue;
mod store;
