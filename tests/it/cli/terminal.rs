//! What is printed on a terminal of 80 columns, and nowhere else.

use std::fs::File;
use std::io::Read;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;

use keyholder::peer::wire::{AuditLine, Outcome};
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::pty::{OpenptyResult, Winsize, openpty};

use super::fake::{Fake, LONG, told};

/// A terminal of 80 columns whose ends no other test's child takes along: it would never seem closed.
pub(super) fn terminal() -> OpenptyResult {
    let size = Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
    let pty = openpty(&size, None).unwrap();
    for end in [&pty.master, &pty.slave] {
        fcntl(end, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC)).unwrap();
    }
    pty
}

/// What a command writes to a terminal, without carriage returns, and how it ended.
pub(super) fn on_a_terminal(fake: &Fake, args: &[&str]) -> (Option<i32>, String) {
    let pty = terminal();
    let end = || Stdio::from(pty.slave.try_clone().unwrap());
    let mut child = Command::new(env!("CARGO_BIN_EXE_keyholder"))
        .args(args)
        .arg("--socket")
        .arg(fake.path())
        .env_clear()
        .env("TERM", "dumb")
        .stdin(end())
        .stdout(end())
        .stderr(end())
        .spawn()
        .unwrap();
    drop(pty.slave);
    let (to, pieces) = mpsc::channel();
    let mut out = File::from(pty.master);
    thread::spawn(move || {
        let mut piece = [0; 4096];
        // A terminal whose other end is closed is an error, and the end.
        while let Ok(length @ 1..) = out.read(&mut piece) {
            if to.send(piece[..length].to_vec()).is_err() {
                return;
            }
        }
    });
    let mut seen = Vec::new();
    loop {
        match pieces.recv_timeout(LONG) {
            Ok(piece) => seen.extend(piece),
            Err(mpsc::RecvTimeoutError::Disconnected) => break,
            Err(mpsc::RecvTimeoutError::Timeout) => {
                child.kill().unwrap();
                panic!("it does not end: {:?}", String::from_utf8_lossy(&seen));
            }
        }
    }
    (child.wait().unwrap().code(), String::from_utf8(seen).unwrap().replace('\r', ""))
}

fn trail() -> Outcome {
    let line = |seq, text: &str| AuditLine {
        seq,
        at: format!("2026-11-29T03:00:0{seq}.000Z"),
        event: "alert".to_owned(),
        by: "local".to_owned(),
        subject: "mars/write".to_owned(),
        text: text.to_owned(),
        priority: 3,
    };
    Outcome::Audit(vec![
        line(
            1,
            "keyholder-lane-write.service was stopped and no hold was declared: it is brought back in 2m 00s. \
             To prevent that: keyholder hold mars/write --for 30m --why \"...\"",
        ),
        line(2, "keyholder-lane-write.service is dead\u{1b}[2J and left to its watchers"),
    ])
}

#[test]
fn events_and_the_audit_hang_on_a_terminal_and_are_a_line_each_in_a_pipe() {
    let fake = Fake::outcome(trail());
    let events = on_a_terminal(&fake, &["events", "--no-follow"]);
    insta::assert_snapshot!(events.1);
    assert_eq!(events, on_a_terminal(&fake, &["audit"]));
    for line in events.1.lines() {
        assert!(line.chars().count() <= 80, "{line}");
    }
    for command in [&["events", "--no-follow"][..], &["audit"]] {
        let said = told(&mut fake.keyholder(command));
        assert!(
            said.contains("2m 00s. To prevent that: keyholder hold mars/write --for 30m --why \"...\"\n"),
            "{said}"
        );
        assert!(said.contains("2026-11-29T03:00:02.000Z  alert") && said.contains("\\x1b[2J"), "{said}");
    }
}
