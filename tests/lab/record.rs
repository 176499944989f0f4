//! What a supervisor has recorded is what a replay decides; and one that was away decides nothing by what it knew before.
//!
//! The logs in `tests/golden/recorded` come from here and from `lanecases`: with `KEYHOLDER_RECORD_TO` set they are kept.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::harness::{Lab, SOON, service, wait};
use crate::scene::{SECOND, all_along, house};

/// Nothing depends on `batch`, as in the article: it stays dead for so long that its heartbeat is stale as well.
const WORKERS: &str = "
    stopped: { unit: stopped.service, undeclared_stop: 4s }
    batch: { unit: batch.service, blast_radius: auxiliary, repair_window: 7s, stuck: { heartbeat: { file: /run/batch.beat, older_than: 4s }, nudge: { signal: SIGUSR1 } } }
    hangs: { unit: hangs.service, stuck: { heartbeat: { file: /run/hangs.beat, older_than: 4s }, nudge: { signal: SIGUSR1 } } }
    frail: { unit: frail.service, stuck: { heartbeat: { file: /run/frail.beat, older_than: 4s }, nudge: { signal: SIGUSR1 } } }
    flapper: { unit: flapper.service, relaunches: 3, per: 10m, quarantine_retry: 5s }
    patient: { unit: patient.service, undeclared_stop: 8s }
";

const FLAPPER: &str =
    "[Service]\nExecStart=/bin/sh -c '[ -e /run/flapper.ill ] || exec sleep infinity; sleep 0.7; exit 1'\n";

/// Beats, except while /run/NAME.hang is there. `trap` is what it does about a SIGUSR1; without one it gets none.
fn beating(trap: &str) -> String {
    format!(
        "[Service]\nExecStartPre=/bin/rm -f /run/%p.hang\n\
         ExecStart=/bin/sh -c \"{trap}while :; do [ -e /run/%p.hang ] || : >/run/%p.beat; sleep 0.2; done\"\n"
    )
}

#[test]
fn a_record_replays_as_it_was_and_a_supervisor_that_was_away_looks_first() {
    let mut units = vec![("flapper.service", FLAPPER.to_owned())];
    units.extend(["stopped.service", "patient.service"].map(|unit| (unit, service(""))));
    units.push(("batch.service", beating("")));
    units.push(("frail.service", beating("trap 'exit 1' USR1; ")));
    units.push(("hangs.service", beating("trap 'rm -f /run/%p.hang' USR1; ")));
    // Twenty that fall together, and their share of the crowd.
    let names: Vec<String> = (1..=20).map(|n| format!("w{n:02}")).collect();
    let files: Vec<String> = names.iter().map(|name| format!("{name}.service")).collect();
    units.extend(files.iter().map(|file| (file.as_str(), service(""))));
    let workers: String =
        names.iter().map(|name| format!("    {name}: {{ unit: {name}.service }}\n")).collect();
    let lab = house("record", &["mars", "ai-core"], &units, &format!("{WORKERS}{workers}"));

    stopped_dead_and_stuck(&lab);
    dies_after_each_start(&lab);

    lab.sh("mars", &format!("systemctl kill -s KILL {}", files.join(" ")));
    for name in &names {
        lab.verified(name);
        assert!(replay(&lab, "mars", name).contains("ACTS      relaunch"));
    }
    assert_eq!(Recording::of(&lab, &names).keep("twenty-crash-at-once").len(), 20);

    was_away(&lab);
}

