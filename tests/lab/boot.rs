//! A node that reboots, is switched off, or loses power: nothing is fought, and its peer knows which of them it is.

use std::time::{Duration, Instant};

use crate::harness::{Lab, SOON, service, wait};
use crate::scene::{SECOND, Stream, all_along, house, monotonic_us};

const WORKERS: &str = "
    quick:     { unit: quick.service }
    slow:      { unit: slow.service }
    lingers:   { unit: lingers.service }
    late:      { unit: late.service }
    forgotten: { unit: forgotten.service }
    held:      { unit: held.service }
";

/// With this systemd starts it at boot.
const ENABLED: &str = "[Install]\nWantedBy=multi-user.target";

/// Starts another worker when it has waited a little: until then nothing shows that systemd is going to.
const STARTER: &str =
    "[Service]\nType=oneshot\nExecStart=/bin/sleep 1.5\nExecStart=/bin/systemctl start late";

#[test]
fn a_node_that_leaves_and_comes_back_is_not_fought_and_its_peer_knows_how_it_went() {
    let units = [
        ("quick.service", service(ENABLED)),
        ("slow.service", service(&format!("ExecStartPre=/bin/sleep 2\n{ENABLED}"))),
        ("lingers.service", service(&format!("ExecStop=/bin/sleep 1.5\n{ENABLED}"))),
        ("late.service", service("")),
        ("starter.service", format!("{STARTER}\n{ENABLED}")),
        ("forgotten.service", service("")),
        ("held.service", service("")),
    ];
    let lab = house("boot", &["mars", "ai-core"], &units, WORKERS);
    let stream = Stream::open(&lab, "ai-core");
    let held = Instant::now();
    lab.sh("ai-core", "keyholder hold mars/held --for 1h --why 'not in this boot'");

    lab.lab(&["reboot", "mars"]);
    is_back(&lab, &stream);
    left_and_never_lost(&stream, 0);
    nothing_was_fought(&lab);
    what_boot_leaves_out_is_brought_back(&lab, held);

    let seen = stream.states("mars").len();
    lab.lab(&["poweroff", "mars"]);
    wait("the peer sees mars leave", SOON, || state_is(&stream, "leaving").then_some(()));
    all_along("mars has left and is not lost", 4 * SECOND, || state_is(&stream, "leaving"));
    kernel_is_another_one(&lab);
    lab.lab(&["boot", "mars"]);
    is_back(&lab, &stream);
    left_and_never_lost(&stream, seen);
    nothing_was_fought(&lab);
    what_boot_leaves_out_is_brought_back(&lab, held);

    let seen = stream.states("mars").len();
    let cut = monotonic_us();
    lab.lab(&["cut", "mars"]);
    wait("the peer sees that mars is gone", SOON, || state_is(&stream, "unreachable").then_some(()));
    let (at, _) = stream.states("mars").pop().expect("a state");
    println!("unreachable {} ms after the cut", (at - cut) / 1000);
    let alerts = wait("a person is told", SOON, || {
        let alerts = lab.records("ai-core", "alert", "mars", "");
        (!alerts.is_empty()).then_some(alerts)
    });
    assert!(alerts.len() == 1 && alerts[0].text.contains("someone must go there"), "{alerts:?}");
    lab.lab(&["boot", "mars"]);
    is_back(&lab, &stream);
    let states: Vec<String> =
        stream.states("mars").split_off(seen).into_iter().map(|(_, state)| state).collect();
    assert!(!states.contains(&"leaving".to_owned()), "nobody had said goodbye: {states:?}");
}

