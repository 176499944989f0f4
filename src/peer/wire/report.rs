//! What the frames say about nodes, workers and the audit trail.

use std::time::Duration;

use serde::de::{IgnoredAny, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use super::lane::LaneReport;
use crate::fleet::BlastRadius;
use crate::journal::{Event, EventLine, Priority};
use crate::judge::log::Line;
use crate::vocabulary::{FailureClass, FleetHash, InvocationId, NodeName, UnitName, WorkerName};

/// A node as its own supervisor (or, when that is silent, its watcher) sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeReport {
    /// The node.
    pub node: NodeName,
    /// Its state.
    pub state: NodeState,
    /// The state in words: since when, why, what follows.
    pub why: String,
    /// Its keyholder version, once known.
    pub version: Option<String>,
    /// Its fleet file's hash, once known.
    pub fleet_hash: Option<FleetHash>,
    /// What is degraded on it, one sentence each.
    #[serde(deserialize_with = "sentences")]
    pub degraded: Vec<String>,
    /// How it sees the nodes that it watches itself.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sees: Vec<Sighting>,
    /// The last rehearsals of nodes that it watches.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rehearsed: Vec<Rehearsal>,
    /// Its workers by name. When the node is silent these are the last known states.
    pub workers: Vec<WorkerReport>,
}

/// How many sentences are read. An empty one is three bytes of a frame and eight times that in memory.
const SENTENCES: usize = 64;

/// Reads a list of sentences and passes over what comes after the first [`SENTENCES`].
fn sentences<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    struct List;
    impl<'de> Visitor<'de> for List {
        type Value = Vec<String>;

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("a list of sentences")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
            let mut kept = Vec::new();
            while kept.len() < SENTENCES {
                match list.next_element()? {
                    Some(sentence) => kept.push(sentence),
                    None => return Ok(kept),
                }
            }
            while list.next_element::<IgnoredAny>()?.is_some() {}
            Ok(kept)
        }
    }
    from.deserialize_seq(List)
}

/// How one node sees another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sighting {
    /// The other one.
    pub node: NodeName,
    /// Its state, as seen from there.
    pub state: NodeState,
    /// How long ago the other one looked, in milliseconds; 0 if that was only just.
    #[serde(default, skip_serializing_if = "fresh")]
    pub ago_ms: u64,
}

/// A word this young is sent without its age, as peers of older versions know it.
#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn fresh(ago_ms: &u64) -> bool {
    *ago_ms < 5_000
}

/// The last rehearsal of one class.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rehearsal {
    /// The node, for a rehearsal of its supervisor; none where the worker is clear from the context.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeName>,
    /// How it fell.
    pub class: FailureClass,
    /// Whether it was found and repaired.
    pub passed: bool,
    /// What happened, in a sentence.
    pub why: String,
    /// Who repaired it.
    pub by: Option<String>,
    /// How long ago it ended, in milliseconds.
    pub ago_ms: u64,
    /// From the break until its detector found it, in milliseconds.
    pub detect_ms: Option<u64>,
    /// From then until it was well again, in milliseconds.
    pub repair_ms: Option<u64>,
}

/// The state of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeState {
    /// Its supervisor answers.
    Up,
    /// It boots; nothing counts as dead yet.
    Starting,
    /// It said that it shuts down or reboots.
    Leaving,
    /// The host answers, the supervisor does not.
    SupervisorDead,
    /// No answer at all: down or cut off. From one place these look the same.
    Unreachable,
    /// The watcher itself cannot call it: the fault is on the watcher's host or on the way. Only said on that host; its peers hear
    /// [`Self::Unknown`].
    CutOff,
    /// Not asked yet, or not watched from here.
    Unknown,
}

/// A worker's state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkerReport {
    /// The node it runs on.
    pub node: NodeName,
    /// Its name.
    pub worker: WorkerName,
    /// Its unit.
    pub unit: UnitName,
    /// What depends on it.
    pub blast_radius: BlastRadius,
    /// Its health.
    pub class: Class,
    /// The evidence, in words.
    pub why: String,
    /// For how long it has been in this class, in milliseconds. A duration, since clocks of two hosts are not compared.
    pub for_ms: u64,
    /// The run of its unit, present or last.
    pub invocation: Option<InvocationId>,
    /// What is being done about it, in words; empty when nothing is.
    pub doing: String,
    /// In how many milliseconds the next repair is due, if one is planned.
    pub due_in_ms: Option<u64>,
    /// The last act on it, in words.
    pub last_act: Option<String>,
    /// How long ago that was, in milliseconds.
    pub last_act_ms: Option<u64>,
    /// How much longer a hold lasts, in milliseconds.
    pub held_for_ms: Option<u64>,
    /// Whether it is in quarantine.
    pub quarantined: bool,
    /// Whether its node leaves the repair to the watchers, and the time for that has come.
    pub left_to_peers: bool,
    /// Whether systemd would start it if asked: false for a unit that is missing, masked or refuses.
    pub startable: bool,
    /// What it says of itself, if it is a lane that runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lane: Option<Box<LaneReport>>,
    /// Why somebody should look at it, whatever its class says at the moment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alert: Option<String>,
    /// The rehearsal that is under way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drill: Option<FailureClass>,
    /// The last rehearsal of each class.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rehearsed: Vec<Rehearsal>,
}

