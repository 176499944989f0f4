//! When keyholder keeps its hands off, or waits: stops that nobody declared, holds, units that systemd or an operator is
//! busy with, and units that cannot be started.

use std::time::Duration;

use crate::harness::{Lab, SOON, service, wait};
use crate::scene::{SECOND, Stream, all_along, house, monotonic_us};

/// After how long `stopped` is brought back: what is said meanwhile has to be seen within it.
const STOPPED: Duration = Duration::from_secs(10);
/// How long systemd waits until it restarts `auto`.
const AUTO: Duration = Duration::from_secs(10);

const WORKERS: &str = "
    stopped:   { unit: stopped.service, undeclared_stop: 10s }
    byhand:    { unit: byhand.service, undeclared_stop: 30s }
    survives:  { unit: survives.service }
    heldhere:  { unit: heldhere.service }
    heldthere: { unit: heldthere.service }
    released:  { unit: released.service }
    oneshot:   { unit: oneshot.service, ends: clean }
    reloads:   { unit: reloads.service }
    slow:      { unit: slow.service }
    auto:      { unit: auto.service }
    operated:  { unit: operated.service }
    ghost:     { unit: ghost.service }
    masked:    { unit: masked.service }
    refuses:   { unit: refuses.service }
    wrong:     { unit: wrong.service }
";

const ONESHOT: &str = "[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=/bin/true\n";
const RELOADS: &str = "[Service]\nType=notify\nNotifyAccess=all\n\
    ExecReload=/bin/sh -c 'while [ -e /run/%p.gate ]; do sleep 0.1; done'\n\
    ExecStart=/bin/sh -c 'systemd-notify --ready; exec sleep infinity'\n";
/// Is starting for as long as its gate is there.
const SLOW: &str =
    "ExecStartPre=/bin/sh -c 'while [ -e /run/%p.gate ]; do sleep 0.1; done'\nExecStop=/bin/sleep 0.5";
const REFUSES: &str =
    "# not started\n[Unit]\nRefuseManualStart=yes\n[Service]\nExecStart=/bin/sleep infinity\n";

/// What nobody may touch while systemd or an operator is busy with it, and how often systemd starts it in the story.
const BUSY: [(&str, usize); 5] = [("oneshot", 1), ("reloads", 1), ("slow", 3), ("auto", 2), ("operated", 3)];

fn units() -> Vec<(&'static str, String)> {
    vec![
        ("stopped.service", service("")),
        ("byhand.service", service("")),
        ("survives.service", service("")),
        ("heldhere.service", service("")),
        ("heldthere.service", service("")),
        ("released.service", service("")),
        ("oneshot.service", ONESHOT.to_owned()),
        ("reloads.service", RELOADS.to_owned()),
        ("slow.service", service(SLOW)),
        ("auto.service", service(&format!("Restart=always\nRestartSec={}", AUTO.as_secs()))),
        ("operated.service", service("")),
        ("masked.service", service("# not started\n# masked")),
        ("refuses.service", REFUSES.to_owned()),
        ("wrong.service", "# not started\n[Service]\nType=simple\n".to_owned()),
    ]
}

