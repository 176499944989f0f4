//! `drill`: what is ordered, and how each ending is told.

use std::sync::{Arc, Mutex};

use keyholder::peer::wire::{DrillOrder, DrillReport, Outcome, Refusal, RefusalCode, Request, Verb, Verdict};
use keyholder::vocabulary::FailureClass;

use super::fake::{Fake, keyholder, told};
use super::terminal::on_a_terminal;

fn report(passed: bool) -> DrillReport {
    DrillReport {
        node: "mars".parse().unwrap(),
        worker: Some("agent".parse().unwrap()),
        class: FailureClass::Stuck,
        passed,
        why: "nobody came".to_owned(),
        by: passed.then(|| "ai-core".to_owned()),
        detect_us: Some(4_500_000),
        repair_us: passed.then_some(1_200_000),
        evidence: vec!["ai-agent.service was halted \x1b[31m".to_owned()],
    }
}

#[test]
fn one_rehearsal_is_ordered_and_its_end_is_the_exit_code() {
    let asked = Arc::<Mutex<Vec<Request>>>::default();
    let taken = asked.clone();
    let fake = Fake::answering(move |request| {
        taken.lock().unwrap().push(request.clone());
        Verdict::Outcome(Outcome::Drilled(report(request.because == "it passes")))
    });
    let line = ["drill", "mars/agent", "--class", "stuck", "--lease", "30s", "--yes", "--why", "it passes"];
    let said = told(&mut fake.keyholder(&line));
    assert!(said.contains("exit code: 0") || said.contains("passed"), "{said}");
    fake.keyholder(&line).assert().code(0);
    let output =
        fake.keyholder(&["drill", "mars/agent", "--class", "stuck"]).assert().code(1).get_output().clone();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.contains("FAILED") && said.contains("nobody came") && said.contains("\\x1b[31m"), "{said}");
    let asked = asked.lock().unwrap();
    let order = |asked: &Request| match asked.verb {
        Verb::Drill(order) => order,
        _ => panic!("{asked:?}"),
    };
    let first = DrillOrder { class: FailureClass::Stuck, lease_ms: 30_000, yes: true };
    assert_eq!(order(&asked[0]), first);
    assert_eq!(order(&asked[2]), DrillOrder { class: FailureClass::Stuck, lease_ms: 0, yes: false });
}

#[test]
fn a_refusal_is_waited_out_only_if_asked_and_only_if_it_can_pass() {
    let fake = Fake::refusing(RefusalCode::NotNow, "something is down");
    fake.keyholder(&["drill", "mars/agent", "--class", "dead"]).assert().code(5);
    let mut times = 0;
    let fake = Fake::answering(move |_| {
        times += 1;
        match times {
            1 => Verdict::Refused(Refusal::new(RefusalCode::NotNow, "a write runs")),
            _ => Verdict::Outcome(Outcome::Drilled(report(true))),
        }
    });
    fake.keyholder(&["drill", "mars/agent", "--class", "dead", "--wait"]).assert().code(0);
    // What will not pass by itself is not waited for.
    let fake = Fake::refusing(RefusalCode::Critical, "it is critical");
    fake.keyholder(&["drill", "mars/agent", "--class", "dead", "--wait", "1h"]).assert().code(5);
}

#[test]
fn a_class_belongs_to_a_worker_or_to_a_node() {
    for line in [
        &["drill"][..],
        &["drill", "mars/agent"],
        &["drill", "mars/agent", "--class", "unreachable"],
        &["drill", "mars/agent", "--class", "supervisor-dead"],
        &["drill", "mars", "--class", "dead"],
        &["drill", "--all", "--stalest"],
        &["drill", "mars/agent", "--class", "dead", "--lease", "11m"],
    ] {
        keyholder(line).assert().code(2);
    }
}

