//! A soak: thirty units on three nodes, and all that may befall them, their systemd, their journal and their network at random.
//! What was well is never touched, nobody is fenced, every fall is repaired or in quarantine with its cause, and every alert has
//! an end.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::falls::{NODES, Part, triangle};
use crate::harness::{Lab, SOON, wait};
use crate::scene::SECOND;

/// How long it lasts; `tests/run --long` says half an hour.
fn span() -> Duration {
    let asked = std::env::var("KEYHOLDER_SOAK_SECONDS").ok().and_then(|seconds| seconds.parse().ok());
    Duration::from_secs(asked.unwrap_or(60))
}

/// The same numbers in every run with the same seed.
struct Dice(u64);

impl Dice {
    fn new() -> Self {
        let seed =
            std::env::var("KEYHOLDER_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(20_261_201);
        println!("KEYHOLDER_SEED={seed}");
        Self(seed)
    }

    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % u64::try_from(n).expect("a count")).expect("a count")
    }

    fn of<'a>(&mut self, all: &[&'a str]) -> &'a str {
        all[self.below(all.len())]
    }
}

/// Works in steps that its heartbeat shows, and is only woken by its nudge.
const BEAT: &str = "#!/bin/sh\ntrap : USR1\nwhile :; do : >/run/beat; sleep 0.5; done\n";
/// Ready after three seconds, its first sign two seconds later.
const SLOW: &str =
    "#!/bin/sh\nsleep 3; systemd-notify --ready; sleep 2\nwhile :; do : >/run/slow; sleep 0.5; done\n";

/// The units of every node: name, file, and what the fleet file says besides the unit.
const UNITS: [(&str, &str, &str); 10] = [
    ("plain1", "[Service]\nExecStart=/bin/sleep infinity\n", "undeclared_stop: 5s"),
    ("plain2", "[Service]\nExecStart=/bin/sleep infinity\n", "undeclared_stop: 5s"),
    ("plain3", "[Service]\nExecStart=/bin/sleep infinity\n", "undeclared_stop: 5s, blast_radius: critical"),
    (
        "auto",
        "[Unit]\nStartLimitIntervalSec=0\n[Service]\nExecStart=/bin/sleep infinity\nRestart=always\nRestartSec=0\n",
        "",
    ),
    (
        "beat",
        "[Service]\nExecStart=/usr/local/bin/beat\nTimeoutStopSec=2\n",
        "stuck: { heartbeat: { file: /run/beat, older_than: 10s }, nudge: { signal: SIGUSR1 } }",
    ),
    (
        "lines",
        "[Service]\nExecStart=/bin/sh -c 'while :; do echo beat; sleep 1; done'\n[Install]\nAlias=spoken.service\n",
        "stuck: { heartbeat: { journal: true, older_than: 15s } }",
    ),
    (
        "slow",
        "[Service]\nType=notify\nNotifyAccess=all\nExecStart=/usr/local/bin/slow\nTimeoutStopSec=2\n",
        "stuck: { heartbeat: { file: /run/slow, older_than: 10s } }",
    ),
    (
        "skips",
        "[Unit]\nConditionPathExists=/run/skips.wanted\n[Service]\nExecStart=/bin/sleep infinity\n",
        "",
    ),
    ("db", "[Service]\nExecStart=/bin/sleep infinity\n", ""),
    ("app", "[Unit]\nBindsTo=db.service\nAfter=db.service\n[Service]\nExecStart=/bin/sleep infinity\n", ""),
];

/// Nothing ever happens to these.
const UNTOUCHED: [&str; 2] = ["lines", "skips"];

fn house() -> Lab {
    let lab = Lab::boot_alone("soak", &NODES);
    let mut workers = String::new();
    for (name, _, more) in UNITS {
        // One is known by its other name.
        let unit = if name == "lines" { "spoken" } else { name };
        let comma = if more.is_empty() { "" } else { ", " };
        let _ = writeln!(workers, "{name}: {{ unit: {unit}.service{comma}{more} }}");
    }
    for node in NODES {
        lab.write(node, "/usr/local/bin/beat", BEAT);
        lab.write(node, "/usr/local/bin/slow", SLOW);
        for (name, unit, _) in UNITS {
            lab.write(node, &format!("/etc/systemd/system/{name}.service"), unit);
        }
        lab.write(node, "/usr/local/bin/power", "#!/bin/sh\necho power\n");
        let names: Vec<&str> = UNITS.iter().map(|(name, ..)| *name).collect();
        let start = format!(
            "chmod 755 /usr/local/bin/*; systemctl daemon-reload; systemctl --quiet enable lines; systemctl start {}",
            names.join(" ")
        );
        lab.sh(node, &start);
    }
    lab.install();
    let power = "power: { argv: [/usr/local/bin/power], after: 5s }";
    let part = || Part { workers: &workers, more: power };
    lab.deploy(&triangle(&lab, "", [part(), part(), part()]));
    lab
}

