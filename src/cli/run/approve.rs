//! The word of a person, where the catalog wants one: before any task is submitted.

use std::fmt::Write as _;
use std::io::{self, BufRead as _, IsTerminal as _, Read as _, Write as _};
use std::path::Path;

use anyhow::Context as _;

use super::plan::Checked;
use crate::fleet::Fleet;
use crate::lane::approval::Approver;
use crate::vocabulary::printable;

/// How much of an answer is read, in bytes.
const ANSWER: u64 = 64;

/// Steps need a person's word and have none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotApproved {
    /// Nobody was there to be asked.
    #[error(
        "approval_required: {0}; no task was submitted. Give it with --yes, or run this on a terminal to be asked"
    )]
    Nobody(String),
    /// Somebody said no.
    #[error("approval_required: {0}; it was not approved, and no task was submitted")]
    Refused(String),
    /// Whoever types this holds no key that lanes take an approval from.
    #[error("approval_required: {0}; no task was submitted, because no approver's key is at hand here")]
    NoKey(String),
}

/// Who approves the steps.
#[derive(Debug)]
pub(super) struct Approving {
    pub(super) approver: Approver,
    /// What the fleet calls the key.
    pub(super) name: String,
}

/// Asks for the word that the steps need, if they need one and `yes` does not give it; `None` if they need none. The lanes take
/// it only with an approver's key, the one at `key`, so nobody is asked who has none.
///
/// # Errors
/// [`NotApproved`], or a key that no lane would believe.
pub(super) fn approve(
    steps: &[Checked],
    yes: bool,
    key: &Path,
    fleet: &Fleet,
) -> anyhow::Result<Option<Approving>> {
    let open: Vec<String> = steps
        .iter()
        .enumerate()
        .filter(|(_, step)| step.approval)
        .map(|(n, step)| format!("step[{n}] {} on {}", step.action, step.node))
        .collect();
    if open.is_empty() {
        return Ok(None);
    }
    let open = open.join(", ");
    let approving = Approver::load(key).and_then(|approver| {
        let name = approver.name(&fleet.approver_keys)?.to_owned();
        Ok(Approving { approver, name })
    });
    let approving =
        approving.map_err(anyhow::Error::from).with_context(|| NotApproved::NoKey(open.clone()))?;
    if yes {
        return Ok(Some(approving));
    }
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        return Err(NotApproved::Nobody(open).into());
    }
    if ask(steps) { Ok(Some(approving)) } else { Err(NotApproved::Refused(open).into()) }
}

fn ask(steps: &[Checked]) -> bool {
    let mut text = String::from("This needs your approval:\n");
    for (n, step) in steps.iter().enumerate().filter(|(_, step)| step.approval) {
        // Writing to a String cannot fail.
        let _ = write!(text, "  step[{n}] on {}: {}", step.node, step.action);
        for (name, value) in &step.params {
            let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            let _ = write!(text, " {}={}", printable(name), printable(&value));
        }
        text.push('\n');
    }
    let _ = write!(io::stderr(), "{text}Run it? [y/N] ");
    let mut answer = String::new();
    let read = io::stdin().lock().take(ANSWER).read_line(&mut answer);
    read.is_ok() && matches!(answer.trim(), "y" | "Y" | "yes")
}
