use super::*;
use crate::peer::wire::{Class, LastReport, NodeState, Sighting, TaskReport};
use crate::vocabulary::{FailureClass, TaskStatus};

fn known() -> Known {
    Known {
        workers: ["agent", "write"].map(|name| name.parse().unwrap()).into(),
        nodes: ["mars", "venus"].map(|name| name.parse().unwrap()).into(),
    }
}

fn rehearsal(node: Option<&str>) -> Rehearsal {
    Rehearsal {
        node: node.map(|node| node.parse().unwrap()),
        class: FailureClass::Dead,
        passed: true,
        why: "ü".repeat(100_000),
        by: Some("x".repeat(100_000)),
        ago_ms: 1,
        detect_ms: None,
        repair_ms: None,
    }
}

fn worker(name: &str) -> WorkerReport {
    let long = || "€".repeat(100_000);
    let task = || TaskReport { id: long(), action: long(), for_ms: 0, idempotent: true };
    WorkerReport {
        why: long(),
        doing: long(),
        last_act: Some(long()),
        lane: Some(Box::new(LaneReport {
            queue: long(),
            connected: true,
            waiting: None,
            running: 9,
            in_flight: (0..100).map(|_| task()).collect(),
            done: 0,
            last: Some(LastReport {
                id: long(),
                action: Some(long()),
                status: TaskStatus::Interrupted,
                ago_ms: 0,
            }),
            silent_ms: None,
        })),
        rehearsed: (0..100).map(|_| rehearsal(None)).collect(),
        ..WorkerReport::plain("mars", name, Class::Dead)
    }
}

#[test]
fn only_what_the_fleet_file_has_is_kept_each_once_and_no_text_is_longer_than_a_sentence() {
    let sight = |node: &str| Sighting { node: node.parse().unwrap(), state: NodeState::Up, ago_ms: 0 };
    let mut report = NodeReport {
        node: "mars".parse().unwrap(),
        state: NodeState::Up,
        why: "x".repeat(100_000),
        version: Some("9".repeat(100_000)),
        fleet_hash: None,
        degraded: (0..1000).map(|_| "y".repeat(1500)).collect(),
        sees: ["venus", "venus", "pluto"].map(sight).into(),
        rehearsed: [Some("venus"), Some("venus"), Some("pluto"), None].map(rehearsal).into(),
        workers: ["agent", "agent", "write", "ghost"].map(worker).into(),
    };
    let dropped = known().screen(&mut report);
    assert_eq!(dropped, (1000 - DEGRADED) + 2 + 3 + 2);
    let names: Vec<&str> = report.workers.iter().map(|worker| worker.worker.as_str()).collect();
    assert_eq!(names, ["agent", "write"]);
    assert_eq!((report.sees.len(), report.rehearsed.len(), report.degraded.len()), (1, 1, DEGRADED));
    // One sentence is three bytes a character; a lane names nine tasks, a worker three rehearsals.
    let bytes = serde_json::to_vec(&report).unwrap().len();
    assert!(bytes < 60_000, "{bytes} bytes are kept");
}

#[test]
fn an_honest_report_is_kept_as_it_is() {
    let mut report = WorkerReport::plain("mars", "agent", Class::Dead);
    report.why = "main process exited, code=killed, status=9/KILL".to_owned();
    let said = report.clone();
    assert!(known().screen_worker(&mut report));
    assert_eq!(report, said);
    assert!(!known().screen_worker(&mut WorkerReport::plain("mars", "ghost", Class::Dead)));
}
