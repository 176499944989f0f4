//! What watchers do and what is ordered from several sides at once: three nodes, two of which watch the third.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use keyholder::vocabulary::ReqId;
use serde_json::{Value, json};

use crate::harness::{Lab, SOON, service, wait};
use crate::scene::{SECOND, Stream, all_along, house};

const WATCHERS: [&str; 2] = ["ai-core", "venus"];

const WORKERS: &str = "
    outside: { unit: outside.service, repair_by: peer, grace: 100ms, relaunches: 20 }
    nobody:  { unit: nobody.service, repair_by: nobody }
    shared:  { unit: shared.service, relaunches: 20 }
";

#[test]
fn watchers_act_where_the_node_may_not_and_many_orders_are_one_relaunch() {
    // Is starting for as long as its gate is there: orders from three nodes meet meanwhile.
    let shared = service("ExecStartPre=/bin/sh -c 'while [ -e /run/shared.gate ]; do sleep 0.2; done'");
    let units =
        [("outside.service", service("")), ("nobody.service", service("")), ("shared.service", shared)];
    let lab = house("peerside", &["mars", "ai-core", "venus"], &units, WORKERS);
    let stream = Stream::open(&lab, "ai-core");

    for _ in 0..3 {
        watchers_repair_what_the_node_leaves_to_them(&lab, &stream);
    }
    nobody_acts_unless_a_person_says_so(&lab);
    three_orders_at_once_are_one_relaunch(&lab);
    the_same_request_twice_is_one_relaunch(&lab);
    an_order_about_an_earlier_run_touches_nothing(&lab);
}

/// How often systemd has started a worker in this boot, and its present run.
fn runs(lab: &Lab, worker: &str) -> (usize, String) {
    let unit = format!("{worker}.service");
    (lab.starts(&unit), lab.run_of(&unit))
}

fn watchers_repair_what_the_node_leaves_to_them(lab: &Lab, stream: &Stream) {
    let (starts, before) = runs(lab, "outside");
    let ordered = |watcher| lab.records(watcher, "acting", "mars/outside", "").len();
    let (relaunched, orders) = (lab.relaunches("mars", "outside"), WATCHERS.map(ordered));
    lab.sh("mars", "systemctl kill -s KILL outside");
    let run = lab.new_run("mars", "outside.service", &before, SOON);
    let gap = lab.times("mars", "outside.service").gap();
    println!("outside: back after {gap:?}");
    assert!((SECOND / 10..SOON).contains(&gap), "after the grace, and not for ever: {gap:?}");
    stream.saw_it_die_and_come_back("outside", &run);
    lab.verified("outside");

    assert_eq!(lab.relaunches("mars", "outside"), relaunched + 1);
    assert_eq!(runs(lab, "outside"), (starts + 1, run), "it came up once");
    let act = lab.records("mars", "acting", "mars/outside", "").pop().expect("an act");
    assert!(WATCHERS.iter().any(|watcher| act.text.contains(watcher)), "on whose order? {act:?}");
    assert!(WATCHERS.map(ordered) > orders, "a watcher's own record of its order");
}

fn nobody_acts_unless_a_person_says_so(lab: &Lab) {
    let before = lab.run_of("nobody.service");
    lab.sh("mars", "systemctl kill -s KILL nobody");
    wait("the peer sees nobody dead", SOON, || {
        (lab.worker("ai-core", "mars", "nobody")["class"] == "dead").then_some(())
    });
    all_along("nobody is left down", 2 * SECOND, || {
        lab.property("mars", "nobody.service", "ActiveState") == "failed"
    });
    assert_eq!(lab.relaunches("mars", "nobody"), 0);
    for watcher in WATCHERS {
        assert!(lab.records(watcher, "acting", "mars/nobody", "").is_empty(), "{watcher} did something");
    }
    let (code, said) = lab.tell("ai-core", "keyholder relaunch mars/nobody --why 'a person looked'");
    assert!(code == 0 && said.contains("stayed up"), "{code}: {said}");
    assert_ne!(lab.run_of("nobody.service"), before);
    assert_eq!(lab.relaunches("mars", "nobody"), 1);
}

/// How many have a connection to a node's own socket.
fn connections(lab: &Lab, node: &str) -> usize {
    lab.sh(node, "ss -Hx state established src /run/keyholder/keyholder.sock").lines().count()
}

