//! The cable between a lane and its Redis is pulled under a stream of tasks.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::harness::{Lab, PACE, SOON, wait};
use crate::scene::SECOND;

const LANE: &str = "keyholder-lane-write";
const QUEUE: &str = "tasks:maintenance:mars";
const LOG: &str = "/var/lib/keyholder-lane/write/log";
/// How many seconds each fourth task takes.
const LASTS: &str = "/var/lib/keyholder-lane/write/lasts";
const TRANSITION: &str = keyholder::lane::TRANSITION;

const CATALOG: &str = r#"version: 1
node: mars
actions:
  once:
    mode: write
    description: must never run twice
    argv: [/usr/local/bin/once, "{n}"]
    params: { n: { int: { min: 0, max: 9999 } } }
"#;

/// How long the cable is out, and how often; `tests/run --long` says 30 s.
fn cut() -> (Duration, usize) {
    let asked = std::env::var("KEYHOLDER_CUT").ok().and_then(|seconds| seconds.parse().ok());
    asked.map_or((8 * SECOND, 2), |seconds| (Duration::from_secs(seconds), 4))
}

struct Scene {
    lab: Lab,
    given: u32,
}

impl Scene {
    fn new() -> Self {
        let lab = Lab::boot("redis-cable", &["mars", "ai-core"]);
        lab.install();
        lab.sh(
            "ai-core",
            "systemd-run -q --unit tasks.service redis-server --bind 0.0.0.0 --protected-mode no --appendonly yes --save '' \
             --dir /var/lib",
        );
        lab.write("mars", "/etc/keyholder/catalog_mars.yaml", CATALOG);
        lab.write("mars", "/etc/keyholder/lane-write.env", "KEYHOLDER_REDIS=redis://192.0.2.40:6379\n");
        lab.write(
            "mars",
            "/usr/local/bin/once",
            &format!(
                "#!/bin/sh\necho b $1 >>{LOG}\n[ $(($1 % 4)) -gt 0 ] || sleep $(cat {LASTS})\necho e $1 >>{LOG}\n"
            ),
        );
        lab.write(
            "mars",
            &format!("/etc/systemd/system/{LANE}.service.d/unsigned.conf"),
            "[Service]\nExecStart=\nExecStart=/usr/local/bin/keyholder lane --mode write --insecure-unsigned-write\n",
        );
        lab.sh(
            "mars",
            &format!("chmod 755 /usr/local/bin/once; systemctl daemon-reload; systemctl start {LANE}"),
        );
        Self { lab, given: 0 }
    }

    /// At the server's own side of the cable.
    fn give(&mut self, many: u32) {
        let now = self.lab.sh("ai-core", "date -u +%Y-%m-%dT%H:%M:%SZ");
        let mut line = String::new();
        for n in self.given..self.given + many {
            let _ = write!(
                line,
                "redis-cli LPUSH {QUEUE} '{{\"id\":\"t{n}\",\"action\":\"once\",\"params\":{{\"n\":{n}}},\"by\":\"lab\",\
                 \"issued_at\":\"{}\"}}'; ",
                now.trim()
            );
        }
        self.lab.sh("ai-core", &line);
        self.given += many;
    }

