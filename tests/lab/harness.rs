//! A lab of real nodes for one scenario: booted, installed as an operator would, observed from outside, and removed.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::{Duration, Instant};

use serde_json::Value;

/// What each watcher is granted on what it watches.
pub(crate) const VERBS: &str = "[status, relaunch, hold, nudge, repipe, drill, prove]";

/// How long a state may take to come about, on a machine that has other things to do at the moment. That it comes about is what a
/// scenario asserts; how fast is measured in `tests/bench`.
pub(crate) const SOON: Duration = Duration::from_secs(20);

/// Between two looks: who looks without end takes the processor from what is looked at.
pub(crate) const PACE: Duration = Duration::from_millis(20);

/// A shell's words before `journalctl`, so that all that a node's supervisor has recorded until now is in what is read: a record
/// gathers, is written to disk and goes through two threads, while what was done shows to others at once. The audit is asked
/// for its last record, which has everything before it written and handed on, and that one is waited for. A supervisor that is
/// down is not asked (that would start it), one that is frozen does not answer (which takes three seconds at most).
pub(crate) const TOLD: &str = "if systemctl -q is-active keyholder; then \
    seq=$(timeout 3 keyholder audit -n 1 --json 2>/dev/null | sed -n 's/.*\"seq\":\\([0-9]*\\).*/\\1/p'); tries=20; fi; \
    while journalctl --sync; [ -n \"$seq\" ] && [ $tries -gt 0 ] && [ -z \"$(journalctl -q -o cat KEYHOLDER_SEQ=$seq)\" ]; do \
    tries=$((tries - 1)); sleep 0.1; done; ";

static LABS: AtomicU32 = AtomicU32::new(0);

/// Labs run side by side, except for one that takes all the processors there are.
static MACHINE: RwLock<()> = RwLock::new(());

/// A lab's share of the machine.
enum Share {
    Some(#[expect(dead_code, reason = "held, not read")] RwLockReadGuard<'static, ()>),
    All(#[expect(dead_code, reason = "held, not read")] RwLockWriteGuard<'static, ()>),
}

/// The whole machine for what brings nodes of its own and is measured: no lab runs, and none starts, as long as it is held.
pub(crate) fn alone() -> RwLockWriteGuard<'static, ()> {
    MACHINE.write().unwrap_or_else(PoisonError::into_inner)
}

/// A path of this repository.
pub(crate) fn repo(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// The keyholder that is under test: `KEYHOLDER_BIN` (an optimised one, from `tests/run`), else the one cargo built. Its
/// supervisor lies beside it.
pub(crate) fn binary() -> PathBuf {
    std::env::var_os("KEYHOLDER_BIN").map_or_else(|| env!("CARGO_BIN_EXE_keyholder").into(), PathBuf::from)
}

/// A lab; dropping it removes every trace, after keeping the journals if the scenario failed.
pub(crate) struct Lab {
    dir: PathBuf,
    name: &'static str,
    nodes: Vec<&'static str>,
    _share: Share,
}

impl Lab {
    /// Boots nodes with keyholder's key made and nothing else. `name` is the scenario's, for its journals.
    pub(crate) fn boot(name: &'static str, nodes: &[&'static str]) -> Self {
        let share = MACHINE.read().unwrap_or_else(PoisonError::into_inner);
        Self::boot_on(Share::Some(share), name, nodes)
    }

    /// The same, once no other lab runs, and none starts before it ends.
    pub(crate) fn boot_alone(name: &'static str, nodes: &[&'static str]) -> Self {
        let share = MACHINE.write().unwrap_or_else(PoisonError::into_inner);
        Self::boot_on(Share::All(share), name, nodes)
    }

