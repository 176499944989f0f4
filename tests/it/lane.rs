//! Lanes as processes against a real server.

mod giving;
mod kills;
mod rig;
mod tasks;
mod trouble;
