//! The matrix for people: on a terminal of 80 columns, and as Markdown.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::time::Duration;

use crate::cli::fold::fold;
use crate::cli::screen::{Paint, Tone};
use crate::fleet::matrix::{Cell, Lack, Matrix, Rehearsed, Row, Rung, Verdict, written};
use crate::fleet::{BlastRadius, RepairBy};
use crate::vocabulary::{NodeName, clipped, human, printable};

const CLASS: usize = "supervisor-dead".len();
const LADDER: usize = "repipe > relaunch".len();
/// What a detector's words may shrink to.
const SEEN_LEAST: usize = 20;

/// Blocks of a line for who acts and a line for each class, then what is open and what holds for all.
pub(super) fn text(matrix: &Matrix, width: u16, paint: Paint) -> String {
    let cells = || matrix.rows.iter().flat_map(|row| &row.cells);
    let longest = |lengths: &mut dyn Iterator<Item = usize>, title: &str| {
        lengths.max().unwrap_or_default().max(title.len())
    };
    let last = longest(
        &mut cells().filter_map(|cell| Some(rehearsed(cell.rehearsal.as_ref()?).0.chars().count())),
        "REHEARSED",
    );
    let seen = longest(
        &mut cells().filter_map(|cell| Some(printable(cell.seen_by.as_ref()?).chars().count())),
        "SEEN BY",
    );
    let room = usize::from(width).saturating_sub(2 + CLASS + 2 + 2 + LADDER + 2 + last);
    let seen = seen.min(room.max(SEEN_LEAST));
    let head = format!("  {:CLASS$}  {:seen$}  {:LADDER$}  REHEARSED", "CLASS", "SEEN BY", "REMEDY");
    let mut text = format!("{}\n", paint.on(Tone::Faint, &head));
    for row in &matrix.rows {
        // Writing to a String cannot fail, here and below.
        let _ = writeln!(text, "{}", fold(&heading(row), Some(width), 0, 4));
        for cell in &row.cells {
            line(&mut text, cell, seen, usize::from(width), paint);
        }
    }
    let mut said = BTreeSet::new();
    for (row, cell) in matrix.rows.iter().flat_map(|row| row.cells.iter().map(move |cell| (row, cell))) {
        for open in cell.open.iter().filter(|open| is_news(open.lack)) {
            let gap = if said.is_empty() { "\n" } else { "" };
            // A right that several rungs need is said once.
            if !said.insert((&row.node, &row.worker, &open.text)) {
                continue;
            }
            let told = format!("{} {}: {}", subject(row), cell.class, printable(&open.text));
            let _ = writeln!(text, "{gap}{}", fold(&told, Some(width), 0, 2));
        }
    }
    if cells().flat_map(|cell| &cell.open).any(|open| open.lack == Lack::Rehearsal) {
        let how = "To rehearse: keyholder drill NODE[/WORKER] --class CLASS, or keyholder drill --all";
        let _ = write!(text, "\n{}\n", fold(how, Some(width), 0, 2));
    }
    for note in &matrix.notes {
        let _ = write!(text, "\n{}\n", fold(&printable(note), Some(width), 0, 0));
    }
    let _ = write!(text, "\n{}\n", fold(&summary(matrix), Some(width), 0, 2));
    text
}

fn line(text: &mut String, cell: &Cell, seen: usize, width: usize, paint: Paint) {
    let _ = write!(text, "  {:CLASS$}  ", cell.class);
    if let Some(why) = &cell.unhandled {
        let word = "UNHANDLED";
        let room = width.saturating_sub(2 + CLASS + 2 + word.len() + 2);
        let _ = writeln!(text, "{}: {}", paint.on(Tone::Bad, word), clipped(&printable(why), room));
        return;
    }
    let by = printable(cell.seen_by.as_deref().unwrap_or_default());
    let _ = write!(text, "{:seen$}  {:LADDER$}  ", clipped(&by, seen), ladder(&cell.ladder));
    if let Some((words, tone)) = cell.rehearsal.as_ref().map(rehearsed) {
        let _ = write!(text, "{}", paint.on(tone, &words));
    }
    text.push('\n');
}

fn ladder(rungs: &[Rung]) -> String {
    rungs.iter().map(|rung| rung.remedy).collect::<Vec<_>>().join(" > ")
}

fn rehearsed(rehearsed: &Rehearsed) -> (String, Tone) {
    let ago = rehearsed.last.as_ref().map(|last| human(Duration::from_millis(last.ago_ms)));
    let ago = ago.unwrap_or_default();
    match rehearsed.verdict {
        Verdict::Passed => (format!("{ago} ago"), Tone::Good),
        Verdict::Failed => (format!("FAILED {ago} ago"), Tone::Bad),
        Verdict::Overdue => (format!("OLD: {ago} ago"), Tone::Bad),
        Verdict::Never => ("NEVER".to_owned(), Tone::Bad),
        Verdict::Unknown => ("not known".to_owned(), Tone::Fair),
        Verdict::ByHand => ("by hand only".to_owned(), Tone::Faint),
    }
}

fn subject(row: &Row) -> String {
    match &row.worker {
        Some(worker) => format!("{}/{worker}", row.node),
        None => row.node.to_string(),
    }
}

/// Whether the table itself does not say it yet.
fn is_news(lack: Lack) -> bool {
    match lack {
        Lack::Grant | Lack::Success => true,
        Lack::Handling | Lack::Rehearsal | Lack::Word => false,
    }
}

