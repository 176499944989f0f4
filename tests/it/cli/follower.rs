//! A command that prints lines for as long as it is let.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;

use super::fake::{Fake, LONG};

/// It is killed when the test ends, however it ends.
pub(super) struct Follower {
    child: Child,
    lines: Receiver<String>,
}

impl Follower {
    /// `keyholder ARGS` with this supervisor.
    pub(super) fn new(fake: &Fake, args: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_keyholder"))
            .args(args)
            .arg("--socket")
            .arg(fake.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let (to, lines) = mpsc::channel();
        let out = BufReader::new(child.stdout.take().unwrap());
        thread::spawn(move || out.lines().map_while(Result::ok).try_for_each(|line| to.send(line)));
        Self { child, lines }
    }

    pub(super) fn line(&self) -> String {
        self.lines.recv_timeout(LONG).unwrap()
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
