//! The exit codes of every command, in one place.

use std::fmt::Write as _;
use std::process::ExitCode;

use super::fold::fold;
use crate::peer::wire::{Class, NodeReport, NodeState, RefusalCode};

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// 0
    Ok,
    /// 1
    Failed,
    /// 2; clap uses the same number.
    Usage,
    /// 3, as `systemctl status` has it.
    NotHealthy,
    /// 4, as `systemctl status` has it.
    NoSuch,
    /// 5
    Refused,
    /// 6
    Unreachable,
}

impl Exit {
    /// All of them, in order.
    pub const ALL: [Self; 7] = [
        Self::Ok,
        Self::Failed,
        Self::Usage,
        Self::NotHealthy,
        Self::NoSuch,
        Self::Refused,
        Self::Unreachable,
    ];

    /// The number.
    pub const fn code(self) -> u8 {
        match self {
            Self::Ok => 0,
            Self::Failed => 1,
            Self::Usage => 2,
            Self::NotHealthy => 3,
            Self::NoSuch => 4,
            Self::Refused => 5,
            Self::Unreachable => 6,
        }
    }

    /// What it means, for help and man page.
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::Ok => {
                "done; for status and doctor: all is well (on hold, starting or leaving as announced counts)"
            }
            Self::Failed => "it was tried and did not succeed",
            Self::Usage => "the command line is wrong",
            Self::NotHealthy => {
                "something is dead, unknown or unreachable, a check of doctor or matrix --strict failed, or nothing could be proved"
            }
            Self::NoSuch => "no such node or worker",
            Self::Refused => "refused, and nothing was touched; the text names the way out",
            Self::Unreachable => {
                "the supervisor, the peer or the lane that was meant, or Redis, does not answer"
            }
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

impl From<RefusalCode> for Exit {
    fn from(code: RefusalCode) -> Self {
        match code {
            RefusalCode::UnknownWorker | RefusalCode::UnknownNode => Self::NoSuch,
            RefusalCode::Unreachable | RefusalCode::NoAnswer => Self::Unreachable,
            RefusalCode::Malformed
            | RefusalCode::TooLarge
            | RefusalCode::OutOfOrder
            | RefusalCode::WrongNode
            | RefusalCode::StaleNonce
            | RefusalCode::NoGrant
            | RefusalCode::LocalOnly
            | RefusalCode::NotRoot
            | RefusalCode::NoWorker
            | RefusalCode::Held
            | RefusalCode::Quarantined
            | RefusalCode::NotStartable
            | RefusalCode::NotRunning
            | RefusalCode::NotConfigured
            | RefusalCode::NotNow
            | RefusalCode::Critical
            | RefusalCode::Leaving
            | RefusalCode::Busy
            | RefusalCode::Internal => Self::Refused,
        }
    }
}

/// The code for what a `status` has shown.
pub fn of_reports(reports: &[NodeReport]) -> Exit {
    let node = |state| match state {
        NodeState::Up | NodeState::Starting | NodeState::Leaving => true,
        NodeState::SupervisorDead | NodeState::Unreachable | NodeState::CutOff | NodeState::Unknown => false,
    };
    let worker = |class| match class {
        Class::Healthy | Class::Starting | Class::Held => true,
        Class::Dead | Class::Stuck | Class::DeliveryGap | Class::Unknown => false,
    };
    let well = reports.iter().all(|report| {
        // A node that leaves takes its workers along; that was announced.
        node(report.state)
            && (report.state == NodeState::Leaving
                || report.workers.iter().all(|w| worker(w.class) && w.alert.is_none()))
    });
    if well { Exit::Ok } else { Exit::NotHealthy }
}

/// The table for `--help`.
pub fn table() -> String {
    let mut text = String::from("Exit status:\n");
    for exit in Exit::ALL {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "  {}  {}", exit.code(), fold(exit.meaning(), Some(80), 5, 5));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_are_their_places_in_the_table() {
        assert!(Exit::ALL.iter().enumerate().all(|(place, exit)| usize::from(exit.code()) == place));
        insta::assert_snapshot!(table());
    }
}
