//! `explain --replay`: the judge's story of a log.

use std::fmt::Write as _;

use crate::cli::screen::{Paint, Tone};
use crate::judge::replay::{Entry, Kind};
use crate::vocabulary::printable;

/// One line per entry; times in seconds since the log began. The worker's name is shown where there are several.
pub fn story(story: &[Entry], paint: Paint) -> String {
    let first = story.first().map(|entry| &entry.worker);
    let several = story.iter().any(|entry| Some(&entry.worker) != first);
    let width = story.iter().map(|entry| entry.worker.to_string().len()).max().unwrap_or(0);
    let mut text = String::new();
    if let (Some(worker), false) = (first, several) {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{worker}");
    }
    for Entry { at_ms, worker, kind, text: what } in story {
        let tone = match kind {
            Kind::Seen | Kind::Asked | Kind::Ended | Kind::Plan => Tone::Faint,
            Kind::Class | Kind::End => Tone::Good,
            Kind::Says | Kind::Acts => Tone::Fair,
            Kind::Differs => Tone::Bad,
        };
        let at = format!("{}.{:03}", at_ms / 1000, at_ms % 1000);
        let who = if several { format!("  {:<width$}", worker.to_string()) } else { String::new() };
        let kind = format!("{:<8}", kind.name());
        let _ = writeln!(text, "{at:>12}{who}  {}  {}", paint.on(tone, &kind), printable(what));
    }
    text
}
