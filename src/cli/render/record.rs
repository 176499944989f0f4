//! `events` and `audit`: one record after the other.

#[cfg(test)]
mod tests;

use std::fmt::Write as _;

use crate::cli::fold::fold;
use crate::cli::screen::{Paint, Tone};
use crate::peer::wire::{AuditLine, EventLine};
use crate::vocabulary::printable;

/// Where the text of a record begins on a terminal: after the time of day and the kind.
const TEXT_AT: usize = "17:00:00  supervisor  ".len();
/// The longest kind of record.
const KIND: usize = "supervisor".len();

/// How wide each column is where a record is one line.
#[derive(Debug, Clone, Copy)]
struct Columns {
    at: usize,
    event: usize,
    by: usize,
    subject: usize,
}

impl Columns {
    /// Wide enough for what is usual, for when nobody knows what comes next.
    const FIXED: Self = Self { at: 24, event: KIND, by: 8, subject: 16 };

    /// As wide as these need.
    fn of(lines: &[EventLine]) -> Self {
        let widest = |of: fn(&EventLine) -> &str| {
            lines.iter().map(|line| printable(of(line)).chars().count()).max().unwrap_or(0).min(40)
        };
        Self {
            at: widest(|line| &line.at),
            event: widest(|line| &line.event),
            by: widest(|line| &line.by),
            subject: widest(|line| &line.subject),
        }
    }
}

/// Records as they come. On a terminal the day is said when it changes, and a record's text is broken into lines under its
/// beginning; into a pipe each record is one line with everything in it.
#[derive(Debug)]
pub struct Trail {
    width: Option<u16>,
    paint: Paint,
    columns: Columns,
    day: String,
}

impl Trail {
    /// For a terminal of that width, or for a pipe.
    pub fn new(width: Option<u16>, paint: Paint) -> Self {
        Self { width, paint, columns: Columns::FIXED, day: String::new() }
    }

    /// One record.
    pub fn record(&mut self, line: &EventLine) -> String {
        match self.width {
            Some(width) => self.told(line, width),
            None => self.line(line),
        }
    }

    fn line(&self, line: &EventLine) -> String {
        let Columns { at, event, by, subject } = self.columns;
        let kind = printable(&line.event);
        let fill = " ".repeat(event.saturating_sub(kind.chars().count()));
        format!(
            "{:at$}  {}{fill}  {:by$}  {:subject$}  {}\n",
            printable(&line.at),
            self.paint.on(tone(line), &kind),
            printable(&line.by),
            printable(&line.subject),
            printable(&line.text)
        )
    }

    fn told(&mut self, line: &EventLine, width: u16) -> String {
        let mut text = String::new();
        // RFC 3339 in UTC; whatever else it is, it is shown as it came.
        let (day, hour) = match (line.at.get(..10), line.at.get(11..19)) {
            (Some(day), Some(hour)) => (day, hour),
            (Some(_) | None, _) => ("", line.at.as_str()),
        };
        if !day.is_empty() && day != self.day {
            day.clone_into(&mut self.day);
            // Writing to a String cannot fail, here and below.
            let _ = writeln!(text, "{}", self.paint.on(Tone::Faint, &format!("{} (UTC)", printable(day))));
        }
        let kind = printable(&line.event);
        let fill = " ".repeat(KIND.saturating_sub(kind.chars().count()));
        let hour = printable(hour);
        let head = match (line.subject.as_str(), line.by.as_str()) {
            ("", "local") => String::new(),
            ("", by) => format!("by {}: ", printable(by)),
            (subject, "local") => format!("{}: ", printable(subject)),
            (subject, by) => format!("{}, by {}: ", printable(subject), printable(by)),
        };
        let told = fold(&format!("{head}{}", printable(&line.text)), Some(width), TEXT_AT, TEXT_AT);
        let _ = writeln!(
            text,
            "{}  {}{fill}  {told}",
            self.paint.on(Tone::Faint, &hour),
            self.paint.on(tone(line), &kind)
        );
        text
    }
}

/// The lines of the audit as they come, newest last, and a gap in their numbers where it is.
pub fn audit(lines: &[AuditLine], width: Option<u16>, paint: Paint) -> String {
    if lines.is_empty() {
        return "the audit trail is empty\n".to_owned();
    }
    let lines: Vec<EventLine> = lines.iter().cloned().map(EventLine::from).collect();
    let mut trail = Trail { columns: Columns::of(&lines), ..Trail::new(width, paint) };
    let mut text = String::new();
    let mut before: Option<u64> = None;
    for line in &lines {
        if let Some(missing) = before.map(|seq| line.seq.saturating_sub(seq).saturating_sub(1))
            && missing > 0
        {
            let _ = writeln!(text, "  ({missing} missing here)");
        }
        before = Some(line.seq);
        text.push_str(&trail.record(line));
    }
    text
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
