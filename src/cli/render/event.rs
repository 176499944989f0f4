//! `events`: one line per record, as it comes.

use crate::cli::screen::{Paint, Tone};
use crate::peer::wire::EventLine;
use crate::vocabulary::printable;

/// One record. Columns do not move, since nobody knows what comes next.
pub fn event(line: &EventLine, paint: Paint) -> String {
    let kind = printable(&line.event);
    let fill = " ".repeat(10_usize.saturating_sub(kind.chars().count()));
    format!(
        "{:24}  {}{fill}  {:8}  {:16}  {}\n",
        printable(&line.at),
        paint.on(tone(line), &kind),
        printable(&line.by),
        printable(&line.subject),
        printable(&line.text)
    )
}

/// That records passed the reader by.
pub fn missed(count: u64) -> String {
    format!("  ({count} missed here: this reader was too slow; keyholder audit has them)\n")
}

/// How loud a record is.
pub(in crate::cli) fn tone(line: &EventLine) -> Tone {
    match line.priority {
        0..=3 => Tone::Bad,
        4 => Tone::Fair,
        5 => Tone::Good,
        _ => Tone::Faint,
    }
}