    fn results(&self) -> Vec<Value> {
        let lines = self.lab.sh("ai-core", &format!("redis-cli LRANGE '{{{QUEUE}}}:results' 0 -1"));
        lines.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    fn log(&self) -> String {
        self.lab.sh("mars", &format!("cat {LOG} 2>/dev/null || :"))
    }

    fn pid(&self) -> String {
        wait("the lane runs", SOON, || {
            Some(self.lab.property("mars", LANE, "MainPID")).filter(|pid| pid != "0")
        })
    }

    /// Processor time that the lane has used, in ticks of 10 ms.
    fn ticks(&self, pid: &str) -> u64 {
        self.lab.sh("mars", &format!("awk '{{print $14+$15}}' /proc/{pid}/stat")).trim().parse().unwrap()
    }

    /// What the lanes have said about themselves so far.
    fn lines(&self) -> Vec<String> {
        let line = format!("journalctl --sync; journalctl -q -o cat -u {LANE} MESSAGE_ID={TRANSITION}");
        self.lab.sh("mars", &line).lines().map(str::to_owned).collect()
    }
}

#[test]
fn a_lane_whose_cable_was_out_is_back_in_time_loses_nothing_and_was_quiet_meanwhile() {
    let mut scene = Scene::new();
    let (lasts, times) = cut();
    let mut interrupts = 0;
    for round in 0..times {
        // Every other time the lane is killed as well. That it is back in time is shown by one of three: this machine may stall
        // at that moment.
        let killed = round % 2 == 1;
        for last in [false, false, true] {
            interrupts += usize::from(killed);
            let back = the_cable_is_out(&mut scene, lasts, killed);
            if back < 5 * SECOND {
                break;
            }
            assert!(!last, "back only after {back:?}, three times");
        }
    }

    let results = scene.results();
    let mut ids: Vec<_> =
        results.iter().rev().map(|result| result["id"].as_str().unwrap().to_owned()).collect();
    let all: Vec<_> = (0..scene.given).map(|n| format!("t{n}")).collect();
    assert_eq!(ids.len(), all.len(), "a task has two results");
    ids.sort_by_key(|id| id[1..].parse::<u32>().unwrap());
    assert_eq!(ids, all);
    let interrupted: Vec<String> = results
        .iter()
        .filter(|result| result["status"] == "interrupted")
        .map(|result| result["id"].as_str().unwrap()[1..].to_owned())
        .collect();
    let log = scene.log();
    let (mut begun, mut running) = (Vec::<u32>::new(), None);
    for (what, n) in log.lines().filter_map(|line| line.split_once(' ')) {
        match (what, running) {
            // systemd ends what a killed lane leaves behind.
            ("b", Some(other)) if !interrupted.iter().any(|n| n == other) => panic!("two at a time: {log}"),
            ("b", _) => {
                begun.push(n.parse().unwrap());
                running = Some(n);
            }
            (_, Some(other)) if other == n => running = None,
            _ => panic!("{n} ends and did not run: {log}"),
        }
    }
    assert_eq!(running, None, "{log}");
    assert!(begun.is_sorted_by(|a, b| a < b), "out of order, or twice: {begun:?}");
    let ok = results.iter().filter(|result| result["status"] == "ok").count();
    // Exactly those that ran when their lane was killed.
    assert_eq!((interrupted.len(), interrupted.len() + ok), (interrupts, all.len()), "{results:?}");
}

/// One time. How long after it was plugged in again the next result was there.
fn the_cable_is_out(scene: &mut Scene, lasts: Duration, killed: bool) -> Duration {
    // The first of four takes its time, and the cable goes while it runs; the others wait. Its lane's death ends it: until
    // then it runs, however long that takes here.
    let takes = |seconds: u32| format!("echo {seconds} >{LASTS}");
    scene.lab.sh("mars", &takes(if killed { 25 } else { 3 }));
    let long = scene.given;
    scene.give(4);
    wait("the long one runs", SOON, || scene.log().contains(&format!("b {long}\n")).then_some(()));
    let (pid, said) = (scene.pid(), scene.lines().len());
    let ticks = scene.ticks(&pid);
    scene.lab.lab(&["unplug", "mars"]);
    let began = Instant::now();
    scene.give(4);
    if killed {
        // The next one starts without a server.
        scene.lab.sh("mars", &format!("{}; systemctl kill -s KILL --kill-whom=main {LANE}", takes(3)));
        wait("another is there", SOON, || (scene.pid() != pid).then_some(()));
    }
    let mut before = scene.results().len();
    while began.elapsed() < lasts {
        before = scene.results().len();
        std::thread::sleep(PACE);
    }
    let (away, now) = (began.elapsed(), scene.pid());
    let used = scene.ticks(&now) - if killed { 0 } else { ticks };
    let lines = scene.lines().split_off(said);
    scene.lab.lab(&["plug", "mars"]);
    let plugged = Instant::now();
    wait("the next result", SOON, || (scene.results().len() > before).then_some(()));
    let back = plugged.elapsed();
    let share = used as f64 / away.as_secs_f64();
    println!(
        "cable out for {away:.1?}{}: back {back:.1?} after, {share:.1} % of a processor, {} lines: {lines:?}",
        if killed { ", lane killed meanwhile" } else { "" },
        lines.len()
    );
    // A start is work, too.
    assert!(share < if killed { 15.0 } else { 5.0 }, "{share} %: a busy loop");
    assert!(lines.len() <= 5, "{lines:?}");
    assert!(killed || scene.pid() == pid, "it did not live through it");
    let given = scene.given as usize;
    wait("all are answered", SOON, || (scene.results().len() >= given).then_some(()));
    back
}
