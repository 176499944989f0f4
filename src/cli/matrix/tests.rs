//! What is shown, at 80 columns and as Markdown, of a matrix in which everything occurs.

use super::*;
use crate::cli::screen::Paint;
use crate::fleet::parse;
use crate::peer::wire;
use crate::vocabulary::FailureClass;

const FLEET: &str = r#"version: 1
redis: { url: "redis://ai-core" }
nodes:
  ai-core:
    address: 192.0.2.40:7433
    pins: ["{A}"]
    watched_by: [mars, venus]
    power: { argv: [/usr/sbin/fence, "-|x"], user: root }
    workers:
      write: { lane: write, blast_radius: critical }
      agent:
        unit: ai-agent.service
        repair_by: peer
        stuck: { heartbeat: { command: { argv: [/usr/lib/agent/alive, --and-a-rather-long-argument] }, older_than: 90s } }
  mars:
    address: 192.0.2.10:7433
    pins: ["{B}"]
    workers: { agent: { unit: ai-agent.service, repair_by: nobody } }
  venus: { address: 192.0.2.11:7433, pins: ["{C}"], disabled: true }
  earth: { address: 192.0.2.12:7433, pins: ["{D}"], watched_by: [mars], workers: { w: { lane: read, stuck: none } } }
grants:
  - { from: mars, on: ai-core, workers: ["*"], verbs: [status, relaunch, repipe] }
"#;

fn fleet() -> Fleet {
    let pin = |digit: char| format!("sha256:{}", digit.to_string().repeat(64));
    let text = [('A', 'a'), ('B', 'b'), ('C', 'c'), ('D', 'd')]
        .into_iter()
        .fold(FLEET.to_owned(), |text, (name, digit)| text.replace(&format!("{{{name}}}"), &pin(digit)));
    parse("fleet.yaml", text.as_bytes()).unwrap_or_else(|problems| panic!("{problems}")).fleet
}

fn rehearsal(class: FailureClass, passed: bool, days: u64) -> wire::Rehearsal {
    wire::Rehearsal {
        node: None,
        class,
        passed,
        why: "the worker did\x1b[2J not come back within 30 s".to_owned(),
        by: Some("mars".to_owned()),
        ago_ms: days * 86_400_000 + 3 * 3_600_000,
        detect_ms: Some(15_200),
        repair_ms: passed.then_some(310),
    }
}

fn report(node: &str, state: NodeState, workers: &[(&str, Vec<wire::Rehearsal>)]) -> NodeReport {
    let workers = workers.iter().map(|(name, rehearsed)| wire::WorkerReport {
        node: node.parse().unwrap(),
        worker: name.parse().unwrap(),
        unit: "x.service".parse().unwrap(),
        blast_radius: crate::fleet::BlastRadius::Normal,
        class: wire::Class::Healthy,
        why: String::new(),
        for_ms: 1,
        invocation: None,
        doing: String::new(),
        due_in_ms: None,
        last_act: None,
        last_act_ms: None,
        held_for_ms: None,
        quarantined: false,
        left_to_peers: false,
        startable: true,
        drill: None,
        lane: None,
        alert: None,
        rehearsed: rehearsed.clone(),
    });
    NodeReport {
        node: node.parse().unwrap(),
        state,
        why: String::new(),
        version: None,
        fleet_hash: None,
        degraded: Vec::new(),
        sees: Vec::new(),
        rehearsed: Vec::new(),
        workers: workers.collect(),
    }
}

fn told() -> Vec<NodeReport> {
    use FailureClass::{Dead, DeliveryGap, Stuck, SupervisorDead};
    let write = vec![rehearsal(Dead, true, 2), rehearsal(Stuck, false, 1), rehearsal(DeliveryGap, true, 40)];
    let core = report("ai-core", NodeState::Up, &[("write", write), ("agent", Vec::new())]);
    let mut mars = report("mars", NodeState::Unreachable, &[]);
    let of = |days| wire::Rehearsal {
        node: Some("ai-core".parse().unwrap()),
        ..rehearsal(SupervisorDead, true, days)
    };
    mars.rehearsed = vec![of(9), of(0), of(5)];
    vec![core, mars]
}

#[test]
fn the_newest_rehearsal_counts_and_a_node_that_was_never_heard_has_told_nothing() {
    let known = rehearsals(&told());
    let place = ("ai-core".parse().unwrap(), None, FailureClass::SupervisorDead);
    assert_eq!(known.last[&place].ago_ms, 3 * 3_600_000);
    assert_eq!(known.told.iter().map(|node| node.as_str()).collect::<Vec<_>>(), ["ai-core"]);
}

#[test]
fn everything_that_can_be_in_it_is_shown() {
    let known = rehearsals(&told());
    let matrix = Matrix::of(&fleet(), Source::Asked(&known));
    let text = show::text(&matrix, 80, Paint(false));
    insta::assert_snapshot!("text_80", text);
    assert!(text.lines().all(|line| line.chars().count() <= 80 && line.trim_end() == line), "{text}");
    assert!(!text.contains('\x1b'));
    insta::assert_snapshot!("text_120", show::text(&matrix, 120, Paint(false)));
    let markdown = show::markdown(&matrix);
    insta::assert_snapshot!("markdown", markdown);
    assert!(!markdown.contains('\x1b'));
    let columns = |line: &str| line.replace("\\|", "").matches('|').count();
    let rows: Vec<usize> = markdown.lines().filter(|line| line.starts_with('|')).map(columns).collect();
    assert!(rows.len() > 10 && rows.iter().all(|n| *n == 7), "{rows:?}");
    // Colour changes nothing but colour.
    let coloured = show::text(&matrix, 80, Paint(true));
    assert!(coloured.contains("\x1b["));
}

#[test]
fn what_is_asked_about_is_all_that_is_shown() {
    let mut matrix = Matrix::of(&fleet(), Source::FileAlone);
    matrix.narrow(&fleet(), &"ai-core".parse().unwrap(), None);
    assert_eq!(matrix.rows.len(), 3);
    matrix.narrow(&fleet(), &"ai-core".parse().unwrap(), Some(&"write".parse().unwrap()));
    assert_eq!(matrix.rows.len(), 1);
    matrix.narrow(&fleet(), &"venus".parse().unwrap(), None);
    assert!(matrix.rows.is_empty());
}
