use std::time::Duration;

use super::*;
use crate::cli::screen::Paint;
use crate::fleet::BlastRadius;
use crate::peer::wire::{
    AuditLine, Explanation, Hello, LaneReport, LastReport, NodeReport, Outcome, Refusal, RefusalCode,
    RelaunchFailed, Relaunched, TaskReport, WorkerReport,
};
use crate::vocabulary::{BootNonce, FleetHash, InvocationId, Target, TaskStatus};

const HOSTILE: &str = "\x1b]0;pwned\x07\x1b[2J\u{9b}31m\u{202e}live\r\nmars/agent is running again";

fn server() -> Hello {
    Hello {
        node: "mars".parse().unwrap(),
        version: "0.1.0".to_owned(),
        boot_nonce: BootNonce::from_bytes([1; 16]),
        fleet_hash: FleetHash::of(b"fleet"),
    }
}

fn worker(node: &str, name: &str, unit: &str, class: Class) -> WorkerReport {
    WorkerReport {
        unit: unit.parse().unwrap(),
        for_ms: 11_400_000,
        invocation: Some(InvocationId::from_bytes([0x77; 16])),
        ..WorkerReport::plain(node, name, class)
    }
}

fn node(name: &str, state: NodeState, workers: Vec<WorkerReport>) -> NodeReport {
    NodeReport {
        node: name.parse().unwrap(),
        state,
        why: String::new(),
        version: Some("0.1.0".to_owned()),
        fleet_hash: Some(FleetHash::of(b"fleet")),
        degraded: Vec::new(),
        sees: Vec::new(),
        rehearsed: Vec::new(),
        workers,
    }
}

fn shown(reports: &[NodeReport], width: u16, colour: bool) -> String {
    let server = server();
    fleet(reports, &Look { width, paint: Paint(colour), server: &server, version: "0.1.0" })
}

/// Every class once, with all there is to say about it.
fn every_class() -> NodeReport {
    let healthy = WorkerReport {
        last_act: Some("relaunched by ai-core".to_owned()),
        last_act_ms: Some(302_000),
        ..worker("mars", "agent", "ai-agent.service", Class::Healthy)
    };
    let starting = WorkerReport {
        why: "systemd is starting it".to_owned(),
        for_ms: 420,
        ..worker("mars", "indexer", "indexer.service", Class::Starting)
    };
    let held = WorkerReport {
        why: "stopped".to_owned(),
        held_for_ms: Some(1_750_000),
        ..worker("mars", "proxy", "apache2.service", Class::Held)
    };
    let dead = WorkerReport {
        why: "killed by SIGKILL.".to_owned(),
        for_ms: 12,
        doing: "relaunching it".to_owned(),
        ..worker("mars", "read", "keyholder-lane-read.service", Class::Dead)
    };
    let quarantined = WorkerReport {
        why: "its start limit is reached".to_owned(),
        quarantined: true,
        due_in_ms: Some(480_000),
        invocation: None,
        last_act: Some("relaunch by mars failed: the unit failed to start".to_owned()),
        last_act_ms: Some(120_000),
        ..worker("mars", "write", "keyholder-lane-write.service", Class::Dead)
    };
    let unknown = WorkerReport {
        why: "the system bus does not answer".to_owned(),
        ..worker("mars", "zed", "zed.service", Class::Unknown)
    };
    let masked = WorkerReport {
        why: "masked.service is masked".to_owned(),
        startable: false,
        drill: None,
        rehearsed: Vec::new(),
        ..worker("mars", "zee", "masked.service", Class::Dead)
    };
    let left = WorkerReport {
        why: "exited with code 1".to_owned(),
        left_to_peers: true,
        ..worker("mars", "zoe", "zoe.service", Class::Dead)
    };
    node("mars", NodeState::Up, vec![healthy, starting, held, dead, quarantined, unknown, masked, left])
}

#[test]
fn every_class_at_both_widths() {
    insta::assert_snapshot!("classes_80", shown(&[every_class()], 80, false));
    insta::assert_snapshot!("classes_120", shown(&[every_class()], 120, false));
    insta::assert_snapshot!(
        "classes_colour",
        shown(&[every_class()], 120, true).escape_debug().to_string().replace("\\n", "\n")
    );
}

