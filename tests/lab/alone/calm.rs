//! False alarms: nothing falls, and everything that might look like it happens all the time. Not one act, and nobody is ever
//! called anything but healthy, or not known.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::falls::NODES;
use crate::harness::{Lab, SOON, wait};
use crate::lanefalls::{furnish, give};
use crate::preload;
use crate::scene::{SECOND, all_along};

/// How long it lasts; `tests/run --long` says ten minutes.
fn span() -> Duration {
    let asked = std::env::var("KEYHOLDER_CALM_SECONDS").ok().and_then(|seconds| seconds.parse().ok());
    Duration::from_secs(asked.unwrap_or(60))
}

/// To keyholder the wall clock steps as this file says.
const CLOCK: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
static long step(void) {
    char text[32] = {0};
    int file = open("/run/clock.step", O_RDONLY | O_CLOEXEC);
    if (file < 0) return 0;
    ssize_t got = read(file, text, sizeof text - 1);
    close(file);
    return got > 0 ? atol(text) : 0;
}
int clock_gettime(clockid_t clock, struct timespec *at) {
    int code = syscall(SYS_clock_gettime, clock, at);
    if (code == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) at->tv_sec += step();
    return code;
}
"#;

/// One worker for each kind of heartbeat, and one that takes work from a queue.
const WORKERS: [(&str, &str, &str); 6] = [
    (
        "byfile",
        // As a clock that steps has it.
        "while :; do touch -d @$(($(date +%s) + $(cat /run/clock.step))) /run/byfile.beat; sleep 1; done",
        "stuck: { heartbeat: { file: /run/byfile.beat, older_than: 10s }, nudge: { signal: SIGUSR1 } }",
    ),
    (
        "byredis",
        "while :; do redis-cli -h 192.0.2.40 SET calm:beat 1 EX 10 >/dev/null; sleep 1; done",
        "stuck: { heartbeat: { redis: \"calm:beat\", older_than: 10s } }",
    ),
    (
        "byjournal",
        "while :; do echo beat; sleep 1; done",
        "stuck: { heartbeat: { journal: true, older_than: 10s } }",
    ),
    (
        "bydog",
        "systemd-notify --ready; while :; do systemd-notify WATCHDOG=1; sleep 1; done",
        "stuck: { heartbeat: { watchdog: true, older_than: 10s } }",
    ),
    (
        "bycommand",
        "exec sleep infinity",
        "stuck: { heartbeat: { command: { argv: [/usr/bin/test, -d, /run] }, older_than: 10s } }",
    ),
    (
        "inbox",
        "while :; do redis-cli -h 192.0.2.40 RPOP calm:inbox >/dev/null; sleep 0.5; done",
        "delivery_gap: { backlog: { queue: \"calm:inbox\", not_draining_for: 10s }, repipe: { hangup: true } }",
    ),
];
const LANES: &str = "stuck: { heartbeat: { older_than: 15s } }, \
    delivery_gap: { backlog: { not_draining_for: 15s }, canary: { every: 15s, within: 15s } }";

fn house() -> Lab {
    let lab = Lab::boot_alone("calm", &NODES);
    step(&lab, 0);
    preload::install(&lab, &NODES, CLOCK);
    for node in NODES {
        for unit in ["keyholder", "keyholder-lane-write", "keyholder-lane-read"] {
            lab.write(node, &format!("/etc/systemd/system/{unit}.service.d/clock.conf"), preload::DROP_IN);
        }
    }
    let mut workers = String::new();
    for (name, script, care) in WORKERS {
        lab.write("mars", &format!("/usr/local/bin/{name}"), &format!("#!/bin/sh\n{script}\n"));
        let kind = if name == "bydog" { "Type=notify\nNotifyAccess=all\nWatchdogSec=60\n" } else { "" };
        let unit = format!("[Service]\n{kind}ExecStart=/usr/local/bin/{name}\n");
        lab.write("mars", &format!("/etc/systemd/system/{name}.service"), &unit);
        workers.push_str(&format!("{name}: {{ unit: {name}.service, {care} }}\n"));
    }
    lab.sh("mars", "chmod 755 /usr/local/bin/*; systemctl daemon-reload; cd /etc/systemd/system; systemctl start by*.service inbox");
    furnish(&lab, LANES, &workers);
    lab
}

fn step(lab: &Lab, seconds: i64) {
    for node in NODES {
        lab.sh(
            node,
            &format!(
                "echo {seconds} >/run/clock.new; chmod 644 /run/clock.new; mv /run/clock.new /run/clock.step"
            ),
        );
    }
}

