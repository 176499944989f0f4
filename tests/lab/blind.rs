//! Detectors that cannot see: journald, a unit's own settings or a file system is the cause, and no worker that is well is touched
//! for it. A worker that really hangs is found all the same, and is called recovered only when its sign is back.

use crate::harness::{Lab, SOON, wait};
use crate::scene::{SECOND, all_along, house};

/// Says a word three times a second; hangs while /run/NAME.hang exists.
fn chat(name: &str, more: &str) -> String {
    let line = format!("while :; do [ -e /run/{name}.hang ] || echo beat; sleep 0.3; done");
    format!("[Service]\nExecStart=/bin/sh -c '{line}'\n{more}\n")
}

/// Beats in a file on a file system of its own, by a new file in the old one's place.
fn mounted(name: &str) -> String {
    let dir = format!("/run/{name}");
    let mount =
        format!("mountpoint -q {dir} || {{ mkdir -p {dir}; mount -t tmpfs -o size=64k tmpfs {dir}; }}");
    let line = format!("while :; do date >{dir}/new && mv {dir}/new {dir}/beat; sleep 0.3; done");
    format!("[Service]\nExecStartPre=/bin/sh -c '{mount}'\nExecStart=/bin/sh -c '{line}'\n")
}

/// Six seconds to READY, and another and a half to the first beat.
const SLOW: &str = "[Service]\nType=notify\nNotifyAccess=all\nExecStart=/bin/sh -c 'rm -f /run/slow.beat; sleep 6; \
    systemd-notify --ready; sleep 1.5; while :; do touch /run/slow.beat; sleep 0.3; done'\n";
/// Without a handler for any signal; a new run begins without its hang.
const NAKED: &str = "[Service]\nUser=nobody\nRuntimeDirectory=naked\nExecStart=/bin/sh -c 'while :; do \
    [ -e /run/naked/hang ] || touch /run/naked/beat; sleep 0.3; done'\n";

const WORKERS: &str = "
    named: { unit: alias.service, stuck: { heartbeat: { journal: true, older_than: 2s } } }
    filed: { unit: filed.service, stuck: { heartbeat: { journal: true, older_than: 2s } } }
    flood: { unit: flood.service, stuck: { heartbeat: { journal: true, older_than: 2s } } }
    hangs: { unit: hangs.service, stuck: { heartbeat: { journal: true, older_than: 2s } } }
    full: { unit: full.service, stuck: { heartbeat: { file: /run/full/beat, older_than: 2s } } }
    sealed: { unit: sealed.service, stuck: { heartbeat: { file: /run/sealed/beat, older_than: 2s } } }
    gone: { unit: gone.service, stuck: { heartbeat: { file: /run/none/beat, older_than: 2s } } }
    slow: { unit: slow.service, stuck: { heartbeat: { file: /run/slow.beat, older_than: 4s }, nudge: { signal: SIGUSR1 } } }
    naked: { unit: naked.service, stuck: { heartbeat: { file: /run/naked/beat, older_than: 2s }, nudge: { signal: SIGUSR1 } } }";

/// What was done to a worker, from the audit: journald may be away.
fn acts(lab: &Lab, worker: &str) -> Vec<String> {
    let acts = lab.recorded("mars", "acting", &format!("mars/{worker}"));
    acts.into_iter().map(|(_, text)| text).collect()
}

fn is(lab: &Lab, worker: &str, class: &str, why: &str) {
    let mut last = String::new();
    wait(&format!("{worker} is {class}: {why}"), SOON, || {
        let seen = lab.worker("mars", "mars", worker);
        let text = seen.to_string();
        if text != last {
            println!("{text}");
            last = text;
        }
        (seen["class"] == class && seen["why"].as_str()?.contains(why)).then_some(())
    });
}

