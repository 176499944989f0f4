//! `audit`: the trail, one line per record.

use std::fmt::Write as _;

use crate::peer::wire::AuditLine;
use crate::vocabulary::printable;

/// The lines as they come, newest last, columns as wide as needed. A gap in the numbers is said where it is.
pub fn audit(lines: &[AuditLine]) -> String {
    if lines.is_empty() {
        return "the audit trail is empty\n".to_owned();
    }
    let widest = |of: fn(&AuditLine) -> &str| {
        lines.iter().map(|line| printable(of(line)).chars().count()).max().unwrap_or(0).min(40)
    };
    let (at, event) = (widest(|line| &line.at), widest(|line| &line.event));
    let (by, subject) = (widest(|line| &line.by), widest(|line| &line.subject));
    let mut text = String::new();
    let mut before: Option<u64> = None;
    for line in lines {
        if let Some(missing) = before.map(|seq| line.seq.saturating_sub(seq).saturating_sub(1))
            && missing > 0
        {
            // Writing to a String cannot fail, here and below.
            let _ = writeln!(text, "  ({missing} missing here)");
        }
        before = Some(line.seq);
        let _ = writeln!(
            text,
            "{:at$}  {:event$}  {:by$}  {:subject$}  {}",
            printable(&line.at),
            printable(&line.event),
            printable(&line.by),
            printable(&line.subject),
            printable(&line.text),
        );
    }
    text
}
