//! The reading of whole files: what is found, where, and that nothing is found twice.

mod care;
mod hostile;
mod lanes;
mod semantics;
mod single;

use std::time::Duration;

use crate::vocabulary::Policy;

use super::{BlastRadius, Loaded, Problems, RepairBy, Right, Scope, Severity, parse};

/// The example that operators begin with.
const EXAMPLE: &str = include_str!("../../catalogs/fleet.yaml");

/// A small good file, in which the tests break one thing each. `{A}` and `{B}` are pins.
const GOOD: &str = r#"version: 1
redis: { url: "redis://ai-core:6379" }
nodes:
  ai-core:
    address: 192.0.2.40:7433
    pins: ["{A}"]
    watched_by: [mars]
    workers:
      write: { lane: write }
  mars:
    address: 192.0.2.10:7433
    pins: ["{B}"]
    watched_by: [ai-core]
    workers:
      write: { lane: write, blast_radius: critical }
      agent:
        unit: ai-agent.service
        grace: 10s
grants:
  - { from: ai-core, on: mars, workers: ["*"], verbs: [status, relaunch, nudge, repipe] }
  - { from: mars, on: ai-core, workers: [write], verbs: [status, relaunch, nudge, repipe] }
"#;

fn pin(digit: char) -> String {
    format!("sha256:{}", digit.to_string().repeat(64))
}

fn good() -> String {
    GOOD.replace("{A}", &pin('a')).replace("{B}", &pin('b'))
}

/// The good file with the one occurrence of `old` replaced.
fn with(old: &str, new: &str) -> String {
    let good = good();
    assert_eq!(good.matches(old).count(), 1, "`{old}` must stand in the good file once");
    good.replace(old, new).replace("{A}", &pin('a')).replace("{B}", &pin('b'))
}

fn load(text: &str) -> Result<Loaded, Problems> {
    parse("fleet.yaml", text.as_bytes())
}

fn errors(text: &str) -> Vec<String> {
    match load(text) {
        Ok(_) => Vec::new(),
        Err(problems) => problems.iter().map(ToString::to_string).collect(),
    }
}

fn warnings(text: &str) -> Vec<String> {
    load(text).unwrap().warnings.iter().map(ToString::to_string).collect()
}

/// The file has exactly this one problem.
#[track_caller]
fn refused(text: &str, expected: &str) {
    assert_eq!(errors(text), [expected], "in\n{text}");
}

#[test]
fn the_example_is_good_and_means_what_it_says() {
    let Loaded { fleet, warnings } = load(EXAMPLE).unwrap();
    assert_eq!(warnings.to_string(), "");
    assert_eq!(fleet.redis.as_deref(), Some("redis://ai-core:6379"));
    let mars = &fleet.nodes[&"mars".parse().unwrap()];
    assert_eq!(mars.address, "192.0.2.10:7433".parse().unwrap());
    let (write, agent) = (&mars.workers[&"write".parse().unwrap()], &mars.workers[&"agent".parse().unwrap()]);
    assert_eq!(write.unit.as_str(), "keyholder-lane-write.service");
    assert_eq!((write.blast_radius, agent.blast_radius), (BlastRadius::Critical, BlastRadius::Auxiliary));
    // The example says that it shows the defaults.
    // A lane starts for as long as its Redis is away.
    assert_eq!((agent.policy.endless, write.policy.endless), (Some(Duration::from_secs(900)), None));
    assert_eq!(agent.policy, Policy { endless: agent.policy.endless, ..write.policy.clone() });
    assert_eq!(agent.policy.undeclared_stop, Duration::from_secs(120));
    assert_eq!(fleet.grants[0].workers, Scope::All);
    assert_eq!(fleet.grants[0].rights, Right::ALL.into());
    assert_eq!(fleet.task_keys.keys().collect::<Vec<_>>(), ["ai-core"]);
    assert!(!fleet.lanes.read_routing && !mars.insecure_unsigned_write);
    assert_eq!(fleet.hash, crate::vocabulary::FleetHash::of(EXAMPLE.as_bytes()));
}

#[test]
fn the_good_file_is_good() {
    let Loaded { fleet, warnings } = load(&good()).unwrap();
    assert_eq!(warnings.to_string(), "");
    let agent = &fleet.nodes[&"mars".parse().unwrap()].workers[&"agent".parse().unwrap()];
    assert_eq!(agent.policy.grace, Duration::from_secs(10));
    assert_eq!(agent.policy.repair_by, RepairBy::Node);
    assert_eq!(fleet.grants[1].workers, Scope::Only(["write".parse().unwrap()].into()));
    assert!(load(&good().replace('\n', "\r\n")).is_ok(), "CRLF");
}

/// Eight mistakes of different kinds, in one go, each on its line.
const EIGHT: &str = r#"version: 2
redis: { url: "redis://me:secret@" }
nodes:
  ai-core:
    adress: 192.0.2.40:7433
    address: ai-core:7433
    pins: ["{A}"]
    watched_by: [marz]
  mars:
    address: 192.0.2.10:7433
    pins: ["sha256:abc"]
    workers:
      agent:
        unit: ai-agent.service
        grace: 90
grants:
  - { from: ai-core, on: mars, workers: ["*"], verbs: [status, relanch] }
"#;

#[test]
fn every_mistake_is_reported_at_once_with_its_place() {
    let text = EIGHT.replace("{A}", &pin('a'));
    let found = load(&text).unwrap_err();
    let places: Vec<(u32, u32)> = found.iter().map(|problem| (problem.line, problem.column)).collect();
    let expected = [(1, 10), (2, 15), (5, 5), (6, 14), (8, 18), (11, 12), (15, 16), (17, 64)];
    assert_eq!(places, expected, "{found}");
    insta::assert_snapshot!("eight_lines", found.to_string());
    insta::assert_snapshot!("eight_fancy", found.fancy(Severity::Error, false));
    assert!(!found.fancy(Severity::Error, false).contains('\x1b'), "no colour unless asked for");
    assert!(found.fancy(Severity::Error, true).contains('\x1b'));
    assert!(!format!("{found}{}", found.fancy(Severity::Error, false)).contains("secret"));
}

#[test]
fn warnings_can_be_read_too() {
    let text = with("    watched_by: [ai-core]\n", "");
    let warnings = load(&text).unwrap().warnings;
    insta::assert_snapshot!("warnings_fancy", warnings.fancy(Severity::Warning, false));
}
