//! Units that are down by design, that another unit takes down, or in which nothing runs: what systemd says of them is read in
//! full, and acted on accordingly.

use crate::harness::{Lab, SOON, service, wait};
use crate::scene::{SECOND, all_along, house};

/// Ends with this status as soon as its gate is there.
fn ends(status: u8, more: &str) -> String {
    format!(
        "[Service]\nExecStart=/bin/sh -c 'while [ ! -e /run/%p.gate ]; do sleep 0.1; done; exit {status}'\n{more}\n"
    )
}

fn tied(tie: &str) -> String {
    format!("[Unit]\n{tie}\n{}", service(""))
}

const DESIGNED: &str = "
    skips:   { unit: skips.service, relaunches: 10 }
    execs:   { unit: execs.service, relaunches: 10 }
    agreed:  { unit: agreed.service }
    timed:   { unit: timed.service }
    idles:   { unit: idles.service }
    works:   { unit: works.service }
    may:     { unit: may.service, ends: clean }
    maynot:  { unit: maynot.service }
    blue:    { unit: blue.service, undeclared_stop: 1s }
    green:   { unit: green.service, undeclared_stop: 1s }
    pg:      { unit: pg.service }
    vessel:  { unit: vessel.service, ends: clean }
    headless: { unit: headless.service }
";

const EXITED: &str = "[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=/bin/true\n";

#[test]
fn what_is_down_by_design_is_left_down_and_what_is_hollow_is_not_called_healthy() {
    let units = [
        (
            "skips.service",
            format!("# not started\n[Unit]\nConditionPathExists=/run/skips.wanted\n{}", service("")),
        ),
        ("execs.service", format!("# not started\n{}", service("ExecCondition=/bin/false"))),
        ("agreed.service", ends(7, "Restart=always\nRestartSec=0\nRestartPreventExitStatus=7")),
        ("timed.service", "# not started\n[Service]\nType=oneshot\nExecStart=/bin/true\n".to_owned()),
        ("timed.timer", "[Timer]\nOnCalendar=yearly\n".to_owned()),
        ("idles.socket", "[Socket]\nListenStream=/run/idles.sock\n".to_owned()),
        ("idles.service", ends(0, "")),
        ("works.service", ends(0, "Type=oneshot").replace("[Service]", "# not started\n[Service]")),
        ("may.service", ends(0, "")),
        ("maynot.service", ends(0, "")),
        ("blue.service", format!("[Unit]\nConflicts=green.service\n{}", service(""))),
        ("green.service", format!("# not started\n{}", service(""))),
        ("pg.service", EXITED.to_owned()),
        ("pg@main.service", tied("PartOf=pg.service")),
        ("vessel.service", EXITED.to_owned()),
        (
            "headless.service",
            "[Service]\nType=forking\nGuessMainPID=no\nExecStart=/bin/sh -c 'sleep infinity & exit 0'\n"
                .to_owned(),
        ),
    ];
    let lab = house("design", &["mars", "ai-core"], &units, DESIGNED);
    // A start that is skipped was tried by the supervisor, once: before that nobody knows.
    is_idle(&lab, "skips", "skipped: ConditionPathExists=/run/skips.wanted is not met");
    is_idle(&lab, "execs", "skipped: its ExecCondition= is not met");
    is_idle(&lab, "timed", "not started: timed.timer starts it");
    assert_eq!(lab.relaunches("mars", "timed"), 0);

    lab.sh("mars", "touch /run/agreed.gate /run/idles.gate /run/works.gate /run/may.gate /run/maynot.gate");
    is_idle(&lab, "agreed", "ended by design: exit code 7 (RestartPreventExitStatus=)");
    is_idle(&lab, "idles", "ended by design: idles.socket starts it again");
    is_idle(&lab, "works", "ended by design: its work is done (Type=oneshot)");
    is_idle(&lab, "may", "ended by design: it ended well");
    wait("one that may not end is brought back", SOON, || {
        (lab.relaunches("mars", "maynot") > 0).then_some(())
    });

    // Two that cannot run together are not swapped, however long that takes.
    lab.sh("mars", "systemctl start green");
    is_idle(&lab, "blue", "conflicts with green.service, which runs");
    let before = tries(&lab);
    all_along("green runs and blue does not", 3 * SECOND, || {
        lab.property("mars", "green.service", "ActiveState") == "active"
            && lab.property("mars", "blue.service", "ActiveState") == "inactive"
    });
    let (code, said) = lab.tell("ai-core", "keyholder relaunch mars/blue");
    assert!(code == 5 && said.contains("green.service"), "{code}: {said}");
    assert_eq!(tries(&lab), before, "nothing was tried on what is down by design");
    let alerts = lab.records("mars", "alert", "mars/blue", "");
    assert!(alerts.iter().all(|alert| !alert.text.contains("no hold was declared")), "{alerts:?}");
    lab.sh("mars", "keyholder relaunch mars/blue --force");
    is_idle(&lab, "green", "conflicts with blue.service, which runs");
    let (_, said) = lab.tell("ai-core", "keyholder status");
    assert!(said.contains("idle"), "{said}");

    for (worker, word) in [
        ("pg", "nothing runs in it: pg@main.service runs"),
        ("headless", "systemd knows no main process of it"),
    ] {
        wait(&format!("{worker} is not called healthy"), SOON, || {
            let seen = lab.worker("ai-core", "mars", worker);
            (seen["class"] == "unknown" && seen["why"].as_str()?.contains(word)).then_some(())
        });
    }
    let (_, said) = lab.tell("mars", "keyholder doctor");
    assert!(said.contains("nothing runs in it"), "{said}");
    assert_eq!(lab.worker("mars", "mars", "vessel")["class"], "healthy");
}

