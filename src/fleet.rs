//! The fleet file: what nodes there are, what runs on them, who watches whom and who may do what.
//!
//! Bytes become a tree that knows where everything stands (`config`), the tree becomes checked values (`raw`, `leaf`),
//! and these become the types of `model` if they fit together (`validate`, `watch`). Each step reports what it finds
//! and goes on, so that an operator sees every mistake at once.

mod care;
mod leaf;
mod load;
pub mod matrix;
mod model;
mod raw;
mod redis;
mod rehearse;
mod validate;
mod watch;
mod whoami;

#[cfg(test)]
mod tests;

pub use crate::config::{MAX_FILE, Problem, Problems, Severity, did_you_mean, escape};
pub use crate::vocabulary::{BlastRadius, Policy, RepairBy};
pub use load::{Loaded, parse};
pub use model::{Fleet, Grant, Lanes, Node, Right, Scope, Worker};
pub use whoami::{NODE_FILE, NODE_VARIABLE, WhoamiError, whoami};
