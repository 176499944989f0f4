//! The word of a person, where the catalog wants one: before anything is given to anybody.

use std::fmt::Write as _;
use std::io::{self, BufRead as _, IsTerminal as _, Read as _, Write as _};

use super::plan::Checked;
use crate::vocabulary::printable;

/// How much of an answer is read, in bytes.
const ANSWER: u64 = 64;

/// Steps need a person's word and have none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotApproved {
    /// Nobody was there to be asked.
    #[error(
        "approval_required: {0}; nothing was given to anybody. Give it with --yes, or run this on a terminal to be asked"
    )]
    Nobody(String),
    /// Somebody said no.
    #[error("approval_required: {0}; it was not approved, and nothing was given to anybody")]
    Refused(String),
}

/// Asks for the word that the steps need, if they need one and `yes` does not give it.
///
/// # Errors
/// [`NotApproved`].
pub(super) fn approve(steps: &[Checked], yes: bool) -> Result<(), NotApproved> {
    let open: Vec<String> = steps
        .iter()
        .enumerate()
        .filter(|(_, step)| step.approval)
        .map(|(n, step)| format!("step[{n}] {} on {}", step.action, step.node))
        .collect();
    if yes || open.is_empty() {
        return Ok(());
    }
    let open = open.join(", ");
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        return Err(NotApproved::Nobody(open));
    }
    if ask(steps) { Ok(()) } else { Err(NotApproved::Refused(open)) }
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
