//! Lanes as processes against a real server.

mod deaf;
mod giving;
mod kills;
mod rig;
mod status;
mod tasks;
mod trouble;
