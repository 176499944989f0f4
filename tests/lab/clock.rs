//! No clock is right: keys, orders, holds and repairs do not depend on any.
//!
//! The supervisors and the command line are shown another wall clock by a library that stands before libc's `clock_gettime`, which
//! is where all of keyholder, SQLite included, has the time from; the audit shows that they believe it.

use std::process::Command;

use crate::harness::{Lab, SOON, repo, service, wait};
use crate::orders::{OFTEN, relaunch, relaunched};
use crate::preload;

/// The wall clock starts at `WALL` seconds after 1970 with the boot; every other clock is the kernel's.
const SOURCE: &str = r#"
#define _GNU_SOURCE
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
int clock_gettime(clockid_t clock, struct timespec *at) {
    int wall = clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE;
    int code = syscall(SYS_clock_gettime, wall ? CLOCK_BOOTTIME : clock, at);
    if (code == 0 && wall) at->tv_sec = WALL + at->tv_sec % 60;
    return code;
}
"#;

/// Puts the clock of this year into a node and starts its supervisor anew.
fn set(lab: &Lab, node: &str, year: &str, wall: i64) {
    preload::install(lab, &[node], &SOURCE.replace("WALL", &format!("{wall}L")));
    lab.write(node, "/run/systemd/system/keyholder.service.d/clock.conf", preload::DROP_IN);
    lab.sh(node, "systemctl daemon-reload && systemctl restart keyholder.service");
    wait(&format!("{node} lives in {year}"), SOON, || {
        // A supervisor that was only just started may not answer in time.
        let audit = lab.try_sh(node, "keyholder audit -n 1 --json").stdout;
        String::from_utf8_lossy(&audit).contains(&format!("\"{year}-01-01T00:0")).then_some(())
    });
}

#[test]
fn with_one_clock_at_1970_and_the_other_at_2099_everything_works() {
    let lab = Lab::pair("clock", &[("agent.service", &service(""))], &format!("agent: {{ {OFTEN} }}"));
    lab.sh("mars", "keyholder hold mars/agent --for 2s --why 'made in the present'");
    set(&lab, "mars", "1970", 0);
    set(&lab, "ai-core", "2099", 4_070_908_800);
    for (at, of) in [("ai-core", "mars"), ("mars", "ai-core")] {
        wait(&format!("{at} follows {of}"), SOON, || (lab.node(at, of)["state"] == "up").then_some(()));
    }
    // A hold from another century ends when its two seconds have passed, not sooner and not later.
    wait("the hold has ended", SOON, || {
        lab.worker("mars", "mars", "agent")["held_for_ms"].is_null().then_some(())
    });
    let (verdict, took) = relaunch(&lab, "ai-core", "mars/agent");
    relaunched(&verdict);
    assert!(took < SOON, "{took:?}");
    // The command line in the other century.
    lab.sh(
        "ai-core",
        "LD_PRELOAD=/usr/local/lib/clock.so keyholder relaunch mars/agent && keyholder key probe mars",
    );
    let before = lab.property("mars", "agent.service", "InvocationID");
    lab.sh("mars", "systemctl kill -s KILL agent.service");
    let run = lab.new_run("mars", "agent.service", &before, SOON);
    wait("ai-core knows the new run", SOON, || {
        (lab.worker("ai-core", "mars", "agent")["invocation"] == run.as_str()).then_some(())
    });
    // And back: saved by a supervisor of 2099, read by one of 1970.
    set(&lab, "ai-core", "1970", 0);
    relaunched(&relaunch(&lab, "ai-core", "mars/agent").0);
    assert_eq!(lab.node("mars", "mars")["degraded"], serde_json::json!([]));
}

/// Who reads the wall clock: the audit's and the saved states' time stamps, and how long a reboot took. Tasks have dates, a
/// canary is one, and an alert is told with the hour; none of these is on the way of an order.
#[test]
fn nothing_on_the_way_of_an_order_reads_the_wall_clock() {
    let readers = Command::new("grep")
        .args(["-rlE", "SystemTime|CLOCK_REALTIME|jiff::(Timestamp|Zoned)::now"])
        .arg(repo("src"))
        .output()
        .expect("grep");
    let text = String::from_utf8(readers.stdout).expect("plain paths");
    let mut files: Vec<&str> = text.lines().filter_map(|line| line.split("/src/").last()).collect();
    files.retain(|file| {
        !["lane/", "cli/run/", "cli/queue.rs", "cli/alert.rs", "queue/canary.rs"]
            .iter()
            .any(|dated| file.starts_with(dated))
            && !file.ends_with("/tests.rs")
    });
    files.sort_unstable();
    assert_eq!(files, ["journal/record.rs", "supervise/run.rs"]);
}
