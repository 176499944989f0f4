//! Scenarios on real nodes: systemd, D-Bus, journald and the network are what they are in production.
//! Each one boots a lab of its own, so that they can run side by side and fail alone.

mod death;
mod degraded;
mod door;
mod harness;
mod orders;
mod speak;
mod survival;