/// The nodes run on this host's kernel, so its boot id and its clock outlast their boots; a real host's do not. Here the
/// saved states are made those of another boot.
fn kernel_is_another_one(lab: &Lab) {
    let (there, here) = (lab.root("mars").join("var/lib/keyholder"), tempfile::tempdir().unwrap());
    let with = |end: &str| format!("state.db{end}");
    // SQLite cannot open a path that leads through another process's root.
    for end in ["", "-wal"] {
        let copied = std::fs::copy(there.join(with(end)), here.path().join(with(end)));
        assert!(end == "-wal" || copied.is_ok(), "{copied:?}");
    }
    let database = rusqlite::Connection::open(here.path().join(with(""))).expect("it opens");
    let changed = database.execute("UPDATE worker SET boot_id = 'another'", []).expect("it is written");
    assert!(changed > 0, "no worker was saved");
    database.close().expect("it is on the disk");
    std::fs::copy(here.path().join(with("")), there.join(with(""))).expect("it is copied back");
    for end in ["-wal", "-shm"] {
        let _ = std::fs::remove_file(there.join(with(end)));
    }
}

fn state_is(stream: &Stream, state: &str) -> bool {
    stream.states("mars").last().is_some_and(|(_, last)| last == state)
}

/// The peer sees mars up, and all that systemd starts at boot healthy.
fn is_back(lab: &Lab, stream: &Stream) {
    wait("the peer sees mars up", SOON, || state_is(stream, "up").then_some(()));
    for worker in ["quick", "slow", "lingers", "late", "forgotten"] {
        wait(&format!("the peer sees {worker} healthy"), SOON, || {
            (lab.worker("ai-core", "mars", worker)["class"] == "healthy").then_some(())
        });
    }
}

/// From the `seen`th state on the peer saw mars leave and return, and never took it for lost.
fn left_and_never_lost(stream: &Stream, seen: usize) {
    let states: Vec<String> =
        stream.states("mars").split_off(seen).into_iter().map(|(_, state)| state).collect();
    println!("mars was seen as {states:?}");
    assert!(states.contains(&"leaving".to_owned()), "{states:?}");
    for lost in ["unreachable", "supervisor_dead", "unknown"] {
        assert!(!states.contains(&lost.to_owned()), "{states:?}");
    }
}

/// Neither while it shut down nor while it started was anything relaunched that systemd was at.
fn nothing_was_fought(lab: &Lab) {
    let said = lab.sh("mars", "journalctl -b -1 -o cat --no-pager KEYHOLDER_EVENT=supervisor");
    assert!(said.contains("nothing is repaired from here on"), "{said}");
    let shutdown = lab.sh("mars", "journalctl -b -1 -o cat --no-pager -g 'shuts down' KEYHOLDER_EVENT=supervisor -n 1 --output-fields=__REALTIME_TIMESTAMP -o export | sed -n 's/^__REALTIME_TIMESTAMP=//p'");
    for worker in ["quick", "slow", "lingers", "late", "forgotten", "held"] {
        let late: u64 = shutdown.trim().parse().expect("a time");
        let line = format!(
            "journalctl -b -1 -o cat --no-pager --since @{}.{:06} KEYHOLDER_EVENT=acting KEYHOLDER_SUBJECT=mars/{worker}",
            late / 1_000_000,
            late % 1_000_000
        );
        assert_eq!(lab.sh("mars", &line), "", "{worker} was relaunched while the host shut down");
    }
    for worker in ["quick", "slow", "lingers", "late"] {
        let acting = lab.records("mars", "acting", &format!("mars/{worker}"), "-b");
        assert!(acting.is_empty(), "{worker} was relaunched though systemd starts it: {acting:?}");
        assert_eq!(lab.starts(&format!("{worker}.service")), 1);
    }
}

/// A worker that nothing starts at boot is dead after it, and is brought back once; on hold, which began after
/// `since`, it stays down.
fn what_boot_leaves_out_is_brought_back(lab: &Lab, since: Instant) {
    lab.verified("forgotten");
    assert_eq!(lab.records("mars", "acting", "mars/forgotten", "-b").len(), 1);
    let held = lab.worker("ai-core", "mars", "held");
    assert!(held["class"] == "held", "the hold outlasts the boot: {held}");
    let left = held["held_for_ms"].as_u64().expect("a time");
    let hour = 3600 * SECOND;
    let left = Duration::from_millis(left);
    assert!(left < hour && left + since.elapsed() + SECOND > hour, "of its hour are left {left:?}");
    assert_eq!(lab.records("mars", "acting", "mars/held", "-b").len(), 0);
}
