//! How a task ends.

use std::fmt;

use serde::{Deserialize, Serialize};

/// How a task ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskStatus {
    /// The command ended with exit code 0.
    Ok,
    /// It ended with another one, or could not be started.
    Failed,
    /// It was ended by a signal that the lane did not send.
    Killed,
    /// It took longer than its action may, and was ended.
    TimedOut,
    /// It was not run.
    Refused,
    /// The lane died while it ran; what it had done by then is not known.
    Interrupted,
}

impl TaskStatus {
    /// As in the result and in the journal.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Failed => "failed",
            Self::Killed => "killed",
            Self::TimedOut => "timed_out",
            Self::Refused => "refused",
            Self::Interrupted => "interrupted",
        }
    }
}

impl fmt::Display for TaskStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
