//! `status`: a line for each node, the table of its workers, and whatever is not as it should be.

use std::fmt::Write as _;

use super::lane::{lanes, trouble};
use super::look::Look;
use super::table::table;
use super::{class, ms, silent, state, word};
use crate::cli::screen::Tone;
use crate::peer::wire::{Class, NodeReport, NodeState, WorkerReport};
use crate::vocabulary::printable;

/// The reports of one or more nodes.
pub fn fleet(reports: &[NodeReport], look: &Look) -> String {
    let mut text = String::new();
    let names = reports.iter().map(|report| report.node.as_str().len()).max().unwrap_or(0);
    let states = reports.iter().map(|report| state(report.state).0.len()).max().unwrap_or(0);
    for report in reports {
        node(&mut text, report, (names, states), look);
    }
    if look.server.version != look.version {
        let _ = writeln!(
            text,
            "this command is keyholder {}, the supervisor still runs {}: systemctl restart keyholder.service",
            look.version,
            printable(&look.server.version)
        );
    }
    let workers = table(reports, look);
    if !workers.is_empty() {
        let _ = write!(text, "\n{workers}");
    }
    let lanes = lanes(reports, look);
    if !lanes.is_empty() {
        let _ = write!(text, "\n{lanes}");
    }
    let heard = reports.iter().filter(|report| !silent(report.state)).flat_map(|report| &report.workers);
    let notes: Vec<_> = heard.flat_map(|worker| [note(worker), trouble(worker)]).flatten().collect();
    if !notes.is_empty() {
        let _ = writeln!(text, "\n{}", notes.join("\n"));
    }
    text
}

fn node(text: &mut String, report: &NodeReport, (names, states): (usize, usize), look: &Look) {
    let (word, tone) = state(report.state);
    let version = report.version.as_deref().map(printable);
    // Writing to a String cannot fail, here and below.
    let mut told = format!(
        "{:names$}  {}{:fill$}",
        report.node,
        look.paint.on(tone, word),
        "",
        fill = states.saturating_sub(word.len())
    );
    if let Some(version) = version.as_deref() {
        let _ = write!(told, "  keyholder {version}");
    }
    if !report.why.is_empty() && report.state != NodeState::Up {
        let _ = write!(told, "  {}", printable(&report.why));
    }
    let _ = writeln!(text, "{}", told.trim_end());
    let mut more = |line: String| {
        let _ = writeln!(text, "{:names$}  {line}", "");
    };
    if silent(report.state) && !report.workers.is_empty() {
        more("its workers' states below are the last known ones".to_owned());
    }
    for degraded in &report.degraded {
        more(format!("{} {}", look.paint.on(Tone::Fair, "degraded:"), printable(degraded)));
    }
    if let Some(hash) = report.fleet_hash.filter(|hash| *hash != look.server.fleet_hash) {
        let digits = |hash: &dyn std::fmt::Display| hash.to_string().chars().take(15).collect::<String>();
        more(format!(
            "{} its fleet file is {}…, on {} it is {}…: copy one to the other, then systemctl reload keyholder",
            look.paint.on(Tone::Fair, "drift:"),
            digits(&hash),
            look.server.node,
            digits(&look.server.fleet_hash),
        ));
    }
    if let Some(version) = version.filter(|version| **version != look.server.version) {
        more(format!(
            "{} it runs keyholder {version}, {} runs {}",
            look.paint.on(Tone::Fair, "drift:"),
            look.server.node,
            printable(&look.server.version),
        ));
    }
}

/// What there is to say about a worker beyond its line in the table; nothing about one that is simply healthy.
fn note(worker: &WorkerReport) -> Option<String> {
    let mut note = match worker.class {
        Class::Healthy
            if worker.held_for_ms.is_none()
                && !worker.quarantined
                && worker.doing.is_empty()
                && worker.alert.is_none() =>
        {
            return None;
        }
        Class::Healthy
        | Class::Starting
        | Class::Held
        | Class::Dead
        | Class::Stuck
        | Class::DeliveryGap
        | Class::Unknown => sentence(worker),
    };
    if !worker.startable {
        note.push_str("; systemd would not start it");
    }
    if worker.left_to_peers {
        note.push_str("; its repair is left to its watchers");
    }
    if worker.quarantined {
        let _ =
            write!(note, "; in quarantine, end it with: keyholder release {}/{}", worker.node, worker.worker);
    }
    if let Some(left) = worker.held_for_ms {
        let _ = write!(note, "; on hold for {} more", ms(left));
    }
    // What is said already, it would only say again.
    if !worker.doing.is_empty() && worker.startable && !worker.left_to_peers {
        let _ = write!(note, "; {}", printable(&worker.doing));
    }
    if let Some(due) = worker.due_in_ms {
        let _ = write!(note, "; next repair in {}", ms(due));
    }
    Some(note)
}

fn sentence(worker: &WorkerReport) -> String {
    let mut text = format!("{}/{} is {}", worker.node, worker.worker, word(worker).0);
    if !worker.why.is_empty() {
        let _ = write!(text, ": {}", printable(worker.why.trim_end_matches('.')));
    }
    text
}

/// One line about a worker that changed, for a watch that is written to a file or a pipe.
pub fn change(before: Option<Class>, now: &WorkerReport) -> String {
    let told = note(now).unwrap_or_else(|| sentence(now));
    match before {
        Some(before) if before != now.class => format!("{told} (was {})", class(before).0),
        Some(_) | None => told,
    }
}

/// What is different about a node that was told as a whole again, a line each; empty if nothing is.
pub fn node_change(before: &NodeReport, now: &NodeReport) -> String {
    let mut text = String::new();
    if (before.state, &before.why) != (now.state, &now.why) {
        let _ = write!(text, "{} is {}: {}", now.node, state(now.state).0, printable(&now.why));
        text.push_str(&if before.state == now.state {
            "\n".to_owned()
        } else {
            format!(" (was {})\n", state(before.state).0)
        });
    }
    for degraded in now.degraded.iter().filter(|degraded| !before.degraded.contains(degraded)) {
        let _ = writeln!(text, "{} is degraded: {}", now.node, printable(degraded));
    }
    if now.degraded.is_empty() && !before.degraded.is_empty() {
        let _ = writeln!(text, "{} is not degraded any more", now.node);
    }
    for worker in &now.workers {
        let known = before.workers.iter().find(|known| known.worker == worker.worker);
        // What merely grows with time is no news.
        let news = |w: &WorkerReport| {
            (w.class, w.why.clone(), w.doing.clone(), w.invocation, w.quarantined, w.held_for_ms.is_some())
        };
        if known.map(news) != Some(news(worker)) {
            let _ = writeln!(text, "{}", change(known.map(|known| known.class), worker));
        }
    }
    text
}