    fn boot_on(share: Share, name: &'static str, nodes: &[&'static str]) -> Self {
        let base =
            std::env::var("KEYHOLDER_LAB_DIR").unwrap_or_else(|_| "/run/keyholder-lab-test".to_owned());
        let number = LABS.fetch_add(1, Ordering::Relaxed);
        let dir = PathBuf::from(format!("{base}.{}.{number}", std::process::id()));
        let lab = Self { dir, name, nodes: nodes.to_vec(), _share: share };
        lab.lab(&[&["up"], nodes].concat());
        lab
    }

    /// Boots `mars` and `ai-core` with the workers of `mars` as fleet.yaml lines (`agent: { unit: … }`), each unit
    /// already written and running, and both installed through `install.sh`.
    pub(crate) fn pair(name: &'static str, units: &[(&str, &str)], workers: &str) -> Self {
        let lab = Self::boot(name, &["mars", "ai-core"]);
        lab.furnish(units, workers);
        lab
    }

    /// What [`Lab::pair`] does after the boot.
    pub(crate) fn furnish(&self, units: &[(&str, &str)], workers: &str) {
        for (unit, body) in units {
            self.write("mars", &format!("/etc/systemd/system/{unit}"), body);
        }
        self.sh("mars", "systemctl daemon-reload");
        for (unit, _) in units.iter().filter(|(_, body)| !body.contains("# not started")) {
            self.sh("mars", &format!("systemctl start {unit}"));
        }
        self.install();
        let fleet = self.fleet(&[("mars", "ai-core", workers), ("ai-core", "mars", "")]);
        self.deploy(&fleet);
    }

    /// Copies keyholder and its installer into every node and runs it: keys are made, nothing is started yet.
    pub(crate) fn install(&self) {
        for node in &self.nodes {
            self.sh(node, "mkdir -p /root/src");
            for part in ["install.sh", "install", "units"] {
                self.copy(&repo(part), node, "/root/src/");
            }
            self.copy(&binary(), node, "/root/keyholder");
            self.copy(&binary().with_file_name("keyholder-supervisor"), node, "/root/");
            self.sh(node, &format!("/root/src/install.sh --binary /root/keyholder --node {node}"));
        }
    }

    /// A fleet file over (node, its watcher, its workers); each watcher is granted everything on what it watches.
    pub(crate) fn fleet(&self, nodes: &[(&str, &str, &str)]) -> String {
        let mut yaml = String::from("version: 1\nnodes:\n");
        for (node, watcher, workers) in nodes {
            let pin = self.sh(node, "keyholder key show");
            writeln!(yaml, "  {node}:\n    address: {}:7433\n    pins: [\"{}\"]", address(node), pin.trim())
                .unwrap();
            writeln!(yaml, "    watched_by: [{watcher}]").unwrap();
            if !workers.is_empty() {
                writeln!(yaml, "    workers:").unwrap();
            }
            for line in workers.lines().filter(|line| !line.trim().is_empty()) {
                writeln!(yaml, "      {}", line.trim()).unwrap();
            }
        }
        yaml.push_str("grants:\n");
        for (node, watcher, _) in nodes {
            writeln!(yaml, "  - {{ from: {watcher}, on: {node}, workers: [\"*\"], verbs: {VERBS} }}")
                .unwrap();
        }
        yaml
    }

    /// Puts the fleet file on every node, starts the supervisors, and waits until they see each other.
    pub(crate) fn deploy(&self, fleet: &str) {
        self.deploy_with(fleet, "");
    }

    /// As [`Lab::deploy`], with more options for install.sh.
    pub(crate) fn deploy_with(&self, fleet: &str, options: &str) {
        for node in &self.nodes {
            self.write(node, "/root/fleet.yaml", fleet);
            self.sh(node, &format!("rm -f /etc/keyholder/fleet.yaml && /root/src/install.sh --binary /root/keyholder --fleet /root/fleet.yaml {options}"));
            // Nothing is broken on purpose in the middle of a scenario, whatever time it is.
            self.sh(node, "systemctl stop keyholder-drill.timer");
        }
        for node in &self.nodes {
            let all_up = || {
                let nodes = self.status(node);
                let nodes = nodes.as_array()?;
                (!nodes.is_empty() && nodes.iter().all(|seen| seen["state"] == "up")).then_some(())
            };
            wait(&format!("{node} sees its neighbours"), SOON, all_up);
        }
    }

    /// Runs `tests/lab/lab` for this lab; panics with its words if it fails.
    pub(crate) fn lab(&self, args: &[&str]) -> String {
        let output = self.command(args).stdin(Stdio::null()).output().expect("tests/lab/lab runs");
        text(&output, &format!("lab {args:?}"))
    }

    /// `tests/lab/lab` for this lab, to be run as the caller likes.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(repo("tests/lab/lab"));
        command.arg("--dir").arg(&self.dir).args(args);
        command
    }

    /// Runs a shell line in a node and returns its output; panics with what it said if it fails.
    pub(crate) fn sh(&self, node: &str, line: &str) -> String {
        let output = self.try_sh(node, line);
        text(&output, &format!("{node}: {line}"))
    }

    /// Runs a shell line in a node, whatever comes of it.
    pub(crate) fn try_sh(&self, node: &str, line: &str) -> Output {
        self.command(&["exec", node, "sh", "-c", line])
            .stdin(Stdio::null())
            .output()
            .expect("tests/lab/lab runs")
    }

    /// Starts a shell line in a node and leaves it running.
    pub(crate) fn spawn(&self, node: &str, line: &str) -> std::process::Child {
        let mut command = self.command(&["exec", node, "sh", "-c", line]);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("tests/lab/lab runs")
    }

    /// Writes a file in a node.
    pub(crate) fn write(&self, node: &str, path: &str, body: &str) {
        let line = format!("mkdir -p \"$(dirname {path})\" && cat > {path}");
        let mut child = self
            .command(&["exec", node, "sh", "-c", &line])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .expect("tests/lab/lab runs");
        child.stdin.take().expect("a pipe").write_all(body.as_bytes()).expect("the node reads");
        assert!(child.wait().expect("it ends").success(), "{node}: writing {path}");
    }

    fn copy(&self, from: &Path, node: &str, to: &str) {
        self.lab(&["cp", from.to_str().expect("a plain path"), &format!("{node}:{to}")]);
    }

    /// Where a node's root filesystem is on this host.
    pub(crate) fn root(&self, node: &str) -> PathBuf {
        self.lab(&["root", node]).trim().into()
    }

    /// The nodes of `keyholder status --json` as `node` sees the fleet; null while its supervisor does not answer.
    pub(crate) fn status(&self, node: &str) -> Value {
        let output = self.try_sh(node, "keyholder status --json");
        let verdict: Value = serde_json::from_slice(&output.stdout).unwrap_or(Value::Null);
        verdict["outcome"]["fleet"].clone()
    }

    /// The report that `at` has of `node`.
    pub(crate) fn node(&self, at: &str, node: &str) -> Value {
        let nodes = self.status(at);
        nodes
            .as_array()
            .into_iter()
            .flatten()
            .find(|seen| seen["node"] == node)
            .cloned()
            .unwrap_or(Value::Null)
    }

    /// The report that `at` has of a worker of `node`.
    pub(crate) fn worker(&self, at: &str, node: &str, worker: &str) -> Value {
        let node = self.node(at, node);
        node["workers"]
            .as_array()
            .into_iter()
            .flatten()
            .find(|seen| seen["worker"] == worker)
            .cloned()
            .unwrap_or(Value::Null)
    }

    /// A unit's property, as systemd has it.
    pub(crate) fn property(&self, node: &str, unit: &str, property: &str) -> String {
        self.sh(node, &format!("systemctl show -P {property} {unit}")).trim().to_owned()
    }

    /// Waits until a unit runs under another invocation than `before`, and returns it.
    pub(crate) fn new_run(&self, node: &str, unit: &str, before: &str, within: Duration) -> String {
        wait(&format!("{unit} on {node} runs under a new invocation"), within, || {
            let shown = self.sh(node, &format!("systemctl show -P ActiveState -P InvocationID {unit}"));
            let mut lines = shown.lines();
            let (state, run) = (lines.next()?, lines.next()?);
            (state == "active" && run != before).then(|| run.to_owned())
        })
    }

    /// The supervisor's own journal lines of one kind (`KEYHOLDER_EVENT`), oldest first.
    pub(crate) fn evidence(&self, node: &str, event: &str) -> Vec<String> {
        let line = format!("{TOLD}journalctl -o cat --no-pager KEYHOLDER_EVENT={event}");
        self.sh(node, &line).lines().map(str::to_owned).collect()
    }

    /// How often the supervisor of a node has relaunched a worker, by its own evidence.
    pub(crate) fn relaunches(&self, node: &str, worker: &str) -> usize {
        let line = format!(
            "{TOLD}journalctl -o cat --no-pager KEYHOLDER_EVENT=acting KEYHOLDER_SUBJECT={node}/{worker}"
        );
        self.sh(node, &line).lines().filter(|line| line.starts_with("relaunching")).count()
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let kept = std::env::var_os("KEYHOLDER_LAB_JOURNALS")
                .map_or_else(|| repo("target/lab-journals"), PathBuf::from)
                .join(self.name);
            for node in &self.nodes {
                let to = kept.join(node);
                let _ = std::fs::create_dir_all(&to);
                let _ = self.command(&["journal", node, &to.to_string_lossy()]).output();
            }
            println!("the journals of {} are in {}", self.name, kept.display());
        }
        let _ = self.command(&["down"]).output();
    }
}

/// The address that the lab gives to a node.
pub(crate) fn address(node: &str) -> &'static str {
    match node {
        "mars" => "192.0.2.10",
        "venus" => "192.0.2.20",
        "luna" => "192.0.2.30",
        "ai-core" => "192.0.2.40",
        other => panic!("the lab has no fixed address for {other}"),
    }
}

fn text(output: &Output, what: &str) -> String {
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{what}: {}\n{out}\n{err}", output.status);
    out.into_owned()
}

/// Waits for a state, never for an edge: asks again until there is an answer, and panics after `within`.
pub(crate) fn wait<T>(what: &str, within: Duration, mut ask: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(start.elapsed() < within, "waited {within:?} in vain until: {what}");
        std::thread::sleep(pace(start.elapsed()));
    }
}

/// The pause before it is looked again after so long: each look starts processes, which take the processors from the nodes. It
/// makes no wait longer by more than a tenth.
pub(crate) fn pace(waited: Duration) -> Duration {
    (waited / 10).clamp(PACE, 10 * PACE)
}

/// A unit that runs until it is killed, with whatever else is said in its section.
pub(crate) fn service(more: &str) -> String {
    format!("[Service]\nExecStart=/bin/sleep infinity\n{more}\n")
}
