//! `drill`: what is ordered, and how each ending is told.

use std::sync::{Arc, Mutex};

use keyholder::peer::wire::{DrillOrder, DrillReport, Outcome, Refusal, RefusalCode, Request, Verb, Verdict};
use keyholder::vocabulary::FailureClass;

use super::fake::{Fake, keyholder, told};

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
