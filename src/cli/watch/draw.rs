//! From the scene to the cells of a terminal. Pure, and every string that came from outside is made printable here.

mod rows;

use std::time::{Duration, Instant};

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use super::question::{PendingOrder, Question};
use super::scene::{Page, Scene};
use crate::cli::render;
use crate::cli::screen::{Paint, Tone};
use crate::peer::wire::{Class, EventLine, NodeState, Verb, WorkerReport};
use crate::vocabulary::{clipped, human, printable};

/// How many lines of running remedies are shown at most, their title included.
const REMEDIES: usize = 6;
/// How high the terminal must be for the list of events to have more than its share.
const EVENTS_AT_LEAST: u16 = 4;

/// The keys, for the page that `?` shows.
const HELP: [(&str, &str); 9] = [
    ("up k, down j", "choose a worker; also Page Up, Page Down, Home, End"),
    ("e, Enter", "explain: what was seen, what is done, and why"),
    ("h", "hold: leave it alone for a while; asks for how long, and why"),
    ("r", "relaunch: restart it; asks first"),
    ("n", "nudge: wake its loop; asks first"),
    ("d", "drill: break it, and see it repaired from next door; asks how"),
    ("Esc", "back, or no"),
    ("?", "this page"),
    ("q, Ctrl-C", "the end"),
];

/// How a tone looks. Without colour there is still bold and faint.
fn style(tone: Tone, paint: Paint) -> Style {
    let plain = match tone {
        Tone::Good | Tone::Fair => Style::new(),
        Tone::Bad => Style::new().add_modifier(Modifier::BOLD),
        Tone::Faint => Style::new().add_modifier(Modifier::DIM),
    };
    match (paint.0, tone) {
        (true, Tone::Good) => plain.fg(Color::Green),
        (true, Tone::Fair) => plain.fg(Color::Yellow),
        (true, Tone::Bad) => plain.fg(Color::Red),
        (true, Tone::Faint) | (false, _) => plain,
    }
}

fn clean(text: &str) -> String {
    printable(text).into_owned()
}

fn since(ms: u64) -> String {
    human(Duration::from_millis(ms))
}

/// Draws all of it.
pub(super) fn draw(frame: &mut Frame, scene: &Scene, paint: Paint, now: Instant) {
    let area = frame.area();
    match &scene.page {
        Page::Fleet => fleet(frame, scene, paint, now),
        Page::Help => {
            let lines = HELP.map(|(keys, what)| Line::from(format!("  {keys:14}{what}"))).to_vec();
            page(frame, area, "the keys of this screen", lines, "any key: back");
        }
        Page::Text { title, lines, top } => {
            let lines = lines.iter().skip(*top).map(|line| Line::from(clean(line))).collect();
            page(frame, area, title, lines, "up, down: scroll    any other key: back");
        }
    }
}

fn page(frame: &mut Frame, area: Rect, title: &str, lines: Vec<Line<'static>>, foot: &str) {
    let [head, body, last] =
        Layout::vertical([Constraint::Length(1), Constraint::Min(0), Constraint::Length(1)]).areas(area);
    frame.render_widget(bar(format!(" {}", clean(title)), String::new(), head.width), head);
    frame.render_widget(Paragraph::new(lines), body);
    frame.render_widget(Line::styled(format!(" {foot}"), Modifier::DIM), last);
}

/// A line that stands out, with something at either end.
fn bar(left: String, right: String, width: u16) -> Line<'static> {
    // What stands on the right is the more urgent.
    let room = usize::from(width).saturating_sub(right.chars().count() + 1);
    let left = clipped(&left, room);
    let used = Span::raw(left.as_ref()).width() + Span::raw(right.as_str()).width();
    let fill = " ".repeat(usize::from(width).saturating_sub(used));
    Line::styled(format!("{left}{fill}{right}"), Modifier::REVERSED)
}

