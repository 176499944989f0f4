//! The supervisor dies, is stopped, dies together with its worker: the door stays, the worker is left alone, and a knock
//! brings both back.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use crate::harness::{Lab, SOON, service, wait};
use crate::orders::{OFTEN, degraded, relaunch, relaunched};
use crate::scene::all_along;
use crate::speak::{Place, knock};

const SECOND: Duration = Duration::from_secs(1);

/// Kills the supervisor of a node 50 times, each time once it serves again.
const FIFTY: &str = "last=0 n=0 end=$(($(date +%s) + 180))
while [ $n -lt 50 ]; do
    [ $(date +%s) -lt $end ] || { echo only $n; exit 1; }
    pid=$(systemctl show -P MainPID keyholder.service)
    [ $pid != 0 ] && [ $pid != $last ] && systemctl is-active -q keyholder.service || continue
    kill -KILL $pid && last=$pid && n=$((n + 1))
done";

#[test]
fn whatever_becomes_of_the_supervisor_the_door_stays_and_the_worker_is_left_alone() {
    let lab = Lab::pair("survival", &[("agent.service", &service(""))], &format!("agent: {{ {OFTEN} }}"));
    fifty_kills_under_load(&lab);
    the_door_opens_as_often_as_it_is_told(&lab);
    a_door_without_its_socket_is_mended(&lab);
    a_request_starts_a_stopped_supervisor(&lab);
    a_knock_brings_back_both(&lab);
}

fn fifty_kills_under_load(lab: &Lab) {
    let run = lab.property("mars", "agent.service", "InvocationID");
    let descriptors = |of: &str| -> usize {
        let line = format!("ls /proc/{of}/fd | wc -l");
        lab.sh("mars", &line).trim().parse().expect("a number")
    };
    let supervisor = || lab.property("mars", "keyholder.service", "MainPID");
    let (before, before_pid_1) = (descriptors(&supervisor()), descriptors("1"));

    let load = Load::start([Place::bridge(lab), Place::of(lab, "ai-core")]);
    lab.sh("mars", FIFTY);
    let connections = load.stop();
    assert!(connections > 500, "{connections} connections are no load");

    assert_eq!(lab.property("mars", "agent.service", "InvocationID"), run, "the worker was touched");
    assert_eq!(lab.relaunches("mars", "agent"), 0);
    wait("ai-core hears mars again", SOON, || (lab.node("ai-core", "mars")["state"] == "up").then_some(()));
    let (verdict, took) = relaunch(lab, "ai-core", "mars/agent");
    assert!(took < SOON, "{took:?}");
    assert_ne!(relaunched(&verdict)["invocation"], run.as_str());
    // A watcher may be connecting at this moment; fifty leaks would show.
    wait("descriptors are given back", SOON, || {
        (descriptors(&supervisor()) <= before + 4 && descriptors("1") <= before_pid_1 + 4).then_some(())
    });
}

/// Connections without end, from several places: some say nothing, some say rubbish, all go away again.
struct Load {
    over: Arc<AtomicBool>,
    count: Arc<AtomicUsize>,
    threads: Vec<std::thread::JoinHandle<()>>,
}

impl Load {
    fn start(places: [Place; 2]) -> Self {
        let (over, count) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
        let threads = places.map(|place| {
            let (over, count) = (over.clone(), count.clone());
            place.within(move || {
                let mut held = std::collections::VecDeque::new();
                while !over.load(Ordering::Relaxed) {
                    if let Ok(mut stream) = knock("mars") {
                        if count.fetch_add(1, Ordering::Relaxed) % 2 == 0 {
                            let _ = stream.write_all(b"\x16\x03\x01rubbish");
                        }
                        held.push_back(stream);
                    }
                    if held.len() > 20 {
                        held.pop_front();
                    }
                    // Not a wait for anything: about 200 connections a second and place, which leaves the node a processor.
                    std::thread::sleep(Duration::from_millis(5));
                }
            })
        });
        Self { over, count, threads: threads.into() }
    }

    fn stop(self) -> usize {
        self.over.store(true, Ordering::Relaxed);
        for thread in self.threads {
            thread.join().expect("the load ends");
        }
        self.count.load(Ordering::Relaxed)
    }
}

/// systemd's default refuses the sixth start within ten seconds, and all that come after it.
fn the_door_opens_as_often_as_it_is_told(lab: &Lab) {
    let again = "systemctl stop keyholder.socket keyholder.service && systemctl start keyholder.socket";
    lab.sh("mars", &format!("for n in 1 2 3 4 5 6 7 8; do {again} || exit 1; done"));
    relaunched(&relaunch(lab, "ai-core", "mars/agent").0);
}