#[test]
fn what_hides_a_sign_of_life_is_blamed_and_no_worker_that_is_well_is_touched() {
    let flood = "LogRateLimitIntervalSec=60s\nLogRateLimitBurst=20\nExecStartPre=/bin/sh -c 'seq 30'";
    let units: Vec<(&str, String)> = vec![
        ("named.service", chat("named", "[Install]\nWantedBy=multi-user.target\nAlias=alias.service")),
        ("filed.service", chat("filed", "StandardOutput=append:/run/filed.log")),
        ("flood.service", chat("flood", flood)),
        ("hangs.service", chat("hangs", "")),
        ("gone.service", chat("gone", "")),
        ("full.service", mounted("full")),
        ("sealed.service", mounted("sealed")),
        ("slow.service", SLOW.to_owned()),
        ("naked.service", NAKED.to_owned()),
    ];
    let lab = house("blind", &["mars", "ai-core"], &units, WORKERS);
    is(&lab, "named", "healthy", "");
    is(&lab, "filed", "unknown", "go elsewhere");
    is(&lab, "flood", "unknown", "drops lines");
    is(&lab, "gone", "unknown", "is missing");
    for well in ["full", "sealed", "slow", "naked", "hangs"] {
        is(&lab, well, "healthy", "");
    }
    lab.sh("mars", "dd if=/dev/zero of=/run/full/all bs=4k 2>/dev/null || true");
    // Busy while the worker has a file of it open.
    wait("it is read-only", SOON, || {
        lab.try_sh("mars", "mount -o remount,ro /run/sealed").status.success().then_some(())
    });
    is(&lab, "full", "unknown", "is full");
    is(&lab, "sealed", "unknown", "read-only");

    // The clock of a worker that is being started does not run.
    lab.sh("mars", "systemctl restart slow.service");
    let slow = lab.run_of("slow.service");

    // A signal that would end the worker is not sent, and the relaunch has helped when the new run beats.
    let before = lab.run_of("naked.service");
    lab.sh("mars", "touch /run/naked/hang");
    lab.new_run("mars", "naked.service", &before, SOON);
    let acted =
        || lab.recorded("mars", "acted", "mars/naked").into_iter().map(|(_, text)| text).collect::<Vec<_>>();
    wait("naked is no longer stuck", SOON, || {
        acted().iter().any(|text| text.contains("is no longer stuck: recovered")).then_some(())
    });
    assert!(
        acted().iter().any(|text| text.contains("SIGUSR1 was not sent") && text.contains("no handler")),
        "{:?}",
        acted()
    );
    assert_eq!(lab.property("mars", "naked.service", "NRestarts"), "0");

    // A worker that really hangs, whatever is started: quarantine, and never "recovered".
    lab.sh("mars", "touch /run/hangs.hang");
    wait("hangs is in quarantine", SOON * 3, || {
        (lab.worker("mars", "mars", "hangs")["quarantined"] == true).then_some(())
    });
    let said = lab.recorded("mars", "acted", "mars/hangs");
    assert!(said.iter().all(|(_, text)| !text.contains("recovered")), "{said:?}");
    assert!(acts(&lab, "hangs").len() >= 3);
    lab.sh("mars", "rm /run/hangs.hang");

    // journald hangs, is stopped, and is started again without the streams that it held.
    lab.sh("mars", "systemctl kill -s STOP systemd-journald");
    is(&lab, "named", "unknown", "journald");
    all_along("nothing is done while journald hangs", 4 * SECOND, || acts(&lab, "named").is_empty());
    lab.sh("mars", "systemctl kill -s CONT systemd-journald");
    is(&lab, "named", "healthy", "");
    let journald = "systemd-journald.socket systemd-journald-dev-log.socket systemd-journald.service";
    lab.sh("mars", &format!("systemctl stop {journald} 2>/dev/null"));
    is(&lab, "named", "unknown", "journald");
    // Since systemd 254 PID 1 can keep the streams until the next journald starts: here it drops them.
    let lose = "[ \"$(systemctl show -P FileDescriptorStorePreserve systemd-journald)\" != yes ] || systemctl clean --what=fdstore systemd-journald.service";
    lab.sh("mars", lose);
    lab.sh("mars", &format!("systemctl start {journald}"));
    is(&lab, "named", "unknown", "was started again");
    lab.sh("mars", "systemctl restart named.service");
    is(&lab, "named", "healthy", "");

    assert_eq!(lab.run_of("slow.service"), slow);
    for well in ["named", "filed", "flood", "gone", "full", "sealed", "slow"] {
        assert_eq!(acts(&lab, well), Vec::<String>::new(), "{well}");
    }
}
