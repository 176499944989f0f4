//! keyholder: the host next door brings a dead worker back.
//!
//! A minimal root supervisor per host follows its workers through systemd's D-Bus interface, repairs the dead at once
//! and obeys authenticated relaunch orders from its peers. Arrows between modules point one way: `cli` uses
//! `supervise`, which uses `judge` (pure decisions) and the edges `systemd`, `peer`, `store`, `journal`, `queue`.

pub mod catalog;
pub mod cli;
pub mod config;
pub mod detect;
pub mod fleet;
pub mod journal;
pub mod judge;
pub mod lane;
mod notify;
pub mod peer;
pub mod queue;
pub mod store;
pub mod supervise;
pub mod systemd;
pub mod vocabulary;
