//! Scenarios on real nodes: systemd, D-Bus, journald and the network are what they are in production.
//! Each one boots a lab of its own, so that they can run side by side and fail alone.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::wildcard_enum_match_arm,
    clippy::print_stderr,
    reason = "test code: a failed expectation ends the test, also in helpers outside #[test] functions"
)]

mod alerts;
mod alone;
mod blind;
mod boot;
mod clock;
mod cutoff;
mod death;
mod degraded;
mod design;
mod detectors;
mod door;
mod drilledlanes;
mod drills;
mod falls;
mod hangs;
mod harness;
mod hostusers;
mod lanecases;
mod lanefalls;
mod lanehouse;
mod laneroot;
mod lanes;
mod mtu;
mod network;
mod nodefalls;
mod operator;
mod orders;
mod ownlane;
mod paths;
mod peerside;
mod pid1;
mod preload;
mod quarantine;
mod record;
mod redisfaults;
mod reload;
mod restraint;
mod scene;
mod speak;
mod storms;
mod stuck;
mod survival;
