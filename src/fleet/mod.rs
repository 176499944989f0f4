//! The fleet file: what nodes there are, what runs on them, who watches whom and who may do what.

mod model;

pub use model::{BlastRadius, Fleet, Grant, Node, Policy, RepairBy, Right, Scope, Worker};
