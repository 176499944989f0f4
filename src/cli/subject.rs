//! What a question is about.

use std::fmt;
use std::str::FromStr;

use crate::peer::wire::{NodeReport, WorkerReport};
use crate::vocabulary::{NameError, NodeName, Target, WorkerName};

/// A node with all its workers, or one worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Subject {
    /// `NODE`
    Node(NodeName),
    /// `NODE/WORKER`
    Worker(Target),
}

impl FromStr for Subject {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        if text.contains('/') { text.parse().map(Self::Worker) } else { text.parse().map(Self::Node) }
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node(node) => node.fmt(f),
            Self::Worker(target) => target.fmt(f),
        }
    }
}

impl Subject {
    /// The node that is meant, or that the meant worker is on.
    pub fn node(&self) -> &NodeName {
        match self {
            Self::Node(node) => node,
            Self::Worker(target) => &target.node,
        }
    }

    /// The worker that is meant, if it is one.
    pub fn worker(&self) -> Option<&WorkerName> {
        match self {
            Self::Node(_) => None,
            Self::Worker(target) => Some(&target.worker),
        }
    }

    /// Whether a worker is meant, alone or with its node.
    pub fn covers(&self, report: &WorkerReport) -> bool {
        *self.node() == report.node && self.worker().is_none_or(|worker| *worker == report.worker)
    }

    /// The part of a node's report that is meant; none of it if that is another node.
    pub fn narrow(&self, mut report: NodeReport) -> Option<NodeReport> {
        if *self.node() != report.node {
            return None;
        }
        report.workers.retain(|worker| self.covers(worker));
        Some(report)
    }
}