#[test]
fn every_node_state_with_what_has_drifted_and_what_is_degraded() {
    let mut reports = vec![NodeReport {
        degraded: vec!["the state directory is full: records are kept in memory only".to_owned()],
        sees: Vec::new(),
        rehearsed: Vec::new(),
        ..node("mars", NodeState::Up, vec![worker("mars", "agent", "ai-agent.service", Class::Healthy)])
    }];
    for (name, state, why) in [
        (
            "ai-core",
            NodeState::SupervisorDead,
            "the host answers, its supervisor does not, for 12 s; knocking",
        ),
        (
            "venus",
            NodeState::Unreachable,
            "no answer for 12 s: down or cut off, from here these look the same",
        ),
        ("earth", NodeState::Starting, "it boots"),
        ("pluto", NodeState::Leaving, "it shuts down or reboots"),
        ("ceres", NodeState::Unknown, "not watched from here"),
    ] {
        reports.push(NodeReport {
            why: why.to_owned(),
            ..node(name, state, vec![worker(name, "write", "keyholder-lane-write.service", Class::Healthy)])
        });
    }
    reports[1].version = Some("0.0.9".to_owned());
    reports[1].fleet_hash = Some(FleetHash::of(b"another"));
    reports[5].version = None;
    reports[5].fleet_hash = None;
    reports[5].workers.clear();
    insta::assert_snapshot!(shown(&reports, 100, false));
}

#[test]
fn a_healthy_fleet_has_nothing_more_to_say() {
    let report =
        node("mars", NodeState::Up, vec![worker("mars", "agent", "ai-agent.service", Class::Healthy)]);
    insta::assert_snapshot!(shown(std::slice::from_ref(&report), 80, false));
    assert_eq!(shown(&[], 80, false), "");
    let older = Hello { version: "0.0.9".to_owned(), ..server() };
    let look = Look { width: 80, paint: Paint(false), server: &older, version: "0.1.0" };
    assert!(fleet(&[report], &look).contains("systemctl restart keyholder.service"));
}

/// A lane that works, one that has nothing to do, one that has lost its queue and one that is stuck.
fn lanes() -> NodeReport {
    let lane = |name: &str, change: fn(&mut LaneReport)| {
        let mut lane = LaneReport {
            queue: format!("tasks:maintenance:mars:{name}"),
            connected: true,
            waiting: Some(0),
            running: 0,
            in_flight: Vec::new(),
            done: 0,
            last: None,
            silent_ms: None,
        };
        change(&mut lane);
        let unit = format!("keyholder-lane-{name}.service");
        WorkerReport { lane: Some(Box::new(lane)), ..worker("mars", name, &unit, Class::Healthy) }
    };
    fn task(action: &str, for_ms: u64, idempotent: bool) -> TaskReport {
        TaskReport {
            id: "019ad0c2-0f7b-7000-8000-000000000000".to_owned(),
            action: action.to_owned(),
            for_ms,
            idempotent,
        }
    }
    fn last(action: Option<&str>, status: TaskStatus) -> Option<LastReport> {
        Some(LastReport { id: "t1".to_owned(), action: action.map(str::to_owned), status, ago_ms: 65_000 })
    }
    let workers = vec![
        lane("idle", |_| ()),
        lane("lost", |lane| {
            (lane.connected, lane.waiting, lane.done) = (false, None, 1);
            lane.last = last(None, TaskStatus::Refused);
        }),
        lane("read", |lane| {
            (lane.waiting, lane.running, lane.done) = (Some(12), 3, 4_711);
            lane.in_flight = vec![task("service.logs", 2_300, true), task("host.disk", 4, true)];
            lane.last = last(Some("host.memory"), TaskStatus::Ok);
        }),
        lane("write", |lane| {
            (lane.waiting, lane.running, lane.silent_ms) = (Some(2), 1, Some(14_000));
            lane.in_flight = vec![task("apt.upgrade", 100_000, false)];
        }),
    ];
    node("mars", NodeState::Up, workers)
}

#[test]
fn lanes_say_what_they_do() {
    insta::assert_snapshot!(shown(&[lanes()], 100, false));
    let changes: Vec<_> = lanes().workers.iter().map(lane_change).collect();
    insta::assert_snapshot!("lane_changes", changes.join("\n"));
    let explained = |report| {
        explanation(
            &Explanation { report, observed: Vec::new(), decided: Vec::new(), log: Vec::new() },
            None,
            Paint(false),
        )
    };
    let workers = lanes().workers;
    let [_, lost, read, write] = <[_; 4]>::try_from(workers).unwrap();
    insta::assert_snapshot!("lanes_explained", [lost, read, write].map(explained).concat());
    let silent = NodeReport { state: NodeState::Unreachable, ..lanes() };
    assert!(!shown(&[silent], 100, false).contains("WAITING"), "what a silent node's lanes do nobody knows");
}

