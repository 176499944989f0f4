//! Lanes as processes against a real server.

mod giving;
mod house;
mod kills;
mod rig;
mod secret;
mod sentinel;
mod servers;
mod storm;
mod tasks;
mod trouble;