#[test]
fn what_is_stopped_held_busy_or_not_startable_is_left_alone_for_as_long_as_it_should_be() {
    let lab = house("restraint", &["mars", "ai-core"], &units(), WORKERS);
    let stream = Stream::open(&lab, "ai-core");
    let obstacles = [
        ("ghost", "no such unit"),
        ("masked", "masked"),
        ("refuses", "RefuseManualStart"),
        ("wrong", "unit file has an error"),
    ];
    for (worker, word) in obstacles {
        cannot_be_started(&lab, worker, word);
    }

    let survives = Held::place(&lab, "mars", "survives", 15, "systemctl kill -s KILL survives");
    lab.sh("mars", "systemctl restart keyholder.service");
    wait("mars answers again", SOON, || {
        (lab.worker("mars", "mars", "survives")["class"] == "held").then_some(())
    });

    lab.sh("mars", "systemctl stop stopped byhand");
    announced(&lab);
    wait("mars has a plan for byhand", SOON, || {
        (!lab.worker("mars", "mars", "byhand")["due_in_ms"].is_null()).then_some(())
    });
    lab.sh("mars", "systemctl start byhand");
    let by_hand = lab.run_of("byhand.service");
    wait("nothing is planned for byhand any more", SOON, || {
        let seen = lab.worker("mars", "mars", "byhand");
        (seen["class"] == "healthy" && seen["due_in_ms"].is_null() && seen["doing"] == "").then_some(())
    });
    let here = Held::place(&lab, "mars", "heldhere", 10, "systemctl stop heldhere");
    let there = Held::place(&lab, "ai-core", "heldthere", 10, "systemctl kill -s KILL heldthere");
    let released = Held::place(&lab, "ai-core", "released", 3600, "systemctl stop released");
    lab.sh("mars", "touch /run/reloads.gate /run/slow.gate; systemctl reload --no-block reloads; systemctl restart --no-block slow; systemctl restart operated; systemctl kill -s KILL auto");
    is_busy(&lab);
    lab.sh("mars", "rm /run/reloads.gate /run/slow.gate");

    all_along("released is held and down", SECOND, || {
        lab.worker("ai-core", "mars", "released")["class"] == "held"
            && lab.property("mars", "released.service", "ActiveState") != "active"
    });
    let (code, said) = lab.tell("ai-core", "keyholder relaunch mars/released");
    assert!(code == 5 && said.contains("held by"), "{code}: {said}");
    released.ends(&lab, || {
        lab.sh("mars", "keyholder release mars/released");
    });

    back_when_due_not_before(&lab, &stream);
    here.runs_out(&lab);
    there.runs_out(&lab);
    survives.runs_out(&lab);
    assert_eq!((lab.relaunches("mars", "byhand"), lab.run_of("byhand.service")), (0, by_hand));

    lab.sh("mars", "touch /run/slow.gate; systemctl restart --no-block slow operated; for i in 1 2 3 4 5 6 7 8 9 10; do systemctl daemon-reload; done; rm /run/slow.gate");
    for unit in ["slow.service", "operated.service"] {
        wait(&format!("{unit} is up again"), SOON, || {
            (lab.property("mars", unit, "ActiveState") == "active").then_some(())
        });
    }
    nothing_busy_was_touched(&lab, &stream);
    for (worker, _) in obstacles {
        assert_eq!(lab.relaunches("mars", worker), 0, "nothing was tried on {worker}");
        let alerts = wait("somebody is called", SOON, || {
            let alerts = lab.records("mars", "alert", &format!("mars/{worker}"), "");
            (!alerts.is_empty()).then_some(alerts)
        });
        assert_eq!(alerts.len(), 1, "one alert for {worker}: {alerts:?}");
    }
    the_obstacle_goes(&lab, "masked", "systemctl unmask masked");
    let file = "/usr/lib/systemd/system/ghost.service";
    the_obstacle_goes(
        &lab,
        "ghost",
        &format!("cp /usr/lib/systemd/system/stopped.service {file} && systemctl daemon-reload"),
    );
    assert_eq!(lab.worker("mars", "mars", "refuses")["class"], "dead");
}

/// A state that says what is in the way, here and on the peer, and an order that is refused with the same words.
fn cannot_be_started(lab: &Lab, worker: &str, word: &str) {
    wait(&format!("the peer sees {worker} dead and not startable"), SOON, || {
        let seen = lab.worker("ai-core", "mars", worker);
        (seen["class"] == "dead"
            && seen["startable"] == false
            && seen["why"].as_str().is_some_and(|why| why.contains(word)))
        .then_some(())
    });
    for node in ["mars", "ai-core"] {
        let (code, said) = lab.tell(node, &format!("keyholder explain mars/{worker}"));
        assert!(code == 0 && said.contains(word) && said.contains("nothing"), "{code}: {said}");
        for force in ["", "--force"] {
            if (node, force) == ("ai-core", "--force") {
                continue;
            }
            let (code, said) = lab.tell(node, &format!("keyholder relaunch mars/{worker} {force}"));
            assert!(code == 5 && said.contains(word), "{node}: {code}: {said}");
        }
    }
}

/// A hold with the earliest and the latest moment at which it can have begun, in microseconds.
struct Held {
    worker: &'static str,
    begun: (u64, u64),
    length: Duration,
}

impl Held {
    /// Places a hold from `node` and takes the worker down.
    fn place(lab: &Lab, node: &str, worker: &'static str, secs: u64, down: &str) -> Self {
        let begun = monotonic_us();
        lab.sh(node, &format!("keyholder hold mars/{worker} --for {secs}s --why deploy"));
        let held = Self { worker, begun: (begun, monotonic_us()), length: Duration::from_secs(secs) };
        lab.sh("mars", down);
        for node in ["mars", "ai-core"] {
            wait(&format!("{node} sees that {worker} is held"), SOON, || {
                let seen = lab.worker(node, "mars", worker);
                (seen["class"] == "held" && seen["held_for_ms"].as_u64().is_some_and(|ms| ms > 0))
                    .then_some(())
            });
        }
        held
    }

    /// The worker stays down until the hold is over, and no longer.
    fn runs_out(&self, lab: &Lab) {
        let length = micros(self.length);
        self.is_back_between(lab, self.begun.0 + length, self.begun.1 + length + micros(SOON));
    }

    /// The same for a hold that is ended before its time.
    fn ends(&self, lab: &Lab, end: impl Fn()) {
        let before = monotonic_us();
        end();
        self.is_back_between(lab, before, monotonic_us() + micros(SOON));
    }