fn fleet(frame: &mut Frame, scene: &Scene, paint: Paint, now: Instant) {
    let area = frame.area();
    let remedies = remedies(scene, paint, area.width);
    let high = u16::try_from(remedies.len()).unwrap_or(0);
    // The fleet comes first; what is left over goes to the events.
    let wanted = u16::try_from(rows::count(scene.reports())).unwrap_or(u16::MAX).saturating_add(1);
    let detail: u16 = if area.height >= 16 { 3 } else { 0 };
    let room = area.height.saturating_sub(2 + detail + high);
    let list = wanted.min(room.saturating_sub(EVENTS_AT_LEAST.min(room / 2)));
    let [head, body, about, doing, events, last] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(list),
        Constraint::Length(detail),
        Constraint::Length(high),
        Constraint::Min(0),
        Constraint::Length(1),
    ])
    .areas(area);
    let (left, right) = (headline(scene), standing(scene, now));
    frame.render_widget(bar(left, right, head.width), head);
    frame.render_widget(Paragraph::new(rows::rows(scene, body, paint)), body);
    frame.render_widget(Paragraph::new(chosen(scene, paint, about.width)), about);
    frame.render_widget(Paragraph::new(remedies), doing);
    frame.render_widget(Paragraph::new(newest(scene, events, paint)), events);
    frame.render_widget(foot(scene, paint), last);
}

fn headline(scene: &Scene) -> String {
    let reports = scene.reports();
    let workers = || reports.iter().flat_map(|report| &report.workers);
    let mut text = format!(
        " keyholder on {}: {}, {}",
        scene.server.node,
        some(reports.len(), "node"),
        some(workers().count(), "worker")
    );
    let classes =
        [Class::Dead, Class::Stuck, Class::DeliveryGap, Class::Unknown, Class::Starting, Class::Held];
    for class in classes {
        let count = workers().filter(|worker| worker.class == class).count();
        if count > 0 {
            text.push_str(&format!(", {count} {}", class.name()));
        }
    }
    text
}

fn some(count: usize, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

fn standing(scene: &Scene, now: Instant) -> String {
    match &scene.away {
        Some((_, at)) => format!("NO SUPERVISOR for {} s ", now.saturating_duration_since(*at).as_secs()),
        None if scene.under_way > 0 => format!("{} under way ", some(scene.under_way, "order")),
        None => String::new(),
    }
}

/// Three lines about the chosen worker: what it is, why it is so, what was done.
fn chosen(scene: &Scene, paint: Paint, width: u16) -> Vec<Line<'static>> {
    let Some(worker) = scene.selected() else { return Vec::new() };
    let run = worker.invocation.map_or_else(|| "none".to_owned(), |id| id.short());
    let radius = match worker.blast_radius {
        crate::fleet::BlastRadius::Critical => "critical",
        crate::fleet::BlastRadius::Normal => "normal",
        crate::fleet::BlastRadius::Auxiliary => "auxiliary",
    };
    let title = format!("{}/{}  {}  {radius}  run {run}", worker.node, worker.worker, worker.unit);
    let why = if worker.why.is_empty() { "nothing is said of why".to_owned() } else { clean(&worker.why) };
    let act = match (&worker.last_act, worker.last_act_ms) {
        (Some(act), Some(ago)) => format!("{} ago: {}", since(ago), clean(act)),
        (Some(act), None) => clean(act),
        (None, _) => "nothing has been done".to_owned(),
    };
    vec![
        rule(&title, width),
        Line::from(vec![Span::raw(format!(" {}: ", worker.word())), Span::raw(why)]),
        Line::styled(format!(" {act}"), style(Tone::Faint, paint)),
    ]
}

fn rule(title: &str, width: u16) -> Line<'static> {
    let title = clean(title);
    let used = Span::raw(title.as_str()).width() + 4;
    let fill = "─".repeat(usize::from(width).saturating_sub(used));
    Line::styled(format!("── {title} {fill}"), Modifier::DIM)
}