fn is_idle(lab: &Lab, worker: &str, why: &str) {
    wait(&format!("{worker} is down by design: {why}"), SOON, || {
        let seen = lab.worker("ai-core", "mars", worker);
        let idle = seen["class"] == "held" && seen["held_for_ms"].is_null() && seen["due_in_ms"].is_null();
        (idle && seen["why"].as_str()?.contains(why)).then_some(())
    });
}

/// How often the supervisor has tried those that are down by design.
fn tries(lab: &Lab) -> Vec<usize> {
    ["skips", "execs", "agreed", "timed", "idles", "may"]
        .iter()
        .map(|name| lab.relaunches("mars", name))
        .collect()
}

const CASCADE: &str = "
    db:    { unit: db.service, undeclared_stop: 10s }
    bound: { unit: bound.service }
    part:  { unit: part.service }
    needs: { unit: needs.service }
    outer: { unit: outer.service, undeclared_stop: 1s, relaunches: 1, quarantine_retry: 1h }
";
const DEPENDANTS: [&str; 3] = ["bound", "part", "needs"];

#[test]
fn what_another_unit_takes_down_comes_back_with_it_and_the_cause_is_named() {
    let units = [
        ("db.service", service("")),
        ("bound.service", tied("BindsTo=db.service\nAfter=db.service")),
        ("part.service", tied("PartOf=db.service\nAfter=db.service")),
        ("needs.service", tied("Requires=db.service\nAfter=db.service")),
        ("ext.service", service("ExecStartPre=/bin/sh -c 'test ! -e /run/ext.broken'")),
        ("outer.service", tied("BindsTo=ext.service\nAfter=ext.service")),
    ];
    let lab = house("cascade", &["mars", "ai-core"], &units, CASCADE);
    let up = |names: &[&str]| {
        wait(&format!("{names:?} are up"), SOON, || {
            let node = lab.node("mars", "mars");
            let all = node["workers"].as_array()?;
            let of = |name: &&str| all.iter().find(|seen| seen["worker"] == **name);
            names
                .iter()
                .all(|name| of(name).is_some_and(|seen| seen["class"] == "healthy" && seen["doing"] == ""))
                .then_some(())
        });
    };
    let all = ["db", "bound", "part", "needs", "outer"];
    up(&all);

    // The cause falls, and is repaired; what fell with it follows.
    let before = lab.run_of("bound.service");
    lab.sh("mars", "systemctl kill -s KILL db");
    lab.new_run("mars", "bound.service", &before, SOON);
    up(&all);
    assert_eq!(lab.relaunches("mars", "db"), 1);

    // The cause is stopped: nobody starts it by starting what needs it.
    lab.sh("mars", "systemctl stop db");
    for worker in DEPENDANTS {
        wait(&format!("{worker} names its cause"), SOON, || {
            let seen = lab.worker("ai-core", "mars", worker);
            let why = seen["why"].as_str()?;
            (seen["class"] == "dead" && why.contains("taken down by db.service")).then_some(())
        });
    }
    all_along("db stays down", 2 * SECOND, || {
        lab.property("mars", "db.service", "ActiveState") == "inactive"
    });
    up(&all);
    for worker in DEPENDANTS {
        let alerts = lab.records("mars", "alert", &format!("mars/{worker}"), "");
        assert!(alerts.is_empty(), "{worker}: {alerts:?}");
    }
    assert_eq!(lab.relaunches("mars", "db"), 2);

    // A cause that is nobody's worker: named, tried with what needs it, and followed at once when somebody mends it.
    lab.sh("mars", "touch /run/ext.broken; systemctl kill -s KILL ext");
    wait("outer is in quarantine and names its cause", SOON, || {
        let seen = lab.worker("ai-core", "mars", "outer");
        (seen["quarantined"] == true
            && seen["why"].as_str()?.contains("taken down by ext.service, which failed"))
        .then_some(())
    });
    lab.sh("mars", "rm /run/ext.broken; systemctl reset-failed ext; systemctl start ext");
    up(&["outer"]);
    wait("its quarantine is over", SOON, || {
        (lab.worker("mars", "mars", "outer")["quarantined"] == false).then_some(())
    });
}
