//! `status --watch` on a real terminal: it is taken over, drawn on, and given back however this ends.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Instant;

use keyholder::peer::wire::{Class, ClientFrame, NodeState, Outcome, Reply, ServerFrame, Verb, Verdict};
use nix::sys::signal::{Signal, kill};
use nix::sys::termios::{LocalFlags, Termios, tcgetattr};
use nix::unistd::Pid;

use super::fake::{Fake, LONG, greet, node, receive, send, worker};
use super::terminal::terminal;

const TAKEN: &str = "\u{1b}[?1049h";
const GIVEN_BACK: &str = "\u{1b}[?1049l";

/// Agrees to everything that a screen asks, and shows one worker until the client goes.
fn serve(stream: UnixStream) {
    show(stream, true);
}

fn show(mut stream: UnixStream, stays: bool) {
    if greet(&mut stream).is_none() {
        return;
    }
    while let Some(ClientFrame::Request(request)) = receive(&mut stream) {
        let watch = request.verb == Verb::Watch {};
        let outcome = match request.verb {
            Verb::Audit { .. } => Outcome::Audit(Vec::new()),
            Verb::Events {} | Verb::Watch {} => Outcome::Watching,
            other => panic!("{other:?}"),
        };
        let result = Verdict::Outcome(outcome);
        send(&mut stream, &ServerFrame::Reply(Reply { req_id: request.req_id, result }));
        if watch {
            let dead = vec![worker("mars", "gardener", Class::Dead)];
            send(&mut stream, &ServerFrame::Snapshot(node("mars", NodeState::Up, dead)));
            if !stays {
                return;
            }
        }
    }
}

/// A screen on a terminal of its own; it is killed when the test ends, however it ends.
struct Screen {
    child: Child,
    terminal: OwnedFd,
    keys: File,
    pieces: Receiver<String>,
    seen: String,
    before: Termios,
}

impl Screen {
    fn open(fake: &Fake, with: &[(&str, &str)]) -> Self {
        let pty = terminal();
        let before = tcgetattr(&pty.slave).unwrap();
        let end = || Stdio::from(pty.slave.try_clone().unwrap());
        let child = Command::new(env!("CARGO_BIN_EXE_keyholder"))
            .args(["status", "--watch", "--socket"])
            .arg(fake.path())
            .env_clear()
            .env("TERM", "xterm-256color")
            .envs(with.iter().copied())
            .stdin(end())
            .stdout(end())
            .stderr(end())
            .spawn()
            .unwrap();
        let mut out = File::from(pty.master.try_clone().unwrap());
        let (to, pieces) = mpsc::channel();
        thread::spawn(move || {
            let mut piece = [0; 4096];
            while let Ok(length @ 1..) = out.read(&mut piece) {
                if to.send(String::from_utf8_lossy(&piece[..length]).into_owned()).is_err() {
                    return;
                }
            }
        });
        let keys = File::from(pty.master);
        Self { child, terminal: pty.slave, keys, pieces, seen: String::new(), before }
    }

    /// Waits until all of this has been written, in any order.
    fn shows(&mut self, what: &[&str]) {
        let until = Instant::now() + LONG;
        while !what.iter().all(|word| self.seen.contains(word)) {
            let left = until.saturating_duration_since(Instant::now());
            match self.pieces.recv_timeout(left) {
                Ok(piece) => self.seen.push_str(&piece),
                Err(_) => panic!("not {what:?} in {:?}", self.seen),
            }
        }
    }

    /// Waits for its end; its exit code, with the terminal as it was before.
    fn ends(mut self) -> Option<i32> {
        self.shows(&[GIVEN_BACK]);
        let until = Instant::now() + LONG;
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(Instant::now() < until, "it does not end");
            thread::yield_now();
        };
        let after = tcgetattr(&self.terminal).unwrap();
        assert_eq!(after.local_flags, self.before.local_flags);
        assert_eq!(
            (after.input_flags, after.output_flags),
            (self.before.input_flags, self.before.output_flags)
        );
        status.code()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_key_ends_it_and_the_terminal_is_as_before() {
    let fake = Fake::serving(serve);
    let mut screen = Screen::open(&fake, &[]);
    screen.shows(&[TAKEN, "gardener", "dead", "relaunch"]);
    let taken = tcgetattr(&screen.terminal).unwrap();
    assert!(!taken.local_flags.contains(LocalFlags::ECHO), "keys are not echoed while it is there");
    assert!(screen.seen.contains("\u{1b}[38;5;"), "in colour");
    screen.keys.write_all(b"?").unwrap();
    screen.shows(&["Ctrl-C"]);
    screen.keys.write_all(b"qq").unwrap();
    assert_eq!(screen.ends(), Some(0));
}

#[test]
fn ctrl_c_ends_it_too() {
    let fake = Fake::serving(serve);
    let mut screen = Screen::open(&fake, &[]);
    screen.shows(&[TAKEN, "gardener"]);
    screen.keys.write_all(b"\x03").unwrap();
    assert_eq!(screen.ends(), Some(0));
}

#[test]
fn a_signal_gives_the_terminal_back_and_no_colour_means_none() {
    let fake = Fake::serving(serve);
    for (signal, code) in [(Signal::SIGTERM, 143), (Signal::SIGINT, 130), (Signal::SIGHUP, 129)] {
        let mut screen = Screen::open(&fake, &[("NO_COLOR", "1")]);
        screen.shows(&[TAKEN, "gardener"]);
        assert!(!screen.seen.contains("[38;5;"), "{:?}", screen.seen);
        kill(Pid::from_raw(i32::try_from(screen.child.id()).unwrap()), signal).unwrap();
        assert_eq!(screen.ends(), Some(code));
    }
}

#[test]
fn another_size_is_another_picture() {
    let fake = Fake::serving(serve);
    let mut screen = Screen::open(&fake, &[]);
    screen.shows(&[TAKEN, "gardener", "\u{1b}[24;"]);
    assert!(!screen.seen.contains("\u{1b}[40;"), "{:?}", screen.seen);
    let resized = Command::new("stty")
        .args(["rows", "40", "cols", "120"])
        .stdin(Stdio::from(screen.terminal.try_clone().unwrap()))
        .status()
        .unwrap();
    assert!(resized.success());
    screen.shows(&["\u{1b}[40;"]);
    screen.keys.write_all(b"q").unwrap();
    assert_eq!(screen.ends(), Some(0));
}

#[test]
fn a_supervisor_that_goes_away_is_said_and_followed_again() {
    let mut run = 0;
    let fake = Fake::serving(move |stream| {
        run += 1;
        show(stream, run > 1);
    });
    let mut screen = Screen::open(&fake, &[]);
    screen.shows(&["SUPERVISOR", "asking", "answers"]);
    screen.keys.write_all(b"q").unwrap();
    assert_eq!(screen.ends(), Some(0));
}

#[test]
fn what_cannot_be_drawn_on_gets_lines() {
    let fake = Fake::serving(serve);
    for terminal in ["dumb", ""] {
        let mut screen = Screen::open(&fake, &[("TERM", terminal)]);
        screen.shows(&["gardener"]);
        assert!(!screen.seen.contains(TAKEN), "{:?}", screen.seen);
    }
}
