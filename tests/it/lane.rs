//! Lanes as processes against a real server.

mod giving;
mod heritage;
mod kills;
mod record;
mod reload;
mod rig;
mod status;
mod tasks;
mod trouble;
