//! The cable is pulled, or one direction is lost: what a watcher says then, and that it does nothing on a guess.

use std::io::{BufRead, BufReader};
use std::process::Child;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::harness::{Lab, SOON, service, wait};
use crate::orders::{OFTEN, relaunch, relaunched};

const SECOND: Duration = Duration::from_secs(1);

/// `keyholder status --watch --json` on a node: what it is told of one node's state, and when.
pub(crate) struct Watch {
    child: Child,
    states: Receiver<(Instant, String)>,
}

impl Watch {
    pub(crate) fn start(lab: &Lab, at: &str, node: &'static str) -> Self {
        let mut child = lab.spawn(at, "exec keyholder status --watch --json");
        let lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        let (to, states) = channel();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                let frame: Value = serde_json::from_str(&line).expect("a line of JSON");
                if frame["snapshot"]["node"] == node {
                    let state = frame["snapshot"]["state"].as_str().expect("a state").to_owned();
                    let _ = to.send((Instant::now(), state));
                }
            }
        });
        let mut watch = Self { child, states };
        assert_eq!(watch.next(SOON).expect("the state at first").1, "up");
        watch
    }

    pub(crate) fn next(&mut self, within: Duration) -> Option<(Instant, String)> {
        self.states.recv_timeout(within).ok()
    }

    /// How long after `since` it is told that the node is in this state.
    fn told(&mut self, state: &str, since: Instant) -> Duration {
        loop {
            let left = (since + SOON).saturating_duration_since(Instant::now());
            let Some((at, seen)) = self.next(left) else { panic!("not told {state} within {SOON:?}") };
            if seen == state {
                return at - since;
            }
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn run(lab: &Lab) -> String {
    lab.property("mars", "agent.service", "InvocationID")
}

#[test]
fn a_node_that_is_cut_off_is_unreachable_within_three_seconds_and_nobody_acts_on_a_guess() {
    let lab = Lab::pair("cable", &[("agent.service", &service(""))], &format!("agent: {{ {OFTEN} }}"));
    let mut watch = Watch::start(&lab, "ai-core", "mars");
    let before = run(&lab);

    unplug(&lab, &mut watch);
    let mars = lab.node("ai-core", "mars");
    assert_eq!(mars["state"], "unreachable", "{mars}");
    wait("somebody is called", SOON, || {
        let alerts = lab.evidence("ai-core", "alert");
        alerts.iter().any(|line| line.contains("someone must go there")).then_some(())
    });
    let (verdict, took) = relaunch(&lab, "ai-core", "mars/agent");
    assert_eq!(verdict["refused"]["code"], "unreachable", "{verdict}");
    assert!(took < SOON, "{took:?} to say so");
    assert_eq!(run(&lab), before, "an order got through a pulled cable");
    assert_eq!(lab.evidence("ai-core", "acting"), Vec::<String>::new());
    // The node itself needs nobody.
    lab.sh("mars", "systemctl kill -s KILL agent.service");
    let repaired = lab.new_run("mars", "agent.service", &before, SOON);

    lab.lab(&["plug", "mars"]);
    watch.told("up", Instant::now());
    wait("whoever was called is told that it is over", SOON, || {
        let ends = lab.evidence("ai-core", "alert-ended");
        ends.iter().any(|line| line.contains("it answers again")).then_some(())
    });
    wait("ai-core knows of the repair", SOON, || {
        (lab.worker("ai-core", "mars", "agent")["invocation"] == repaired.as_str()).then_some(())
    });
    relaunched(&relaunch(&lab, "ai-core", "mars/agent").0);

    one_way(&lab, &mut watch, "out");
    one_way(&lab, &mut watch, "in");
    assert_eq!(lab.evidence("ai-core", "acting"), Vec::<String>::new());
}

/// Pulls the cable of mars and sees that it is told in time: once is enough, for this machine may stall at that moment.
fn unplug(lab: &Lab, watch: &mut Watch) {
    for last in [false, false, true] {
        lab.lab(&["unplug", "mars"]);
        let took = watch.told("unreachable", Instant::now());
        if took < 3 * SECOND {
            break;
        }
        assert!(!last, "{took:?}");
        lab.lab(&["plug", "mars"]);
        watch.told("up", Instant::now());
    }
}

/// Packets of mars are lost in one direction only. Whether it is "down" or "cut off" cannot be told from there, and is not.
fn one_way(lab: &Lab, watch: &mut Watch, way: &str) {
    let before = run(lab);
    lab.lab(&["loss", "mars", way]);
    let lost = Instant::now();
    watch.told("unreachable", lost);
    assert_eq!(run(lab), before);
    lab.lab(&["heal", "mars"]);
    watch.told("up", Instant::now());
    for (at, of) in [("ai-core", "mars"), ("mars", "ai-core")] {
        wait(&format!("{at} hears {of}"), SOON, || (lab.node(at, of)["state"] == "up").then_some(()));
    }
    assert_eq!(run(lab), before);
}
