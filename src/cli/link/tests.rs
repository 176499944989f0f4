use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixListener;
use std::thread;

use nix::sys::socket::{AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind, connect, listen, socket};

use super::*;
use crate::peer::wire::Reply;

/// For what never comes.
const SHORT: Duration = Duration::from_millis(200);
/// For what comes, on a machine that stalls.
const LONG: Duration = Duration::from_secs(20);

fn listening() -> (tempfile::TempDir, PathBuf, UnixListener) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("sock");
    let listener = UnixListener::bind(&path).unwrap();
    (dir, path, listener)
}

fn frame(frame: &ServerFrame) -> Vec<u8> {
    let body = serde_json::to_vec(frame).unwrap();
    let mut bytes = u32::try_from(body.len()).unwrap().to_be_bytes().to_vec();
    bytes.extend(body);
    bytes
}

fn hello() -> ServerFrame {
    ServerFrame::Hello(Hello {
        node: "mars".parse().unwrap(),
        version: "0.1.0".to_owned(),
        boot_nonce: BootNonce::from_bytes([7; 16]),
        fleet_hash: FleetHash::of(b"fleet"),
    })
}

/// Answers the first connection with these bytes, then holds it open until the client has gone.
fn answering(bytes: Vec<u8>) -> (tempfile::TempDir, PathBuf, thread::JoinHandle<()>) {
    let (dir, path, listener) = listening();
    let server = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut first = [0; 4];
        stream.read_exact(&mut first).unwrap();
        stream.write_all(&bytes).unwrap();
        let _ = stream.read_to_end(&mut Vec::new());
    });
    (dir, path, server)
}

fn opened(bytes: Vec<u8>, deadline: Duration) -> Result<Hello, LinkError> {
    let (_dir, path, server) = answering(bytes);
    let link = Link::open(&path, deadline).map(|link| link.server().clone());
    server.join().unwrap();
    link
}

#[test]
fn the_hello_is_taken_after_whatever_else_comes_first() {
    let ServerFrame::Hello(expected) = hello() else { unreachable!() };
    let mut bytes = frame(&ServerFrame::Keepalive);
    bytes.extend(frame(&hello()));
    bytes.extend(frame(&ServerFrame::Leaving));
    assert_eq!(opened(bytes, LONG).unwrap(), expected);
}

#[test]
fn a_supervisor_that_says_nothing_is_given_up() {
    assert!(matches!(opened(Vec::new(), SHORT), Err(LinkError::Silent { .. })));
    // Half a frame is nothing yet.
    assert!(matches!(opened(frame(&hello())[..20].to_vec(), SHORT), Err(LinkError::Silent { .. })));
}

#[test]
fn what_is_not_the_protocol_is_said_to_be_something_else() {
    assert!(matches!(
        opened(b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(), LONG),
        Err(LinkError::TooLong { .. })
    ));
    assert!(matches!(opened(b"\0\0\0\x02{}".to_vec(), LONG), Err(LinkError::Garbage { .. })));
    assert!(matches!(opened(b"\0\0\0\0".to_vec(), LONG), Err(LinkError::Garbage { .. })));
    let longest = u32::try_from(crate::peer::wire::MAX_REPLY).unwrap();
    assert!(matches!(opened((longest + 1).to_be_bytes().to_vec(), LONG), Err(LinkError::TooLong { .. })));
    assert!(matches!(opened(longest.to_be_bytes().to_vec(), SHORT), Err(LinkError::Silent { .. })));
}

#[test]
fn a_full_backlog_does_not_hang_the_command() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("sock");
    let fd = socket(AddressFamily::Unix, SockType::Stream, SockFlag::empty(), None).unwrap();
    bind(fd.as_raw_fd(), &UnixAddr::new(&path).unwrap()).unwrap();
    listen(&fd, Backlog::new(1).unwrap()).unwrap();
    let mut waiting = Vec::new();
    loop {
        let one = socket(AddressFamily::Unix, SockType::Stream, SockFlag::SOCK_NONBLOCK, None).unwrap();
        if connect(one.as_raw_fd(), &UnixAddr::new(&path).unwrap()).is_err() {
            break;
        }
        waiting.push(one);
    }
    let (tell, told) = std::sync::mpsc::channel();
    thread::spawn(move || {
        let _ = tell.send(Link::open(&path, SHORT));
    });
    let opened = told.recv_timeout(LONG).expect("it hangs");
    assert!(matches!(opened, Err(LinkError::Silent { .. })));
}

