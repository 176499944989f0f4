//! What the scenarios look at besides the harness: a status stream that stays open, systemd's own clock, and records
//! with the times that journald gave them.

use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader};
use std::process::Child;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use nix::time::{ClockId, clock_gettime};
use serde_json::Value;

use crate::harness::{Lab, PACE, SOON, TOLD, VERBS, wait};

pub(crate) const SECOND: Duration = Duration::from_secs(1);

/// Which units a scenario needs on `mars`, each with its file, and whether it runs before keyholder is installed.
pub(crate) type Units<'a> = &'a [(&'a str, String)];

/// Boots nodes of which the first is `mars` with these units and these workers, watched by all the others. Every unit
/// runs, except those whose file says "# not started"; with "# masked" it is masked, with `WantedBy=` enabled.
pub(crate) fn house(name: &'static str, nodes: &[&'static str], units: Units, workers: &str) -> Lab {
    let lab = Lab::boot(name, nodes);
    let mut script = String::from("set -e\n");
    for (unit, body) in units {
        let _ = write!(script, "cat >/usr/lib/systemd/system/{unit} <<'END'\n{body}\nEND\n");
    }
    let run: Vec<&str> =
        units.iter().filter(|(_, body)| !body.contains("# not started")).map(|(unit, _)| *unit).collect();
    script.push_str("systemctl daemon-reload\n");
    for (verb, mark) in [("enable", "WantedBy="), ("mask", "# masked")] {
        for (unit, _) in units.iter().filter(|(_, body)| body.contains(mark)) {
            let _ = writeln!(script, "systemctl --quiet {verb} {unit}");
        }
    }
    if !run.is_empty() {
        let _ = writeln!(script, "systemctl start {}", run.join(" "));
    }
    lab.sh("mars", &script);
    lab.install();
    let watchers = &nodes[1..];
    let mut all = vec![("mars", watchers[0], workers)];
    all.extend(watchers.iter().map(|watcher| (*watcher, "mars", "")));
    let mut fleet = lab.fleet(&all);
    for watcher in &watchers[1..] {
        fleet = fleet.replacen(
            &format!("watched_by: [{}", watchers[0]),
            &format!("watched_by: [{watcher}, {}", watchers[0]),
            1,
        );
        let _ = writeln!(fleet, "  - {{ from: {watcher}, on: mars, workers: [\"*\"], verbs: {VERBS} }}");
    }
    lab.deploy(&fleet);
    lab
}

/// CLOCK_MONOTONIC in microseconds: the nodes share this host's, and systemd's timestamps are of it.
pub(crate) fn monotonic_us() -> u64 {
    let now = Duration::from(clock_gettime(ClockId::CLOCK_MONOTONIC).expect("a clock"));
    u64::try_from(now.as_micros()).expect("a time")
}

/// When a unit last changed sides, by systemd's clock, in microseconds.
#[derive(Debug)]
pub(crate) struct Times {
    pub(crate) left_active: u64,
    pub(crate) entered_active: u64,
    pub(crate) entered_inactive: u64,
}

impl Times {
    /// How long the unit was not active before its present run.
    pub(crate) fn gap(&self) -> Duration {
        Duration::from_micros(self.entered_active.checked_sub(self.left_active).expect("it is up again"))
    }
}

/// One record of a supervisor in its node's journal.
#[derive(Debug)]
pub(crate) struct Line {
    /// When journald got it, in microseconds of CLOCK_MONOTONIC.
    pub(crate) at: u64,
    pub(crate) text: String,
}

impl Lab {
    pub(crate) fn times(&self, node: &str, unit: &str) -> Times {
        let shown = self.sh(
            node,
            &format!(
                "systemctl show {unit} -p ActiveExitTimestampMonotonic -p ActiveEnterTimestampMonotonic -p InactiveEnterTimestampMonotonic"
            ),
        );
        let time = |name: &str| {
            let value = shown.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
            value.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("{name} of {unit}: {shown}"))
        };
        Times {
            left_active: time("ActiveExitTimestampMonotonic"),
            entered_active: time("ActiveEnterTimestampMonotonic"),
            entered_inactive: time("InactiveEnterTimestampMonotonic"),
        }
    }

    /// The present run of a unit of `mars`.
    pub(crate) fn run_of(&self, unit: &str) -> String {
        self.property("mars", unit, "InvocationID")
    }

    /// The supervisor's records of one kind about one worker or node, oldest first. `more` narrows `journalctl`.
    pub(crate) fn records(&self, node: &str, event: &str, subject: &str, more: &str) -> Vec<Line> {
        let line = format!(
            "{TOLD}journalctl -o json --no-pager {more} KEYHOLDER_EVENT={event} KEYHOLDER_SUBJECT={subject}"
        );
        let parse = |line: &str| {
            let entry: Value = serde_json::from_str(line).expect("journalctl writes JSON");
            Line {
                at: entry["__MONOTONIC_TIMESTAMP"].as_str().and_then(|at| at.parse().ok()).expect("a time"),
                text: entry["MESSAGE"].as_str().expect("a text").to_owned(),
            }
        };
        self.sh(node, &line).lines().map(parse).collect()
    }

    /// The same from the audit, which has when each was recorded (since 1970, in whole milliseconds) instead of when it arrived.
    pub(crate) fn recorded(&self, node: &str, event: &str, subject: &str) -> Vec<(Duration, String)> {
        let verdict: Value =
            serde_json::from_str(&self.sh(node, "keyholder audit -n 1000 --json")).expect("a verdict");
        let lines = verdict["outcome"]["audit"].as_array().expect("an audit");
        let wanted = lines.iter().filter(|line| line["event"] == event && line["subject"] == subject);
        let parse = |line: &Value| {
            let at: jiff::Timestamp = line["at"].as_str().and_then(|at| at.parse().ok()).expect("a time");
            let text = line["text"].as_str().expect("a text").to_owned();
            (at.duration_since(jiff::Timestamp::UNIX_EPOCH).unsigned_abs(), text)
        };
        wanted.map(parse).collect()
    }

    /// How often systemd has started a unit of `mars` in this boot, whoever ordered it.
    pub(crate) fn starts(&self, unit: &str) -> usize {
        let line = format!("journalctl --sync; journalctl -b -o cat --no-pager _PID=1 UNIT={unit}");
        self.sh("mars", &line).lines().filter(|line| line.starts_with("Started ")).count()
    }

    /// Runs a command that may fail: its exit code and everything it said.
    pub(crate) fn tell(&self, node: &str, line: &str) -> (i32, String) {
        let output = self.try_sh(node, line);
        let said = [output.stdout, output.stderr].concat();
        (output.status.code().expect("an exit code"), String::from_utf8_lossy(&said).into_owned())
    }

    /// The supervisor of `mars` saw the worker stay up after its last relaunch, and has not begun another since.
    pub(crate) fn verified(&self, worker: &str) {
        wait(&format!("{worker} has stayed up"), SOON, || {
            // Two values of one field: either of them.
            let acted = self.records("mars", "acted", &format!("mars/{worker}"), "KEYHOLDER_EVENT=acting");
            acted.last().is_some_and(|line| line.text.contains("stayed up")).then_some(())
        });
    }
}

