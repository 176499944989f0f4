use std::path::Path;

use super::*;

const EXAMPLE: &str = r#"version: 1
nodes:
  ai-core:
    address: 192.0.2.40:7433
    pins: ["sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"]
    watched_by: [mars]
    workers: { write: { lane: write }, read: { lane: read } }
  mars:
    address: 192.0.2.10:7433
    pins: ["sha256:bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"]
    watched_by: [ai-core]
    workers: { agent: { unit: ai-agent.service }, read: { lane: read } }
grants:
  - { from: ai-core, on: mars, workers: ["*"], verbs: [status, relaunch, hold, nudge] }
  - { from: mars, on: ai-core, workers: [read, write], verbs: [status, relaunch, nudge] }
"#;
const PLAIN: ProblemStyle = ProblemStyle { terminal: false, colour: false };

/// Runs `check` on `text` in a directory of its own; paths in the answer are shortened.
fn check_text(text: &str, me: Result<NodeName, WhoamiError>, flags: &[&str]) -> (u8, String, String) {
    let dir = tempfile::tempdir().unwrap();
    let fleet = dir.path().join("fleet.yaml");
    std::fs::write(&fleet, text).unwrap();
    let args = CheckArgs {
        fleet,
        catalogs: None,
        no_catalogs: flags.contains(&"--no-catalogs"),
        node: None,
        json: flags.contains(&"--json"),
        quiet: flags.contains(&"-q"),
    };
    check_args(&args, me, dir.path())
}

fn check_args(args: &CheckArgs, me: Result<NodeName, WhoamiError>, dir: &Path) -> (u8, String, String) {
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let code = check(args, me, |_, _| Vec::new(), PLAIN, &mut out, &mut err).unwrap();
    let short =
        |bytes: Vec<u8>| String::from_utf8(bytes).unwrap().replace(&format!("{}/", dir.display()), "");
    (code, short(out), short(err))
}

fn unsaid() -> Result<NodeName, WhoamiError> {
    Err(WhoamiError::NotSaid("/etc/keyholder/node".into()))
}

fn node(name: &str) -> Result<NodeName, WhoamiError> {
    Ok(name.parse().unwrap())
}

#[test]
fn a_good_file_is_summed_up() {
    let (code, out, err) = check_text(EXAMPLE, node("mars"), &[]);
    assert_eq!((code, err.as_str()), (GOOD, ""));
    insta::assert_snapshot!("good", out);
    let (code, out, _) = check_text(EXAMPLE, unsaid(), &[]);
    assert_eq!(code, GOOD);
    assert!(out.contains("this node  not said here (--node, NODE_NAME or /etc/keyholder/node)"), "{out}");
}

#[test]
fn what_a_detector_can_never_see_on_this_node_is_a_warning() {
    let dir = tempfile::tempdir().unwrap();
    let fleet = dir.path().join("fleet.yaml");
    std::fs::write(&fleet, EXAMPLE).unwrap();
    let args = CheckArgs { fleet, catalogs: None, no_catalogs: true, node: None, json: false, quiet: false };
    let senses = |me: &NodeName, node: &Node| {
        let name = node.workers.keys().next().unwrap();
        vec![Finding::fail("heartbeat", format!("{me}/{name}: no line is seen")).way_out("look elsewhere")]
    };
    let (mut out, mut err) = (Vec::new(), Vec::new());
    assert_eq!(check(&args, node("mars"), senses, PLAIN, &mut out, &mut err).unwrap(), GOOD);
    let err = String::from_utf8(err).unwrap();
    assert!(err.contains("mars/agent: no line is seen") && err.contains("look elsewhere"), "{err}");
}

#[test]
fn quiet_means_nothing_at_all_when_it_is_good() {
    assert_eq!(check_text(EXAMPLE, node("mars"), &["-q"]), (GOOD, String::new(), String::new()));
    let unwatched = EXAMPLE.replace("    watched_by: [mars]\n", "");
    assert_eq!(check_text(&unwatched, node("mars"), &["-q"]), (GOOD, String::new(), String::new()));
    let (code, _, err) = check_text(&unwatched, node("mars"), &[]);
    assert_eq!(code, GOOD);
    assert!(err.starts_with("warning: fleet.yaml:3:3: nobody watches node `ai-core`"), "{err}");
}

#[test]
fn a_bad_file_says_everything_on_standard_error() {
    let bad = EXAMPLE.replace("version: 1", "version: 7").replace("lane: read", "lane: reed");
    for flags in [&[][..], &["-q"]] {
        let (code, out, err) = check_text(&bad, node("mars"), flags);
        assert_eq!((code, out.as_str()), (BAD, ""));
        assert_eq!(err.lines().count(), 4, "{err}");
        assert!(err.ends_with("fleet.yaml is not good: 3 problems\n"), "{err}");
    }
}