#[test]
fn a_watch_loses_nothing_when_a_frame_comes_in_pieces() {
    let (_dir, path, listener) = listening();
    let (go, gone) = std::sync::mpsc::channel();
    let server = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(&frame(&hello())).unwrap();
        let bytes = frame(&ServerFrame::Leaving);
        let (first, second) = bytes.split_at(6);
        stream.write_all(first).unwrap();
        gone.recv().unwrap();
        stream.write_all(second).unwrap();
    });
    let mut link = Link::open(&path, LONG).unwrap();
    assert_eq!(link.next(Instant::now() + Duration::from_millis(50)).unwrap(), None);
    go.send(()).unwrap();
    assert_eq!(link.next(Instant::now() + LONG).unwrap(), Some(ServerFrame::Leaving));
    server.join().unwrap();
    let end = link.next(Instant::now() + LONG);
    assert!(matches!(end, Err(LinkError::Closed { when: Stage::Following })), "{end:?}");
}

#[test]
fn records_that_come_before_an_answer_are_not_lost() {
    let refusal = crate::peer::wire::Refusal::new(crate::peer::wire::RefusalCode::Busy, "busy");
    let reply = Reply { req_id: ReqId::from_bytes([0; 16]), result: Verdict::Refused(refusal) };
    let told = [ServerFrame::Missed { count: 3 }, ServerFrame::Keepalive, ServerFrame::Missed { count: 4 }];
    let mut bytes = frame(&hello());
    bytes.extend(told.iter().flat_map(frame));
    bytes.extend(frame(&ServerFrame::Reply(reply)));
    bytes.extend(frame(&ServerFrame::Leaving));
    let (_dir, path, server) = answering(bytes);
    let mut link = Link::open(&path, LONG).unwrap();
    let answer = link.ask(&"mars".parse().unwrap(), None, Verb::Fleet {}, "", LONG).unwrap();
    assert!(matches!(answer, Verdict::Refused(_)));
    let mut next = || link.next(Instant::now() + LONG).unwrap().unwrap();
    assert_eq!(
        [next(), next(), next()],
        [ServerFrame::Missed { count: 3 }, ServerFrame::Missed { count: 4 }, ServerFrame::Leaving]
    );
    drop(link);
    server.join().unwrap();
}

#[test]
fn what_lies_in_the_socket_is_heard_however_late_it_is_read() {
    let (_dir, path, listener) = listening();
    let (written, wrote) = std::sync::mpsc::channel();
    let server = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        // Longer than what is read at a time.
        let text = "x".repeat(20_000);
        let refusal = crate::peer::wire::Refusal::new(crate::peer::wire::RefusalCode::Busy, text);
        let reply = Reply { req_id: ReqId::from_bytes([0; 16]), result: Verdict::Refused(refusal) };
        let frames = [hello(), ServerFrame::Reply(reply), ServerFrame::Leaving];
        stream.write_all(&frames.iter().flat_map(frame).collect::<Vec<_>>()).unwrap();
        written.send(()).unwrap();
        let _ = stream.read_to_end(&mut Vec::new());
    });
    let mut link = Link::open(&path, LONG).unwrap();
    wrote.recv().unwrap();
    // As after a command was stopped, or a laptop slept.
    let until = Instant::now();
    assert!(matches!(link.next(until).unwrap(), Some(ServerFrame::Reply(_))));
    assert_eq!(link.next(until).unwrap(), Some(ServerFrame::Leaving));
    assert_eq!(link.next(until).unwrap(), None);
    drop(link);
    server.join().unwrap();
}

#[test]
fn a_supervisor_that_says_something_else_for_ever_is_given_up() {
    let (_dir, path, listener) = listening();
    let server = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(&frame(&hello())).unwrap();
        // More at a time than the socket holds, so that there is always something to read.
        let bytes = frame(&ServerFrame::Keepalive).repeat(100_000);
        while stream.write_all(&bytes).is_ok() {}
    });
    let (tell, told) = std::sync::mpsc::channel();
    thread::spawn(move || {
        let mut link = Link::open(&path, LONG).unwrap();
        let _ = tell.send(link.ask(&"mars".parse().unwrap(), None, Verb::Fleet {}, "", SHORT));
    });
    let answer = told.recv_timeout(LONG).expect("it hangs");
    assert!(matches!(answer, Err(LinkError::NoAnswer { .. })), "{answer:?}");
    server.join().unwrap();
}
