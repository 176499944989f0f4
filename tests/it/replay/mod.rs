//! The judge on logs of the incidents that this was built for: what it makes of each, line by line, and what it does.
//!
//! A change of the judge that tells one of these stories otherwise shows here. The logs are in `tests/golden`, and the
//! README there says where each comes from.

use std::fs;
use std::path::{Path, PathBuf};

use crate::cli::fake::{keyholder, told};

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(format!("{name}.jsonl"))
}

/// The story as people read it, for a snapshot.
fn story(name: &str) -> String {
    let file = golden(name);
    let args = ["explain", "--replay", file.to_str().unwrap()];
    let text = told(&mut keyholder(&args));
    assert_eq!(text, told(&mut keyholder(&args)), "a replay is the same each time");
    text
}

/// What is done, to whom, when (in milliseconds).
fn acts(name: &str) -> Vec<(String, String, u64)> {
    let file = golden(name);
    let output = keyholder(&["explain", "--json", "--replay", file.to_str().unwrap()]).output().unwrap();
    let story: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
    let entries = story.as_array().unwrap().iter();
    entries
        .filter(|entry| entry["kind"] == "acts")
        .map(|entry| (text(&entry["worker"]), text(&entry["text"]), entry["at_ms"].as_u64().unwrap()))
        .collect()
}

fn done(name: &str) -> Vec<String> {
    acts(name).into_iter().map(|(_, what, _)| what).collect()
}

#[test]
fn stopped_and_forgotten_is_said_at_once_and_brought_back_in_two_minutes() {
    insta::assert_snapshot!(story("stopped-and-forgotten"));
    let (stopped, back) = (10_012, acts("stopped-and-forgotten")[0].2);
    assert_eq!((done("stopped-and-forgotten"), back - stopped), (vec!["relaunch".to_owned()], 120_000));
}

#[test]
fn the_dead_are_relaunched_and_never_nudged_however_stale_their_heartbeat() {
    insta::assert_snapshot!(story("nudge-against-the-dead"));
    // Dead: relaunch. Stuck later on: a nudge, of which it dies; so a relaunch again.
    assert_eq!(done("nudge-against-the-dead"), ["relaunch", "nudge", "relaunch"]);
}

#[test]
fn a_long_write_is_progress_for_the_lane_and_nothing_for_the_diagnosis() {
    insta::assert_snapshot!(story("diagnosis-behind-the-long-write"));
    assert!(done("diagnosis-behind-the-long-write").is_empty());
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
fn a_worker_that_dies_after_each_start_is_quarantined_retried_slowly_and_normal_again_once_mended() {
    insta::assert_snapshot!(story("dies-a-second-after-each-start"));
    let at: Vec<u64> = acts("dies-a-second-after-each-start").into_iter().map(|(_, _, at)| at).collect();
    assert!(at.windows(2).skip(2).all(|pair| pair[1] - pair[0] >= 600_000), "{at:?}");
}

#[test]
fn twenty_that_fall_at_once_all_come_back_and_not_all_at_once() {
    insta::assert_snapshot!(story("twenty-crash-at-once"));
    let acts = acts("twenty-crash-at-once");
    let mut moments: Vec<u64> = acts.iter().map(|(_, _, at)| *at).collect();
    moments.dedup();
    assert_eq!(acts.len(), 20);
    assert!(moments.len() >= 12, "{moments:?}");
}

#[test]
fn every_log_has_its_test() {
    let logs = fs::read_dir(golden("x").parent().unwrap()).unwrap();
    let here = include_str!("mod.rs");
    for log in logs.map(|entry| entry.unwrap().file_name().into_string().unwrap()) {
        if let Some(name) = log.strip_suffix(".jsonl") {
            assert!(here.contains(&format!("story(\"{name}\")")), "{log}");
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