    fn is_back_between(&self, lab: &Lab, from: u64, to: u64) {
        let (worker, unit) = (self.worker, format!("{}.service", self.worker));
        wait(&format!("{worker} is back"), Duration::from_micros(to.saturating_sub(monotonic_us())), || {
            (lab.property("mars", &unit, "ActiveState") == "active").then_some(())
        });
        let at = lab.times("mars", &unit).entered_active;
        println!("{worker}: back {} µs after its hold ended", i128::from(at) - i128::from(from));
        assert!((from..=to).contains(&at), "{worker} was back at {at}, expected from {from} to {to}");
        assert_eq!(lab.relaunches("mars", worker), 1, "{worker} is relaunched once");
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).expect("a time")
}

fn announced(lab: &Lab) {
    let seen = wait("the peer sees the stop and when it ends", SOON, || {
        let seen = lab.worker("ai-core", "mars", "stopped");
        (seen["class"] == "dead" && !seen["due_in_ms"].is_null()).then_some(seen)
    });
    assert!(seen["due_in_ms"].as_u64().is_some_and(|ms| u128::from(ms) <= STOPPED.as_millis()), "{seen}");
    assert!(seen["doing"].as_str().is_some_and(|doing| doing.contains("no hold was declared")), "{seen}");
    // Not at once: a package upgrade stops units for a moment.
    let alerts = wait("somebody is called", SOON, || {
        let alerts = lab.records("mars", "alert", "mars/stopped", "");
        (!alerts.is_empty()).then_some(alerts)
    });
    let [alert] = &alerts[..] else { panic!("one alert: {alerts:?}") };
    assert!(alert.text.contains("brought back in 10 s"), "{alert:?}");
    assert!(alert.text.contains("keyholder hold mars/stopped"), "{alert:?}");
    let late = alert.at.saturating_sub(lab.times("mars", "stopped.service").entered_inactive);
    assert!(late < micros(STOPPED), "it was announced {late} µs after the stop");
}

fn back_when_due_not_before(lab: &Lab, stream: &Stream) {
    lab.verified("stopped");
    let times = lab.times("mars", "stopped.service");
    let away = Duration::from_micros(times.entered_active - times.entered_inactive);
    println!("stopped: back after {away:?}");
    assert!((STOPPED..STOPPED + SOON).contains(&away), "it was away for {away:?}");
    assert_eq!(lab.relaunches("mars", "stopped"), 1);
    stream.saw_it_die_and_come_back("stopped", &lab.run_of("stopped.service"));
}

/// In the middle of it: reloading, starting, and waiting for systemd's own restart.
fn is_busy(lab: &Lab) {
    wait("auto waits for systemd", SOON, || {
        let seen = lab.worker("ai-core", "mars", "auto");
        (seen["class"] == "starting" && seen["why"] == "systemd restarts it itself").then_some(())
    });
    wait("reloads is reloading and counts as healthy", SOON, || {
        let state = lab.property("mars", "reloads.service", "ActiveState");
        (state == "reloading" && lab.worker("mars", "mars", "reloads")["class"] == "healthy").then_some(())
    });
    wait("slow is starting", SOON, || {
        let seen = lab.worker("ai-core", "mars", "slow");
        (seen["class"] == "starting" && seen["why"] == "starting").then_some(())
    });
    let seen = lab.worker("mars", "mars", "oneshot");
    assert!(seen["class"] == "healthy" && seen["why"] == "exited", "{seen}");
}

fn nothing_busy_was_touched(lab: &Lab, stream: &Stream) {
    for (worker, starts) in BUSY {
        wait(&format!("{worker} is up and well"), SOON, || {
            (lab.worker("mars", "mars", worker)["class"] == "healthy").then_some(())
        });
        assert_eq!(lab.relaunches("mars", worker), 0, "{worker}");
        if worker != "oneshot" {
            assert_eq!(lab.starts(&format!("{worker}.service")), starts, "{worker}");
        }
        if worker != "auto" {
            // auto is down for a moment before systemd schedules its restart.
            let classes = stream.classes(worker);
            assert!(!classes.contains(&"dead".to_owned()), "{worker} was seen as {classes:?}");
        }
    }
    let gap = lab.times("mars", "auto.service").gap();
    assert!(gap >= AUTO, "systemd's own RestartSec was waited out: {gap:?}");
}

fn the_obstacle_goes(lab: &Lab, worker: &str, how: &str) {
    lab.sh("mars", how);
    let mended = monotonic_us();
    lab.verified(worker);
    let at = lab.times("mars", &format!("{worker}.service")).entered_active;
    println!("{worker}: back {} µs after it became startable", i128::from(at) - i128::from(mended));
    assert!(at < mended + micros(SOON), "{worker} was back {} µs later", at - mended);
    assert_eq!(lab.relaunches("mars", worker), 1);
}
