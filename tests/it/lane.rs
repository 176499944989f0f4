//! Lanes as processes against a real server.

mod kills;
mod rig;
mod tasks;
mod trouble;
