//! The fleet file: what nodes there are, what runs on them, who watches whom and who may do what.
//!
//! Bytes become a tree that knows where everything stands (`yaml`), the tree becomes checked values (`raw`, `leaf`), and
//! these become the types of `model` if they fit together (`validate`, `watch`). Each step reports what it finds and
//! goes on, so that an operator sees every mistake at once.

mod leaf;
mod load;
mod model;
mod problem;
mod raw;
mod render;
mod report;
mod suggest;
mod trust;
mod validate;
mod walk;
mod watch;
mod whoami;
mod yaml;

#[cfg(test)]
mod tests;

pub use crate::vocabulary::{BlastRadius, Policy, RepairBy};
pub use load::{Loaded, MAX_FILE, parse};
pub use model::{Fleet, Grant, Node, Right, Scope, Worker};
pub use problem::{Problem, Problems, Severity, escape};
pub use suggest::did_you_mean;
pub use whoami::{NODE_FILE, NODE_VARIABLE, WhoamiError, whoami};
