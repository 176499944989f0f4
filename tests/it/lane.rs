//! Lanes as processes against a real server.

mod giving;
mod kills;
mod rig;
mod status;
mod tasks;
mod trouble;
