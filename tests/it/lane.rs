//! Lanes as processes against a real server.

mod answered;
mod canary;
mod deaf;
mod every_step;
mod forged;
mod fulldisk;
mod giving;
mod heritage;
mod house;
mod kills;
mod lost;
mod oversize;
mod record;
mod reload;
mod rig;
mod secret;
mod sentinel;
mod servers;
mod status;
mod steps;
mod storm;
mod tasks;
mod trouble;
