//! The matrix through the binary: whom it asks, and how it ends.

use std::path::PathBuf;

use keyholder::fleet::parse;
use keyholder::peer::wire::{Class, NodeReport, NodeState, Outcome, Rehearsal, Verb, Verdict};
use keyholder::vocabulary::FailureClass;

use super::fake::{Fake, keyholder, node, told, worker};

const EXAMPLE: &str = include_str!("../../../catalogs/fleet.yaml");

/// The example with a `power` for both, so that every cell is handled.
fn handled() -> String {
    let text = EXAMPLE
        .replace(
            "    watched_by: [mars]\n",
            "    watched_by: [mars]\n    power: { argv: [/bin/wake], witness: gateway }\n",
        )
        .replace(
            "on: ai-core, workers: [\"*\"], verbs: [status,",
            "on: ai-core, workers: [\"*\"], verbs: [power, status,",
        );
    assert!(parse("fleet.yaml", text.as_bytes()).unwrap().warnings.is_empty());
    text
}

struct Files {
    _dir: tempfile::TempDir,
}

impl Files {
    fn of(text: &str) -> (Self, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("fleet.yaml");
        std::fs::write(&file, text).unwrap();
        (Self { _dir: dir }, file)
    }
}

fn rehearsed(class: FailureClass, passed: bool) -> Rehearsal {
    Rehearsal {
        node: None,
        class,
        passed,
        why: "it stayed down".to_owned(),
        by: Some("ai-core".to_owned()),
        ago_ms: 3_600_000,
        detect_ms: Some(40),
        repair_ms: Some(200),
    }
}

/// Everything rehearsed an hour ago, on both nodes.
fn all_well() -> Vec<NodeReport> {
    let nodes =
        [("ai-core", "mars", vec!["read", "write"]), ("mars", "ai-core", vec!["agent", "read", "write"])];
    let reports = nodes.into_iter().map(|(name, other, workers)| {
        let workers = workers.into_iter().map(|w| {
            let mut report = worker(name, w, Class::Healthy);
            report.rehearsed = FailureClass::OF_WORKERS.map(|class| rehearsed(class, true)).to_vec();
            report
        });
        let mut report = node(name, NodeState::Up, workers.collect());
        let of_other = rehearsed(FailureClass::SupervisorDead, true);
        report.rehearsed = vec![Rehearsal { node: Some(other.parse().unwrap()), ..of_other }];
        report
    });
    reports.collect()
}

#[test]
fn strict_is_content_only_when_every_cell_is_handled_granted_and_rehearsed() {
    let (_files, file) = Files::of(&handled());
    let strict = |text: Option<&str>, reports: Vec<NodeReport>| {
        let fake = Fake::answering(move |request| {
            assert_eq!(request.verb, Verb::Fleet {});
            Verdict::Outcome(Outcome::Fleet(reports.clone()))
        });
        let other = text.map(Files::of);
        let file = other.as_ref().map_or(&file, |(_, file)| file);
        let run = |more: &[&str]| {
            let mut command = fake.keyholder(&["matrix"]);
            command.arg("--fleet").arg(file).args(more).assert().get_output().status.code().unwrap()
        };
        assert_eq!(run(&[]), 0, "without --strict it only shows");
        let codes = [run(&["--strict"]), run(&["--strict", "--json"]), run(&["--strict", "--markdown"])];
        assert!(codes.iter().all(|code| *code == codes[0]), "{codes:?}");
        codes[0]
    };
    assert_eq!(strict(None, all_well()), 0);
    assert_eq!(strict(Some(EXAMPLE), all_well()), 3, "nobody can switch ai-core on");
    let ungranted = handled().replace("hold, nudge, repipe, drill, power", "hold, repipe, drill, power");
    assert_ne!(ungranted, handled());
    assert_eq!(strict(Some(&ungranted), all_well()), 3, "no watcher may nudge");
    let broken = |change: &dyn Fn(&mut NodeReport)| {
        let mut reports = all_well();
        change(&mut reports[1]);
        reports
    };
    let failed = broken(&|mars| mars.workers[0].rehearsed[1] = rehearsed(FailureClass::Stuck, false));
    assert_eq!(strict(None, failed), 3, "one failed");
    let old = broken(&|mars| mars.workers[0].rehearsed[0].ago_ms = 31 * 86_400_000);
    assert_eq!(strict(None, old), 3, "one is too old");
    let never = broken(&|mars| mars.workers[2].rehearsed.clear());
    assert_eq!(strict(None, never), 3, "one never was");
    let node = broken(&|mars| mars.rehearsed.clear());
    assert_eq!(strict(None, node), 3, "a supervisor's never was");
    assert_eq!(strict(None, all_well().into_iter().take(1).collect()), 3, "one could not tell");
}

