//! A worker that keeps falling, and orders for workers that do not come back.

use std::time::Duration;

use crate::harness::{Lab, SOON, service, wait};
use crate::scene::{SECOND, Stream, all_along, house};

const WORKERS: &str = "
    flapper: { unit: flapper.service, settle: 2s, relaunches: 3, per: 10m, quarantine_retry: 1s }
    fragile: { unit: fragile.service, settle: 100ms, relaunches: 2, per: 10m, quarantine_retry: 1h }
    broken:  { unit: broken.service, repair_by: nobody, relaunches: 50 }
    brief:   { unit: brief.service, settle: 5s, repair_by: nobody, relaunches: 50 }
";

/// Dies a second after each start, until the file is there.
const FLAPPER: &str =
    "[Service]\nExecStart=/bin/sh -c '[ -e /run/flapper.ok ] && exec sleep infinity; sleep 1; exit 1'\n";
/// Does not start, and says why.
const BROKEN: &str = "# not started\n[Service]\nExecStartPre=/bin/sh -c 'echo the ledger is locked; exit 4'\nExecStart=/bin/true\n";
/// Starts, and ends before it counts as settled.
const BRIEF: &str =
    "# not started\n[Service]\nExecStart=/bin/sh -c 'echo the till is empty; sleep 0.3; exit 3'\n";

#[test]
fn a_worker_that_keeps_falling_is_quarantined_and_a_relaunch_that_fails_says_so() {
    let units = [
        (
            "flapper.service",
            FLAPPER.replace("[ -e", "[ -e /run/flapper.first ] || exec sleep infinity; [ -e"),
        ),
        ("fragile.service", service("")),
        ("broken.service", BROKEN.to_owned()),
        ("brief.service", BRIEF.to_owned()),
    ];
    let lab = house("quarantine", &["mars", "ai-core"], &units, WORKERS);
    let stream = Stream::open(&lab, "ai-core");

    lab.sh("mars", "touch /run/flapper.first; systemctl kill -s KILL flapper");
    orders_that_fail(&lab);
    the_budget_survives_a_restart_and_release_ends_a_quarantine(&lab);
    a_hold_is_ended_by_whom_it_belongs_to(&lab);
    a_flapping_worker_is_retried_slowly_until_it_stays_up(&lab, &stream);
}

fn quarantined(lab: &Lab, worker: &str) {
    wait(&format!("{worker} is in quarantine, here and as the peer sees it"), SOON, || {
        let seen = ["mars", "ai-core"].map(|node| lab.worker(node, "mars", worker)["quarantined"] == true);
        (seen == [true, true]).then_some(())
    });
}

fn alerts(lab: &Lab, worker: &str) -> usize {
    let alerts = lab.records("mars", "alert", &format!("mars/{worker}"), "");
    alerts.iter().filter(|line| line.text.contains("quarantine")).count()
}

fn a_flapping_worker_is_retried_slowly_until_it_stays_up(lab: &Lab, stream: &Stream) {
    quarantined(lab, "flapper");
    let acting = || lab.records("mars", "acting", "mars/flapper", "");
    let alert = wait("an alert", SOON, || lab.records("mars", "alert", "mars/flapper", "").pop());
    assert_eq!(acting().iter().filter(|line| line.at < alert.at).count(), 3, "the budget, and no more");
    assert!(alert.text.contains("keyholder release mars/flapper"), "{alert:?}");

    // An order that meets a try under way joins it, and one about the run before is told of the present one.
    wait("the quarantine refuses an order of a peer", SOON, || {
        let (code, said) = lab.tell("ai-core", "keyholder relaunch mars/flapper");
        (code == 5 && said.contains("quarantine")).then_some(())
    });
    let (code, said) = lab.tell("ai-core", "keyholder relaunch mars/flapper --force");
    assert!(code == 5, "a peer cannot force: {code}: {said}");
    let (code, said) = lab.tell("mars", "keyholder relaunch mars/flapper --force --no-settle");
    assert!(code == 0 && said.contains("running again"), "{code}: {said}");

    wait("it was retried three times in quarantine", 2 * SOON, || (acting().len() >= 7).then_some(()));
    let own: Vec<Duration> = lab
        .recorded("mars", "acting", "mars/flapper")
        .into_iter()
        .filter(|(_, text)| text.contains("its own supervisor"))
        .map(|(at, _)| at)
        .collect();
    // Each of them lasts a second, and then as long passes until the next.
    for pair in own[3..].windows(2) {
        let gap = pair[1].saturating_sub(pair[0]);
        assert!(gap >= SECOND + SECOND, "in quarantine it was retried after {gap:?}");
    }
    assert_eq!(alerts(lab, "flapper"), 1, "one alert for all of it");

    lab.sh("mars", "touch /run/flapper.ok");
    lab.verified("flapper");
    let run = lab.run_of("flapper.service");
    stream.saw_it_die_and_come_back("flapper", &run);
    wait("the quarantine has ended by itself", SOON, || {
        (lab.worker("ai-core", "mars", "flapper")["quarantined"] == false).then_some(())
    });
    assert_eq!(alerts(lab, "flapper"), 1);
}

