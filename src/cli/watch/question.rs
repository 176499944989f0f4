//! What the screen asks a person, and what it then asks the supervisor.

use std::time::Duration;

use crate::peer::wire::Verb;
use crate::vocabulary::Target;

/// Why, in the audit.
const BECAUSE: &str = "asked for on the screen";

/// What is asked before something is done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Question {
    /// Really?
    Sure(PendingOrder),
    /// For how many minutes; what has been typed.
    HoldFor(Target, String),
    /// And why; the minutes, and what has been typed.
    HoldWhy(Target, u64, String),
    /// How it is to fall.
    Class(Target),
}

/// Something to ask of the supervisor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PendingOrder {
    pub(super) target: Target,
    pub(super) verb: Verb,
    pub(super) because: String,
    pub(super) within: Duration,
}

impl PendingOrder {
    pub(super) fn new(target: Target, verb: Verb, within: Duration) -> Self {
        Self { target, verb, because: BECAUSE.to_owned(), within }
    }
}
