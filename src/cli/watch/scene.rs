//! What the screen knows. Pure: whatever happens comes in through a method, and [`draw`](super::draw) shows the rest.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::question::Question;
use crate::cli::screen::Tone;
use crate::cli::subject::Subject;
use crate::cli::view::View;
use crate::fleet::BlastRadius;
use crate::peer::wire::{EventLine, Hello, NodeReport, ServerFrame, WorkerReport};
use crate::vocabulary::Target;

/// How many records are kept for the list at the bottom.
const EVENTS: usize = 100;
/// For how long an answer stays.
const SAID: Duration = Duration::from_secs(20);

/// What covers the fleet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Page {
    /// Nothing does.
    Fleet,
    /// The keys.
    Help,
    /// A text, and how far it is scrolled.
    Text { title: String, lines: Vec<String>, top: usize },
}

/// The state of the screen.
#[derive(Debug)]
pub(super) struct Scene {
    /// The supervisor that is asked.
    pub(super) server: Hello,
    subject: Option<Subject>,
    view: View,
    reports: Vec<NodeReport>,
    /// The newest records, newest last.
    pub(super) events: VecDeque<EventLine>,
    /// What the audit told already when the stream began.
    told: Option<u64>,
    /// Why the supervisor is not there, and since when.
    pub(super) away: Option<(String, Instant)>,
    /// The worker that keys are about.
    pub(super) cursor: Option<Target>,
    pub(super) page: Page,
    pub(super) question: Option<Question>,
    said: Option<(String, Tone, Instant)>,
    /// How many orders have not been answered yet.
    pub(super) under_way: usize,
}

impl Scene {
    /// Nothing known yet but who answers.
    pub(super) fn new(server: Hello, subject: Option<Subject>, now: Instant) -> Self {
        Self {
            server,
            subject,
            view: View::new(now),
            reports: Vec::new(),
            events: VecDeque::new(),
            told: None,
            away: None,
            cursor: None,
            page: Page::Fleet,
            question: None,
            said: None,
            under_way: 0,
        }
    }

    /// The supervisor answers (again): what follows is everything. `earlier` are its newest records.
    pub(super) fn connected(&mut self, server: Hello, earlier: Vec<EventLine>, now: Instant) {
        if self.away.take().is_some() {
            self.say("the supervisor answers again".to_owned(), Tone::Good, now);
        }
        self.server = server;
        self.view = View::new(now);
        self.told = earlier.last().map(|line| line.seq);
        self.events.clear();
        for line in earlier {
            self.event(line);
        }
    }

    /// The supervisor is gone. What was last known stays.
    pub(super) fn lost(&mut self, why: String, now: Instant) {
        let since = self.away.take().map_or(now, |(_, since)| since);
        self.away = Some((why, since));
    }

    /// Takes a frame in.
    pub(super) fn frame(&mut self, frame: ServerFrame, now: Instant) {
        match frame {
            ServerFrame::Event(line) if self.told.is_some_and(|told| line.seq <= told) => {}
            ServerFrame::Event(line) => self.event(line),
            ServerFrame::Missed { count } => {
                self.say(format!("{count} records passed by: keyholder audit has them"), Tone::Fair, now);
            }
            ServerFrame::Snapshot(_)
            | ServerFrame::Change(_)
            | ServerFrame::Leaving
            | ServerFrame::Keepalive
            | ServerFrame::Hello(_)
            | ServerFrame::Reply(_) => {
                self.view.take(frame, &self.server.node, self.subject.as_ref(), now);
            }
        }
    }

    fn event(&mut self, line: EventLine) {
        let concerns = self.subject.as_ref().is_none_or(|subject| match subject {
            Subject::Node(node) => line.subject.split('/').next() == Some(node.as_str()),
            Subject::Worker(target) => line.subject == target.to_string(),
        });
        if concerns {
            self.events.push_back(line);
            if self.events.len() > EVENTS {
                self.events.pop_front();
            }
        }
    }

    /// Lets time pass: ages, and answers that have stood long enough.
    pub(super) fn tick(&mut self, now: Instant) {
        // What a supervisor said that is gone gets no older by our clock than it was: nobody knows.
        if self.away.is_none() {
            let reports = self.view.reports(now);
            // Between a new connection and its first frame the old picture is better than none.
            if !reports.is_empty() {
                self.reports = reports;
            }
        }
        if self.said.as_ref().is_some_and(|(_, _, at)| now.saturating_duration_since(*at) >= SAID) {
            self.said = None;
        }
        let here = self.cursor.as_ref().is_some_and(|cursor| self.workers().any(|worker| is(worker, cursor)));
        if !here {
            let first = self.workers().next().map(target);
            self.cursor = first;
        }
    }

    /// The nodes in view.
    pub(super) fn reports(&self) -> &[NodeReport] {
        &self.reports
    }

    fn workers(&self) -> impl Iterator<Item = &WorkerReport> {
        self.reports.iter().flat_map(|report| &report.workers)
    }

    /// The worker that keys are about.
    pub(super) fn selected(&self) -> Option<&WorkerReport> {
        let cursor = self.cursor.as_ref()?;
        self.workers().find(|worker| is(worker, cursor))
    }

    /// Whether that one is critical.
    pub(super) fn critical(&self) -> bool {
        self.selected().is_some_and(|worker| worker.blast_radius == BlastRadius::Critical)
    }

    /// Moves by so many workers, as far as there are any.
    pub(super) fn step(&mut self, by: isize) {
        let all: Vec<Target> = self.workers().map(target).collect();
        let at =
            self.cursor.as_ref().and_then(|cursor| all.iter().position(|one| one == cursor)).unwrap_or(0);
        let to = at.saturating_add_signed(by).min(all.len().saturating_sub(1));
        self.cursor = all.into_iter().nth(to);
    }

    /// Shows an answer in the last line.
    pub(super) fn say(&mut self, text: String, tone: Tone, now: Instant) {
        self.said = Some((text, tone, now));
    }

    /// The answer that is shown.
    pub(super) fn said(&self) -> Option<(&str, Tone)> {
        self.said.as_ref().map(|(text, tone, _)| (text.as_str(), *tone))
    }

    /// An order has been answered: in a line, or in a page if it takes more.
    pub(super) fn answered(&mut self, answer: SceneReply, now: Instant) {
        self.under_way = self.under_way.saturating_sub(1);
        let SceneReply { title, text, tone, page } = answer;
        let mut lines = text.lines().map(str::to_owned);
        if page {
            self.page = Page::Text { title, lines: lines.collect(), top: 0 };
        } else {
            self.say(lines.next().unwrap_or_default(), tone, now);
        }
    }
}

/// What came of an order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SceneReply {
    pub(super) title: String,
    pub(super) text: String,
    pub(super) tone: Tone,
    /// Whether it is worth a page of its own.
    pub(super) page: bool,
}

pub(super) fn target(worker: &WorkerReport) -> Target {
    Target { node: worker.node.clone(), worker: worker.worker.clone() }
}

fn is(worker: &WorkerReport, target: &Target) -> bool {
    worker.node == target.node && worker.worker == target.worker
}