fn the_budget_survives_a_restart_and_release_ends_a_quarantine(lab: &Lab) {
    for used in 1..=2 {
        lab.sh("mars", "systemctl kill -s KILL fragile");
        wait("fragile is back", SOON, || (lab.relaunches("mars", "fragile") == used).then_some(()));
        lab.verified("fragile");
        lab.sh("mars", "systemctl restart keyholder.service");
    }
    lab.sh("mars", "systemctl kill -s KILL fragile");
    quarantined(lab, "fragile");
    lab.sh("mars", "systemctl restart keyholder.service");
    quarantined(lab, "fragile");
    let (code, said) = lab.tell("mars", "keyholder relaunch mars/fragile");
    assert!(code == 5 && said.contains("quarantine"), "{code}: {said}");
    all_along("fragile stays down", SECOND, || {
        lab.property("mars", "fragile.service", "ActiveState") == "failed"
    });
    assert_eq!((lab.relaunches("mars", "fragile"), alerts(lab, "fragile")), (2, 1));

    let (code, said) = lab.tell("ai-core", "keyholder release mars/fragile");
    assert!(code == 5 && said.contains("only root on mars ends that"), "{code}: {said}");
    assert_eq!(lab.property("mars", "fragile.service", "ActiveState"), "failed");
    let (code, said) = lab.tell("mars", "keyholder release mars/fragile");
    assert!(code == 0 && said.contains("its quarantine has ended"), "{code}: {said}");
    wait("fragile is relaunched at once", SOON, || {
        (lab.property("mars", "fragile.service", "ActiveState") == "active").then_some(())
    });
    lab.verified("fragile");
    assert_eq!(lab.worker("mars", "mars", "fragile")["quarantined"], false);
}

/// What root on the node has declared nobody next door ends, neither by name nor by a shorter hold. What a peer has declared a peer
/// ends.
fn a_hold_is_ended_by_whom_it_belongs_to(lab: &Lab) {
    lab.sh("mars", "keyholder hold mars/fragile --for 1h --why deploy");
    for order in ["release mars/fragile", "hold mars/fragile --for 1s --why x"] {
        let (code, said) = lab.tell("ai-core", &format!("keyholder {order}"));
        assert!(code == 5 && said.contains("held by root"), "{order}: {code}: {said}");
    }
    let left = lab.worker("mars", "mars", "fragile")["held_for_ms"].as_u64().expect("it is held");
    assert!(left > 3_000_000, "{left}");
    let refused = lab.records("mars", "refused", "mars/fragile", "KEYHOLDER_BY=ai-core");
    assert_eq!(refused.len(), 3, "two of these, and the quarantine before: {refused:?}");
    lab.sh("mars", "keyholder release mars/fragile");
    lab.sh("ai-core", "keyholder hold mars/fragile --for 1h --why deploy");
    lab.sh("ai-core", "keyholder release mars/fragile");
    assert!(lab.worker("mars", "mars", "fragile")["held_for_ms"].is_null());
}

fn orders_that_fail(lab: &Lab) {
    for node in ["mars", "ai-core"] {
        let (code, said) = lab.tell(node, "keyholder relaunch mars/broken");
        assert!(code == 1 && said.contains("NOT back"), "{node}: {code}: {said}");
        assert!(said.contains("the ledger is locked"), "its last journal lines: {said}");

        let (code, said) = lab.tell(node, "keyholder relaunch mars/brief");
        assert!(code == 1 && said.contains("did not stay up"), "{node}: {code}: {said}");
        assert!(said.contains("the till is empty"), "its last journal lines: {said}");
        let (code, said) = lab.tell(node, "keyholder relaunch mars/brief --no-settle");
        assert!(code == 0 && said.contains("was not waited for"), "{node}: {code}: {said}");
    }
    let orders = lab.relaunches("mars", "broken");
    assert_eq!(orders, 2, "nobody tries again unasked");
}