#[test]
fn the_longest_names_keep_one_line_per_worker() {
    let long = "n".repeat(63);
    let unit = format!("{}.service", "u".repeat(247));
    let report = NodeReport {
        workers: vec![WorkerReport {
            last_act: Some("x".repeat(5000)),
            ..worker(&long, &long, &unit, Class::Healthy)
        }],
        ..node(&long, NodeState::Up, Vec::new())
    };
    let text = shown(&[report], 80, false);
    assert_eq!(text.lines().count(), 4, "{text}");
    assert!(text.lines().last().unwrap().ends_with('…'));
}

#[test]
fn at_80_columns_a_usual_fleet_fits() {
    let text = shown(&[every_class()], 80, false);
    let table = text.lines().skip_while(|line| !line.starts_with("NODE")).take_while(|line| !line.is_empty());
    for line in table {
        assert!(line.chars().count() <= 80, "{line}");
    }
}

#[test]
fn nothing_hostile_reaches_the_terminal() {
    let h = || HOSTILE.to_owned();
    let hostile = WorkerReport {
        why: h(),
        doing: h(),
        last_act: Some(h()),
        lane: Some(Box::new(LaneReport {
            queue: h(),
            connected: true,
            waiting: None,
            running: 1,
            in_flight: vec![TaskReport { id: h(), action: h(), for_ms: 0, idempotent: true }],
            done: 0,
            last: Some(LastReport { id: h(), action: Some(h()), status: TaskStatus::Ok, ago_ms: 0 }),
            silent_ms: None,
        })),
        ..worker("mars", "agent", "ai-agent.service", Class::Dead)
    };
    let report = NodeReport {
        why: h(),
        version: Some(h()),
        degraded: vec![h()],
        sees: Vec::new(),
        rehearsed: Vec::new(),
        ..node("mars", NodeState::Starting, vec![hostile.clone()])
    };
    let target: Target = "mars/agent".parse().unwrap();
    let failed = RelaunchFailed {
        under_way: false,
        unit: "ai-agent.service".parse().unwrap(),
        why: h(),
        job: Some(h()),
        took_us: 1,
        log: vec![h()],
    };
    let line = AuditLine { seq: 1, at: h(), event: h(), by: h(), subject: h(), text: h(), priority: 4 };
    let explained =
        Explanation { report: hostile.clone(), observed: vec![h()], decided: vec![h()], log: Vec::new() };
    let degraded = Relaunched { degraded: vec![h()], ..done() };
    for text in [
        shown(&[report], 80, false),
        change(Some(Class::Healthy), &hostile),
        lane_change(&hostile),
        relaunched(&target, &Outcome::Failed(failed), Duration::ZERO).unwrap(),
        relaunched(&target, &Outcome::Relaunched(degraded), Duration::ZERO).unwrap(),
        audit(std::slice::from_ref(&line), None, Paint(false)),
        audit(&[line], Some(80), Paint(false)),
        explanation(&explained, None, Paint(false)),
    ] {
        assert!(!text.contains(['\x1b', '\u{9b}', '\u{202e}', '\r', '\x07']), "{text:?}");
        // Nor can it pass for a line of its own.
        assert!(!text.lines().any(|line| line == "mars/agent is running again"), "{text}");
        assert!(text.contains("\\x1b]0;pwned"), "{text}");
    }
}

fn done() -> Relaunched {
    Relaunched {
        unit: "ai-agent.service".parse().unwrap(),
        before: Some(InvocationId::from_bytes([0x77; 16])),
        invocation: InvocationId::from_bytes([0x3f; 16]),
        took_us: 4_080,
        settled: true,
        shared: false,
        break_glass: false,
        degraded: Vec::new(),
    }
}

