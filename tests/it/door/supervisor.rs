//! The real supervisor as a process of its own, with its door and its audit, beside peers that this process plays.

use std::fs::{self, File};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::process::{Child, Command};

use keyholder::cli::link::Link;
use keyholder::peer::wire::{AuditLine, NodeReport, Outcome, Verb, Verdict};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::house::{Key, PATIENCE, name};

/// `ai-core` at 127.0.0.2, which watches `mars`.
pub(super) struct Supervisor {
    child: Child,
    dir: tempfile::TempDir,
    pub(super) address: SocketAddr,
    pub(super) key: Key,
}

impl Supervisor {
    /// Starts it. `fleet` makes the fleet file from its own entry; it is handed its sockets as systemd does it, by a shell.
    pub(super) fn start(fleet: impl FnOnce(SocketAddr, &Key) -> String) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let key = Key::new();
        let home = dir.path();
        fs::create_dir(home.join("keys")).unwrap();
        key.write(&home.join("keys/key.pem"));
        let tcp = TcpListener::bind("127.0.0.2:0").unwrap();
        let address = tcp.local_addr().unwrap();
        let unix = UnixListener::bind(home.join("sock")).unwrap();
        fs::write(home.join("fleet.yaml"), fleet(address, &key)).unwrap();
        let script = "exec 3<&0 4>&1 </dev/null >/dev/null; LISTEN_PID=$$ LISTEN_FDS=2 exec \"$@\"";
        let child = Command::new("sh")
            .args(["-c", script, "sh", env!("CARGO_BIN_EXE_keyholder-supervisor"), "--node", "ai-core"])
            .arg("--fleet")
            .arg(home.join("fleet.yaml"))
            .arg("--key-dir")
            .arg(home.join("keys"))
            .arg("--state-dir")
            .arg(home.join("state"))
            .stdin(OwnedFd::from(tcp))
            .stdout(OwnedFd::from(unix))
            .stderr(File::create(home.join("stderr")).unwrap())
            .spawn()
            .unwrap();
        Self { child, dir, address, key }
    }

    pub(super) fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id().try_into().unwrap()), signal).unwrap();
    }

    pub(super) fn socket(&self) -> PathBuf {
        self.dir.path().join("sock")
    }

    /// What it keeps in memory of its own, in bytes.
    pub(super) fn memory(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).expect("it lives");
        let kilobytes: u64 = line.trim().trim_end_matches(" kB").trim().parse().unwrap();
        kilobytes * 1024
    }

    fn ask(&self, verb: Verb) -> Outcome {
        let mut link = Link::open(&self.socket(), PATIENCE).unwrap();
        match link.ask(&name("ai-core"), None, verb, "", PATIENCE).unwrap() {
            Verdict::Outcome(outcome) => outcome,
            Verdict::Refused(refusal) => panic!("{refusal}"),
        }
    }

    /// The newest lines of its audit.
    pub(super) fn audit(&self) -> Vec<AuditLine> {
        let Outcome::Audit(lines) = self.ask(Verb::Audit { last: 1000 }) else { panic!("no audit") };
        lines
    }

    /// What it says of a node.
    pub(super) fn sees(&self, node: &str) -> NodeReport {
        let Outcome::Fleet(nodes) = self.ask(Verb::Fleet {}) else { panic!("no fleet") };
        nodes.into_iter().find(|report| report.node == name(node)).expect("a node of the fleet")
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("{}", fs::read_to_string(self.dir.path().join("stderr")).unwrap_or_default());
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