/// What is being done about workers, and what is due.
fn remedies(scene: &Scene, paint: Paint, width: u16) -> Vec<Line<'static>> {
    let all: Vec<&WorkerReport> = scene
        .reports()
        .iter()
        .flat_map(|report| &report.workers)
        .filter(|worker| !worker.doing.is_empty() || worker.due_in_ms.is_some() || worker.drill.is_some())
        .collect();
    if all.is_empty() {
        return Vec::new();
    }
    let shown = if all.len() < REMEDIES { all.len() } else { REMEDIES - 2 };
    let mut lines = vec![rule("remedies under way", width)];
    for worker in all.iter().take(shown) {
        let mut text = format!(" {}/{}  {}", worker.node, worker.worker, clean(&worker.doing));
        if let Some(class) = worker.drill {
            text.push_str(&format!("  rehearsing {class}"));
        }
        if let Some(due) = worker.due_in_ms {
            text.push_str(&format!("  due in {}", since(due)));
        }
        lines.push(Line::styled(text, style(Tone::Fair, paint)));
    }
    if shown < all.len() {
        lines.push(Line::from(format!(" and {} more", all.len() - shown)));
    }
    lines
}

/// The newest records that fit, newest last.
fn newest(scene: &Scene, area: Rect, paint: Paint) -> Vec<Line<'static>> {
    let room = usize::from(area.height).saturating_sub(1);
    let mut lines = vec![rule("last events", area.width)];
    if scene.events.is_empty() {
        lines.push(Line::styled(" none yet", style(Tone::Faint, paint)));
    }
    let skipped = scene.events.len().saturating_sub(room);
    lines.extend(scene.events.iter().skip(skipped).map(|line| record(line, paint)));
    lines
}

fn record(line: &EventLine, paint: Paint) -> Line<'static> {
    // The time of day out of an RFC 3339 time; whatever else it is, it is shown.
    let at = line.at.get(11..19).unwrap_or(&line.at);
    Line::from(vec![
        Span::styled(format!(" {} ", clean(at)), style(Tone::Faint, paint)),
        Span::styled(format!("{:11}", clean(&line.event)), style(render::tone(line), paint)),
        Span::raw(format!("{}  {}", clean(&line.subject), clean(&line.text))),
    ])
}

fn foot(scene: &Scene, paint: Paint) -> Line<'static> {
    if let Some(question) = &scene.question {
        let critical = if scene.critical() { ", which is CRITICAL" } else { "" };
        let text = match question {
            Question::Sure(PendingOrder { target, verb: Verb::Drill(order), .. }) => {
                format!("break {target}{critical}, on purpose ({}), and see it repaired? y/N", order.class)
            }
            Question::Sure(deed) => format!("{} {}{critical}? y/N", deed.verb.name(), deed.target),
            Question::HoldFor(of, typed) => format!("leave {of} alone for how many minutes? {typed}_"),
            Question::HoldWhy(of, minutes, typed) => {
                format!("leave {of} alone for {minutes} min, why? {}_", clean(typed))
            }
            Question::Class(of) => {
                format!("drill {of}{critical}: d dead, s stuck, g delivery-gap, other keys: no")
            }
        };
        let mut line = Line::styled(format!(" {text}"), Modifier::BOLD);
        // While somebody types, what was wrong with it stands beside it.
        if let Some((said, tone)) = scene.said() {
            line.push_span(Span::styled(format!("   {}", clean(said)), style(tone, paint)));
        }
        return line;
    }
    if let Some((said, tone)) = scene.said() {
        return Line::styled(format!(" {}", clean(said)), style(tone, paint));
    }
    if let Some((why, _)) = &scene.away {
        return Line::styled(format!(" asking again: {}", clean(why)), style(Tone::Bad, paint));
    }
    Line::styled(
        " j k choose  e explain  h hold  r relaunch  n nudge  d drill  ? help  q quit",
        style(Tone::Faint, paint),
    )
}

/// Whether the workers' states of such a node are only the last known ones.
fn old(state: NodeState) -> bool {
    match state {
        NodeState::Up | NodeState::Starting => false,
        NodeState::Leaving
        | NodeState::SupervisorDead
        | NodeState::Unreachable
        | NodeState::CutOff
        | NodeState::Unknown => true,
    }
}