/// What the soak has done, and what may follow from it.
#[derive(Default)]
struct Story {
    /// How often each kind of event was played.
    events: BTreeMap<&'static str, usize>,
    /// How often each worker was made to fall.
    falls: BTreeMap<(&'static str, String), usize>,
    /// Which were found in quarantine, and released.
    quarantines: usize,
}

impl Story {
    fn fell(&mut self, node: &'static str, worker: &str) {
        *self.falls.entry((node, worker.to_owned())).or_default() += 1;
    }
}

/// Everybody sees everything as it should be, or in quarantine with its cause.
fn settled(lab: &Lab, story: &mut Story) {
    for at in NODES {
        let mut last = Value::Null;
        let deadline = Instant::now() + 6 * SOON;
        loop {
            let nodes = lab.status(at);
            let bad: Vec<Value> = nodes
                .as_array()
                .into_iter()
                .flatten()
                .flat_map(|node| {
                    let up = node["state"] == "up";
                    let workers = node["workers"].as_array().cloned().unwrap_or_default();
                    let bad = workers.into_iter().filter(|worker| !well(worker));
                    bad.chain((!up).then(|| node["state"].clone())).collect::<Vec<_>>()
                })
                .collect();
            if bad.is_empty() && nodes.as_array().is_some_and(|nodes| nodes.len() == NODES.len()) {
                break;
            }
            let quarantined: Vec<&Value> =
                bad.iter().filter(|worker| worker["quarantined"] == true).collect();
            for worker in quarantined {
                let (node, name) =
                    (worker["node"].as_str().expect("a node"), worker["worker"].as_str().expect("a name"));
                let explained = lab.sh(node, &format!("keyholder explain {node}/{name} || :"));
                assert!(
                    ["signal 9", "stopped", "exit", "no heartbeat for"]
                        .iter()
                        .any(|why| explained.contains(why))
                        && explained.contains("its last journal lines"),
                    "a quarantine without its cause: {explained}"
                );
                lab.sh(node, &format!("keyholder release {node}/{name}"));
                story.quarantines += 1;
            }
            assert!(Instant::now() < deadline, "{at} sees what is not well: {bad:#?}, before that {last}");
            last = Value::Array(bad);
            std::thread::sleep(Duration::from_millis(200));
        }
    }
}

fn well(worker: &Value) -> bool {
    match worker["worker"].as_str() {
        // Down by design.
        Some("skips") => worker["class"] != "dead",
        _ => worker["class"] == "healthy",
    }
}

fn main_pid(lab: &Lab, node: &str, unit: &str) -> String {
    lab.property(node, &format!("{unit}.service"), "MainPID")
}

/// Plays one event and waits until its direct end.
fn play(lab: &Lab, dice: &mut Dice, story: &mut Story) {
    let node = NODES[dice.below(NODES.len())];
    let plain = dice.of(&["plain1", "plain2", "plain3"]);
    let short = Duration::from_secs(2 + u64::try_from(dice.below(8)).expect("few"));
    let what = match dice.below(13) {
        0 => {
            story.fell(node, plain);
            lab.sh(node, &format!("kill -KILL {}", main_pid(lab, node, plain)));
            "a plain unit is killed"
        }
        1 => {
            story.fell(node, plain);
            lab.sh(node, &format!("systemctl stop {plain}"));
            "a plain unit is stopped, and nobody says why"
        }
        2 => {
            lab.sh(node, &format!("kill -KILL {}", main_pid(lab, node, "auto")));
            "a unit is killed that systemd restarts"
        }
        3 => {
            story.fell(node, "beat");
            lab.sh(node, "systemctl kill -s STOP beat");
            wait("it is seen to be stuck", 2 * SOON, || {
                (lab.worker(node, node, "beat")["class"] != "healthy").then_some(())
            });
            "a worker is frozen"
        }
        4 => {
            story.fell(node, "db");
            story.fell(node, "app");
            lab.sh(node, &format!("kill -KILL {}", main_pid(lab, node, "db")));
            "what another is bound to is killed"
        }
        5 => {
            let leader: i32 = lab.lab(&["leader", node]).trim().parse().expect("a pid");
            kill(Pid::from_raw(leader), Signal::SIGSTOP).expect("a running PID 1");
            std::thread::sleep(short + 10 * SECOND);
            kill(Pid::from_raw(leader), Signal::SIGCONT).expect("a stopped PID 1");
            "PID 1 hangs"
        }
        6 => {
            let name = lab.in_net(
                node,
                &["sh", "-c", "ip -o -4 addr show scope global | awk '{print $2}' | cut -d@ -f1"],
            );
            lab.in_net(node, &["ip", "link", "set", name.trim(), "down"]);
            std::thread::sleep(short);
            lab.in_net(node, &["ip", "link", "set", name.trim(), "up"]);
            "a watcher's own interface is down"
        }
        7 => {
            lab.in_net(node, &["nft", "table inet soak { chain out { type filter hook output priority 0; tcp dport 7433 reject; }; }"]);
            std::thread::sleep(short);
            lab.in_net(node, &["nft", "delete table inet soak"]);
            "a watcher's own firewall rejects"
        }
        8 => {
            lab.in_net(node, &["nft", "table inet soak { chain in { type filter hook input priority 0; tcp dport 7433 reject with icmpx type admin-prohibited; }; }"]);
            std::thread::sleep(short);
            lab.in_net(node, &["nft", "delete table inet soak"]);
            "the firewall of a node rejects its watchers"
        }
        9 => {
            lab.sh(node, "systemctl kill -s STOP --kill-whom=main systemd-journald");
            std::thread::sleep(short + 10 * SECOND);
            lab.sh(node, "systemctl kill -s CONT --kill-whom=main systemd-journald");
            "journald hangs"
        }
        10 => {
            lab.sh(node, "systemctl daemon-reload; systemctl daemon-reexec");
            "systemd is reloaded and re-executed"
        }
        11 => {
            lab.sh(node, "systemctl restart slow");
            "an operator restarts a unit that starts slowly"
        }
        _ => {
            lab.sh(node, "systemctl kill -s KILL --kill-whom=main keyholder.service");
            "a supervisor is killed"
        }
    };
    *story.events.entry(what).or_default() += 1;
    println!("{node}: {what}");
}

/// What the supervisors did to each worker: relaunches by the node that carried them out.
fn relaunches(lab: &Lab) -> BTreeMap<(&'static str, String), usize> {
    let mut all = BTreeMap::new();
    for node in NODES {
        for (name, ..) in UNITS {
            all.insert((node, name.to_owned()), lab.relaunches(node, name));
        }
    }
    all
}

/// Whom people were called for on a node and were not told the end of, and how many alerts there were.
fn open_alerts(lab: &Lab, node: &str) -> (Vec<String>, usize) {
    let line =
        "journalctl --sync; journalctl -o json --no-pager KEYHOLDER_EVENT=alert KEYHOLDER_EVENT=alert-ended";
    let (mut last, mut alerts) = (BTreeMap::new(), 0);
    for line in lab.sh(node, line).lines() {
        let entry: Value = serde_json::from_str(line).expect("journalctl writes JSON");
        let field = |name: &str| entry[name].as_str().expect(name).to_owned();
        alerts += usize::from(field("KEYHOLDER_EVENT") == "alert");
        last.insert(field("KEYHOLDER_SUBJECT"), (field("KEYHOLDER_EVENT"), field("MESSAGE")));
    }
    let open = last.into_values().filter(|(event, _)| event == "alert").map(|(_, text)| text).collect();
    (open, alerts)
}

#[test]
#[ignore = "it is for `tests/run --long`, which has it last half an hour"]
fn whatever_happens_for_long_nobody_well_is_touched_and_every_fall_ends() {
    let lab = house();
    let (mut dice, mut story) = (Dice::new(), Story::default());
    settled(&lab, &mut story);
    let runs = |lab: &Lab| lab.all_runs(&UNTOUCHED.map(|name| if name == "lines" { "spoken" } else { name }));
    let (before, done) = (runs(&lab), relaunches(&lab));
    let begun = Instant::now();
    while begun.elapsed() < span() {
        play(&lab, &mut dice, &mut story);
        settled(&lab, &mut story);
    }
    println!("{:?}: {:#?}", begun.elapsed(), story.events);
    println!("{} falls, {} quarantines released", story.falls.values().sum::<usize>(), story.quarantines);
    for (who, many) in relaunches(&lab) {
        let (acts, falls) = (many - done[&who], story.falls.get(&who).copied().unwrap_or_default());
        // One for each fall; a relaunch that finds its cause still there is tried again.
        assert!(acts <= 2 * falls, "{who:?} fell {falls} times and was relaunched {acts} times");
    }
    assert_eq!(runs(&lab), before, "what nothing happened to");
    for node in NODES {
        let began = Instant::now();
        let alerts = loop {
            let (open, alerts) = open_alerts(&lab, node);
            if open.is_empty() {
                break alerts;
            }
            // What fell again and again has to stay up for ten minutes first.
            assert!(began.elapsed() < 660 * SECOND, "{node}: alerts without an end: {open:#?}");
            std::thread::sleep(SECOND / 2);
        };
        println!("{node}: {alerts} alerts, each with its end");
        let acting = lab.evidence(node, "acting");
        assert!(
            !acting.iter().any(|act| act.contains("power: running")),
            "{node} fenced a live host: {acting:?}"
        );
    }
}