#[test]
fn a_node_that_is_not_in_the_file_is_a_problem() {
    let (code, out, err) = check_text(EXAMPLE, node("marz"), &[]);
    assert_eq!((code, out.as_str()), (BAD, ""));
    assert_eq!(
        err,
        "fleet.yaml: this node, `marz`, is not in the file (did you mean `mars`?)\nfleet.yaml is not good: 1 problem\n"
    );
    let disabled = EXAMPLE.replace("  mars:\n", "  mars:\n    disabled: true\n");
    let (code, _, err) = check_text(&disabled, node("mars"), &[]);
    assert_eq!(code, GOOD);
    assert!(
        err.starts_with("warning: fleet.yaml: this node, `mars`, is disabled: its peers refuse it"),
        "{err}"
    );
}

#[test]
fn a_wrong_name_on_the_command_line_is_wrong_usage_and_elsewhere_a_problem() {
    let bad = || fleet::whoami(Some("a:b"));
    let args = CheckArgs {
        fleet: "/nonexistent".into(),
        catalogs: None,
        no_catalogs: false,
        node: Some("a:b".into()),
        json: false,
        quiet: false,
    };
    let (code, out, err) = check_args(&args, bad(), Path::new("/"));
    assert_eq!((code, out.as_str()), (USAGE, ""));
    assert!(
        err.starts_with("error: --node does not hold a node's name: \"a:b\" is not a node name"),
        "{err}"
    );
    let (code, _, err) = check_text(EXAMPLE, bad(), &[]);
    assert_eq!(code, BAD);
    assert!(err.contains("does not hold a node's name"), "{err}");
}

#[test]
fn a_missing_file_is_a_problem_with_a_way_out() {
    let args = CheckArgs {
        fleet: "/nonexistent/fleet.yaml".into(),
        catalogs: None,
        no_catalogs: false,
        node: None,
        json: false,
        quiet: true,
    };
    let (code, _, err) = check_args(&args, unsaid(), Path::new("/nonexistent"));
    assert_eq!(code, BAD);
    assert_eq!(
        err,
        "fleet.yaml: cannot read fleet.yaml: No such file or directory (os error 2) (expected a file there; is the name \
         right?)\nfleet.yaml is not good: 1 problem\n"
    );
}

#[test]
fn json_is_for_programs() {
    let (code, out, err) = check_text(EXAMPLE, node("mars"), &["--json"]);
    assert_eq!((code, err.as_str()), (GOOD, ""));
    insta::assert_snapshot!("json_good", out);
    let (code, out, err) =
        check_text(&EXAMPLE.replace("version: 1", "version: \"\\e\""), node("mars"), &["--json"]);
    assert_eq!((code, err.as_str()), (BAD, ""));
    insta::assert_snapshot!("json_bad", out);
}

/// Runs `check` on the example with these catalogs beside it.
fn check_catalogs(catalogs: &[(&str, &str)], flags: &[&str]) -> (u8, String, String) {
    let dir = tempfile::tempdir().unwrap();
    let fleet = dir.path().join("fleet.yaml");
    std::fs::write(&fleet, EXAMPLE).unwrap();
    for (name, text) in catalogs {
        std::fs::write(dir.path().join(name), text).unwrap();
    }
    let args = CheckArgs {
        fleet,
        catalogs: None,
        no_catalogs: flags.contains(&"--no-catalogs"),
        node: None,
        json: flags.contains(&"--json"),
        quiet: flags.contains(&"-q"),
    };
    check_args(&args, node("mars"), dir.path())
}

const MARS: &str = "version: 1\nnode: mars\nactions:\n  a: { mode: read, argv: [/bin/true] }\n";
const AI_CORE: &str =
    "version: 1\nnode: ai-core\nactions:\n  b: { mode: read, argv: [/bin/true], only_here: true }\n";

#[test]
fn catalogs_beside_the_fleet_are_checked_with_it() {
    let good = [("catalog_mars.yaml", MARS), ("catalog_ai-core.yaml", AI_CORE), ("catalog_x.yaml.bak", "[")];
    let (code, out, err) = check_catalogs(&good, &[]);
    assert_eq!((code, err.as_str()), (GOOD, ""));
    assert!(
        out.ends_with(
            "\n\ncatalog_ai-core.yaml is good: node ai-core, 1 action, 0 of them write, 0 warnings\n\
             catalog_mars.yaml is good: node mars, 1 action, 0 of them write, 0 warnings\n"
        ),
        "{out}"
    );
    assert_eq!(check_catalogs(&good, &["-q"]), (GOOD, String::new(), String::new()));
    let both = MARS.replace("  a:", "  b:");
    let venus = MARS.replace("mars", "venus");
    let bad = [
        ("catalog_mars.yaml", both.as_str()),
        ("catalog_ai-core.yaml", AI_CORE),
        ("catalog_venus.yaml", &venus),
    ];
    for flags in [&[][..], &["-q"]] {
        let (code, out, err) = check_catalogs(&bad, flags);
        assert_eq!((code, out.as_str()), (BAD, ""));
        insta::assert_snapshot!("catalogs_bad", err);
    }
    let left_alone = (GOOD, String::new(), String::new());
    assert_eq!(check_catalogs(&bad, &["-q", "--no-catalogs"]), left_alone, "as the supervisor's unit asks");
    let (code, out, _) = check_catalogs(&bad, &["--json"]);
    assert_eq!(code, BAD);
    let report: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!((&report["ok"], &report["problems"]), (&false.into(), &serde_json::json!([])));
    assert_eq!(report["catalogs"][0]["problems"][0]["line"], 4);
}

