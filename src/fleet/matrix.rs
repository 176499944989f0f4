//! The table that has no blanks: for every worker and every node, and every way each can fall, what sees it, what is done
//! about it, who does it and when that was last rehearsed. Pure: a fleet file and what is known of rehearsals in, rows out.

mod host;
mod words;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::Serialize;

use super::model::{Fleet, Node, Right, Worker};
use crate::vocabulary::{
    BlastRadius, FailureClass, NodeName, Policy, Remedy, RepairBy, UnitName, WorkerName,
};

pub use host::seen_in_redis;
pub use words::written;

/// Which cell: a node or one of its workers, and how it falls.
pub type MatrixCell = (NodeName, Option<WorkerName>, FailureClass);

/// The last rehearsal of a cell.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Rehearsal {
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

/// What is known of rehearsals.
#[derive(Debug, Clone, Default)]
pub struct Rehearsals {
    /// The last one of each cell that ever had one.
    pub last: BTreeMap<MatrixCell, Rehearsal>,
    /// The nodes that could tell about their own workers, and about the nodes that they watch.
    pub told: BTreeSet<NodeName>,
}

/// Where that knowledge is from.
#[derive(Debug, Clone, Copy)]
pub enum Source<'a> {
    /// Nobody was to be asked: only the file is judged.
    FileAlone,
    /// Nobody answered, so nothing is known, and that is worth saying.
    NobodyAnswered,
    /// A supervisor.
    Asked(&'a Rehearsals),
}

/// The whole table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Matrix {
    /// A row for each worker and each node, by name, a node after its workers.
    pub rows: Vec<Row>,
    /// What holds for several of them.
    pub notes: Vec<String>,
}

/// All ways in which one thing can fall.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Row {
    /// The node.
    pub node: NodeName,
    /// The worker, unless the row is about the node itself.
    pub worker: Option<WorkerName>,
    /// The worker's unit.
    pub unit: Option<UnitName>,
    /// What depends on the worker.
    pub blast_radius: Option<BlastRadius>,
    /// Who acts unasked.
    pub repair_by: RepairBy,
    /// How long the watchers wait for the node itself, in milliseconds.
    pub grace_ms: u64,
    /// Its watchers in the order in which they act.
    pub watchers: Vec<NodeName>,
    /// The ways to fall.
    pub cells: Vec<Cell>,
}

/// One way to fall.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Cell {
    /// Which.
    pub class: FailureClass,
    /// What sees it.
    pub seen_by: Option<String>,
    /// What is done, each rung only if the one before it did not help.
    pub ladder: Vec<Rung>,
    /// Why nothing sees it, or nothing can be done about it.
    pub unhandled: Option<String>,
    /// How it was rehearsed; nothing for what is not handled.
    pub rehearsal: Option<Rehearsed>,
    /// What somebody has to see to. Empty if all is well.
    pub open: Vec<Open>,
}

/// Something that somebody has to see to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Open {
    /// Of which kind.
    pub lack: Lack,
    /// What, and the way out, in a sentence.
    pub text: String,
}

/// What a cell lacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Lack {
    /// Nothing sees it, or nothing can be done.
    Handling,
    /// No watcher may use a remedy.
    Grant,
    /// A rehearsal that passed: the last one failed.
    Success,
    /// A rehearsal that is young enough, or any at all.
    Rehearsal,
    /// Somebody who could tell.
    Word,
}

/// One remedy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Rung {
    /// Its name.
    pub remedy: &'static str,
    /// How it is done.
    pub how: String,
    /// Who does it, in this order: each acts only when nobody before it has helped.
    pub by: Vec<Actor>,
}

/// Somebody who acts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Actor {
    /// Which node.
    pub node: NodeName,
    /// Whether it may: a node may everything at home.
    pub granted: bool,
}

/// How a cell was rehearsed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Rehearsed {
    /// What to think of it.
    pub verdict: Verdict,
    /// The last one.
    pub last: Option<Rehearsal>,
}

/// What to think of a cell's last rehearsal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// It was found and repaired, and that is not long ago.
    Passed,
    /// It was not.
    Failed,
    /// It was, longer ago than `rehearse_every`.
    Overdue,
    /// There was none.
    Never,
    /// Nobody could say.
    Unknown,
    /// It cannot be rehearsed by machine; what was done by hand is not recorded either.
    ByHand,
}

impl Matrix {
    /// The table of a fleet. Disabled nodes are named in the notes only.
    pub fn of(fleet: &Fleet, source: Source<'_>) -> Self {
        let table = Table { fleet, source };
        let mut rows = Vec::new();
        for (name, node) in fleet.nodes.iter().filter(|(_, node)| !node.disabled) {
            rows.extend(node.workers.iter().map(|(worker, spec)| table.worker(name, node, worker, spec)));
            rows.push(table.node(name, node));
        }
        Self { rows, notes: host::notes(fleet, None) }
    }