#[test]
fn it_is_shown_with_what_the_supervisor_knows_and_in_json() {
    let (_files, file) = Files::of(EXAMPLE);
    let fake = Fake::outcome(Outcome::Fleet(all_well()));
    let mut command = fake.keyholder(&["matrix"]);
    let shown = told(command.arg("--fleet").arg(&file).env("COLUMNS", "80"));
    // From here on it is about the path of this file, whose length is the test's own.
    insta::assert_snapshot!(shown.split("The supervisor runs").next().unwrap());
    let output =
        fake.keyholder(&["matrix", "mars/agent", "--json"]).arg("--fleet").arg(&file).output().unwrap();
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((json["ok"].as_bool(), json["open"].as_u64()), (Some(true), Some(0)));
    assert_eq!(json["rows"][0]["cells"][1]["class"], "stuck");
    assert_eq!(json["rows"][0]["cells"][1]["ladder"][0]["remedy"], "nudge");
    assert_eq!(json["rows"][0]["cells"][1]["rehearsal"]["verdict"], "passed");
    // The fake runs another file than this one.
    assert!(json["notes"].to_string().contains("systemctl reload keyholder"), "{json}");
}

#[test]
fn without_a_supervisor_the_file_still_says_most_of_it() {
    let (_files, file) = Files::of(&handled());
    let silent = |strict: &[&str]| {
        let mut command = keyholder(&["matrix", "--socket", "/nonexistent/sock", "--fleet"]);
        told(command.arg(&file).args(strict))
    };
    let shown = silent(&[]);
    assert!(shown.starts_with("exit 0") && shown.contains("When it was rehearsed is not known"), "{shown}");
    assert!(silent(&["--strict"]).starts_with("exit 3"), "a rehearsal that nobody can tell of is none");

    let offline =
        |file: &PathBuf, more: &[&str]| told(keyholder(&["matrix", "--offline"]).arg(file).args(more));
    assert!(offline(&file, &["--strict"]).starts_with("exit 0"), "the file alone is judged, and it is good");
    let (_files, example) = Files::of(EXAMPLE);
    assert!(offline(&example, &["--strict"]).starts_with("exit 3"));
    let other = offline(&example, &["venus"]);
    assert!(other.starts_with("exit 4") && other.contains("venus is not in"), "{other}");
    assert!(offline(&example, &["mars/nobody"]).starts_with("exit 4"));
    let (_files, broken) = Files::of("version: 2\n");
    let refused = offline(&broken, &[]);
    assert!(refused.starts_with("exit 1") && refused.contains("fleet.yaml:1:10"), "{refused}");
    keyholder(&["matrix", "--offline", "x", "--json", "--markdown"]).assert().code(2);
}

#[test]
fn what_there_is_not_is_told_with_what_there_is() {
    let (_files, file) = Files::of(EXAMPLE);
    let file = file.to_str().unwrap();
    for (subject, known) in [
        ("mars/nobody", "mars has no worker nobody in"),
        ("mars/nobody", "it has agent, read, write"),
        ("venus", "which knows ai-core, mars"),
        ("venus/agent", "venus is not in"),
    ] {
        let said = told(&mut keyholder(&["matrix", subject, "--offline", file]));
        assert!(said.starts_with("exit 4") && said.contains(known), "{said}");
    }
}
