//! Every processor is busy: nobody is dead, and who falls is back.

use std::time::{Duration, Instant};

use crate::harness::{Lab, SOON, service, wait};
use crate::network::{Watch, run};
use crate::orders::{OFTEN, relaunched};

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn thirty_seconds_of_load_on_every_processor_make_nobody_dead() {
    let lab = Lab::boot_alone("load", &["mars", "ai-core"]);
    lab.furnish(&[("agent.service", &service(""))], &format!("agent: {{ {OFTEN} }}"));
    let mut watches = [Watch::start(&lab, "ai-core", "mars"), Watch::start(&lab, "mars", "ai-core")];
    let before = lab.property("mars", "keyholder.service", "InvocationID");
    let processors = std::thread::available_parallelism().map_or(2, usize::from);
    // In units of their own, which compete with the supervisor's as any service does.
    let busy = format!(
        "for n in $(seq {processors}); do systemd-run -q --unit=busy-$n -p RuntimeMaxSec=120 sh -c 'exec yes >/dev/null'; done"
    );
    for node in ["mars", "ai-core"] {
        lab.sh(node, &busy);
    }
    let begun = Instant::now();
    while begun.elapsed() < 30 * SECOND {
        // Until it has settled: one that falls before counts as not back, and each further try comes later.
        let ordered = Instant::now();
        let verdict = lab.sh("ai-core", "keyholder relaunch mars/agent --json --timeout 20s");
        relaunched(&serde_json::from_str(&verdict).expect("a verdict"));
        assert!(ordered.elapsed() < SOON, "{:?} under load", ordered.elapsed());
        let run = run(&lab);
        lab.sh("mars", "systemctl kill -s KILL agent.service");
        let run = lab.new_run("mars", "agent.service", &run, SOON);
        // The next order from there is about the run that is seen from there.
        wait("ai-core sees the new run", SOON, || {
            (lab.worker("ai-core", "mars", "agent")["invocation"] == run.as_str()).then_some(())
        });
    }
    for node in ["mars", "ai-core"] {
        lab.sh(
            node,
            &format!("for n in $(seq {processors}); do systemctl is-active -q busy-$n || exit 1; done"),
        );
    }
    for watch in &mut watches {
        while let Some((_, state)) = watch.next(Duration::ZERO) {
            assert_eq!(state, "up");
        }
    }
    assert_eq!(lab.property("mars", "keyholder.service", "InvocationID"), before, "the watchdog killed it");
}
