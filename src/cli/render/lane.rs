//! What lanes say of themselves: their own table below that of the workers, a line of a watch, rows of an explanation.

use comfy_table::presets::NOTHING;
use comfy_table::{ContentArrangement, Row, Table};

use super::look::Look;
use super::{ms, silent};
use crate::cli::screen::Tone;
use crate::peer::wire::{LaneReport, LastReport, NodeReport, TaskReport, WorkerReport};
use crate::vocabulary::{clipped, printable};

const HEADER: [&str; 6] = ["NODE", "LANE", "WAITING", "RUNNING", "DONE", "LAST TASK"];
/// How much of an action's name is shown here; `explain` has all of it.
const ACTION: usize = 32;

/// One line per lane that says something; empty if none does.
pub(super) fn lanes(reports: &[NodeReport], look: &Look) -> String {
    let workers = reports.iter().filter(|report| !silent(report.state)).flat_map(|report| &report.workers);
    let rows: Vec<[String; 6]> =
        workers.filter_map(|worker| worker.lane.as_deref().map(|lane| row(worker, lane))).collect();
    if rows.is_empty() {
        return String::new();
    }
    let mut table = Table::new();
    table.load_style(NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(HEADER);
    table.add_rows(rows.into_iter().map(Row::from));
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    let mut text = String::new();
    for (n, line) in table.trim_fmt().lines().enumerate() {
        let line = clipped(line.trim_end(), look.width.into());
        text.push_str(&if n == 0 { look.paint.on(Tone::Faint, &line) } else { line });
        text.push('\n');
    }
    text
}

fn row(worker: &WorkerReport, lane: &LaneReport) -> [String; 6] {
    [
        worker.node.to_string(),
        worker.worker.to_string(),
        waiting(lane),
        running(lane).unwrap_or_else(|| "-".to_owned()),
        lane.done.to_string(),
        lane.last.as_ref().map_or_else(|| "-".to_owned(), last),
    ]
}

fn waiting(lane: &LaneReport) -> String {
    lane.waiting.map_or_else(|| "?".to_owned(), |waiting| waiting.to_string())
}

fn running(lane: &LaneReport) -> Option<String> {
    let task = |task: &TaskReport| format!("{} for {}", short(&task.action), ms(task.for_ms));
    match (lane.running, lane.in_flight.first()) {
        (_, None) => None,
        (0 | 1, Some(one)) => Some(task(one)),
        (n, Some(oldest)) => Some(format!("{n}, the oldest {}", task(oldest))),
    }
}

fn last(last: &LastReport) -> String {
    let action = last.action.as_deref().unwrap_or("?");
    format!("{} {}, {} ago", short(action), last.status, ms(last.ago_ms))
}

fn short(action: &str) -> String {
    clipped(&printable(action), ACTION).into_owned()
}

/// What is wrong with what a lane says, if anything is.
pub(super) fn trouble(worker: &WorkerReport) -> Option<String> {
    let lane = worker.lane.as_deref()?;
    match lane.silent_ms {
        Some(silent) => Some(format!(
            "{}/{} has said nothing for {}: what is shown of its tasks is as old as that",
            worker.node,
            worker.worker,
            ms(silent)
        )),
        None if !lane.connected => {
            let queue = printable(&lane.queue);
            Some(format!(
                "{}/{} takes no tasks from {queue}; its journal says why",
                worker.node, worker.worker
            ))
        }
        None => None,
    }
}

/// A lane's news in one line, for a watch that is written to a file or a pipe.
pub fn lane_change(worker: &WorkerReport) -> String {
    let Some(lane) = worker.lane.as_deref() else {
        return format!("{}/{} says nothing of its tasks", worker.node, worker.worker);
    };
    if let Some(trouble) = trouble(worker) {
        return trouble;
    }
    let running = running(lane).map_or_else(|| "runs nothing".to_owned(), |task| format!("runs {task}"));
    let last = lane.last.as_ref().map(|task| format!(", last {}", last(task))).unwrap_or_default();
    let (waiting, done) = (waiting(lane), lane.done);
    format!("{}/{} {running}; {waiting} waiting, {done} done{last}", worker.node, worker.worker)
}

/// The rows of an explanation: a name and a value each.
pub(super) fn rows(lane: &LaneReport) -> Vec<(&'static str, String)> {
    let mut rows = vec![("queue", printable(&lane.queue).into_owned())];
    rows.push(match (lane.connected, lane.waiting) {
        (true, Some(waiting)) => ("waiting", waiting.to_string()),
        (true, None) => ("waiting", "not known".to_owned()),
        (false, _) => ("waiting", "not known: it takes no tasks at present; its journal says why".to_owned()),
    });
    for task in &lane.in_flight {
        let again = if task.idempotent { "" } else { ", must not run twice" };
        let (action, id) = (printable(&task.action), printable(&task.id));
        rows.push(("running", format!("{action} for {}, task {id}{again}", ms(task.for_ms))));
    }
    let named = u64::try_from(lane.in_flight.len()).unwrap_or(u64::MAX);
    if lane.running > named {
        rows.push(("running", format!("and {} more", lane.running - named)));
    }
    rows.push(("done", format!("{} since its start", lane.done)));
    if let Some(task) = &lane.last {
        let action = printable(task.action.as_deref().unwrap_or("?")).into_owned();
        let text = format!("{action} {}, {} ago, task {}", task.status, ms(task.ago_ms), printable(&task.id));
        rows.push(("last task", text));
    }
    if let Some(silent) = lane.silent_ms {
        rows.push(("silent", format!("for {}; all this is as old as that", ms(silent))));
    }
    rows
}
