//! The table of workers.

use comfy_table::presets::NOTHING;
use comfy_table::{ContentArrangement, Row, Table};

use super::look::Look;
use super::{ms, silent, word};
use crate::cli::screen::Tone;
use crate::peer::wire::{NodeReport, NodeState, WorkerReport};
use crate::vocabulary::{clipped, printable};

const HEADER: [&str; 7] = ["NODE", "WORKER", "UNIT", "HEALTH", "SINCE", "INVOCATION", "LAST ACT"];
/// How much the last column needs to say when.
const LAST_ACT_MIN: usize = 12;
/// How much it needs to say what as well; with less than this only the time is shown, and `explain` has the rest.
const LAST_ACT_WORDS: usize = 24;

/// One line per worker, none longer than the look's width as long as the names themselves fit.
pub(super) fn table(reports: &[NodeReport], look: &Look) -> String {
    let workers: Vec<_> = reports.iter().flat_map(|r| r.workers.iter().map(|w| (r.state, w))).collect();
    if workers.is_empty() {
        return String::new();
    }
    let mut rows: Vec<[String; 7]> = workers.iter().map(|(state, worker)| row(*state, worker)).collect();
    let widest = |rows: &[[String; 7]]| -> Vec<usize> {
        (0..7)
            .map(|i| {
                let cells = rows.iter().filter_map(|row| row.get(i)).map(|cell| cell.chars().count());
                cells.chain(HEADER.get(i).map(|name| name.len())).max().unwrap_or(0)
            })
            .collect()
    };
    // Every worker is a service, so its suffix is what a narrow screen can do without.
    let fixed = |rows: &[[String; 7]]| widest(rows).iter().take(6).map(|w| w + 2).sum::<usize>();
    let width = usize::from(look.width);
    if fixed(&rows) + LAST_ACT_MIN > width {
        for [_, _, unit, ..] in &mut rows {
            unit.truncate(unit.strip_suffix(".service").unwrap_or(unit).len());
        }
    }
    let left = width.saturating_sub(fixed(&rows)).max(LAST_ACT_MIN);
    for [.., last] in &mut rows {
        if left < LAST_ACT_WORDS && last.chars().count() > left {
            last.truncate(last.find(':').unwrap_or(last.len()));
        }
        *last = clipped(last, left).into_owned();
    }

    let mut table = Table::new();
    table.load_style(NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(HEADER);
    table.add_rows(rows.into_iter().map(Row::from));
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    paint(&table.trim_fmt(), &workers, look)
}

fn row(state: NodeState, worker: &WorkerReport) -> [String; 7] {
    let health = word(worker).0;
    [
        worker.node.to_string(),
        worker.worker.to_string(),
        worker.unit.to_string(),
        if silent(state) { format!("{health}?") } else { health.to_owned() },
        ms(worker.for_ms),
        worker.invocation.map_or_else(|| "-".to_owned(), |id| id.short()),
        match (&worker.last_act, worker.last_act_ms) {
            (Some(act), Some(ago)) => format!("{} ago: {}", ms(ago), printable(act)),
            (Some(act), None) => printable(act).into_owned(),
            (None, _) => "-".to_owned(),
        },
    ]
}

/// Colours the word under HEALTH. Done afterwards, because the table would count colour as width; the columns before
/// it hold checked ASCII names, so the header tells where the word stands in each line.
fn paint(table: &str, workers: &[(NodeState, &WorkerReport)], look: &Look) -> String {
    let mut lines = table.lines();
    let header = lines.next().unwrap_or_default();
    let at = header.find("HEALTH").unwrap_or_default();
    let mut text = format!("{}\n", look.paint.on(Tone::Faint, header.trim_end()));
    for (line, (state, worker)) in lines.zip(workers) {
        let line = line.trim_end();
        let tone = if silent(*state) { Tone::Faint } else { word(worker).1 };
        match line.split_at_checked(at) {
            Some((before, rest)) => {
                let (word, after) = rest.split_at(rest.find(' ').unwrap_or(rest.len()));
                text.push_str(before);
                text.push_str(&look.paint.on(tone, word));
                text.push_str(after);
            }
            None => text.push_str(line),
        }
        text.push('\n');
    }
    text
}
