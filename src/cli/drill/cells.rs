//! What there is to rehearse from a node, and what was rehearsed the longest ago. Pure.

use crate::cli::subject::Subject;
use crate::fleet::{BlastRadius, Fleet, Right};
use crate::peer::wire::{NodeReport, Rehearsal};
use crate::vocabulary::{FailureClass, NodeName, Target, WorkerName};

/// Something that can be rehearsed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Cell {
    /// With whom.
    pub(super) subject: Subject,
    /// How it falls.
    pub(super) class: FailureClass,
    /// Whether it is critical.
    pub(super) critical: bool,
    /// How long ago the last one ended, in milliseconds; none if there was none.
    pub(super) ago_ms: Option<u64>,
}

/// Of whose workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Whose {
    /// Of the nodes that this one watches.
    Watched,
    /// Its own as well.
    All,
}

/// What can be rehearsed from node `me`, in the order of the fleet file. `reports` say when that was done last.
pub(super) fn cells(fleet: &Fleet, reports: &[NodeReport], me: &NodeName, whose: Whose) -> Vec<Cell> {
    let report = |node: &NodeName| reports.iter().find(|report| report.node == *node);
    let mut cells = Vec::new();
    for (node, spec) in &fleet.nodes {
        let own = node == me;
        if spec.disabled || if own { whose == Whose::Watched } else { !spec.watched_by.contains(me) } {
            continue;
        }
        for (name, worker) in &spec.workers {
            // On the node itself root needs no grant.
            if !own && !fleet.allows(me, node, name, Right::Drill) {
                continue;
            }
            for class in FailureClass::OF_WORKERS {
                if worker.no_rehearsal(class).is_some() {
                    continue;
                }
                let of_worker = |name: &WorkerName| {
                    let worker = report(node)?.workers.iter().find(|worker| worker.worker == *name)?;
                    last(&worker.rehearsed, class, None)
                };
                cells.push(Cell {
                    subject: Subject::Worker(Target { node: node.clone(), worker: name.clone() }),
                    class,
                    critical: worker.blast_radius == BlastRadius::Critical,
                    ago_ms: of_worker(name),
                });
            }
        }
        if !own && fleet.allows_node(me, node, Right::Drill) {
            let class = FailureClass::SupervisorDead;
            cells.push(Cell {
                subject: Subject::Node(node.clone()),
                class,
                critical: false,
                ago_ms: report(me).and_then(|report| last(&report.rehearsed, class, Some(node))),
            });
        }
    }
    cells
}

fn last(rehearsed: &[Rehearsal], class: FailureClass, node: Option<&NodeName>) -> Option<u64> {
    let of = |last: &&Rehearsal| last.class == class && last.node.as_ref() == node;
    rehearsed.iter().filter(of).map(|last| last.ago_ms).min()
}

/// The one that was never rehearsed, or the longest ago; a critical one only with `yes`.
pub(super) fn stalest(cells: &[Cell], yes: bool) -> Option<&Cell> {
    // Of several that were never rehearsed the first: `max_by_key` would take the last.
    cells.iter().rev().filter(|cell| yes || !cell.critical).max_by_key(|cell| cell.ago_ms.unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FLEET: &str = r#"
version: 1
nodes:
  mars:
    address: 192.0.2.10:7433
    pins: ["sha256:1111111111111111111111111111111111111111111111111111111111111111"]
    watched_by: [venus]
    workers:
      agent: { unit: agent.service }
      nobody: { unit: nobody.service, repair_by: nobody }
      vital: { unit: vital.service, blast_radius: critical }
  venus:
    address: 192.0.2.20:7433
    pins: ["sha256:2222222222222222222222222222222222222222222222222222222222222222"]
    watched_by: [mars]
    workers:
      own: { unit: own.service }
grants:
  - { from: venus, on: mars, workers: ["*"], verbs: [status, relaunch] }
"#;

    fn names(cells: &[Cell]) -> Vec<String> {
        cells.iter().map(|cell| format!("{} {}", cell.subject, cell.class)).collect()
    }

    fn fleet(granted: bool) -> Fleet {
        let mut fleet = crate::fleet::parse("fleet.yaml", FLEET.as_bytes()).unwrap().fleet;
        if granted {
            fleet.grants[0].rights.insert(Right::Drill);
        }
        fleet
    }

    #[test]
    fn what_is_granted_and_would_be_repaired_is_rehearsed_the_stalest_first() {
        let venus = "venus".parse().unwrap();
        assert_eq!(names(&cells(&fleet(false), &[], &venus, Whose::Watched)), [""; 0]);
        let all = cells(&fleet(true), &[], &venus, Whose::All);
        assert_eq!(
            names(&all),
            ["mars/agent dead", "mars/vital dead", "mars supervisor-dead", "venus/own dead"]
        );
        let mut watched = cells(&fleet(true), &[], &venus, Whose::Watched);
        assert_eq!(names(&watched), names(&all)[..3]);
        assert_eq!(stalest(&watched, false), watched.first());
        watched[0].ago_ms = Some(10);
        assert_eq!(stalest(&watched, true), watched.get(1));
        assert_eq!(stalest(&watched, false), watched.get(2), "the critical one is spared");
        watched[2].ago_ms = Some(9);
        assert_eq!(stalest(&watched, false), watched.first());
        assert_eq!(stalest(&[], true), None);
    }
}