/// The classes that the workers of all nodes are in, as one node sees them.
fn classes(lab: &Lab, at: &str) -> Vec<String> {
    let nodes = lab.status(at);
    let workers = nodes
        .as_array()
        .into_iter()
        .flatten()
        .flat_map(|node| node["workers"].as_array().into_iter().flatten());
    workers.map(|worker| worker["class"].as_str().expect("a class").to_owned()).collect()
}

fn calm(class: &str) -> bool {
    ["healthy", "unknown"].contains(&class)
}

#[test]
fn whatever_looks_like_a_fall_and_is_none_gets_nobody_touched() {
    let lab = house();
    let units: Vec<String> = WORKERS.iter().map(|(name, ..)| (*name).to_owned()).collect();
    let runs = |lab: &Lab| {
        let mars: Vec<String> = units.iter().map(|unit| lab.run_of(&format!("{unit}.service"))).collect();
        (mars, lab.all_runs(&["keyholder-lane-write", "keyholder-lane-read"]))
    };
    let (before, done) = (runs(&lab), lab.all_acts());
    let since = lab.sh("mars", "date +%s.%N");
    let seconds = span().as_secs() + 120;
    // In units of their own, which compete with the supervisor's as any service does.
    let processors = std::thread::available_parallelism().map_or(2, usize::from);
    for node in NODES {
        let busy = format!(
            "for n in $(seq {processors}); do systemd-run -q --unit=busy-$n -p RuntimeMaxSec={seconds} sh -c 'exec yes >/dev/null'; done"
        );
        lab.sh(node, &busy);
        lab.sh(node, &format!("systemd-run -q --unit=reloads -p RuntimeMaxSec={seconds} sh -c 'while systemctl daemon-reload; do echo >>/run/reloads; sleep 1; done'"));
    }
    lab.sh("ai-core", &format!("systemd-run -q --unit=work -p RuntimeMaxSec={seconds} sh -c 'n=0; while :; do n=$((n + 1)); redis-cli LPUSH calm:inbox $n; sleep 0.5; done >/dev/null'"));

    let mut counts = BTreeMap::<&str, usize>::new();
    let begun = Instant::now();
    let mut turn = 0;
    while begun.elapsed() < span() {
        step(&lab, [86_400, 0, -86_400, 0][turn % 4]);
        *counts.entry("clock steps of a day").or_default() += 1;
        for node in NODES {
            lab.sh(node, "journalctl --rotate");
            *counts.entry("journal rotations").or_default() += 1;
        }
        give(&lab);
        *counts.entry("tasks").or_default() += 1;
        // Shorter than its watchdog would bear, longer than its neighbours can overlook.
        if turn % 3 == 1 {
            lab.sh("venus", "systemctl kill -s STOP --kill-whom=main keyholder.service");
            for at in ["mars", "ai-core"] {
                wait(&format!("{at} misses venus"), SOON, || {
                    (lab.node(at, "venus")["state"] != "up").then_some(())
                });
            }
            lab.sh("venus", "systemctl kill -s CONT --kill-whom=main keyholder.service");
            *counts.entry("stops of the supervisor of venus").or_default() += 1;
        }
        all_along("everybody is healthy or not known", 4 * SECOND, || {
            ["mars", "ai-core"].iter().all(|at| {
                *counts.entry("looks at a status").or_default() += 1;
                let fallen: Vec<String> =
                    classes(&lab, at).into_iter().filter(|class| !calm(class)).collect();
                assert!(fallen.is_empty(), "{at} sees {fallen:?}");
                fallen.is_empty()
            })
        });
        turn += 1;
    }
    step(&lab, 0);
    for node in NODES {
        let reloads = lab.sh(node, "systemctl is-active --quiet busy-1 reloads && wc -l </run/reloads; systemctl stop reloads 'busy-*'");
        *counts.entry("daemon-reloads").or_default() += reloads.trim().parse::<usize>().expect("a number");
    }
    lab.all_well();

    assert_eq!(lab.acts_since(&done), Vec::<String>::new(), "{counts:?}");
    for node in NODES {
        for event in ["observed", "alert"] {
            let line = format!(
                "journalctl --sync; journalctl -o json --no-pager --since=@{} KEYHOLDER_EVENT={event}",
                since.trim()
            );
            for line in lab.sh(node, &line).lines() {
                let record: Value = serde_json::from_str(line).expect("a record");
                let text = record["MESSAGE"].as_str().expect("a text");
                let class = text.split_once(" -> ").and_then(|(_, rest)| rest.split(':').next());
                assert!(class.is_some_and(calm), "{node}: {event}: {record}");
                *counts.entry("changes between healthy and not known").or_default() += 1;
            }
        }
    }
    assert_eq!(runs(&lab), before);
    println!("{:?} of it: {counts:#?}", begun.elapsed());
}
