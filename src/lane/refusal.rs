//! Why a task is not run.

use serde::{Deserialize, Serialize};

/// A task was not run; nothing was started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{text}")]
#[serde(deny_unknown_fields)]
pub struct Refusal {
    /// For programs.
    pub code: RefusalCode,
    /// For people: the code again, and one sentence. Fit for a terminal.
    pub text: String,
}

impl Refusal {
    /// A refusal; `why` comes after the code.
    pub fn new(code: RefusalCode, why: impl std::fmt::Display) -> Self {
        let name = code.name();
        // The articles write this one without a colon: unknown_action 'x' on mars.
        let colon = if code == RefusalCode::UnknownAction { "" } else { ":" };
        Self { code, text: format!("{name}{colon} {why}") }
    }
}

/// Why, in one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RefusalCode {
    /// This node's catalog has no such action.
    UnknownAction,
    /// It changes something, and this lane only reads.
    ModeMismatch,
    /// A parameter is not one that the catalog allows.
    BadParam,
    /// It ran as often as the catalog allows.
    RateLimit,
    /// It is too old, or from the future.
    Expired,
    /// It is no task.
    Malformed,
    /// It bears no signature, or none that counts here.
    Unsigned,
    /// The catalog wants a person's approval, and it bears none that counts here.
    Unapproved,
    /// It was issued before the lane's ledger begins, and may have been run before.
    BeforeLedger,
    /// Its id was used before, by a task with other bytes.
    Replayed,
}

impl RefusalCode {
    /// As in results and texts.
    pub fn name(self) -> &'static str {
        match self {
            Self::UnknownAction => "unknown_action",
            Self::ModeMismatch => "mode_mismatch",
            Self::BadParam => "bad_param",
            Self::RateLimit => "rate_limit",
            Self::Expired => "expired",
            Self::Malformed => "malformed",
            Self::Unsigned => "unsigned",
            Self::Unapproved => "unapproved",
            Self::BeforeLedger => "before_ledger",
            Self::Replayed => "replayed",
        }
    }

    /// Whether the task's id is used up by this answer, so that the lane remembers it and answers under it. Not that of what
    /// cannot be read, of what nobody known here has signed (anybody could use up another's id before it comes) or approved (the
    /// approval may still come, for the same task), and of what has taken another's id.
    pub fn consumes_id(self) -> bool {
        match self {
            Self::Malformed | Self::Unsigned | Self::Unapproved | Self::Replayed => false,
            Self::UnknownAction
            | Self::ModeMismatch
            | Self::BadParam
            | Self::RateLimit
            | Self::Expired
            | Self::BeforeLedger => true,
        }
    }

    /// Whether the task is also put among the dead: it cannot be answered under an id of its own, so somebody should
    /// look at what pushed it; or nobody may wait for its answer any more, and somebody should ask again.
    pub fn is_dead(self) -> bool {
        !self.consumes_id() || self == Self::BeforeLedger
    }
}
