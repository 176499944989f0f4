//! The validated catalog: whatever holds one of these values may rely on it without a further check.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

pub use crate::vocabulary::Mode;
use crate::vocabulary::{ActionName, CatalogHash, NodeName, ParamName};

/// How long an action may run if its catalog does not say.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);

/// Everything that one node may be asked to do. What is not here is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Catalog {
    /// The node whose lanes serve it.
    pub node: NodeName,
    /// Hash of the file's bytes.
    pub hash: CatalogHash,
    /// Every action by its name.
    pub actions: BTreeMap<ActionName, Action>,
}

/// One action.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Action {
    /// Which lane runs it.
    pub mode: Mode,
    /// What it does, for people and planners; one line, empty if the catalog does not say.
    pub description: String,
    /// The command. The first is a literal absolute path; every parameter is in it exactly once.
    pub argv: Vec<Arg>,
    /// Its parameters.
    pub params: BTreeMap<ParamName, Param>,
    /// How long it may run.
    pub timeout: Duration,
    /// How often it may run, if that is limited.
    pub rate: Option<Rate>,
    /// Whether a person must approve each run.
    pub approval: bool,
    /// Whether running it twice does the same as running it once. Only then is it run again after a lane died in it.
    pub idempotent: bool,
    /// Whether no other node's catalog may have an action of this name, so that the name alone says the route.
    pub only_here: bool,
}

/// One element of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Arg {
    /// Printable ASCII, as it stands in the catalog.
    Literal(String),
    /// The value of this parameter.
    Param(ParamName),
}

/// What a parameter may be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Param {
    /// One of these, in the order of the catalog: printable ASCII, at least one, none begins with `-`.
    Enum(Vec<String>),
    /// A whole number from `min` to `max`, both included.
    Int {
        /// The least.
        min: u32,
        /// The greatest.
        max: u32,
    },
}

/// At most so many runs within a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// How many.
    pub at_most: u32,
    /// Within which time.
    pub per: Duration,
}

impl Param {
    /// How many values it may have.
    pub fn size(&self) -> u64 {
        match self {
            Self::Enum(values) => values.len() as u64,
            Self::Int { min, max } => u64::from(*max).saturating_sub(u64::from(*min)) + 1,
        }
    }
}

/// The values that are allowed, as an error message lists them.
impl fmt::Display for Param {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Enum(values) => f.write_str(&values.join(", ")),
            Self::Int { min, max } => write!(f, "{min} to {max}"),
        }
    }
}
