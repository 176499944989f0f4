//! What can be asked of a supervisor.

use serde::{Deserialize, Serialize};

#[cfg(doc)]
use super::ServerFrame;
use crate::fleet::Right;
use crate::vocabulary::{FailureClass, InvocationId, Mode, NodeName, TaskId};

/// What can be asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Verb {
    /// The state of a worker, or of the node and all its workers.
    Status {},
    /// Restart the worker's unit.
    Relaunch(RelaunchOrder),
    /// Wake the worker's loop.
    Nudge(GentleOrder),
    /// Build the worker's receive pipe again.
    Repipe(GentleOrder),
    /// Run the node's `power` command here, on a watcher of it. Only over the local socket.
    Power {
        /// Also when other watchers still reach the node.
        force: bool,
    },
    /// Break the worker (or the node's supervisor) on purpose and see it repaired.
    Drill(DrillOrder),
    /// Leave the worker alone for this long.
    Hold {
        /// How long, in milliseconds.
        for_ms: u64,
    },
    /// End a hold or a quarantine.
    Release {},
    /// Observation, class, decision and why.
    Explain {},
    /// The last lines of the audit trail. Only over the local socket.
    Audit {
        /// How many lines, newest last.
        last: u32,
    },
    /// The whole fleet as this node sees it. Only over the local socket.
    Fleet {},
    /// Who ran a task on the node: the journal is searched.
    Prove {
        /// The task.
        task: TaskId,
        /// The lane that should have run it, if one in particular should have.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        lane: Option<Mode>,
    },
    /// Take down that somebody is about to give a dead-lettered task again. Only over the local socket.
    Requeue(Box<DeadLetter>),
    /// Take down that somebody is about to throw a dead-lettered task away. Only over the local socket.
    Drop(Box<DeadLetter>),
    /// From here on push every change that this node learns of: a [`ServerFrame::Snapshot`] per node first, then each
    /// [`ServerFrame::Change`]. Only over the local socket.
    Watch {},
    /// From here on push every record of this node as a [`ServerFrame::Event`], as it happens. Only over the local
    /// socket.
    Events {},
}

/// A task that could not be done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeadLetter {
    /// The node that it was for.
    pub node: NodeName,
    /// Which of its lanes.
    pub lane: Mode,
    /// Its id, or the hash of its bytes.
    pub task: TaskId,
}

/// How a relaunch is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RelaunchOrder {
    /// Only if the worker still runs (or last ran) under this invocation; otherwise the answer is `already_recovered`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expect: Option<InvocationId>,
    /// Answer only when the settle time has shown whether it stays up; otherwise when systemd's job is done.
    #[serde(default)]
    pub settled: bool,
    /// Override a hold or a quarantine. Root on the node itself may, a peer may not.
    #[serde(default)]
    pub force: bool,
}

/// How a nudge or a repipe is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GentleOrder {
    /// Only if the worker still runs under this invocation; otherwise the answer is `already_recovered`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expect: Option<InvocationId>,
    /// Override a hold or a quarantine. Root on the node itself may, a peer may not.
    #[serde(default)]
    pub force: bool,
}

/// A rehearsal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DrillOrder {
    /// How it is to fall.
    pub class: FailureClass,
    /// After how many milliseconds the node restores the worker by itself if nobody else has. 0: as long as its
    /// detector and its remedies may take.
    pub lease_ms: u64,
    /// Also a worker that is `critical`.
    #[serde(default)]
    pub yes: bool,
}

impl Verb {
    /// The right that a peer needs for it; `None` means that it is for the local socket only.
    pub fn right(&self) -> Option<Right> {
        match self {
            Self::Status {} | Self::Explain {} => Some(Right::Status),
            Self::Relaunch(_) => Some(Right::Relaunch),
            Self::Nudge(_) => Some(Right::Nudge),
            Self::Repipe(_) => Some(Right::Repipe),
            Self::Drill(_) => Some(Right::Drill),
            Self::Hold { .. } | Self::Release {} => Some(Right::Hold),
            Self::Prove { .. } => Some(Right::Prove),
            Self::Power { .. }
            | Self::Audit { .. }
            | Self::Fleet {}
            | Self::Requeue(_)
            | Self::Drop(_)
            | Self::Watch {}
            | Self::Events {} => None,
        }
    }

    /// Whether it changes anything. What changes something is for root on the local socket, and is audited twice.
    pub fn acts(&self) -> bool {
        match self {
            Self::Relaunch(_)
            | Self::Nudge(_)
            | Self::Repipe(_)
            | Self::Power { .. }
            | Self::Drill(_)
            | Self::Hold { .. }
            | Self::Release {}
            | Self::Requeue(_)
            | Self::Drop(_) => true,
            Self::Status {}
            | Self::Explain {}
            | Self::Audit { .. }
            | Self::Fleet {}
            | Self::Prove { .. }
            | Self::Watch {}
            | Self::Events {} => false,
        }
    }

    /// Its name, as on the wire, in the audit and on the command line.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Status {} => "status",
            Self::Relaunch(_) => "relaunch",
            Self::Nudge(_) => "nudge",
            Self::Repipe(_) => "repipe",
            Self::Power { .. } => "power",
            Self::Drill(_) => "drill",
            Self::Hold { .. } => "hold",
            Self::Release {} => "release",
            Self::Explain {} => "explain",
            Self::Audit { .. } => "audit",
            Self::Fleet {} => "fleet",
            Self::Prove { .. } => "prove",
            Self::Requeue(_) => "requeue",
            Self::Drop(_) => "drop",
            Self::Watch {} => "watch",
            Self::Events {} => "events",
        }
    }
}
