//! A lane's queue, for people and as JSON.

use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;

use super::dead::{Dead, asks, hash, task};
use crate::catalog::Mode;
use crate::lane::Mark;
use crate::queue::{QueueName, Seen};
use crate::vocabulary::{NodeName, clipped, human, printable, printable_bytes};

/// How many waiting tasks are shown, oldest first; the rest is a number.
const WAITING: usize = 20;

/// What is seen of one lane.
#[derive(Debug, Serialize)]
pub(super) struct Lane {
    node: NodeName,
    lane: Mode,
    queue: String,
    /// Where the lane runs that owns the queue; none: nobody serves it.
    served_by: Option<String>,
    waiting: u64,
    /// The oldest of them.
    next: Vec<ShownTask>,
    in_flight: Vec<ShownTask>,
    dead: Vec<Dead>,
}

/// One task.
#[derive(Debug, Serialize)]
struct ShownTask {
    id: String,
    action: String,
    /// Action and parameters.
    asks: String,
    by: String,
    /// How long ago it was issued, or begun if it is in flight.
    age_ms: Option<u64>,
    begun: bool,
}

impl Lane {
    pub(super) fn of(node: &NodeName, lane: Mode, queue: &QueueName, seen: Seen, now: Timestamp) -> Self {
        let marks: Vec<(String, Mark)> = seen
            .begun
            .iter()
            .filter_map(|(hash, mark)| {
                Some((String::from_utf8_lossy(hash).into_owned(), serde_json::from_slice(mark).ok()?))
            })
            .collect();
        let in_flight = |raw: &Vec<u8>| {
            let hash = hash(raw);
            let begun = marks.iter().find(|(of, _)| *of == hash).map(|(_, mark)| mark.at.as_str());
            entry(raw, begun, now)
        };
        let served_by = seen.owner.as_deref().map(|words| {
            let words = printable_bytes(words);
            words.split_once(' ').map_or(words.clone(), |(_, place)| place.to_owned())
        });
        Self {
            node: node.clone(),
            lane,
            queue: queue.to_string(),
            served_by,
            waiting: seen.waiting,
            next: seen.next.iter().take(WAITING).map(|raw| entry(raw, None, now)).collect(),
            in_flight: seen.in_flight.iter().map(in_flight).collect(),
            dead: seen.dead.into_iter().map(|raw| Dead::read(raw, lane.name())).collect(),
        }
    }
}

fn entry(raw: &[u8], begun: Option<&str>, now: Timestamp) -> ShownTask {
    let short = |text: &str| clipped(&printable(text), 60).into_owned();
    let known = std::str::from_utf8(raw).ok().and_then(task);
    let since = begun.or(known.as_ref().map(|task| task.issued_at.as_str()));
    let since = since.and_then(|at| at.parse::<Timestamp>().ok());
    let age_ms =
        since.and_then(|at| u64::try_from(now.as_millisecond().saturating_sub(at.as_millisecond())).ok());
    match known {
        Some(task) => ShownTask {
            id: short(&task.id),
            action: short(&task.action),
            asks: asks(&task),
            by: short(&task.by),
            age_ms,
            begun: begun.is_some(),
        },
        None => ShownTask {
            id: "?".to_owned(),
            action: "no task".to_owned(),
            asks: "no task".to_owned(),
            by: format!("{} bytes", raw.len()),
            age_ms,
            begun: begun.is_some(),
        },
    }
}

/// What people read.
pub(super) fn text(lane: &Lane) -> String {
    let served = match &lane.served_by {
        Some(place) => format!("served by {}", clipped(place, 120)),
        None if lane.waiting > 0 => {
            format!("NOBODY serves it: look at keyholder status {}", lane.node)
        }
        None => "nobody serves it".to_owned(),
    };
    let mut text = format!(
        "{} {} lane ({}): {} waiting, {} in flight, {} dead-lettered; {served}\n",
        lane.node,
        lane.lane,
        lane.queue,
        lane.waiting,
        lane.in_flight.len(),
        lane.dead.len()
    );
    for one in &lane.in_flight {
        let what = if one.begun { "running" } else { "taken" };
        text += &line(what, one);
    }
    for one in &lane.next {
        text += &line("waiting", one);
    }
    let more = lane.waiting.saturating_sub(lane.next.len() as u64);
    if more > 0 {
        text += &format!("  and {more} more\n");
    }
    for dead in &lane.dead {
        let asks = dead.asked().unwrap_or("no task");
        text += &format!("  dead      {}  {asks}  {}  {}\n", dead.name(), dead.at, dead.text);
    }
    text
}

fn line(what: &str, entry: &ShownTask) -> String {
    let age = entry.age_ms.map_or_else(|| "?".to_owned(), |ms| human(Duration::from_millis(ms)));
    format!("  {what:8}  {}  {}  {age}  by {}\n", entry.id, entry.asks, entry.by)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_around_a_queue_is_told_and_nothing_moves_a_cursor() {
        let node: NodeName = "mars".parse().unwrap();
        let now: Timestamp = "2026-11-29T14:02:10Z".parse().unwrap();
        let running =
            br#"{"id":"a","action":"apt.upgrade","params":{"n":1,"unit":"x"},"by":"ada","issued_at":"2026-11-29T14:00:00Z"}"#.to_vec();
        let hash = hash(&running);
        let mark = br#"{"owner":"o","place":"p","id":"a","action":"apt.upgrade","issued_ms":0,"again":false,"attempts":1,"at":"2026-11-29T14:02:00Z"}"#;
        let seen = Seen {
            waiting: 3,
            next: vec![b"\x1b[2J".to_vec()],
            in_flight: vec![running],
            begun: vec![(hash.into_bytes(), mark.to_vec())],
            dead: vec![b"\x1b".to_vec()],
            owner: None,
        };
        let lane = Lane::of(&node, Mode::Write, &QueueName::write(&node), seen, now);
        let text = text(&lane);
        assert!(text.contains("3 waiting, 1 in flight, 1 dead-lettered; NOBODY serves it"), "{text}");
        assert!(text.contains("  running   a  apt.upgrade n=1 unit=x  10 s  by ada\n"), "{text}");
        assert!(text.contains("  waiting   ?  no task  ?  by 4 bytes\n  and 2 more\n"), "{text}");
        assert!(!text.contains('\x1b'));
    }
}
