//! The list: each node with its state, below it its workers.

use ratatui::layout::Rect;
use ratatui::style::Modifier;
use ratatui::text::{Line, Span};

use super::{clean, old, since, style};
use crate::cli::render;
use crate::cli::screen::{Paint, Tone};
use crate::cli::watch::scene::{Scene, target};
use crate::peer::wire::{Class, LaneReport, NodeReport, NodeState, WorkerReport};
use crate::vocabulary::clipped;

/// The widest column of names.
const NAME: usize = 20;
/// Enough for `delivery-gap?`.
const HEALTH: usize = 13;
/// Enough for `59m 59s`.
const SINCE: usize = 8;

/// How many rows there are.
pub(super) fn count(reports: &[NodeReport]) -> usize {
    reports.iter().map(|report| 1 + report.degraded.len() + report.workers.len()).sum()
}

/// The header and the part of the list that has the chosen worker in it.
pub(super) fn rows(scene: &Scene, area: Rect, paint: Paint) -> Vec<Line<'static>> {
    let reports = scene.reports();
    let workers = || reports.iter().flat_map(|report| &report.workers);
    let name = workers().map(|worker| worker.worker.as_str().len()).max().unwrap_or(0).clamp(6, NAME);
    let header = format!("  {:name$}  {:HEALTH$}  {:SINCE$}  NOW", "WORKER", "HEALTH", "SINCE");
    let mut lines = Vec::with_capacity(count(reports));
    let mut at = 0;
    for report in reports {
        lines.push(node(report, paint));
        for degraded in &report.degraded {
            lines.push(Line::styled(format!("  degraded: {}", clean(degraded)), style(Tone::Fair, paint)));
        }
        for worker in &report.workers {
            let chosen = scene.cursor.as_ref().is_some_and(|cursor| *cursor == target(worker));
            if chosen {
                at = lines.len();
            }
            lines.push(row(report.state, worker, chosen, name, paint));
        }
    }
    let room = usize::from(area.height).saturating_sub(1);
    // As little scrolled as will show the chosen one, with one line of what follows.
    let first = (at + 2).saturating_sub(room).min(lines.len().saturating_sub(room));
    let mut shown = vec![Line::styled(header, Modifier::DIM)];
    if reports.is_empty() {
        shown.push(Line::from("  nothing is known yet"));
    }
    shown.extend(lines.into_iter().skip(first).take(room));
    shown
}

fn node(report: &NodeReport, paint: Paint) -> Line<'static> {
    let (word, tone) = render::state(report.state);
    let mut spans = vec![
        Span::styled(report.node.to_string(), Modifier::BOLD),
        Span::raw("  "),
        Span::styled(word, style(tone, paint)),
    ];
    if report.state != NodeState::Up && !report.why.is_empty() {
        spans.push(Span::raw(format!("  {}", clean(&report.why))));
    } else if let Some(version) = &report.version {
        spans.push(Span::styled(format!("  keyholder {}", clean(version)), style(Tone::Faint, paint)));
    }
    Line::from(spans)
}

fn row(state: NodeState, worker: &WorkerReport, chosen: bool, name: usize, paint: Paint) -> Line<'static> {
    let (word, tone) = render::word(worker);
    let (word, tone) = if old(state) { (format!("{word}?"), Tone::Faint) } else { (word.to_owned(), tone) };
    let line = Line::from(vec![
        Span::raw(if chosen { "> " } else { "  " }),
        Span::raw(format!("{:name$}  ", clipped(worker.worker.as_str(), name))),
        Span::styled(format!("{word:HEALTH$}"), style(tone, paint)),
        Span::raw(format!("  {:SINCE$}  {}", since(worker.for_ms), now(worker))),
    ]);
    if chosen { line.patch_style(Modifier::REVERSED) } else { line }
}

/// What there is to say of it at the moment: what is done about it, else what it works on, else why it is not well.
fn now(worker: &WorkerReport) -> String {
    let mut parts: Vec<String> = Vec::new();
    if let Some(class) = worker.drill {
        parts.push(format!("drill: {class}"));
    }
    if worker.quarantined {
        parts.push("in quarantine".to_owned());
    }
    if let Some(left) = worker.held_for_ms {
        parts.push(format!("held for {} more", since(left)));
    }
    if let Some(due) = worker.due_in_ms {
        parts.push(format!("due in {}", since(due)));
    }
    if !worker.doing.is_empty() {
        parts.push(clean(&worker.doing));
    }
    if let Some(lane) = &worker.lane {
        parts.push(queue(lane));
    }
    if parts.is_empty() && worker.class != Class::Healthy {
        parts.push(clean(&worker.why));
    }
    parts.join("; ")
}

/// A lane's queue and what it runs.
fn queue(lane: &LaneReport) -> String {
    let mut text = match (lane.silent_ms, lane.connected, lane.waiting) {
        (Some(silent), _, _) => return format!("has said nothing for {}", since(silent)),
        (None, false, _) => "takes no tasks".to_owned(),
        (None, true, None) => "? waiting".to_owned(),
        (None, true, Some(waiting)) => format!("{waiting} waiting"),
    };
    match lane.in_flight.first() {
        Some(task) if lane.running <= 1 => {
            text.push_str(&format!(", runs {} for {}", clean(&task.action), since(task.for_ms)));
        }
        Some(oldest) => text.push_str(&format!(
            ", runs {}, oldest {} for {}",
            lane.running,
            clean(&oldest.action),
            since(oldest.for_ms)
        )),
        None => text.push_str(", idle"),
    }
    text
}
