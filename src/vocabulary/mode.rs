//! The two lanes of a node.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Which lane runs an action.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// It changes nothing; many run at a time, without a way to gain rights.
    Read,
    /// It changes something; strictly one at a time.
    Write,
}

impl Mode {
    /// As it is written in the catalog.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
