//! A lane as a process, with a catalog, a state directory and a server.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use keyholder::lane::TaskResult;
use keyholder::queue::{Keys, QueueName};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

use crate::redis_server::Redis;

pub(super) const DEADLINE: Duration = Duration::from_secs(30);

/// Polls until something is so.
pub(super) fn until<T>(what: &str, look: impl FnMut() -> Option<T>) -> T {
    within(DEADLINE, what, look)
}

/// The same for what may take its own time.
pub(super) fn within<T>(deadline: Duration, what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + deadline;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < end, "not within {deadline:?}: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Files of one node: a catalog and programs that leave traces in `log`.
pub(super) struct Rig {
    pub(super) dir: TempDir,
}

impl Rig {
    /// With these actions in YAML; `DIR` in them is the rig's directory.
    pub(super) fn new(actions: &str) -> Self {
        let dir = TempDir::new().unwrap();
        let at = dir.path().to_str().unwrap();
        let catalog = format!("version: 1\nnode: mars\nactions:\n{actions}").replace("DIR", at);
        fs::write(dir.path().join("catalog_mars.yaml"), catalog).unwrap();
        for mode in ["write", "read"] {
            old_ledger(&dir.path().join(format!("state-{mode}")));
        }
        Self { dir }
    }

    /// A program of the node; `DIR` in it is the rig's directory.
    pub(super) fn program(&self, name: &str, script: &str) {
        let path = self.dir.path().join(name);
        let text = format!("#!/bin/sh\n{script}\n").replace("DIR", self.dir.path().to_str().unwrap());
        crate::executable::write(&path, &text);
    }

    pub(super) fn log(&self) -> Vec<String> {
        let text = fs::read_to_string(self.dir.path().join("log")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A lane whose words nobody reads, and what it says them into.
    pub(super) fn unheard_lane(&self, mode: &str, redis: &Redis) -> Child {
        let mut command = self.command(mode, &redis.url(""), &[], &[]);
        command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
    }

    pub(super) fn lane(&self, mode: &str, redis: &Redis) -> Lane {
        self.lane_with(mode, redis, &[], &[])
    }

    pub(super) fn lane_with(&self, mode: &str, redis: &Redis, args: &[&str], env: &[(&str, &str)]) -> Lane {
        self.lane_at(mode, &redis.url(""), args, env)
    }

    pub(super) fn lane_at(&self, mode: &str, url: &str, args: &[&str], env: &[(&str, &str)]) -> Lane {
        Lane::spawn(self.command(mode, url, args, env))
    }

    /// A write lane with a state directory of its own among `args`.
    pub(super) fn stepped_lane(&self, url: &str, args: &[&str]) -> Lane {
        let mut command = Command::new(env!("CARGO_BIN_EXE_keyholder"));
        command
            .args(["lane", "--mode", "write", "--node", "mars", "--catalog"])
            .arg(self.path("catalog_mars.yaml"))
            .args(args)
            .env_remove("NOTIFY_SOCKET")
            .env("KEYHOLDER_REDIS", url);
        Lane::spawn(command)
    }

    fn command(&self, mode: &str, url: &str, args: &[&str], env: &[(&str, &str)]) -> Command {
        let (first, prefix): (&str, &[&str]) = match mode {
            "read" => ("setpriv", &["--no-new-privs", "--", env!("CARGO_BIN_EXE_keyholder")]),
            _ => (env!("CARGO_BIN_EXE_keyholder"), &[]),
        };
        let mut command = Command::new(first);
        command
            .args(prefix)
            .args(["lane", "--mode", mode, "--node", "mars", "--catalog"])
            .arg(self.path("catalog_mars.yaml"))
            .arg("--state-dir")
            .arg(self.path(&format!("state-{mode}")))
            .args(args)
            .env_remove("NOTIFY_SOCKET")
            .env("KEYHOLDER_REDIS", url)
            .envs(env.iter().copied());
        if mode == "write" && !args.contains(&"--signer") {
            command.arg("--insecure-unsigned-write");
        }
        command
    }

    /// A lane to which the environment says everything, as it was before there were options. `before` runs it.
    pub(super) fn bare_lane(&self, redis: &Redis, before: &[&str], env: &[(&str, &str)]) -> Lane {
        self.bare_lane_with(redis, before, &[], env)
    }

    pub(super) fn bare_lane_with(
        &self,
        redis: &Redis,
        before: &[&str],
        args: &[&str],
        env: &[(&str, &str)],
    ) -> Lane {
        let mut words = before.iter().copied().chain([env!("CARGO_BIN_EXE_keyholder"), "lane"]);
        let mut command = Command::new(words.next().unwrap());
        command
            .args(words)
            .args(args)
            .arg("--insecure-unsigned-write")
            .arg("--catalog")
            .arg(self.path("catalog_mars.yaml"))
            .env_remove("NOTIFY_SOCKET")
            .env("STATE_DIRECTORY", self.path("state"))
            .env("KEYHOLDER_REDIS", redis.url(""))
            .envs(env.iter().copied());
        Lane::spawn(command)
    }
}

/// A ledger as an older version made it, so that tasks may be given before the lane's first start.
pub(super) fn old_ledger(dir: &Path) {
    fs::create_dir(dir).unwrap();
    let ledger = rusqlite::Connection::open(dir.join("ledger.db")).unwrap();
    ledger
        .execute_batch(
            "CREATE TABLE lane (id TEXT NOT NULL, forgotten_ms INTEGER NOT NULL) STRICT;
             CREATE TABLE task (
                 seq INTEGER PRIMARY KEY AUTOINCREMENT, hash TEXT NOT NULL UNIQUE, id TEXT NOT NULL,
                 action TEXT NOT NULL, issued_ms INTEGER NOT NULL, begun_ms INTEGER, again INTEGER NOT NULL,
                 attempts INTEGER NOT NULL, result TEXT, published INTEGER NOT NULL
             ) STRICT;
             CREATE INDEX task_id ON task (id);
             CREATE INDEX task_rate ON task (action, begun_ms);
             CREATE INDEX task_open ON task (seq) WHERE NOT published;
             INSERT INTO lane VALUES (lower(hex(randomblob(16))), -9223372036854775808);
             PRAGMA user_version = 1;",
        )
        .unwrap();
}

/// A running lane.
pub(super) struct Lane {
    child: Child,
    said: Arc<Mutex<Vec<(Instant, String)>>>,
}

impl Lane {
    fn spawn(mut command: Command) -> Self {
        let mut child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let said = Arc::<Mutex<Vec<(Instant, String)>>>::default();
        let (lines, into) = (BufReader::new(child.stderr.take().unwrap()).lines(), said.clone());
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                into.lock().unwrap().push((Instant::now(), line));
            }
        });
        Self { child, said }
    }

    pub(super) fn said(&self) -> Vec<String> {
        self.said.lock().unwrap().iter().map(|(_, line)| line.clone()).collect()
    }

    /// The most that it has said about itself within a minute.
    pub(super) fn loudest_minute(&self) -> usize {
        let said = self.said.lock().unwrap();
        let of_tasks = |line: &str| {
            ["executed ", "refused ", "not executed "].iter().any(|begin| line.starts_with(begin))
        };
        let at: Vec<_> = said.iter().filter(|(_, line)| !of_tasks(line)).map(|(at, _)| *at).collect();
        let from =
            |n: usize| at[n..].iter().take_while(|later| **later - at[n] < Duration::from_secs(60)).count();
        (0..at.len()).map(from).max().unwrap_or_default()
    }

    pub(super) fn wait_for(&self, words: &str) -> String {
        until(&format!("the lane says {words:?}: {:?}", self.said()), || {
            self.said().into_iter().find(|line| line.contains(words))
        })
    }

    pub(super) fn pid(&self) -> i32 {
        self.child.id().try_into().unwrap()
    }

    pub(super) fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.pid()), signal).unwrap();
    }

    /// SIGKILL: it can do nothing about it.
    pub(super) fn die(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// SIGTERM, and its exit code.
    pub(super) fn leave(mut self) -> Option<i32> {
        self.signal(Signal::SIGTERM);
        self.end()
    }

    pub(super) fn end(&mut self) -> Option<i32> {
        until("the lane ends", || self.child.try_wait().unwrap()).code()
    }

    /// Kilobytes of resident memory.
    pub(super) fn resident(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }

    /// Processor time so far, in clock ticks (10 ms each).
    pub(super) fn ticks(&self) -> u64 {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap();
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
        fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The producers' and collectors' side of one queue.
pub(super) struct Client {
    pub(super) conn: redis::Connection,
    pub(super) keys: Keys,
}

impl Client {
    pub(super) fn new(redis: &Redis, mode: &str) -> Self {
        Self::over(redis.conn(), mode)
    }

    pub(super) fn over(conn: redis::Connection, mode: &str) -> Self {
        let node = "mars".parse().unwrap();
        let queue = if mode == "read" { QueueName::read(&node) } else { QueueName::write(&node) };
        Self { conn, keys: Keys::of(&queue) }
    }

    pub(super) fn push(&mut self, raw: &[u8]) {
        redis::cmd("LPUSH").arg(&self.keys.queue).arg(raw).exec(&mut self.conn).unwrap();
    }

    pub(super) fn task(&mut self, id: &str, action: &str, params: &str) {
        self.push(task(id, action, params).as_bytes());
    }

    pub(super) fn length(&mut self, key: &str) -> u64 {
        redis::cmd("LLEN").arg(key).query(&mut self.conn).unwrap()
    }

    pub(super) fn results(&mut self) -> Vec<TaskResult> {
        let mut all: Vec<String> =
            redis::cmd("LRANGE").arg(&self.keys.results).arg(0).arg(-1).query(&mut self.conn).unwrap();
        all.reverse();
        all.iter().map(|one| serde_json::from_str(one).unwrap()).collect()
    }

    pub(super) fn dead(&mut self) -> Vec<serde_json::Value> {
        let all: Vec<String> =
            redis::cmd("LRANGE").arg(&self.keys.dead).arg(0).arg(-1).query(&mut self.conn).unwrap();
        all.iter().map(|one| serde_json::from_str(one).unwrap()).collect()
    }

    pub(super) fn result(&mut self, id: &str) -> TaskResult {
        let key = self.keys.result(id);
        until(&format!("a result of {id}"), || {
            let result: Option<String> = redis::cmd("GET").arg(&key).query(&mut self.conn).unwrap();
            result.map(|json| serde_json::from_str(&json).unwrap())
        })
    }
}

pub(super) fn task(id: &str, action: &str, params: &str) -> String {
    let now = jiff::Timestamp::now();
    format!(r#"{{"id":"{id}","action":"{action}","params":{params},"by":"test","issued_at":"{now:.3}"}}"#)
}

/// Numbers that are the same in every run with the same seed.
pub(super) struct Dice(u64);

impl Dice {
    /// From the environment if it says so.
    pub(super) fn new() -> Self {
        let seed =
            std::env::var("KEYHOLDER_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(20_261_129);
        println!("KEYHOLDER_SEED={seed}");
        Self(seed)
    }

    pub(super) fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}