/// A socket that somebody has stopped does not start beside a service that runs; what doctor advises does it, and so does
/// install.sh.
fn a_door_without_its_socket_is_mended(lab: &Lab) {
    let socket = || -> serde_json::Value {
        let findings = lab.try_sh("mars", "keyholder doctor --json").stdout;
        let findings: Vec<serde_json::Value> = serde_json::from_slice(&findings).expect("an array");
        findings.into_iter().find(|finding| finding["check"] == "socket").expect("it looks at the socket")
    };
    let run = lab.property("mars", "agent.service", "InvocationID");
    lab.sh("mars", "systemctl stop keyholder.socket");
    let found = socket();
    assert_eq!(found["level"], "fail", "{found}");
    wait("next door it is told as well", SOON, || {
        let told = degraded(lab, "ai-core", "mars");
        told.iter().any(|text| text.contains("keyholder.socket is stopped")).then_some(())
    });
    wait("somebody is called", SOON, || {
        let alerts = lab.evidence("mars", "alert");
        alerts.iter().any(|text| text.contains("keyholder.socket is stopped")).then_some(())
    });
    lab.sh("mars", found["way_out"].as_str().expect("a way out"));
    assert_eq!(socket()["level"], "ok");
    wait("the door is open", SOON, || {
        let mars = lab.node("ai-core", "mars");
        (mars["state"] == "up" && mars["degraded"] == serde_json::json!([])).then_some(())
    });
    lab.sh("mars", "systemctl stop keyholder.socket; /root/src/install.sh --binary /root/keyholder");
    assert_eq!(socket()["level"], "ok");
    assert_eq!(lab.property("mars", "agent.service", "InvocationID"), run, "the worker was touched");
    relaunched(&relaunch(lab, "ai-core", "mars/agent").0);
}

fn a_request_starts_a_stopped_supervisor(lab: &Lab) {
    let before = lab.property("mars", "agent.service", "InvocationID");
    // Without the watcher, whose reconnecting is a knock already.
    lab.sh("ai-core", "systemctl stop keyholder.socket keyholder.service");
    lab.sh("mars", "systemctl stop keyholder.service");
    all_along("nothing else starts it", SECOND, || active(lab, "keyholder.service") == "inactive");
    assert_eq!(lab.property("mars", "agent.service", "InvocationID"), before, "the stop touched the worker");
    lab.sh("ai-core", "systemctl start keyholder.socket");
    let (verdict, took) = relaunch(lab, "ai-core", "mars/agent");
    assert_eq!(relaunched(&verdict)["before"], before.as_str());
    assert!(took < SOON, "{took:?} for starting two supervisors and the order");
    assert_eq!(active(lab, "keyholder.service"), "active");
}

fn a_knock_brings_back_both(lab: &Lab) {
    let before = lab.property("mars", "agent.service", "InvocationID");
    let drop_in = "/run/systemd/system/keyholder.service.d/no-restart.conf";
    lab.write("mars", drop_in, "[Service]\nRestart=no\n");
    lab.sh("mars", "systemctl daemon-reload");
    lab.sh("ai-core", "systemctl stop keyholder.socket keyholder.service");
    lab.sh("mars", "systemctl kill -s KILL keyholder.service agent.service");
    let both_down =
        || active(lab, "keyholder.service") == "failed" && active(lab, "agent.service") == "failed";
    wait("both are down", SOON, || both_down().then_some(()));
    all_along("nobody is left to help", SECOND, both_down);
    let repairs = || {
        let all = lab.evidence("mars", "acting");
        all.iter().filter(|line| line.contains("agent.service: its own supervisor")).count()
    };
    assert_eq!(repairs(), 0);
    lab.sh("ai-core", "systemctl start keyholder.socket keyholder.service");
    lab.new_run("mars", "agent.service", &before, SOON);
    // Nobody has asked for the worker: the knock started the supervisor, and the supervisor did the rest.
    assert_eq!(repairs(), 1);
    assert_eq!(lab.property("mars", "keyholder.service", "NRestarts"), "0");
    lab.sh("mars", &format!("rm {drop_in} && systemctl daemon-reload"));
}

fn active(lab: &Lab, unit: &str) -> String {
    lab.property("mars", unit, "ActiveState")
}
