//! The judge on logs of the incidents that this was built for: what it makes of each, line by line, and what it does.
//!
//! A change of the judge that tells one of these stories otherwise shows here. The logs are in `tests/golden`, and the
//! README there says where each comes from: those of the articles were recorded on real nodes ([`recorded`]), and these here
//! were written by hand.

mod recorded;

use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::cli::fake::{keyholder, told};

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(format!("{name}.jsonl"))
}

/// The story as people read it, for a snapshot.
fn story(name: &str) -> String {
    let file = golden(&format!("by-hand/{name}"));
    let args = ["explain", "--replay", file.to_str().unwrap()];
    let text = told(&mut keyholder(&args));
    assert_eq!(text, told(&mut keyholder(&args)), "a replay is the same each time");
    text
}

/// One line of a story.
#[derive(Debug, Deserialize)]
struct Entry {
    at_ms: u64,
    worker: String,
    kind: String,
    text: String,
}

/// The story as a program reads it.
fn entries(name: &str) -> Vec<Entry> {
    let file = golden(name);
    let output = keyholder(&["explain", "--json", "--replay", file.to_str().unwrap()]).output().unwrap();
    serde_json::from_slice(&output.stdout).unwrap()
}

/// What is done, and when (in milliseconds).
fn acts(name: &str) -> Vec<(String, u64)> {
    let acts = entries(&format!("by-hand/{name}")).into_iter().filter(|entry| entry.kind == "acts");
    acts.map(|entry| (entry.text, entry.at_ms)).collect()
}

fn done(name: &str) -> Vec<String> {
    acts(name).into_iter().map(|(what, _)| what).collect()
}

#[test]
fn a_deaf_lane_gets_a_new_pipe_and_then_a_new_run() {
    insta::assert_snapshot!(story("delivery-gap"));
    assert_eq!(done("delivery-gap"), ["repipe", "relaunch"]);
}

#[test]
fn while_redis_is_away_nothing_is_known_and_nothing_is_done() {
    insta::assert_snapshot!(story("redis-down"));
    assert!(done("redis-down").is_empty());
}

#[test]
fn most_of_them_stuck_at_once_is_one_cause_and_no_restart() {
    insta::assert_snapshot!(story("brake"));
    assert!(done("brake").is_empty());
}

#[test]
fn a_worker_that_dies_for_twenty_minutes_is_tried_every_ten_and_normal_again_once_mended() {
    insta::assert_snapshot!(story("dies-for-twenty-minutes"));
    let at: Vec<u64> = acts("dies-for-twenty-minutes").into_iter().map(|(_, at)| at).collect();
    assert!(at.windows(2).skip(2).all(|pair| pair[1] - pair[0] >= 600_000), "{at:?}");
}

#[test]
fn every_log_has_its_test() {
    for (folder, tests, call) in [
        ("by-hand", include_str!("replay.rs"), "story"),
        ("recorded", include_str!("replay/recorded.rs"), "recorded"),
    ] {
        let logs = fs::read_dir(golden(&format!("{folder}/x")).parent().unwrap()).unwrap();
        for log in logs.map(|entry| entry.unwrap().file_name().into_string().unwrap()) {
            let name = log.strip_suffix(".jsonl").unwrap();
            assert!(tests.contains(&format!("{call}(\"{name}\")")), "{folder}/{log}");
        }
    }
}

#[test]
fn what_is_no_log_is_refused_with_its_line_and_does_nothing_to_the_terminal() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("x.jsonl");
    let replay = |text: &[u8]| {
        fs::write(&file, text).unwrap();
        let mut command = keyholder(&["explain", "--replay", "x.jsonl"]);
        command.current_dir(dir.path());
        told(&mut command)
    };
    let head = "{\"keyholder_log\":1}\n";
    let opens = "{\"at_ms\":5,\"worker\":\"mars/agent\",\"what\":{\"opens\":{}}}\n";
    let hostile =
        "{\"at_ms\":6,\"worker\":\"mars/agent\",\"what\":{\"seen\":{\"failed\":\"\\u001b[2J\\u202e\"}}}\n";
    insta::assert_snapshot!(
        [
            replay(b""),
            replay(b"\xff\xfe"),
            replay(format!("{head}{opens}{{}}\n").as_bytes()),
            replay(format!("{head}{opens}{}", hostile.replace("seen", "se\\u001ben")).as_bytes()),
            replay(format!("{head}{opens}{hostile}").as_bytes()),
        ]
        .join("\n")
    );
    keyholder(&["explain", "--replay", "/nonexistent/log"]).assert().code(1);
    keyholder(&["explain"]).assert().code(2);
    keyholder(&["explain", "mars/agent", "--replay", "x"]).assert().code(2);
    // Bounded, whatever it is.
    keyholder(&["explain", "--replay", "/dev/zero"]).assert().code(1);
}
