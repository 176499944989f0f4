//! `explain`: observation, class, decision and why.

use std::fmt::Write as _;

use super::{lane, ms, state, word};
use crate::cli::fold::fold;
use crate::cli::screen::Paint;
use crate::fleet::BlastRadius;
use crate::peer::wire::{Explanation, NodeExplanation};
use crate::vocabulary::printable;

/// Where a row's value begins.
const VALUE_AT: usize = 14;

/// The explanation of one worker's state, in lines of at most `width`.
pub fn explanation(explanation: &Explanation, width: Option<u16>, paint: Paint) -> String {
    let worker = &explanation.report;
    let (name, tone) = word(worker);
    let radius = match worker.blast_radius {
        BlastRadius::Critical => "critical",
        BlastRadius::Normal => "normal",
        BlastRadius::Auxiliary => "auxiliary",
    };
    let head = format!(
        "{}/{}  {}  for {}  {}, blast radius {radius}",
        worker.node,
        worker.worker,
        paint.on(tone, name),
        ms(worker.for_ms),
        worker.unit,
    );
    let mut text = fold(&head, width, 0, 4) + "\n";
    let mut row = |name: &str, value: String| {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "  {name:<12}{}", fold(&value, width, VALUE_AT, VALUE_AT));
    };
    if !worker.why.is_empty() {
        row("why", printable(&worker.why).into_owned());
    }
    row("invocation", worker.invocation.map_or_else(|| "none known".to_owned(), |id| id.to_string()));
    if let Some(act) = &worker.last_act {
        let ago = worker.last_act_ms.map(|ago| format!(", {} ago", ms(ago))).unwrap_or_default();
        row("last act", format!("{}{ago}", printable(act)));
    }
    if let Some(left) = worker.held_for_ms {
        row("hold", format!("{} more", ms(left)));
    }
    if worker.quarantined {
        row("quarantine", format!("yes; end it with: keyholder release {}/{}", worker.node, worker.worker));
    }
    if !worker.startable {
        row("startable", "no: systemd would not start it".to_owned());
    }
    if worker.left_to_peers {
        row("repair", "left to its watchers".to_owned());
    }
    if !worker.doing.is_empty() {
        row("doing", printable(&worker.doing).into_owned());
    }
    if let Some(due) = worker.due_in_ms {
        row("next repair", format!("in {}", ms(due)));
    }
    for (name, value) in worker.lane.iter().flat_map(|lane| lane::rows(lane)) {
        row(name, value);
    }
    listed(&mut text, &explanation.observed, &explanation.decided, width);
    text
}

/// The same about a node as its watcher sees it.
pub fn node_explanation(explanation: &NodeExplanation, width: Option<u16>, paint: Paint) -> String {
    let (word, tone) = state(explanation.report.state);
    let mut text = format!("{}  {}\n", explanation.report.node, paint.on(tone, word));
    listed(&mut text, &explanation.observed, &explanation.decided, width);
    text
}

fn listed(text: &mut String, observed: &[String], decided: &[String], width: Option<u16>) {
    for (name, lines) in [("observed", observed), ("decided", decided)] {
        let _ = writeln!(text, "{name}");
        for line in lines {
            let _ = writeln!(text, "  {}", fold(&printable(line), width, 2, 4));
        }
    }
}