fn three_orders_at_once_are_one_relaunch(lab: &Lab) {
    let (starts, before) = runs(lab, "shared");
    let relaunched = lab.relaunches("mars", "shared");
    let order = "keyholder relaunch mars/shared --no-settle --json --timeout 60s";
    let nodes = ["ai-core", "venus", "mars", "ai-core"];
    let connected = || nodes.map(|node| connections(lab, node));
    let idle = connected();
    lab.sh("mars", "touch /run/shared.gate");
    let orders = nodes.map(|node| lab.spawn(node, order));
    wait("all orders have been given", SOON, || {
        (connected() == [idle[0] + 2, idle[1] + 1, idle[2] + 1, idle[3] + 2]).then_some(())
    });
    // What is asked after them on the same ways is answered after they have arrived.
    for node in nodes {
        lab.sh(node, "keyholder explain mars/shared");
    }
    lab.sh("mars", "rm /run/shared.gate");
    let outcomes = orders.map(|child| {
        let output = child.wait_with_output().expect("it ends");
        assert!(output.status.success(), "{output:?}");
        let verdict: Value = serde_json::from_slice(&output.stdout).expect("a verdict");
        verdict["outcome"]["relaunched"].clone()
    });
    let run = lab.run_of("shared.service");
    for outcome in &outcomes {
        assert!(outcome["invocation"] == run.as_str() && outcome["before"] == before.as_str(), "{outcome}");
    }
    let first = outcomes.iter().filter(|outcome| outcome["shared"] == false).count();
    assert_eq!(first, 1, "one order acted and the others shared its outcome: {outcomes:?}");
    assert_eq!(lab.relaunches("mars", "shared"), relaunched + 1);
    assert_eq!(runs(lab, "shared"), (starts + 1, run));
}

/// The same request, byte for byte, a second time: the first answer again, and no act.
fn the_same_request_twice_is_one_relaunch(lab: &Lab) {
    lab.verified("shared");
    let relaunched = lab.relaunches("mars", "shared");
    let mut door =
        UnixStream::connect(lab.root("mars").join("run/keyholder/keyholder.sock")).expect("the socket");
    door.set_read_timeout(Some(Duration::from_secs(10))).expect("a deadline");
    let zeros = "0".repeat(32);
    let hello = json!({ "node": "mars", "version": "0", "boot_nonce": zeros, "fleet_hash": format!("sha256:{zeros}{zeros}") });
    send(&mut door, &json!({ "hello": hello }));
    let nonce = receive(&mut door)["hello"]["boot_nonce"].clone();
    let request = json!({ "request": {
        "boot_nonce": nonce, "req_id": ReqId::random().expect("an id"), "target_node": "mars", "worker": "shared",
        "verb": { "relaunch": { "settled": false, "force": false } }, "because": "once",
    }});
    send(&mut door, &request);
    let first = receive(&mut door);
    assert!(first["reply"]["result"]["outcome"]["relaunched"]["invocation"].is_string(), "{first}");
    send(&mut door, &request);
    assert_eq!(receive(&mut door), first);
    assert_eq!(lab.relaunches("mars", "shared"), relaunched + 1);
    lab.verified("shared");
}

fn send(door: &mut UnixStream, frame: &Value) {
    let body = frame.to_string();
    let length = u32::try_from(body.len()).expect("a short frame").to_be_bytes();
    door.write_all(&[&length, body.as_bytes()].concat()).expect("the door reads");
}

fn receive(door: &mut UnixStream) -> Value {
    let mut length = [0; 4];
    door.read_exact(&mut length).expect("a frame");
    let mut body = vec![0; usize::try_from(u32::from_be_bytes(length)).expect("a length")];
    door.read_exact(&mut body).expect("the whole frame");
    serde_json::from_slice(&body).expect("JSON")
}

fn an_order_about_an_earlier_run_touches_nothing(lab: &Lab) {
    let (starts, run) = runs(lab, "shared");
    let relaunched = lab.relaunches("mars", "shared");
    let stale = lab.run_of("nobody.service");
    for node in ["mars", "ai-core"] {
        let (code, said) = lab.tell(node, &format!("keyholder relaunch mars/shared --expect {stale}"));
        assert!(
            code == 0 && said.contains("already recovered") && said.contains(&run[..8]),
            "{code}: {said}"
        );
    }
    assert_eq!(lab.relaunches("mars", "shared"), relaunched);
    assert_eq!(runs(lab, "shared"), (starts, run));
}
