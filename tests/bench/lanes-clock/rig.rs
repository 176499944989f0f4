//! Processes of ours: lanes and the floor. Each ends with this one, however it ends.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::Plan;
use crate::client::Client;
use crate::redis_server::Redis;

const DEADLINE: Duration = Duration::from_secs(20);
const CATALOG: &str = r#"version: 1
node: bench
actions:
  read.true: { mode: read, description: nothing, argv: [/bin/true], timeout: 10s }
  write.again: { mode: write, description: nothing, argv: [/bin/true], timeout: 10s, idempotent: true }
  write.once: { mode: write, description: nothing, argv: [/bin/true], timeout: 10s }
  write.long: { mode: write, description: time, argv: [/bin/sleep, "2"], timeout: 10s, idempotent: true }
"#;

/// Polls until something is so.
pub(crate) fn until(what: &str, mut look: impl FnMut() -> bool) {
    let end = Instant::now() + DEADLINE;
    while !look() {
        assert!(Instant::now() < end, "not within {DEADLINE:?}: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A process that is killed when it is no longer needed.
pub(crate) struct Process(Child);

impl Process {
    pub(crate) fn spawn(command: &mut Command) -> Self {
        Self(command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}")))
    }

    pub(crate) fn child(&mut self) -> &mut Child {
        &mut self.0
    }

    /// A number of kilobytes from `/proc`, of this process alone.
    pub(crate) fn own_kilobytes(&self, field: &str) -> u64 {
        kilobytes(&self.0.id().to_string(), field)
    }

    /// The same, of this process and its children.
    pub(crate) fn kilobytes(&self, field: &str) -> u64 {
        let own = self.0.id().to_string();
        let children = fs::read_to_string(format!("/proc/{own}/task/{own}/children")).unwrap_or_default();
        children.split_whitespace().chain([own.as_str()]).map(|pid| kilobytes(pid, field)).sum()
    }
}

fn kilobytes(pid: &str, field: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    line.map_or(0, |line| line.trim().trim_end_matches(" kB").parse().unwrap())
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A command that dies with us. It keeps its process number: `setpriv` becomes it.
pub(crate) fn with_us(program: &Path, rights: &[&str]) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL"]).args(rights).arg("--").arg(program);
    command
}

/// The files of one node and its Redis, kept as in production.
pub(crate) struct Rig {
    pub(crate) dir: TempDir,
    redis: Redis,
    keyholder: PathBuf,
}

impl Rig {
    pub(crate) fn new(plan: &Plan) -> Self {
        let dir = TempDir::new().unwrap();
        fs::write(dir.path().join("catalog_bench.yaml"), CATALOG).unwrap();
        let redis = Redis::start(&["--appendonly", "yes", "--appendfsync", "everysec"]);
        Self { dir, redis, keyholder: plan.keyholder.clone() }
    }

    pub(crate) fn url(&self) -> String {
        self.redis.url("")
    }

    /// A file for what a process says.
    pub(crate) fn log(&self, name: &str) -> File {
        File::create(self.dir.path().join(format!("{name}.log"))).unwrap()
    }

    /// A lane with a queue and a ledger of its own, once it serves.
    pub(crate) fn lane(&self, name: &str, mode: &str, args: &[&str]) -> (Process, Client) {
        let queue = format!("bench:{name}");
        let mut client = Client::new(&self.url(), &queue);
        let rights: &[&str] = if mode == "read" { &["--no-new-privs"] } else { &[] };
        let lane = Process::spawn(
            with_us(&self.keyholder, rights)
                .args(["lane", "--node", "bench", "--insecure-unsigned-write", "--mode", mode, "--catalog"])
                .arg(self.dir.path().join("catalog_bench.yaml"))
                .arg("--state-dir")
                .arg(self.dir.path().join(name))
                .args(args)
                .env("KEYHOLDER_REDIS", self.url())
                .env("MAINT_QUEUE", queue)
                .env_remove("MAINT_MODE_ONLY")
                .env_remove("NOTIFY_SOCKET")
                .stdin(Stdio::null())
                .stderr(self.log(name)),
        );
        until(&format!("the lane {name} serves"), || client.is_served());
        (lane, client)
    }

    /// The floor.
    pub(crate) fn floor(&self) -> (Process, Client) {
        let client = Client::new(&self.url(), "bench:floor");
        let floor = Process::spawn(
            with_us(&std::env::current_exe().unwrap(), &[])
                .args(["floor", &self.redis.port().to_string(), &client.keys.queue, &client.keys.results])
                .stdin(Stdio::null()),
        );
        (floor, client)
    }
}
