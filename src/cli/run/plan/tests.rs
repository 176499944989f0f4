//! What may be given to whom, before any task is submitted.

use std::fs;

use super::*;
use crate::fleet;

const FLEET: &str = r#"version: 1
nodes:
  mars: { address: "192.0.2.10:7433" }
  ai-core: { address: "192.0.2.40:7433" }
"#;

/// The examples that operators begin with, and the steps against them.
fn checked(steps: Vec<PlanStep>, read_routing: bool) -> anyhow::Result<Vec<Checked>> {
    let dir = tempfile::tempdir().unwrap();
    for name in ["catalog_mars.yaml", "catalog_ai-core.yaml"] {
        let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("catalogs").join(name);
        fs::copy(from, dir.path().join(name)).unwrap();
    }
    let text = format!("{FLEET}lanes: {{ read_routing: {read_routing} }}\n");
    let fleet = fleet::parse("fleet.yaml", text.as_bytes()).unwrap().fleet;
    let mut catalogs = Catalogs::beside(&dir.path().join("fleet.yaml"));
    check(steps, &fleet, &mut catalogs)
}

fn step(node: &str, action: &str, params: &[(&str, &str)]) -> PlanStep {
    let params = params.iter().map(|(name, value)| ((*name).to_owned(), Value::String((*value).to_owned())));
    PlanStep { node: node.to_owned(), action: action.to_owned(), params: params.collect() }
}

fn refusal(steps: Vec<PlanStep>) -> String {
    checked(steps, false).unwrap_err().to_string()
}

#[test]
fn the_catalog_says_the_route() {
    let logs = || step("mars", "service.logs", &[("unit", "apache2.service"), ("lines", "20")]);
    let restart = || step("mars", "service.restart", &[("unit", "apache2.service")]);
    let lanes = |read_routing| {
        let all = checked(vec![logs(), restart()], read_routing).unwrap();
        all.iter().map(|step| step.queue().to_string()).collect::<Vec<_>>()
    };
    assert_eq!(lanes(true), ["tasks:maintenance:mars:read", "tasks:maintenance:mars"]);
    assert_eq!(lanes(false), ["tasks:maintenance:mars", "tasks:maintenance:mars"]);
}

#[test]
fn a_wrong_route_stops_at_a_refusal_with_the_articles_words() {
    assert_eq!(
        refusal(vec![step("mars", "queue.length_mars_peer", &[])]),
        "step[0]: unknown_action 'queue.length_mars_peer' on mars; what there is: keyholder catalog show mars"
    );
    let good = step("ai-core", "queue.length_mars_peer", &[]);
    let all = refusal(vec![
        good,
        step("mars", "rm", &[]),
        step("mars", "service.restart", &[("unit", "sshd.service")]),
    ]);
    assert!(
        all.starts_with(
            "step[1]: unknown_action 'rm' on mars; step[2]: bad_param: parameter `unit` cannot be"
        ),
        "{all}"
    );
    let hostile = refusal(vec![step("mars", "\x1b[2J\n", &[])]);
    assert!(hostile.starts_with("step[0]: unknown_action '\\x1b[2J\\n' on mars; "), "{hostile}");
    assert!(checked(vec![step("venus", "host.disk", &[])], false).unwrap_err().is::<NoSuchNode>());
    for value in ["+20", "1e2", " 20", "020", "9", "٢٠", "20\n"] {
        let text =
            refusal(vec![step("mars", "service.logs", &[("unit", "apache2.service"), ("lines", value)])]);
        assert!(text.starts_with("step[0]: bad_param: parameter `lines`"), "{value:?}: {text}");
    }
}

#[test]
fn a_node_without_a_catalog_gets_nothing() {
    let fleet = fleet::parse("fleet.yaml", FLEET.as_bytes()).unwrap().fleet;
    let dir = tempfile::tempdir().unwrap();
    let mut catalogs = Catalogs::beside(&dir.path().join("fleet.yaml"));
    let error = check(vec![step("mars", "host.disk", &[])], &fleet, &mut catalogs).unwrap_err();
    assert!(error.is::<CatalogTrouble>(), "{error:#}");
}

#[test]
fn a_plan_is_yaml_or_json_and_nothing_besides() {
    let yaml = "steps:\n  - { node: mars, action: service.logs, params: { unit: apache2.service, lines: 20 } }\n  - { node: mars, action: host.disk }\n";
    let json = r#"{"steps": [{"node": "mars", "action": "service.logs", "params": {"unit": "apache2.service", "lines": 20}},
        {"node": "mars", "action": "host.disk"}]}"#;
    let expected = vec![
        step("mars", "service.logs", &[("unit", "apache2.service"), ("lines", "20")]),
        step("mars", "host.disk", &[]),
    ];
    assert_eq!(parse("plan.yaml", yaml.as_bytes()).unwrap(), expected);
    assert_eq!(parse("plan.json", json.as_bytes()).unwrap(), expected);
    for (bad, says) in [
        ("steps: []", "this list is empty"),
        ("{}", "the plan has no `steps`"),
        ("steps: [{ node: mars, action: a, argv: [/bin/sh] }]", "this step has no such setting"),
        ("steps: [{ node: mars }]", "this step has no `action`"),
        ("steps: [{ node: mars, action: a, params: { x: [1] } }]", "a list cannot stand here"),
        ("steps: [{ node: mars, node: venus, action: a }]", "second time"),
        ("steps: [{ node: mars, action: a }]\nmore: 1", "no such setting"),
    ] {
        let problems = parse("plan.yaml", bad.as_bytes()).unwrap_err().to_string();
        assert!(problems.contains(says), "{bad}: {problems}");
    }
    let many = format!("steps: [{}]", "{ node: mars, action: a },".repeat(101));
    assert!(parse("plan.yaml", many.as_bytes()).unwrap_err().to_string().contains("101 steps"));
}

#[test]
fn parameters_are_given_once() {
    assert_eq!(param("a=b=c"), Ok(("a".to_owned(), "b=c".to_owned())));
    assert!(param("ab").is_err() && param("=b").is_err());
    let twice = [("a".to_owned(), "1".to_owned()), ("a".to_owned(), "2".to_owned())];
    assert!(params(&twice).is_err());
}
