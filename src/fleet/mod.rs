//! The fleet file: what nodes there are, what runs on them, who watches whom and who may do what.

mod model;

pub use crate::vocabulary::{BlastRadius, Policy, RepairBy};
pub use model::{Fleet, Grant, Node, Right, Scope, Worker};
