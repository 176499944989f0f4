//! `status --watch` into a pipe: what comes is appended, and a supervisor that goes away is asked again.

use std::os::unix::net::UnixStream;

use keyholder::peer::wire::{
    Class, ClientFrame, NodeState, Outcome, RefusalCode, Reply, ServerFrame, Verb, Verdict,
};

use super::fake::{Fake, greet, node, receive, send, told, worker};
use super::follower::Follower;

/// Greets and agrees to the watch.
fn agree(stream: &mut UnixStream) -> bool {
    if greet(stream).is_none() {
        return false;
    }
    while let Some(ClientFrame::Request(request)) = receive(stream) {
        let watch = request.verb == Verb::Watch {};
        let outcome = if watch {
            Outcome::Watching
        } else {
            Outcome::Status(node("mars", NodeState::Up, vec![worker("mars", "agent", Class::Healthy)]))
        };
        let result = Verdict::Outcome(outcome);
        send(stream, &ServerFrame::Reply(Reply { req_id: request.req_id, result }));
        if watch {
            return true;
        }
    }
    false
}

/// Shows mars healthy, then its agent dead, then that the host leaves; the connection stays until the client goes.
fn story(mut stream: UnixStream) {
    if !agree(&mut stream) {
        return;
    }
    let healthy = vec![worker("mars", "agent", Class::Healthy), worker("mars", "other", Class::Healthy)];
    send(&mut stream, &ServerFrame::Snapshot(node("mars", NodeState::Up, healthy)));
    send(&mut stream, &ServerFrame::Keepalive);
    send(&mut stream, &ServerFrame::Change(worker("mars", "other", Class::Starting)));
    send(&mut stream, &ServerFrame::Change(worker("mars", "agent", Class::Dead)));
    send(&mut stream, &ServerFrame::Leaving);
    receive(&mut stream);
}

#[test]
fn json_is_one_object_per_change_of_what_is_watched() {
    let fake = Fake::serving(story);
    let watch = Follower::new(&fake, &["status", "--watch", "--json", "mars/agent"]);
    let frames: Vec<ServerFrame> = (0..3).map(|_| serde_json::from_str(&watch.line()).unwrap()).collect();
    assert!(matches!(&frames[0], ServerFrame::Snapshot(report) if report.workers.len() == 1));
    assert!(matches!(&frames[1], ServerFrame::Change(worker) if worker.class == Class::Dead));
    assert!(matches!(&frames[2], ServerFrame::Snapshot(report) if report.state == NodeState::Leaving));
}

#[test]
fn lines_say_what_a_worker_was_before() {
    let fake = Fake::serving(story);
    let watch = Follower::new(&fake, &["status", "--watch"]);
    let first: Vec<String> = (0..7).map(|_| watch.line()).collect();
    assert!(first[0].starts_with("mars  up"), "{first:?}");
    assert_eq!(first[5..], ["mars/other is starting (was healthy)", "mars/agent is dead (was healthy)"]);
    assert_eq!(watch.line(), "mars is leaving: it shuts down or reboots (was up)");
}

#[test]
fn a_supervisor_that_restarts_is_followed_again() {
    let mut run = 0;
    let fake = Fake::serving(move |mut stream| {
        run += 1;
        if agree(&mut stream) {
            let name = format!("run{run}");
            send(&mut stream, &ServerFrame::Snapshot(node(&name, NodeState::Up, Vec::new())));
        }
        // Hangs up.
    });
    let watch = Follower::new(&fake, &["status", "--watch", "--json"]);
    for run in 1..3 {
        let line = watch.line();
        assert!(line.contains(&format!("run{run}")), "{line}");
    }
}

#[test]
fn a_watch_of_nothing_ends_at_once() {
    let fake = Fake::refusing(RefusalCode::UnknownWorker, "mars has no worker agnet");
    insta::assert_snapshot!(told(&mut fake.keyholder(&["status", "--watch", "mars/agnet"])));
}
