//! A supervisor that is not there, says nothing, or says the wrong thing: always 6, always with a way out, never a hang.

use std::io::Write;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use keyholder::peer::wire::{Class, MAX_REPLY, NodeState, Outcome, Refusal, RefusalCode};
use keyholder::peer::wire::{ClientFrame, Reply, ServerFrame, Verdict};
use keyholder::vocabulary::ReqId;

use super::fake::{Fake, greet, keyholder, node, receive, send, told, worker};

/// What `status` says of a supervisor that behaves like this, with the socket's own path taken out.
fn status_of(serve: impl FnMut(UnixStream) + Send + 'static) -> String {
    let fake = Fake::serving(serve);
    told(&mut fake.keyholder(&["status"])).replace(&fake.path().display().to_string(), "SOCKET")
}

#[test]
fn no_supervisor() {
    insta::assert_snapshot!(told(&mut keyholder(&["status", "--socket", "/nonexistent/keyholder.sock"])));
    // A socket file that nobody listens behind.
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("sock");
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    keyholder(&["status", "--socket"]).arg(&path).assert().code(6);
    // A path that no socket can have.
    keyholder(&["status", "--socket", &format!("/{}", "x".repeat(200))]).assert().code(6);
}

#[test]
fn one_that_hangs_up() {
    insta::assert_snapshot!("hangs_up_at_once", status_of(drop));
    insta::assert_snapshot!(
        "hangs_up_after_the_request",
        status_of(|mut stream| {
            greet(&mut stream);
            receive(&mut stream);
        })
    );
    insta::assert_snapshot!(
        "hangs_up_within_its_answer",
        status_of(|mut stream| {
            greet(&mut stream);
            receive(&mut stream);
            stream.write_all(b"\0\0\x01\0{\"reply\":").unwrap();
        })
    );
}

#[test]
fn one_that_speaks_something_else() {
    for bytes in [
        &b"HTTP/1.1 400 Bad Request\r\n\r\n"[..],
        b"\0\0\0\x04null",
        b"\0\0\0\x0c\"keepalive\"x",
        b"\0\0\0\x02\xff\xfe",
        b"\0\0\0\0",
        b"\xff\xff\xff\xff",
    ] {
        let said = status_of(move |mut stream| {
            receive(&mut stream);
            let _ = stream.write_all(bytes);
            let _ = stream.shutdown(Shutdown::Write);
            receive(&mut stream);
        });
        assert!(said.starts_with("exit 6\n"), "{bytes:?}: {said}");
        assert!(said.contains("SOCKET") && said.contains("is it another program"), "{said}");
    }
}

#[test]
fn one_that_names_what_we_do_not_know_cannot_steer_the_terminal() {
    let said = status_of(|mut stream| {
        greet(&mut stream);
        receive(&mut stream);
        let body = b"{\"\\u001b[2Jverb\":{}}";
        let mut bytes = u32::try_from(body.len()).unwrap().to_be_bytes().to_vec();
        bytes.extend(body);
        stream.write_all(&bytes).unwrap();
        receive(&mut stream);
    });
    assert!(said.starts_with("exit 6\n") && !said.contains('\x1b'), "{said}");
}

#[test]
fn an_oversized_frame_is_refused_at_its_head() {
    let head = u32::try_from(MAX_REPLY + 1).unwrap().to_be_bytes();
    insta::assert_snapshot!(status_of(move |mut stream| {
        greet(&mut stream);
        receive(&mut stream);
        stream.write_all(&head).unwrap();
        receive(&mut stream);
    }));
}

#[test]
fn an_order_without_an_answer_says_that_it_may_have_been_carried_out() {
    let fake = Fake::serving(|mut stream| {
        greet(&mut stream);
        receive(&mut stream);
        // Nothing, until the client gives up.
        receive(&mut stream);
    });
    let started = Instant::now();
    let said = told(&mut fake.keyholder(&["relaunch", "mars/agent", "--timeout", "200ms"]));
    assert!(started.elapsed() < Duration::from_secs(20));
    insta::assert_snapshot!(said);
}

#[test]
fn keepalives_do_not_prolong_the_wait() {
    let fake = Fake::serving(|mut stream| {
        greet(&mut stream);
        receive(&mut stream);
        stream.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        let started = Instant::now();
        while started.elapsed() < Duration::from_secs(30) {
            send(&mut stream, &ServerFrame::Keepalive);
            // Paces the loop; a client that has gone ends it.
            if std::io::Read::read(&mut stream, &mut [0]).is_ok_and(|read| read == 0) {
                return;
            }
        }
    });
    let started = Instant::now();
    fake.keyholder(&["relaunch", "mars/agent", "--timeout", "200ms"]).assert().code(6);
    assert!(started.elapsed() < Duration::from_secs(20));
}

#[test]
fn an_answer_byte_by_byte_among_other_frames_is_still_the_answer() {
    let reports = vec![node("mars", NodeState::Up, vec![worker("mars", "agent", Class::Healthy)])];
    let fake = Fake::serving(move |mut stream| {
        greet(&mut stream);
        let Some(ClientFrame::Request(request)) = receive(&mut stream) else { return };
        send(&mut stream, &ServerFrame::Keepalive);
        send(&mut stream, &ServerFrame::Snapshot(reports[0].clone()));
        // Somebody else's answer.
        let other = Verdict::Outcome(Outcome::Fleet(Vec::new()));
        send(&mut stream, &ServerFrame::Reply(Reply { req_id: ReqId::from_bytes([0; 16]), result: other }));
        let result = Verdict::Outcome(Outcome::Fleet(reports.clone()));
        let body = serde_json::to_vec(&ServerFrame::Reply(Reply { req_id: request.req_id, result })).unwrap();
        for byte in u32::try_from(body.len()).unwrap().to_be_bytes().iter().chain(&body) {
            stream.write_all(&[*byte]).unwrap();
        }
        receive(&mut stream);
    });
    let output = fake.keyholder(&["status"]).assert().code(0).get_output().stdout.clone();
    assert!(String::from_utf8(output).unwrap().contains("agent.service"));
}

#[test]
fn a_door_that_is_full_says_so_instead_of_greeting() {
    let said = status_of(|mut stream| {
        let result = Verdict::Refused(Refusal::new(RefusalCode::Busy, "too many connections: ask again"));
        send(&mut stream, &ServerFrame::Reply(Reply { req_id: ReqId::from_bytes([0; 16]), result }));
    });
    insta::assert_snapshot!(said);
}

#[test]
fn the_largest_answer_is_read() {
    let mut workers = Vec::new();
    for number in 0..1000 {
        workers.push(worker("mars", &format!("w{number}"), Class::Healthy));
    }
    let fake = Fake::outcome(Outcome::Fleet(vec![node("mars", NodeState::Up, workers)]));
    let output = fake.keyholder(&["status"]).assert().code(0).get_output().stdout.clone();
    assert_eq!(String::from_utf8(output).unwrap().lines().count(), 1003);
    assert!(fake.dir().exists());
}
