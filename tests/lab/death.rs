//! The ways a worker dies, and that it is back: at once, once, under a new invocation, and known to the peer.

use std::time::Duration;

use crate::harness::{Lab, SOON, service, wait};
use crate::scene::{Stream, house, monotonic_us};

const WORKERS: &str = "
    killed:   { unit: killed.service }
    exits:    { unit: exits.service }
    ends:     { unit: ends.service }
    limit:    { unit: limit.service }
    prestart: { unit: prestart.service }
    missing:  { unit: missing.service, relaunches: 50 }
    nostop:   { unit: nostop.service }
    critical: { unit: critical.service, blast_radius: critical }
";

/// A service that runs until a file appears, and then does this.
fn until_told(name: &str, then: &str) -> String {
    format!(
        "[Service]\nExecStart=/bin/sh -c 'while ! rm /run/{name}.now 2>/dev/null; do sleep 0.05; done; {then}'\n"
    )
}

/// After `echo 0 >/run/limit.n` three of its runs fail at once, which is all that its start limit allows.
const LIMIT: &str = "[Unit]\nStartLimitBurst=3\nStartLimitIntervalSec=60\n[Service]\nRestart=always\nRestartSec=0\n\
    ExecStart=/bin/sh -c 'n=$$(cat /run/limit.n 2>/dev/null || echo 3); [ $$n -lt 3 ] || exec sleep infinity; \
    echo $$((n+1)) >/run/limit.n; exit 1'\n";

/// Its start fails once for each time that the file is put there.
const PRESTART: &str = "[Service]\nExecStartPre=/bin/sh -c '! rm /run/prestart.broken 2>/dev/null'\n\
    ExecStart=/bin/sleep infinity\n";

/// The longest that a try waits for after those that failed: each looks whether the cause is gone, and no round of anything is
/// waited for.
const BACKOFF_MOST: Duration = Duration::from_secs(30);

/// Ways to die: the worker, how it is brought about, and after how many relaunches it is back.
const WAYS: [(&str, &str, usize); 7] = [
    ("killed", "systemctl kill -s KILL killed", 1),
    ("critical", "systemctl kill -s SEGV critical", 1),
    // It refuses a restart by hand, but is there to be started.
    ("nostop", "systemctl kill -s KILL nostop", 1),
    ("exits", "touch /run/exits.now", 1),
    ("ends", "touch /run/ends.now", 1),
    // A reload lets systemd forget earlier starts, so that it counts from here.
    ("limit", "systemctl reset-failed limit; echo 0 >/run/limit.n; systemctl kill -s KILL limit", 1),
    ("prestart", "touch /run/prestart.broken; systemctl kill -s KILL prestart", 2),
];

#[test]
fn however_a_worker_dies_it_is_back_at_once_and_only_once_and_the_peer_knows() {
    let units = [
        ("killed.service", service("")),
        ("exits.service", until_told("exits", "exit 7")),
        ("ends.service", until_told("ends", "exit 0")),
        ("limit.service", LIMIT.to_owned()),
        ("prestart.service", PRESTART.to_owned()),
        (
            "unpack.service",
            "[Service]\nType=oneshot\nExecStart=/bin/cp /bin/sleep /var/tmp/missing\n".to_owned(),
        ),
        (
            "missing.service",
            "[Unit]\nAfter=unpack.service\n[Service]\nExecStart=/var/tmp/missing infinity\n".to_owned(),
        ),
        ("critical.service", service("")),
        ("nostop.service", format!("[Unit]\nRefuseManualStop=yes\n{}", service(""))),
    ];
    let lab = house("deaths", &["mars", "ai-core"], &units, WORKERS);
    let stream = Stream::open(&lab, "ai-core");

    let befores = WAYS.map(|(worker, _, _)| lab.run_of(&format!("{worker}.service")));
    let prestarts = lab.starts("prestart.service");
    lab.sh("mars", &WAYS.map(|(_, how, _)| how).join("; "));
    for ((worker, _, tries), before) in WAYS.into_iter().zip(befores) {
        back(&lab, &stream, worker, &before);
        assert_eq!(lab.relaunches("mars", worker), tries, "{worker} is relaunched so often and not again");
    }
    let said = lab.sh("mars", "journalctl -o cat --no-pager _PID=1 UNIT=limit.service");
    assert!(said.contains("Start request repeated too quickly"), "{said}");
    assert_eq!(lab.starts("prestart.service"), prestarts + 1, "after the start that failed it came up once");
    wait("somebody is called", SOON, || {
        let alerts = lab.records("mars", "alert", "mars/critical", "");
        alerts.iter().any(|line| line.text.contains("dead")).then_some(())
    });

    binary_is_missing_for_a_while(&lab, &stream);
}

/// Waits until a worker is back to stay, and checks by systemd's own clock that it was not away for longer than a slow machine needs.
fn back(lab: &Lab, stream: &Stream, worker: &str, before: &str) {
    let unit = format!("{worker}.service");
    lab.verified(worker);
    let run = lab.run_of(&unit);
    assert_ne!(run, before, "{worker} has a new run");
    let gap = lab.times("mars", &unit).gap();
    println!("{worker}: back after {gap:?}");
    assert!(gap < SOON, "{worker} was away for {gap:?}");
    stream.saw_it_die_and_come_back(worker, &run);
}

fn binary_is_missing_for_a_while(lab: &Lab, stream: &Stream) {
    let before = lab.run_of("missing.service");
    lab.sh("mars", "mv /var/tmp/missing /var/tmp/gone; systemctl kill -s KILL missing");
    wait("a first try fails", SOON, || {
        let acted = lab.records("mars", "acted", "mars/missing", "");
        acted.iter().any(|line| line.text.contains("is not back")).then_some(())
    });
    assert!(lab.worker("ai-core", "mars", "missing")["class"] != "unknown");
    lab.sh("mars", "mv /var/tmp/gone /var/tmp/missing");
    let mended = monotonic_us();
    wait("missing has stayed up", BACKOFF_MOST + SOON, || {
        let acted = lab.records("mars", "acted", "mars/missing", "");
        acted.last().is_some_and(|line| line.text.contains("stayed up")).then_some(())
    });
    let run = lab.run_of("missing.service");
    let late =
        Duration::from_micros(lab.times("mars", "missing.service").entered_active.saturating_sub(mended));
    println!("missing: back {late:?} after its cause was mended");
    assert!(run != before && late < BACKOFF_MOST + SOON, "{late:?} after the cause was mended");
    assert!(lab.relaunches("mars", "missing") > 1, "it was tried while its cause was there");
    stream.saw_it_die_and_come_back("missing", &run);
}
