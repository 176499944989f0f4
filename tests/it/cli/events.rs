//! `events`: records as they come, what was before, what was missed, and a supervisor that restarts.

use std::os::unix::net::UnixStream;

use keyholder::journal::Event;
use keyholder::peer::wire::{
    AuditLine, ClientFrame, EventLine, Outcome, RefusalCode, Reply, ServerFrame, Verb, Verdict,
};
use serde_json::{Value, json};

use super::fake::{Fake, greet, receive, send, told};
use super::follower::Follower;

fn audit(seq: u64, text: &str) -> AuditLine {
    AuditLine {
        seq,
        at: "2026-11-29T17:00:00.000Z".to_owned(),
        event: "observed".to_owned(),
        by: "local".to_owned(),
        subject: "mars/agent".to_owned(),
        text: text.to_owned(),
        priority: 4,
    }
}

fn event(seq: u64, text: &str) -> ServerFrame {
    ServerFrame::Event(EventLine::from(audit(seq, text)))
}

/// Greets, agrees to tell, and has these in the audit.
fn agree(stream: &mut UnixStream, earlier: &[AuditLine]) {
    if greet(stream).is_none() {
        return;
    }
    while let Some(ClientFrame::Request(request)) = receive(stream) {
        let (outcome, last) = match request.verb {
            Verb::Events {} => (Outcome::Watching, false),
            Verb::Audit { .. } => (Outcome::Audit(earlier.to_vec()), true),
            other => panic!("{other:?}"),
        };
        send(
            stream,
            &ServerFrame::Reply(Reply { req_id: request.req_id, result: Verdict::Outcome(outcome) }),
        );
        if last {
            return;
        }
    }
}

/// The first `count` lines of what it prints.
fn lines(fake: &Fake, args: &[&str], count: usize) -> Vec<String> {
    let events = Follower::new(fake, &[&["events"], args].concat());
    (0..count).map(|_| events.line()).collect()
}

#[test]
fn each_record_is_a_line_of_json_and_nothing_is_lost_or_told_twice_over_a_restart() {
    let mut run = 0;
    let fake = Fake::serving(move |mut stream| {
        run += 1;
        if run == 1 {
            agree(&mut stream, &[audit(3, "earlier"), audit(4, "earlier still")]);
            // The stream begins before the question for what was before: it may have some of that, too.
            send(&mut stream, &event(4, "earlier still"));
            send(&mut stream, &event(5, "now \u{1b}[2J"));
            send(&mut stream, &ServerFrame::Missed { count: 12 });
            send(&mut stream, &event(18, "after the gap"));
            // And the supervisor is killed.
        } else {
            agree(&mut stream, &[audit(18, "after the gap"), audit(21, "while it was away")]);
            send(&mut stream, &event(22, "back"));
            receive(&mut stream);
        }
    });
    let lines: Vec<Value> = lines(&fake, &["--json"], 8)
        .iter()
        .map(|line| {
            assert!(!line.contains('\u{1b}'), "{line:?}");
            serde_json::from_str(line).unwrap()
        })
        .collect();
    let told: Vec<Value> =
        lines.iter().map(|line| line.get("seq").unwrap_or(&line["missed"]).clone()).collect();
    assert_eq!(told, [3, 4, 5, 12, 18, 2, 21, 22].map(|n| json!(n)), "{lines:?}");
    assert_eq!(
        lines[2],
        json!({ "seq": 5, "at": "2026-11-29T17:00:00.000Z", "event": "observed", "priority": 4,
                "message_id": Event::Observed.message_id(), "by": "local", "subject": "mars/agent",
                "text": "now \u{1b}[2J" })
    );
    assert_eq!((&lines[3], &lines[5]), (&json!({ "missed": 12 }), &json!({ "missed": 2 })));
}

#[test]
fn who_wants_nothing_of_what_was_before_loses_nothing_of_what_comes() {
    let mut run = 0;
    let fake = Fake::serving(move |mut stream| {
        run += 1;
        let earlier = [audit(7, "before"), audit(8, "while it was away")];
        let (known, _) = earlier.split_at(run.min(2));
        agree(&mut stream, known);
        if run > 1 {
            receive(&mut stream);
        }
    });
    let lines = lines(&fake, &["--json", "--last", "0"], 1);
    assert!(lines[0].contains("while it was away"), "{lines:?}");
}

#[test]
fn people_read_lines() {
    let fake = Fake::serving(|mut stream| {
        agree(&mut stream, &[audit(3, "healthy -> dead: signal 9 (KILL)")]);
        send(&mut stream, &ServerFrame::Missed { count: 7 });
        send(&mut stream, &event(11, "dead -> healthy: running\u{202e}"));
        receive(&mut stream);
    });
    insta::assert_snapshot!(lines(&fake, &[], 3).join("\n"));
}

#[test]
fn without_following_it_ends() {
    let fake = Fake::answering(|request| {
        assert_eq!(request.verb, Verb::Audit { last: 2 });
        Verdict::Outcome(Outcome::Audit(vec![audit(3, "one"), audit(4, "two")]))
    });
    insta::assert_snapshot!(told(&mut fake.keyholder(&["events", "--no-follow", "-n", "2"])));
}

#[test]
fn a_supervisor_that_tells_nothing_is_said_so() {
    let fake = Fake::refusing(RefusalCode::Malformed, "unknown verb events");
    insta::assert_snapshot!(told(&mut fake.keyholder(&["events"])));
}