/// Asks again and again for `time`, and panics as soon as `holds` does not hold.
pub(crate) fn all_along(what: &str, time: Duration, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while start.elapsed() < time {
        assert!(holds(), "after {:?} it was no longer so: {what}", start.elapsed());
        thread::sleep(5 * PACE);
    }
}

/// `keyholder status --watch --json` on a node, open from before the story until its end.
pub(crate) struct Stream {
    child: Child,
    frames: Arc<Mutex<Vec<(u64, Value)>>>,
}

impl Stream {
    pub(crate) fn open(lab: &Lab, at: &str) -> Self {
        let mut child = lab.spawn(at, "exec keyholder status --watch --json");
        let frames = Arc::<Mutex<Vec<(u64, Value)>>>::default();
        let (lines, to) = (BufReader::new(child.stdout.take().expect("a pipe")).lines(), Arc::clone(&frames));
        thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                let frame = serde_json::from_str(&line).expect("a frame per line");
                to.lock().expect("nobody panicked").push((monotonic_us(), frame));
            }
        });
        let stream = Self { child, frames };
        wait("the stream begins", SOON, || (!stream.frames().is_empty()).then_some(()));
        stream
    }

    fn frames(&self) -> std::sync::MutexGuard<'_, Vec<(u64, Value)>> {
        self.frames.lock().expect("nobody panicked")
    }

    /// The states a node was seen in, each with the time; repetitions left out.
    pub(crate) fn states(&self, node: &str) -> Vec<(u64, String)> {
        let mut states = Vec::<(u64, String)>::new();
        for (at, frame) in self.frames().iter() {
            let report = &frame["snapshot"];
            if report["node"] == node {
                let state = report["state"].as_str().expect("a state");
                if states.last().is_none_or(|(_, last)| last != state) {
                    states.push((*at, state.to_owned()));
                }
            }
        }
        states
    }

    /// What was seen of a worker of `mars`, frame by frame.
    pub(crate) fn reports(&self, worker: &str) -> Vec<Value> {
        let mut seen = Vec::new();
        for (_, frame) in self.frames().iter() {
            let all = frame["snapshot"]["workers"].as_array().into_iter().flatten();
            let found = all.chain(frame.get("change")).filter(|seen| seen["node"] == "mars");
            seen.extend(found.filter(|seen| seen["worker"] == worker).cloned());
        }
        seen
    }

    /// The classes a worker of `mars` was seen in; repetitions left out.
    pub(crate) fn classes(&self, worker: &str) -> Vec<String> {
        let class = |seen: &Value| seen["class"].as_str().expect("a class").to_owned();
        let mut classes: Vec<String> = self.reports(worker).iter().map(class).collect();
        classes.dedup();
        classes
    }

    /// Waits until the stream shows the worker healthy in this run, and then that it had shown it dead before.
    pub(crate) fn saw_it_die_and_come_back(&self, worker: &str, run: &str) {
        wait(&format!("the peer sees {worker} in its new run"), SOON, || {
            let last = self.reports(worker).pop()?;
            (last["class"] == "healthy" && last["invocation"] == run).then_some(())
        });
        let classes = self.classes(worker);
        assert!(classes.iter().any(|class| class == "dead"), "{worker} was seen as {classes:?}");
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