/// A worker's class, as shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// Running.
    Healthy,
    /// systemd is starting, reloading or stopping it, or its node boots.
    Starting,
    /// Down, and that is allowed: somebody holds it, or, if `held_for_ms` is not there, its unit file or the fleet file says
    /// that it may be. Both are one class on the wire, since an older version would take a new one for an error.
    Held,
    /// Down, and nobody said that it may be.
    Dead,
    /// Up, and its loop makes no progress.
    Stuck,
    /// Up and well, and nothing reaches it.
    DeliveryGap,
    /// It could not be observed. Nothing is done on a guess.
    Unknown,
}

/// The answer to `explain`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Explanation {
    /// The state.
    pub report: WorkerReport,
    /// What was observed, a line per fact.
    pub observed: Vec<String>,
    /// What is done or not done, and by which rule, a line each.
    pub decided: Vec<String>,
    /// What the judge was told of it lately, as a log that can be replayed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub log: Vec<Line>,
}

/// The answer to `explain` about a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeExplanation {
    /// The node as seen from here.
    pub report: NodeReport,
    /// What was observed, and which other causes of a silence are excluded, a line each.
    pub observed: Vec<String>,
    /// What is done or not done, and why, a line each.
    pub decided: Vec<String>,
}

/// One line of the audit trail.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AuditLine {
    /// Its number; gaps show what was lost, or what has made room for newer lines.
    pub seq: u64,
    /// The wall clock when it was written, RFC 3339 in UTC. For people only.
    pub at: String,
    /// What kind of record it is.
    pub event: String,
    /// Who asked: `local`, a node's name, or `root`/`uid N` over the local socket.
    pub by: String,
    /// The worker or node concerned, if there is one.
    pub subject: String,
    /// What was done or refused and why.
    pub text: String,
    /// How urgent it is, as in syslog: 3 somebody must look, 4 somebody should know, 5 an act, 6 for the trail.
    #[serde(default = "for_the_trail")]
    pub priority: u8,
}

/// The priority of a line from before lines said theirs.
fn for_the_trail() -> u8 {
    Priority::Info.number()
}

impl From<AuditLine> for EventLine {
    /// What was told earlier, as it is told while it happens.
    fn from(line: AuditLine) -> Self {
        let AuditLine { seq, at, event, by, subject, text, priority } = line;
        let message_id = Event::named(&event).map(Event::message_id).unwrap_or_default().to_owned();
        Self { seq, at, event, priority, message_id, by, subject, text }
    }
}

impl NodeState {
    /// Its name, as the design and the command line have it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Starting => "starting",
            Self::Leaving => "leaving",
            Self::SupervisorDead => "supervisor-dead",
            Self::Unreachable => "unreachable",
            Self::CutOff => "cut-off",
            Self::Unknown => "unknown",
        }
    }
}

impl Class {
    /// Its name, as on the wire and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Healthy => "healthy",
            Self::Starting => "starting",
            Self::Held => "held",
            Self::Dead => "dead",
            Self::Stuck => "stuck",
            Self::DeliveryGap => "delivery-gap",
            Self::Unknown => "unknown",
        }
    }
}

impl WorkerReport {
    /// Makes of it what it reads `time` later: durations go on, nothing else changes.
    pub fn age_by(&mut self, time: Duration) {
        let ms = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        self.for_ms = self.for_ms.saturating_add(ms);
        self.last_act_ms = self.last_act_ms.map(|ago| ago.saturating_add(ms));
        for rehearsal in &mut self.rehearsed {
            rehearsal.ago_ms = rehearsal.ago_ms.saturating_add(ms);
        }
        for left in self.due_in_ms.iter_mut().chain(&mut self.held_for_ms) {
            *left = left.saturating_sub(ms);
        }
        if let Some(lane) = &mut self.lane {
            lane.age_by(ms);
        }
    }

    /// Whether the two say the same of it, but for times and what it says of itself.
    pub fn is_as_healthy_as(&self, other: &Self) -> bool {
        let timeless = |report: &Self| {
            let mut report = Self {
                for_ms: 0,
                due_in_ms: report.due_in_ms.map(|_| 0),
                last_act_ms: None,
                held_for_ms: report.held_for_ms.map(|_| 0),
                lane: None,
                ..report.clone()
            };
            report.rehearsed.iter_mut().for_each(|rehearsal| rehearsal.ago_ms = 0);
            report
        };
        timeless(self) == timeless(other)
    }

    /// Its class as people are shown it: what is down by design is not on hold, and what runs and somebody should look at is not
    /// healthy.
    pub fn word(&self) -> &'static str {
        if self.class == Class::Held && self.held_for_ms.is_none() {
            "idle"
        } else if self.class == Class::Healthy && self.alert.is_some() {
            "degraded"
        } else {
            self.class.name()
        }
    }

    /// For how long it has been in its class.
    pub fn age(&self) -> Duration {
        Duration::from_millis(self.for_ms)
    }
}

#[cfg(test)]
impl WorkerReport {
    /// A worker that is up or down and of which there is nothing else to say.
    pub(crate) fn plain(node: &str, name: &str, class: Class) -> Self {
        Self {
            node: node.parse().unwrap(),
            worker: name.parse().unwrap(),
            unit: format!("{name}.service").parse().unwrap(),
            blast_radius: BlastRadius::Normal,
            class,
            why: String::new(),
            for_ms: 0,
            invocation: None,
            doing: String::new(),
            due_in_ms: None,
            last_act: None,
            last_act_ms: None,
            held_for_ms: None,
            quarantined: false,
            left_to_peers: false,
            startable: true,
            lane: None,
            alert: None,
            drill: None,
            rehearsed: Vec::new(),
        }
    }
}