    /// Leaves one node of the fleet's table, or one worker of it, and the notes that matter for that.
    pub fn narrow(&mut self, fleet: &Fleet, node: &NodeName, worker: Option<&WorkerName>) {
        self.rows.retain(|row| {
            row.node == *node && worker.is_none_or(|worker| row.worker.as_ref() == Some(worker))
        });
        self.notes = host::notes(fleet, Some(host::Selection { node, worker }));
    }

    /// How many cells somebody has to see to.
    pub fn open(&self) -> usize {
        self.rows.iter().flat_map(|row| &row.cells).filter(|cell| !cell.open.is_empty()).count()
    }
}

struct Table<'a> {
    fleet: &'a Fleet,
    source: Source<'a>,
}

impl Table<'_> {
    fn worker(&self, on: &NodeName, node: &Node, name: &WorkerName, spec: &Worker) -> Row {
        let watchers = self.watchers(node);
        let cells = FailureClass::OF_WORKERS
            .into_iter()
            .map(|class| {
                let rungs = words::rungs(spec, class).into_iter().map(|(remedy, how)| {
                    let right = right(remedy);
                    let local = (spec.policy.repair_by != RepairBy::Peer)
                        .then(|| Actor { node: on.clone(), granted: true });
                    let peers = watchers.iter().map(|by| Actor {
                        node: by.clone(),
                        granted: self.fleet.allows(by, on, name, right),
                    });
                    Rung { remedy: remedy.name(), how, by: local.into_iter().chain(peers).collect() }
                });
                let seen_by = words::detector(spec, class);
                let ladder: Vec<Rung> = if seen_by.is_some() { rungs.collect() } else { Vec::new() };
                let unhandled = seen_by.is_none().then(|| words::unseen(self.fleet, spec, class));
                let every = spec.policy.rehearse_every;
                let mut cell = Cell { class, seen_by, ladder, unhandled, rehearsal: None, open: Vec::new() };
                let tellers = [on.clone()];
                self.judge(&mut cell, (on.clone(), Some(name.clone()), class), &tellers, every, &watchers);
                cell
            })
            .collect();
        Row {
            node: on.clone(),
            worker: Some(name.clone()),
            unit: Some(spec.unit.clone()),
            blast_radius: Some(spec.blast_radius),
            repair_by: spec.policy.repair_by,
            grace_ms: u64::try_from(spec.policy.grace.as_millis()).unwrap_or(u64::MAX),
            watchers,
            cells,
        }
    }

    fn node(&self, on: &NodeName, node: &Node) -> Row {
        let watchers = self.watchers(node);
        let seeing = watchers
            .iter()
            .any(|by| node.workers.keys().any(|worker| self.fleet.allows(by, on, worker, Right::Status)));
        let every = node.workers.values().map(|worker| worker.policy.rehearse_every).min();
        let every = every.unwrap_or_else(|| Policy::default().rehearse_every);
        let cells = FailureClass::OF_NODES
            .into_iter()
            .map(|class| {
                let unseen = if watchers.is_empty() {
                    Some("nobody watches it: add `watched_by`".to_owned())
                } else if node.workers.is_empty() {
                    Some("it has no workers, so nobody follows it".to_owned())
                } else if seeing {
                    None
                } else {
                    Some("no watcher may see it: grant `status`".to_owned())
                };
                let (ladder, helpless) = self.node_ladder(on, node, class, &watchers);
                let mut cell = Cell {
                    class,
                    seen_by: unseen.is_none().then(|| words::node_detector(class).to_owned()),
                    ladder: if unseen.is_none() { ladder } else { Vec::new() },
                    unhandled: unseen.or(helpless),
                    rehearsal: None,
                    open: Vec::new(),
                };
                self.judge(&mut cell, (on.clone(), None, class), &watchers, every, &watchers);
                cell
            })
            .collect();
        Row {
            node: on.clone(),
            worker: None,
            unit: None,
            blast_radius: None,
            repair_by: RepairBy::Peer,
            grace_ms: 0,
            watchers,
            cells,
        }
    }

    /// What is done for a node, and why nothing can be.
    fn node_ladder(
        &self,
        on: &NodeName,
        node: &Node,
        class: FailureClass,
        watchers: &[NodeName],
    ) -> (Vec<Rung>, Option<String>) {
        let by = |granted: &dyn Fn(&NodeName) -> bool| -> Vec<Actor> {
            watchers.iter().map(|by| Actor { node: by.clone(), granted: granted(by) }).collect()
        };
        match (class, &node.power) {
            (FailureClass::SupervisorDead, _) => {
                let how = "a knock at its door: PID 1 holds the socket and starts it".to_owned();
                (vec![Rung { remedy: "knock", how, by: by(&|_| true) }], None)
            }
            (FailureClass::Unreachable, Some(power)) => {
                let by = by(&|by| self.fleet.allows_node(by, on, Right::Power));
                let nobody = !by.iter().any(|actor| actor.granted);
                let rung = Rung { remedy: "power", how: words::power(power), by };
                let helpless = if nobody {
                    Some("someone must go there: nobody may use its `power`")
                } else if power.witness.is_none() && !watchers.iter().any(|by| self.watches_another(by, on)) {
                    Some(
                        "only by hand (keyholder power): its watcher watches nobody else, and `power` names no witness",
                    )
                } else {
                    None
                };
                (vec![rung], helpless.map(str::to_owned))
            }
            (FailureClass::Unreachable, None) => {
                (Vec::new(), Some("someone must go there: it has no `power`".to_owned()))
            }
            (FailureClass::Dead | FailureClass::Stuck | FailureClass::DeliveryGap, _) => (Vec::new(), None),
        }
    }

    /// Whether a watcher watches another node than this one, so that it can tell a dead one from its own fault.
    fn watches_another(&self, by: &NodeName, on: &NodeName) -> bool {
        self.fleet.watched_by(by).any(|(other, _)| other != on)
    }

    /// The enabled watchers in the order in which they act: by name.
    fn watchers(&self, node: &Node) -> Vec<NodeName> {
        let enabled = |name: &&NodeName| self.fleet.nodes.get(*name).is_some_and(|node| !node.disabled);
        node.watched_by.iter().filter(enabled).cloned().collect()
    }

    /// Looks for what is missing in a cell. `tellers` are those who keep its rehearsals.
    fn judge(
        &self,
        cell: &mut Cell,
        place: MatrixCell,
        tellers: &[NodeName],
        every: Duration,
        watchers: &[NodeName],
    ) {
        if let Some(why) = &cell.unhandled {
            cell.open = vec![Open { lack: Lack::Handling, text: format!("UNHANDLED: {why}") }];
            return;
        }
        for rung in &cell.ladder {
            // That nobody watches at all is a matter of the node's own row.
            let mut peers = rung.by.iter().filter(|actor| watchers.contains(&actor.node));
            if let Some(first) = watchers.first()
                && !peers.any(|actor| actor.granted)
            {
                let text = format!("no watcher may {0} it: grant `{0}` to {first}", rung.remedy);
                cell.open.push(Open { lack: Lack::Grant, text });
            }
        }
        let rehearsed = self.rehearsed(&place, tellers, every);
        let (node, worker, class) = &place;
        let subject = worker.as_ref().map_or_else(|| node.to_string(), |worker| format!("{node}/{worker}"));
        let again = format!("keyholder drill {subject} --class {class}");
        let open = match rehearsed.verdict {
            Verdict::Failed => {
                let why = rehearsed.last.as_ref().map_or("", |last| last.why.as_str());
                Some((Lack::Success, format!("its last rehearsal failed ({why}); again: {again}")))
            }
            Verdict::Overdue => Some((Lack::Rehearsal, format!("its last rehearsal is too old: {again}"))),
            Verdict::Never => Some((Lack::Rehearsal, format!("it was never rehearsed: {again}"))),
            Verdict::Unknown if !matches!(self.source, Source::FileAlone) => {
                Some((Lack::Word, "nobody could say when it was rehearsed".to_owned()))
            }
            Verdict::Unknown | Verdict::Passed | Verdict::ByHand => None,
        };
        cell.open.extend(open.map(|(lack, text)| Open { lack, text }));
        cell.rehearsal = Some(rehearsed);
    }

    /// Whether no machine can bring this about without harm.
    fn no_rehearsal(&self, (node, worker, class): &MatrixCell) -> bool {
        let node = self.fleet.nodes.get(node);
        let spec = node.zip(worker.as_ref()).and_then(|(node, worker)| node.workers.get(worker));
        spec.is_some_and(|spec| spec.no_rehearsal(*class).is_some())
    }

    fn rehearsed(&self, place: &MatrixCell, tellers: &[NodeName], every: Duration) -> Rehearsed {
        let (last, told) = match self.source {
            Source::FileAlone | Source::NobodyAnswered => (None, false),
            Source::Asked(known) => {
                (known.last.get(place).cloned(), tellers.iter().any(|node| known.told.contains(node)))
            }
        };
        let verdict = match &last {
            Some(last) if !last.passed => Verdict::Failed,
            // Nothing cuts a host's power for practice: it is not held against a cell that this was long ago.
            Some(_) if place.2 == FailureClass::Unreachable => Verdict::Passed,
            Some(last) if Duration::from_millis(last.ago_ms) > every => Verdict::Overdue,
            Some(_) => Verdict::Passed,
            None if place.2 == FailureClass::Unreachable || self.no_rehearsal(place) => Verdict::ByHand,
            None if told => Verdict::Never,
            None => Verdict::Unknown,
        };
        Rehearsed { verdict, last }
    }
}

fn right(remedy: Remedy) -> Right {
    match remedy {
        Remedy::Nudge => Right::Nudge,
        Remedy::Repipe => Right::Repipe,
        Remedy::Relaunch => Right::Relaunch,
    }
}
