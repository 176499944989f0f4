//! What a unit said last, for whoever has to find out why it fell.

use crate::journal::last_lines;
use crate::vocabulary::UnitName;

/// How many journal lines of a failed unit go with the answer.
const LOG_LINES: u8 = 10;

/// A unit's last lines; if the journal cannot be read, the reason in their place.
pub(super) async fn journal_of(unit: &UnitName) -> Vec<String> {
    last_lines(unit, None, LOG_LINES).await.unwrap_or_else(|error| vec![error.to_string()])
}

/// How a unit ended and what it said last, for one line.
pub(super) fn causes(ended: &str, log: &[String]) -> String {
    let last: Vec<String> =
        log.iter().rev().take(3).rev().map(|line| line.chars().take(200).collect()).collect();
    match last.is_empty() {
        true => format!("last seen: {ended}"),
        false => format!("last seen: {ended}; its last journal lines: {}", last.join(" | ")),
    }
}