/// What it is and who acts, in which order.
fn heading(row: &Row) -> String {
    let what = match (&row.unit, row.blast_radius) {
        (Some(unit), None | Some(BlastRadius::Normal)) => unit.to_string(),
        (Some(unit), Some(blast_radius)) => format!("{unit}, {}", radius(blast_radius)),
        (None, _) => "the node".to_owned(),
    };
    format!("{} ({what}): {}", subject(row), who(row, row.cells.iter().flat_map(|cell| &cell.ladder)))
}

fn radius(radius: BlastRadius) -> &'static str {
    match radius {
        BlastRadius::Critical => "critical",
        BlastRadius::Normal => "normal",
        BlastRadius::Auxiliary => "auxiliary",
    }
}

/// Who acts unasked, in which order, and what they may not do among these remedies.
fn who<'r>(row: &Row, rungs: impl Iterator<Item = &'r Rung> + Clone) -> String {
    let watcher = |name: &NodeName| {
        let lacks = |rung: &&Rung| rung.by.iter().any(|actor| actor.node == *name && !actor.granted);
        let lacking: BTreeSet<&str> = rungs.clone().filter(lacks).map(|rung| rung.remedy).collect();
        let lacking: Vec<&str> = lacking.into_iter().collect();
        if lacking.is_empty() { name.to_string() } else { format!("{name} (may not {})", lacking.join(", ")) }
    };
    let others = row.watchers.iter().map(watcher).collect::<Vec<_>>().join(", then ");
    let grace = written(Duration::from_millis(row.grace_ms));
    match (row.repair_by, &row.worker) {
        (_, None) if row.cells.iter().all(|cell| cell.ladder.is_empty()) => "by nobody".to_owned(),
        (_, None) => format!("by {others}"),
        (RepairBy::Node, Some(_)) if others.is_empty() => format!("by {} alone", row.node),
        (RepairBy::Node, Some(_)) => format!("by {}, after {grace} {others}", row.node),
        (RepairBy::Peer, Some(_)) => format!("after {grace} by {others}"),
        (RepairBy::Nobody, Some(_)) => "by nobody unless ordered".to_owned(),
    }
}

fn summary(matrix: &Matrix) -> String {
    let cells = || matrix.rows.iter().flat_map(|row| &row.cells);
    let unhandled = cells().filter(|cell| cell.unhandled.is_some()).count();
    let verdicts = |wanted: Verdict| {
        cells().filter(|cell| cell.rehearsal.as_ref().is_some_and(|seen| seen.verdict == wanted)).count()
    };
    let mut parts = vec![format!("{} cells", cells().count())];
    for (n, what) in [
        (unhandled, "UNHANDLED"),
        (verdicts(Verdict::Failed), "failed in rehearsal"),
        (verdicts(Verdict::Overdue), "rehearsed too long ago"),
        (verdicts(Verdict::Never), "never rehearsed"),
    ] {
        if n > 0 {
            parts.push(format!("{n} {what}"));
        }
    }
    match matrix.open() {
        0 => parts.push("nothing to see to".to_owned()),
        open => parts.push(format!("{open} to see to")),
    }
    parts.join(", ")
}

/// One table with everything that the terminal has no room for.
pub(super) fn markdown(matrix: &Matrix) -> String {
    let mut text = String::from(
        "| what | class | seen by | remedies | who acts | last rehearsal |\n|---|---|---|---|---|---|\n",
    );
    for row in &matrix.rows {
        for cell in &row.cells {
            let (remedies, who) = match &cell.unhandled {
                Some(why) => (format!("**UNHANDLED**: {}", plain(why)), "nobody".to_owned()),
                None => (remedies(&cell.ladder), plain(&who(row, cell.ladder.iter()))),
            };
            let _ = writeln!(
                text,
                "| {} | {} | {} | {remedies} | {who} | {} |",
                plain(&subject(row)),
                cell.class,
                plain(cell.seen_by.as_deref().unwrap_or("nothing")),
                cell.rehearsal.as_ref().map_or_else(|| "none".to_owned(), told),
            );
        }
    }
    for note in &matrix.notes {
        let _ = write!(text, "\n{}\n", plain(note));
    }
    let _ = write!(text, "\n{}\n", summary(matrix));
    text
}

fn remedies(rungs: &[Rung]) -> String {
    rungs
        .iter()
        .map(|rung| format!("{} ({})", rung.remedy, plain(&rung.how)))
        .collect::<Vec<_>>()
        .join(", then ")
}

fn told(seen: &Rehearsed) -> String {
    let mut text = rehearsed(seen).0;
    if let Some(last) = &seen.last {
        let time = |ms: Option<u64>| ms.map(|ms| human(Duration::from_millis(ms)));
        if let Some(by) = &last.by {
            let _ = write!(text, ", by {by}");
        }
        if let Some(detect) = time(last.detect_ms) {
            let _ = write!(text, ", found after {detect}");
        }
        if let Some(repair) = time(last.repair_ms) {
            let _ = write!(text, ", well again after {repair} more");
        }
        if !last.passed {
            let _ = write!(text, ": {}", last.why);
        }
    }
    plain(&text)
}

/// Text that Markdown shows as it is.
fn plain(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in printable(text).chars() {
        if matches!(c, '|' | '<' | '>' | '`' | '*' | '_' | '[' | ']' | '\\') {
            safe.push('\\');
        }
        safe.push(c);
    }
    safe
}
