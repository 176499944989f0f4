//! What became of a task, as it is published.

use serde::{Deserialize, Serialize};

use super::refusal::Refusal;
use crate::catalog::Mode;
use crate::vocabulary::NodeName;
pub use crate::vocabulary::TaskStatus as Status;

/// The answer to one task; every task gets exactly one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TaskResult {
    /// The task's id; `sha256:` and the hash of its bytes if it has none that can be read.
    pub id: String,
    /// What was asked for, if that can be read. Not necessarily an action that there is.
    pub action: Option<String>,
    /// How it ended.
    pub status: Status,
    /// Why it was not run, if it was refused.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub refusal: Option<Refusal>,
    /// What is to be said besides, in one sentence.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub note: Option<String>,
    /// What the command did, if one was started.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub ran: Option<Ran>,
    /// Which node answers.
    pub node: NodeName,
    /// Which of its lanes.
    pub lane: Mode,
    /// The lane's unit and its run, as PID 1 knows them; missing outside systemd.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub unit: Option<String>,
    /// See `unit`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub invocation: Option<String>,
    /// When it ended, RFC 3339 by the node's clock.
    pub at: String,
}

/// What a command did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ran {
    /// Its exit code, if it ended by itself.
    pub exit_code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// Whether it was over its time and was told to end.
    pub timed_out: bool,
    /// Whether something that it had started was still there after it, and was killed.
    pub left_behind: bool,
    /// Whether it had not ended when this was written, although it was told to: it runs with other rights, or hangs in the
    /// kernel. Its lane runs nothing beside it.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub beyond: bool,
    /// How long it ran, in ms.
    pub took_ms: u64,
    /// What it wrote to standard output.
    pub stdout: Output,
    /// What it wrote to standard error.
    pub stderr: Output,
}

impl Ran {
    /// How it ended.
    pub fn status(&self) -> Status {
        match (self.timed_out, self.exit_code) {
            (true, _) => Status::TimedOut,
            (false, Some(0)) => Status::Ok,
            (false, Some(_)) => Status::Failed,
            (false, None) => Status::Killed,
        }
    }
}

/// What a command wrote: all of it, or its beginning and its end.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Output {
    /// The beginning: all of it if nothing is omitted.
    pub head: Text,
    /// The end, if something is omitted before it.
    #[serde(skip_serializing_if = "Text::is_empty", default)]
    pub tail: Text,
    /// How many bytes are missing between the two.
    #[serde(skip_serializing_if = "is_zero", default)]
    pub omitted: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_zero(n: &u64) -> bool {
    *n == 0
}

/// Bytes, without loss.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Text {
    /// They are UTF-8.
    Text(String),
    /// They are not: every byte that is not printable ASCII, and `\`, `'` and `"`, as `\n`, `\\` or `\xff`.
    Escaped(String),
}

impl Default for Text {
    fn default() -> Self {
        Self::Text(String::new())
    }
}

impl Output {
    /// How many bytes the command wrote, as far as they are known here.
    pub fn bytes(&self) -> u64 {
        let length = |text: &Text| match text {
            Text::Text(text) | Text::Escaped(text) => u64::try_from(text.len()).unwrap_or(u64::MAX),
        };
        self.omitted.saturating_add(length(&self.head)).saturating_add(length(&self.tail))
    }
}

impl Text {
    /// Writes bytes down without loss.
    pub fn of(bytes: Vec<u8>) -> Self {
        match String::from_utf8(bytes) {
            Ok(text) => Self::Text(text),
            Err(error) => Self::Escaped(error.as_bytes().escape_ascii().to_string()),
        }
    }

    fn is_empty(&self) -> bool {
        match self {
            Self::Text(text) | Self::Escaped(text) => text.is_empty(),
        }
    }
}
