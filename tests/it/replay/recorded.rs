//! Logs of the incidents of the articles, brought about on real nodes and recorded there. What is asserted holds of every
//! recording, so that a new one changes no line here.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;

use super::{Entry, entries, golden};

/// What the judge makes of a recording, worker by worker: the classes, what is said and what is done. When exactly, and the states
/// that systemd passes through, differ from recording to recording.
fn plot(story: &[Entry]) -> String {
    let mut text = String::new();
    for worker in workers(story) {
        let _ = writeln!(text, "{worker}");
        let mut last = String::new();
        for Entry { kind, text: what, .. } in of(story, worker) {
            let told = match kind.as_str() {
                "class" => !what.starts_with("in transition"),
                kind => matches!(kind, "says" | "acts" | "differs" | "end"),
            };
            let line = format!("    {kind:<7}  {what}\n");
            if told && line != last {
                text.push_str(&line);
                last = line;
            }
        }
    }
    text
}

fn workers(story: &[Entry]) -> BTreeSet<&str> {
    story.iter().map(|entry| entry.worker.as_str()).collect()
}

fn of<'a>(story: &'a [Entry], worker: &'a str) -> impl Iterator<Item = &'a Entry> {
    story.iter().filter(move |entry| entry.worker == worker)
}

/// What is done to a worker, and when.
fn acts<'a>(story: &'a [Entry], worker: &'a str) -> Vec<(&'a str, u64)> {
    let acts = of(story, worker).filter(|entry| entry.kind == "acts");
    acts.map(|entry| (entry.text.as_str(), entry.at_ms)).collect()
}

fn done<'a>(story: &'a [Entry], worker: &'a str) -> Vec<&'a str> {
    acts(story, worker).into_iter().map(|(act, _)| act).collect()
}

/// When a worker first got into a class.
fn since(story: &[Entry], worker: &str, class: &str) -> u64 {
    let mut classes = of(story, worker).filter(|entry| entry.kind == "class");
    classes.find(|entry| entry.text.starts_with(class)).unwrap().at_ms
}

/// The story of a recording. What the judge does is what was done then, no more and no less.
fn recorded(name: &str) -> Vec<Entry> {
    let name = format!("recorded/{name}");
    let story = entries(&name);
    assert!(story.iter().all(|entry| entry.kind != "differs"), "{story:#?}");
    let log = fs::read_to_string(golden(&name)).unwrap();
    let acted = log.lines().filter(|line| line.contains(r#""what":{"acted":"#)).count();
    assert_eq!(story.iter().filter(|entry| entry.kind == "acts").count(), acted);
    story
}

#[test]
fn stopped_and_forgotten_is_said_at_once_and_brought_back_when_its_time_is_over() {
    let story = recorded("stopped-and-forgotten");
    insta::assert_snapshot!(plot(&story));
    let [("relaunch", back)] = acts(&story, "mars/stopped")[..] else { panic!("{story:#?}") };
    assert!(back - since(&story, "mars/stopped", "dead") >= 4_000);
}

#[test]
fn the_dead_are_relaunched_and_never_nudged_however_stale_their_heartbeat_and_the_stuck_beside_them_are() {
    let story = recorded("nudge-against-the-dead");
    insta::assert_snapshot!(plot(&story));
    // The dead one has a heartbeat to look at, and it is as old as that of the two that hang.
    let ([("relaunch", back)], dead) = (&acts(&story, "mars/batch")[..], since(&story, "mars/batch", "dead"))
    else {
        panic!("{story:#?}")
    };
    let stale =
        of(&story, "mars/batch").find(|entry| entry.text == "heartbeat: no heartbeat for 4.0 s").unwrap();
    assert!(dead < stale.at_ms && stale.at_ms < *back, "{story:#?}");
    // It helps one of those; the other dies of it and is dead from then on.
    assert_eq!(done(&story, "mars/hangs"), ["nudge"]);
    assert_eq!(done(&story, "mars/frail"), ["nudge", "relaunch"]);
    for worker in workers(&story) {
        for (at, entry) in story.iter().enumerate().filter(|(_, entry)| entry.text == "nudge") {
            let before = of(&story[..at], worker).filter(|entry| entry.kind == "class").last().unwrap();
            assert!(entry.worker != worker || before.text.starts_with("stuck"), "{before:?}");
        }
    }
}

#[test]
fn a_diagnosis_behind_a_long_write_is_neither_stuck_nor_a_delivery_gap() {
    let story = recorded("diagnosis-behind-the-long-write");
    insta::assert_snapshot!(plot(&story));
    // It waits for longer than the heartbeat may be old (8 s), and than the queue may stand still (4 s).
    assert!(story.last().unwrap().at_ms >= 10_000);
    assert_eq!(workers(&story), BTreeSet::from(["mars/write"]));
    assert!(done(&story, "mars/write").is_empty());
    assert!(story.iter().all(|entry| entry.kind != "class" || entry.text == "healthy"));
}

#[test]
fn a_worker_that_dies_after_each_start_is_quarantined_after_its_budget_retried_slowly_and_normal_once_mended()
{
    let story = recorded("dies-a-second-after-each-start");
    insta::assert_snapshot!(plot(&story));
    let quarantined = story.iter().find(|entry| entry.text.contains("is in quarantine")).unwrap().at_ms;
    let acts = acts(&story, "mars/flapper");
    assert!(acts.iter().all(|(act, _)| *act == "relaunch"));
    let (before, after): (Vec<_>, Vec<_>) = acts.into_iter().partition(|(_, at)| *at < quarantined);
    assert!(before.len() == 3 && after.len() >= 2, "{before:?} {after:?}");
    assert!(after[0].1 - quarantined >= 5_000 && after[1].1 - after[0].1 >= 5_000, "{after:?}");
}

#[test]
fn twenty_that_crash_at_once_all_come_back_and_not_all_at_once() {
    let story = recorded("twenty-crash-at-once");
    let workers = workers(&story);
    assert_eq!(workers.len(), 20);
    let mut moments = BTreeSet::new();
    for worker in workers {
        let [("relaunch", at)] = acts(&story, worker)[..] else { panic!("{worker}: {story:#?}") };
        moments.insert(at);
        let last: Vec<&str> = of(&story, worker).map(|entry| entry.text.as_str()).collect();
        assert!(last.contains(&"it stayed up: recovered") && last.last() == Some(&"healthy"), "{last:?}");
    }
    assert!(moments.len() >= 10, "{moments:?}");
    // A few at once, the others one after the other: spread over two seconds.
    assert!(moments.last().unwrap() - moments.first().unwrap() >= 1_000, "{moments:?}");
}