#[test]
fn a_fall_that_was_not_said_is_asked_for_with_the_ways_there_are() {
    for (subject, ways) in
        [("mars/agent", "--class dead, stuck or delivery-gap"), ("mars", "--class supervisor-dead;")]
    {
        let said = told(&mut keyholder(&["drill", subject]));
        assert!(said.starts_with("exit 2") && said.contains(ways), "{said}");
    }
}

#[test]
fn who_may_not_is_told_so_once_and_not_for_each() {
    let (_, _dir, file) = many();
    let mut asked = 0;
    let fake = Fake::answering(move |request| match request.verb {
        Verb::Fleet {} => Verdict::Outcome(Outcome::Fleet(Vec::new())),
        _ => {
            asked += 1;
            assert_eq!(asked, 1);
            Verdict::Refused(Refusal::new(RefusalCode::NotRoot, "only root may drill: use sudo"))
        }
    });
    let output = fake.keyholder(&["drill", "--all", "--fleet", &file]).assert().code(5).get_output().clone();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "1/4 mars/agent dead: rehearsing …\n");
    assert!(String::from_utf8(output.stderr).unwrap().contains("use sudo"));
}

const FLEET: &str = r#"
version: 1
nodes:
  mars:
    address: 192.0.2.10:7433
    pins: ["sha256:1111111111111111111111111111111111111111111111111111111111111111"]
    watched_by: [venus]
    workers:
      agent: { unit: agent.service }
      other: { unit: other.service }
      vital: { unit: vital.service, blast_radius: critical }
      wrong: { unit: wrong.service }
  venus:
    address: 192.0.2.20:7433
    pins: ["sha256:2222222222222222222222222222222222222222222222222222222222222222"]
    watched_by: [mars]
grants:
  - { from: venus, on: mars, workers: ["*"], verbs: [status, relaunch, drill] }
"#;

/// One passes, one is refused once and then fails, one is critical, one is refused for good; of this node's own (`mars`).
fn many() -> (Fake, tempfile::TempDir, String) {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("fleet.yaml");
    std::fs::write(&file, FLEET).unwrap();
    let mut busy = true;
    let fake = Fake::answering(move |request| match (request.verb.clone(), &request.worker) {
        (Verb::Fleet {}, _) => Verdict::Outcome(Outcome::Fleet(Vec::new())),
        (Verb::Drill(_), Some(worker)) if worker.as_str() == "agent" => {
            Verdict::Outcome(Outcome::Drilled(report(true)))
        }
        (Verb::Drill(_), Some(worker)) if worker.as_str() == "other" && std::mem::take(&mut busy) => {
            Verdict::Refused(Refusal::new(RefusalCode::NotNow, "mars/write is busy\u{1b}[31m"))
        }
        (Verb::Drill(_), Some(worker)) if worker.as_str() == "other" => {
            Verdict::Outcome(Outcome::Drilled(report(false)))
        }
        (Verb::Drill(_), _) => {
            Verdict::Refused(Refusal::new(RefusalCode::Quarantined, "it is in quarantine"))
        }
        (other, _) => panic!("{other:?}"),
    });
    let file = file.to_str().unwrap().to_owned();
    (fake, dir, file)
}

#[test]
fn each_of_many_is_told_as_it_begins_and_ends_in_a_pipe_as_well() {
    let (fake, _dir, file) = many();
    insta::assert_snapshot!(told(&mut fake.keyholder(&["drill", "--all", "--fleet", &file])));
}

#[test]
fn on_a_terminal_too() {
    let (fake, _dir, file) = many();
    let (code, said) = on_a_terminal(&fake, &["drill", "--all", "--fleet", &file]);
    assert_eq!(code, Some(1));
    insta::assert_snapshot!(said);
}

#[test]
fn each_of_many_is_a_line_of_json_that_says_whose_it_is() {
    let (fake, _dir, file) = many();
    let output =
        fake.keyholder(&["drill", "--all", "--json", "--fleet", &file]).assert().code(1).get_output().clone();
    insta::assert_snapshot!(String::from_utf8(output.stdout).unwrap());
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "");
}