#[test]
fn a_node_with_lanes_among_catalogs_that_are_none_of_its_own_is_warned() {
    let (code, out, err) = check_catalogs(&[("catalog_ai-core.yaml", AI_CORE)], &[]);
    assert_eq!(code, GOOD, "{out}");
    assert_eq!(
        err,
        "warning: fleet.yaml: this node, `mars`, has lanes, and none of the catalogs is for it (expected a file \
         catalog_mars.yaml: its lanes would refuse every task)\n"
    );
}

#[test]
fn a_directory_that_was_asked_for_must_be_there() {
    let args = CheckArgs {
        fleet: "/nonexistent/fleet.yaml".into(),
        catalogs: Some("/nonexistent/catalogs".into()),
        no_catalogs: false,
        node: None,
        json: false,
        quiet: true,
    };
    let (code, _, err) = check_args(&args, unsaid(), Path::new("/nonexistent"));
    assert_eq!(code, BAD);
    assert!(
        err.contains(
            "catalogs: cannot look for catalogs there: No such file or directory (os error 2) (expected a directory there; \
             is the name right?)\ncatalogs is not good: 1 problem\n"
        ),
        "{err}"
    );
}

#[test]
fn the_arguments_are_what_the_manual_says() {
    #[derive(Debug, clap::Parser)]
    struct Wrapper {
        #[command(flatten)]
        args: CheckArgs,
    }
    let parse = |args: &[&str]| {
        <Wrapper as clap::Parser>::try_parse_from(["check"].iter().chain(args)).map(|wrapper| wrapper.args)
    };
    let args = parse(&[]).unwrap();
    assert_eq!(args.fleet, Path::new("/etc/keyholder/fleet.yaml"));
    let args = parse(&["--fleet", "f", "--node", "mars", "--json", "-q"]).unwrap();
    assert_eq!((args.node.as_deref(), args.json, args.quiet), (Some("mars"), true, true));
    assert_eq!(parse(&["extra"]).unwrap_err().exit_code(), i32::from(USAGE));
}

#[test]
fn what_nobody_can_approve_is_told_beforehand() {
    let dir = tempfile::tempdir().unwrap();
    let fleet = dir.path().join("fleet.yaml");
    let catalog = "version: 1\nnode: mars\nactions:\n  delicate:\n    mode: write\n    description: x\n    argv: \
                   [/bin/true]\n    approval: required\n";
    std::fs::write(dir.path().join("catalog_mars.yaml"), catalog).unwrap();
    let args = CheckArgs {
        fleet: fleet.clone(),
        catalogs: None,
        no_catalogs: false,
        node: None,
        json: false,
        quiet: false,
    };
    std::fs::write(&fleet, EXAMPLE).unwrap();
    let (code, _, err) = check_args(&args, node("mars"), dir.path());
    assert_eq!(code, GOOD);
    assert!(err.contains("delicate on mars needs approval, and there are no `approver_keys`"), "{err}");
    let key = format!("version: 1\napprover_keys: {{ ada: \"ed25519:{}\" }}\n", "a".repeat(64));
    std::fs::write(&fleet, EXAMPLE.replacen("version: 1\n", &key, 1)).unwrap();
    let (_, _, err) = check_args(&args, node("mars"), dir.path());
    assert!(!err.contains("approve"), "{err}");
}

#[test]
fn what_detectors_cannot_tell_apart_is_said() {
    let with = |care: &str| {
        let text = EXAMPLE
            .replace("version: 1\n", "version: 1\nredis: { url: \"redis://ai-core\" }\n")
            .replace("unit: ai-agent.service }", &format!("unit: ai-agent.service, {care} }}"));
        check_text(&text, node("mars"), &[])
    };
    let gap = "delivery_gap: { backlog: { queue: inbox, not_draining_for: 60s } }";
    let (code, _, err) = with(gap);
    assert_eq!(code, GOOD, "{err}");
    assert!(
        err.contains("`mars/agent`: one long job cannot be told apart") && err.contains("`busy`"),
        "{err}"
    );
    let busy = "delivery_gap: { backlog: { queue: inbox, not_draining_for: 60s, busy: inbox-running } }";
    let (code, _, err) = with(busy);
    assert_eq!(code, GOOD, "{err}");
    assert!(err.contains("while inbox-running is there, a job that hangs cannot be told apart"), "{err}");
    let both = format!("{busy}, stuck: {{ heartbeat: {{ redis: beat, older_than: 90s }} }}");
    let (code, out, err) = with(&both);
    assert!(code == GOOD && !err.contains("told apart"), "{err}{out}");
    let lane = EXAMPLE.replace(
        "read: { lane: read } }\ngrants",
        "read: { lane: read, delivery_gap: { backlog: { busy: x } } } }\ngrants",
    );
    let (code, _, err) = check_text(&lane, node("mars"), &[]);
    assert!(code == BAD && err.contains("`busy` belongs to a `queue`"), "{err}");
}
