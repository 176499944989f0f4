//! Scenarios on real nodes: systemd, D-Bus, journald and the network are what they are in production.
//! Each one boots a lab of its own, so that they can run side by side and fail alone.

mod boot;
mod death;
mod harness;
mod peerside;
mod quarantine;
mod restraint;
mod scene;