/// One is stopped by hand and forgotten. One is killed: it is brought back and never nudged, however old its heartbeat gets.
/// Beside it two hang and are nudged, which helps one and kills the other; that one is dead then, and relaunched.
fn stopped_dead_and_stuck(lab: &Lab) {
    let beating = ["batch", "hangs", "frail"];
    for worker in beating {
        wait(&format!("{worker} was seen to beat"), SOON, || {
            let log = lab.sh("mars", &format!("keyholder explain mars/{worker} --record"));
            log.contains("\"mark\"").then_some(())
        });
    }
    let mut stopped = Recording::of(lab, &["stopped"]);
    let mut nudged = Recording::of(lab, &beating);
    lab.sh(
        "mars",
        "systemctl stop stopped; systemctl kill -s KILL batch; touch /run/hangs.hang /run/frail.hang",
    );
    for (worker, end) in [
        ("hangs", "it makes progress again after a nudge"),
        ("frail", "it stayed up: recovered"),
        ("stopped", "it stayed up: recovered"),
        ("batch", "it stayed up: recovered"),
    ] {
        wait(&format!("{worker} is well again"), SOON, || {
            nudged.take();
            replay(lab, "mars", worker).contains(end).then_some(())
        });
    }
    let story = replay(lab, "mars", "stopped");
    assert!(story.contains("no hold was declared"), "{story}");
    // A peer with the right to see its status may read the same.
    assert_eq!(replay(lab, "ai-core", "stopped"), story);
    stopped.take();
    assert_eq!(stopped.keep("stopped-and-forgotten"), ["mars/stopped relaunch"]);

    nudged.take();
    let acts = nudged.keep("nudge-against-the-dead");
    assert_eq!(acts, ["mars/batch relaunch", "mars/frail nudge", "mars/frail relaunch", "mars/hangs nudge"]);
}

fn dies_after_each_start(lab: &Lab) {
    let mut recording = Recording::of(lab, &["flapper"]);
    lab.sh("mars", "touch /run/flapper.ill; systemctl kill -s KILL flapper");
    wait("the flapper was tried in quarantine, too", 30 * SECOND, || {
        recording.take();
        replay(lab, "mars", "flapper").contains("still down in quarantine").then_some(())
    });
    lab.sh("mars", "rm /run/flapper.ill");
    wait("it is mended", 30 * SECOND, || {
        recording.take();
        (lab.worker("mars", "mars", "flapper")["quarantined"] == false).then_some(())
    });
    assert!(replay(lab, "mars", "flapper").contains("recovered"));
    recording.take();
    recording.keep("dies-a-second-after-each-start");
}

/// What workers of `mars` were recorded to go through, as one log. A supervisor remembers the last things only, and of readings
/// that say the same the newest: whoever asks often enough has them all.
pub(crate) struct Recording<'a> {
    lab: &'a Lab,
    workers: Vec<String>,
    head: String,
    /// In the order in which they were told, each with its time.
    lines: Vec<(u64, String)>,
    known: BTreeSet<String>,
}

impl<'a> Recording<'a> {
    /// Begins with what is remembered now.
    pub(crate) fn of(lab: &'a Lab, workers: &[impl AsRef<str>]) -> Self {
        let workers = workers.iter().map(|worker| worker.as_ref().to_owned()).collect();
        let mut recording =
            Self { lab, workers, head: String::new(), lines: Vec::new(), known: BTreeSet::new() };
        recording.take();
        recording
    }

    /// Takes what has come since the last time.
    pub(crate) fn take(&mut self) {
        let first = self.lines.is_empty();
        let line = format!(
            "for worker in {}; do keyholder explain mars/$worker --record || exit; done",
            self.workers.join(" ")
        );
        for line in self.lab.sh("mars", &line).lines() {
            let value: Value = serde_json::from_str(line).expect("a log is JSON lines");
            let Some(at) = value["at_ms"].as_u64() else {
                line.clone_into(&mut self.head);
                continue;
            };
            // One begins: a later one says what happened since.
            let wanted = first || value["what"].get("opens").is_none();
            if wanted && self.known.insert(line.to_owned()) {
                self.lines.push((at, line.to_owned()));
            }
        }
    }

