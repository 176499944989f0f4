//! `status`, `explain`, `audit`: what is asked, shown and returned.

use std::process::{Command, Stdio};
use std::sync::mpsc;

use keyholder::peer::wire::{AuditLine, Class, Explanation, NodeState, Outcome, RefusalCode, Verb, Verdict};

use super::fake::{Fake, node, told, worker};

#[test]
fn without_a_node_the_whole_fleet_is_asked_for_and_all_well_is_0() {
    let (asked, requests) = mpsc::channel();
    let fake = Fake::answering(move |request| {
        asked.send(request.clone()).unwrap();
        Verdict::Outcome(Outcome::Fleet(vec![
            node("mars", NodeState::Up, vec![worker("mars", "agent", Class::Healthy)]),
            node("ai-core", NodeState::Up, vec![worker("ai-core", "write", Class::Held)]),
        ]))
    });
    insta::assert_snapshot!(told(&mut fake.keyholder(&["status"])));
    let request = requests.recv().unwrap();
    assert_eq!((request.target_node.as_str(), request.worker, request.verb), ("mars", None, Verb::Fleet {}));
    assert_eq!(request.boot_nonce, super::fake::hello().boot_nonce);
}

#[test]
fn anything_dead_unknown_or_silent_is_3() {
    for (state, class, code) in [
        (NodeState::Up, Class::Healthy, 0),
        (NodeState::Up, Class::Starting, 0),
        (NodeState::Up, Class::Held, 0),
        (NodeState::Up, Class::Dead, 3),
        (NodeState::Up, Class::Unknown, 3),
        (NodeState::Starting, Class::Starting, 0),
        (NodeState::Leaving, Class::Dead, 0),
        (NodeState::SupervisorDead, Class::Healthy, 3),
        (NodeState::Unreachable, Class::Healthy, 3),
        (NodeState::Unknown, Class::Healthy, 3),
    ] {
        let fake =
            Fake::outcome(Outcome::Fleet(vec![node("mars", state, vec![worker("mars", "agent", class)])]));
        for args in [&["status"][..], &["status", "--json"]] {
            fake.keyholder(args).assert().code(code);
        }
    }
}

#[test]
fn one_worker_is_asked_for_by_name_and_nothing_else_is_shown() {
    let (asked, requests) = mpsc::channel();
    let fake = Fake::answering(move |request| {
        asked.send(request.clone()).unwrap();
        let workers =
            vec![worker("ai-core", "read", Class::Healthy), worker("ai-core", "write", Class::Dead)];
        Verdict::Outcome(Outcome::Status(node("ai-core", NodeState::Up, workers)))
    });
    let output = fake.keyholder(&["status", "ai-core/read"]).assert().code(0).get_output().stdout.clone();
    assert!(!String::from_utf8(output).unwrap().contains("write"));
    let request = requests.recv().unwrap();
    assert_eq!((request.target_node.as_str(), request.verb), ("ai-core", Verb::Status {}));
    assert_eq!(request.worker.unwrap().as_str(), "read");
    fake.keyholder(&["status", "ai-core"]).assert().code(3);
}

#[test]
fn no_such_node_is_4_and_a_name_that_is_none_is_2() {
    let fake = Fake::refusing(
        RefusalCode::UnknownNode,
        "no node venus in the fleet file: it knows ai-core and mars",
    );
    insta::assert_snapshot!(told(&mut fake.keyholder(&["status", "venus"])));
    fake.keyholder(&["status", "ve:nus"]).assert().code(2);
    fake.keyholder(&["status", "mars/ssh.service"]).assert().code(2);
}

#[test]
fn json_is_the_wires_own_shape() {
    let outcome =
        Outcome::Fleet(vec![node("mars", NodeState::Up, vec![worker("mars", "agent", Class::Healthy)])]);
    let fake = Fake::outcome(outcome.clone());
    let output = fake.keyholder(&["status", "--json"]).assert().code(0).get_output().stdout.clone();
    assert_eq!(serde_json::from_slice::<Verdict>(&output).unwrap(), Verdict::Outcome(outcome));
    let line = String::from_utf8(output).unwrap();
    insta::assert_snapshot!(line.replace(env!("CARGO_PKG_VERSION"), "VERSION"));
}

#[test]
fn colour_is_for_terminals_or_on_request() {
    let fake = Fake::outcome(Outcome::Fleet(vec![node(
        "mars",
        NodeState::Up,
        vec![worker("mars", "x", Class::Dead)],
    )]));
    let coloured = |args: &[&str], no_color: &str| {
        let output = fake.keyholder(args).env("NO_COLOR", no_color).output().unwrap();
        output.stdout.contains(&0x1b)
    };
    assert!(!coloured(&["status"], ""));
    assert!(!coloured(&["status", "--color", "never"], ""));
    assert!(coloured(&["status", "--color", "always"], "1"));
}

#[test]
fn a_reader_that_has_gone_changes_nothing() {
    let fake = Fake::outcome(Outcome::Fleet(vec![node(
        "mars",
        NodeState::Up,
        vec![worker("mars", "x", Class::Dead)],
    )]));
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut child = Command::new(env!("CARGO_BIN_EXE_keyholder"))
        .args(["status", "--socket"])
        .arg(fake.path())
        .stdout(writer)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(3));
    let mut said = String::new();
    std::io::Read::read_to_string(&mut child.stderr.take().unwrap(), &mut said).unwrap();
    assert_eq!(said, "");
}

#[test]
fn explain_shows_what_was_seen_and_decided() {
    let fake = Fake::outcome(Outcome::Explained(Explanation {
        report: worker("mars", "agent", Class::Dead),
        observed: vec!["ActiveState=failed".to_owned()],
        decided: vec!["relaunch at once".to_owned()],
        log: Vec::new(),
    }));
    insta::assert_snapshot!(told(&mut fake.keyholder(&["explain", "mars/agent"])));
}

#[test]
fn audit_asks_for_as_many_lines_as_are_wanted() {
    let fake = Fake::answering(|request| {
        assert_eq!(request.verb, Verb::Audit { last: 7 });
        Verdict::Outcome(Outcome::Audit(vec![AuditLine {
            seq: 41,
            at: "2026-11-29T13:00:00Z".to_owned(),
            event: "acted".to_owned(),
            by: "ai-core".to_owned(),
            subject: "mars/agent".to_owned(),
            text: "relaunched".to_owned(),
            priority: 5,
        }]))
    });
    insta::assert_snapshot!(told(&mut fake.keyholder(&["audit", "-n", "7"])));
}

#[test]
fn an_answer_to_another_question_is_not_shown_as_one() {
    let fake = Fake::outcome(Outcome::Watching);
    for args in [
        &["status"][..],
        &["status", "mars"],
        &["explain", "mars/x"],
        &["audit"],
        &["relaunch", "mars/x"],
        &["release", "mars/x"],
        &["hold", "mars/x", "--for", "1m", "--why", "x"],
    ] {
        let output = fake.keyholder(args).assert().code(1).get_output().stderr.clone();
        assert!(String::from_utf8(output).unwrap().contains("another version"), "{args:?}");
    }
}
