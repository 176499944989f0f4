//! How often it is recorded that a neighbour came, went or turned: one that does so again and again is told in counts.

use std::time::Duration;

use crate::journal::Record;
use crate::vocabulary::{Allowance, Moment};

/// How many changes of one neighbour are recorded one by one, and how soon there may be another.
const CHANGES: (u32, Duration) = (30, Duration::from_secs(30));

/// What was recorded of one neighbour lately.
#[derive(Debug)]
pub(super) struct Announcements {
    lines: Allowance,
    /// The last change that was only counted, and how many there were.
    counted: Option<(Record, u64)>,
}

impl Default for Announcements {
    fn default() -> Self {
        Self { lines: Allowance::new(CHANGES.0, CHANGES.1), counted: None }
    }
}

impl Announcements {
    /// A change: what to record of it now.
    pub(super) fn change(&mut self, record: Record, now: Moment) -> Option<Record> {
        // What waits to be told has its turn first, so that the last line says how it stands.
        if self.counted.is_none() && self.lines.take(age(now)) {
            return Some(record);
        }
        let before = self.counted.take().map_or(0, |(_, count)| count);
        self.counted = Some((record, before + 1));
        self.due(now).ok()
    }

    /// What was counted and may be recorded by now, or when to ask again.
    pub(super) fn due(&mut self, now: Moment) -> Result<Record, Option<Moment>> {
        let Some((record, count)) = self.counted.take() else { return Err(None) };
        if !self.lines.take(age(now)) {
            self.counted = Some((record, count));
            return Err(Some(now + self.lines.wait(age(now))));
        }
        let text = match count {
            1 => record.text,
            _ => format!("{count} changes of its state in a short time; the last: {}", record.text),
        };
        Ok(Record { text, ..record })
    }
}

fn age(now: Moment) -> Duration {
    Duration::from_millis(now.as_millis())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::{Event, Priority};

    #[test]
    fn a_neighbour_that_turns_without_end_is_told_in_counts_and_the_last_turn_is_always_told() {
        let mut told = Announcements::default();
        let mut lines = Vec::new();
        let start = Moment::from_millis(1_000_000);
        for n in 0..10_000_u64 {
            let now = start + Duration::from_millis(n * 20);
            lines.extend(told.due(now).ok());
            lines.extend(
                told.change(Record::local(Event::Peer, Priority::Notice, "mars", format!("turn {n}")), now),
            );
        }
        assert!((30..=40).contains(&lines.len()), "{} lines in 200 s", lines.len());
        let end = start + Duration::from_secs(200);
        let at = told.due(end).expect_err("not yet").expect("something waits");
        assert!(at.since(end) <= CHANGES.1);
        let last = told.due(at).expect("now");
        assert!(
            last.text.ends_with("turn 9999") && last.text.contains("changes of its state"),
            "{}",
            last.text
        );
        assert_eq!(told.due(at), Err(None));
    }
}