    /// Replays it all, which never differs from what was done, and keeps it as a golden file if that is wanted. What was
    /// done, worker by worker.
    pub(crate) fn keep(mut self, name: &str) -> Vec<String> {
        self.lines.sort_by_key(|(at, _)| *at);
        let lines = self.lines.iter().map(|(_, line)| line.as_str());
        let log: String =
            std::iter::once(self.head.as_str()).chain(lines).flat_map(|line| [line, "\n"]).collect();
        let file = format!("/run/{name}.jsonl");
        self.lab.write("mars", &file, &log);
        let story = self.lab.sh("mars", &format!("keyholder explain --json --replay {file}"));
        let mut entries: Vec<Value> = serde_json::from_str(&story).expect("a story");
        assert!(entries.iter().all(|entry| entry["kind"] != "differs"), "{story}");
        if let Some(to) = std::env::var_os("KEYHOLDER_RECORD_TO") {
            std::fs::write(Path::new(&to).join(format!("{name}.jsonl")), log).expect("the folder is there");
        }
        entries.sort_by_key(|entry| entry["worker"].to_string());
        let text = |value: &Value| value.as_str().expect("a text").to_owned();
        let acts = entries.iter().filter(|entry| entry["kind"] == "acts");
        acts.map(|entry| format!("{} {}", text(&entry["worker"]), text(&entry["text"]))).collect()
    }
}

/// The replay of what was recorded of a worker of `mars`; it never differs from what was done.
fn replay(lab: &Lab, at: &str, worker: &str) -> String {
    let story = lab.sh(
        at,
        &format!(
            "keyholder explain mars/{worker} --record >/run/{worker}.jsonl && keyholder explain --replay /run/{worker}.jsonl"
        ),
    );
    assert!(!story.contains("DIFFERS"), "{story}");
    story
}

/// How long after its stop `patient` is left: within it the supervisor is stopped as well, and until well after it.
const PATIENT: Duration = Duration::from_secs(8);

/// A stop that nobody declared would be repaired after a while. The supervisor is stopped meanwhile, and somebody has
/// started the worker again by the time it runs on: what was due then is not done now.
fn was_away(lab: &Lab) {
    // That it hangs for so long is what systemd would end it for.
    let patience = "[Service]\nWatchdogSec=60\n";
    lab.write("mars", "/run/systemd/system/keyholder.service.d/patience.conf", patience);
    lab.sh("mars", "systemctl daemon-reload; systemctl restart keyholder.service");
    wait("mars looks after patient again", SOON, || {
        (lab.worker("mars", "mars", "patient")["class"] == "healthy").then_some(())
    });
    lab.sh("mars", "systemctl stop patient");
    let stopped = Instant::now();
    wait("the stop was seen", SOON, || {
        (lab.worker("mars", "mars", "patient")["class"] == "dead").then_some(())
    });
    let supervisor = lab.property("mars", "keyholder.service", "MainPID");
    lab.sh("mars", "systemctl kill -s STOP keyholder; systemctl start patient");
    let run = lab.run_of("patient.service");
    let over = (PATIENT + 3 * SECOND).saturating_sub(stopped.elapsed());
    all_along("its run goes on while nobody watches", over, || lab.run_of("patient.service") == run);
    lab.sh("mars", "systemctl kill -s CONT keyholder");
    wait("the supervisor says that it was away", SOON, || {
        let said = lab.sh("mars", "journalctl -u keyholder -o cat --no-pager; keyholder audit -n 20");
        said.contains("this supervisor was away").then_some(())
    });
    all_along("nothing is done to it", 5 * SECOND, || lab.run_of("patient.service") == run);
    wait("patient is well", SOON, || {
        (lab.worker("mars", "mars", "patient")["class"] == "healthy").then_some(())
    });
    assert_eq!(lab.relaunches("mars", "patient"), 0);
    assert_eq!(
        lab.property("mars", "keyholder.service", "MainPID"),
        supervisor,
        "it was not restarted for it"
    );
}