#[test]
fn every_outcome_of_a_relaunch() {
    let target: Target = "mars/agent".parse().unwrap();
    let failed = RelaunchFailed {
        under_way: false,
        unit: "ai-agent.service".parse().unwrap(),
        why: "its start job failed: exit code 203 (the binary cannot be run)".to_owned(),
        job: Some("failed".to_owned()),
        took_us: 85_200,
        log: vec![
            "Nov 29 12:00:01 mars systemd[1]: ai-agent.service: Failed at step EXEC".to_owned(),
            "Nov 29 12:00:01 mars systemd[1]: Failed to start ai-agent.service.".to_owned(),
        ],
    };
    let without = RelaunchFailed { under_way: false, job: None, log: Vec::new(), ..failed.clone() };
    let mut text = String::new();
    for (outcome, ms) in [
        (Outcome::Relaunched(done()), 1006),
        (Outcome::Relaunched(Relaunched { settled: false, before: None, ..done() }), 6),
        (
            Outcome::Relaunched(Relaunched {
                shared: true,
                break_glass: true,
                degraded: vec!["the system bus is gone".to_owned()],
                ..done()
            }),
            1090,
        ),
        (Outcome::AlreadyRecovered { invocation: InvocationId::from_bytes([0x3f; 16]) }, 1),
        (Outcome::Failed(failed), 90),
        (Outcome::Failed(without), 90),
    ] {
        text += &relaunched(&target, &outcome, Duration::from_millis(ms)).unwrap();
        text.push('\n');
    }
    insta::assert_snapshot!(text);
    assert_eq!(relaunched(&target, &Outcome::Watching, Duration::ZERO), None);
}

#[test]
fn holds_and_releases() {
    let target: Target = "mars/write".parse().unwrap();
    let mut text = held(&target, 1_800_000);
    for (hold, quarantine) in [(true, true), (true, false), (false, true), (false, false)] {
        text += &released(&target, hold, quarantine);
    }
    insta::assert_snapshot!(text);
}

#[test]
fn a_refusal_is_named_as_on_the_wire() {
    assert_eq!(refused(&Refusal::new(RefusalCode::NoGrant, "")), "refused (no_grant)");
    assert_eq!(refused(&Refusal::new(RefusalCode::UnknownWorker, "")), "refused (unknown_worker)");
}

#[test]
fn an_explanation_says_all_it_knows() {
    let mut reports = every_class().workers;
    let quarantined = reports.remove(4);
    let explained = Explanation {
        report: WorkerReport {
            blast_radius: BlastRadius::Critical,
            held_for_ms: Some(60_000),
            doing: "waiting".to_owned(),
            ..quarantined
        },
        observed: vec!["ActiveState=failed SubState=failed".to_owned(), "Result=exit-code".to_owned()],
        decided: vec![
            "3 relaunches within 10m 00s: quarantine".to_owned(),
            "nothing until it is due".to_owned(),
        ],
        log: Vec::new(),
    };
    insta::assert_snapshot!(explanation(&explained, None, Paint(false)));
    insta::assert_snapshot!("the_explanation_at_50_columns", explanation(&explained, Some(50), Paint(false)));
}

#[test]
fn a_change_says_what_it_was_before() {
    let dead = WorkerReport {
        why: "exited with code 1".to_owned(),
        due_in_ms: Some(118_000),
        ..worker("mars", "agent", "ai-agent.service", Class::Dead)
    };
    let healthy = worker("mars", "agent", "ai-agent.service", Class::Healthy);
    insta::assert_snapshot!(
        [
            change(Some(Class::Healthy), &dead),
            change(Some(Class::Dead), &dead),
            change(Some(Class::Dead), &healthy),
            change(None, &healthy),
        ]
        .join("\n")
    );
}

#[test]
fn of_a_node_told_again_only_what_is_different_is_said() {
    let before = node(
        "mars",
        NodeState::Up,
        vec![
            worker("mars", "agent", "agent.service", Class::Healthy),
            worker("mars", "web", "web.service", Class::Healthy),
        ],
    );
    let mut now = before.clone();
    now.workers[0].for_ms += 5_000;
    assert_eq!(node_change(&before, &now), "");
    now.state = NodeState::SupervisorDead;
    now.why = "knocking".to_owned();
    now.degraded = vec![HOSTILE.to_owned()];
    now.workers[1].class = Class::Dead;
    let text = node_change(&before, &now);
    assert!(
        text.starts_with("mars is supervisor-dead: knocking (was up)\nmars is degraded: \\x1b"),
        "{text}"
    );
    assert!(text.ends_with("\nmars/web is dead (was healthy)\n"), "{text}");
    assert_eq!(text.lines().count(), 3, "{text}");
    now.degraded.clear();
    let degraded = NodeReport { degraded: vec!["full".to_owned()], ..now.clone() };
    assert_eq!(node_change(&degraded, &now), "mars is not degraded any more\n");
}
