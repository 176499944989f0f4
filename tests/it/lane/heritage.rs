//! The variables with which lanes were started before there was keyholder still say the same.

use keyholder::lane::{RefusalCode, Status};
use keyholder::queue::Keys;

use super::rig::{Client, Rig, until};
use crate::redis_server::Redis;

const ACTIONS: &str = r#"
  look:
    mode: read
    description: changes nothing
    argv: [/bin/true]
  change:
    mode: write
    description: leaves a trace
    argv: [DIR/change]
"#;

fn rig() -> Rig {
    let rig = Rig::new(ACTIONS);
    rig.program("change", "echo changed >>DIR/log");
    rig
}

#[test]
fn another_queue_is_served_instead_of_the_nodes_own() {
    let (redis, rig) = (Redis::start(&[]), rig());
    let lane = rig.bare_lane(&redis, &[], &[("NODE_NAME", "mars"), ("MAINT_QUEUE", "tasks:old")]);
    lane.wait_for("serving tasks:old");
    let (mut old, mut own) = (Client::new(&redis, "write"), Client::new(&redis, "write"));
    old.keys = Keys::of(&"tasks:old".parse().unwrap());
    own.task("o", "change", "{}");
    old.task("1", "change", "{}");
    // Without MAINT_MODE_ONLY it runs both kinds.
    old.task("2", "look", "{}");
    assert_eq!((old.result("1").status, old.result("2").status), (Status::Ok, Status::Ok));
    assert_eq!(rig.log(), ["changed"]);
    let own_queue = own.keys.queue.clone();
    assert_eq!(own.length(&own_queue), 1, "the node's own is left alone");
}

#[test]
fn only_reads_means_only_reads() {
    let (redis, rig) = (Redis::start(&[]), rig());
    // Which queue a lane serves follows from it, too, unless one is named, as the articles do.
    let lane = rig.bare_lane(
        &redis,
        &["setpriv", "--no-new-privs", "--"],
        &[("NODE_NAME", "mars"), ("MAINT_MODE_ONLY", "read")],
    );
    lane.wait_for("serving tasks:maintenance:mars:read");
    let mut client = Client::new(&redis, "read");
    client.task("w", "change", "{}");
    client.task("r", "look", "{}");
    assert_eq!(client.result("w").refusal.unwrap().code, RefusalCode::ModeMismatch);
    assert_eq!(client.result("r").status, Status::Ok);
    assert_eq!(rig.log(), [""; 0]);
}

#[test]
fn what_contradicts_itself_or_names_another_node_does_not_start() {
    let (redis, rig) = (Redis::start(&[]), rig());
    for (env, args, words) in [
        (
            &[("NODE_NAME", "mars"), ("MAINT_MODE_ONLY", "write")][..],
            &[][..],
            "MAINT_MODE_ONLY can only be read",
        ),
        (
            &[("NODE_NAME", "mars"), ("MAINT_MODE_ONLY", "read")],
            &["--mode", "write"],
            "contradict each other",
        ),
        (&[("NODE_NAME", "mars"), ("MAINT_QUEUE", "a b")], &[], "is not a queue's name"),
        (&[("NODE_NAME", "venus")], &[], "is the catalog of mars, and this node is venus"),
        (&[("NODE_NAME", "a:read")], &[], "NODE_NAME"),
    ] {
        let mut lane = rig.bare_lane_with(&redis, &[], args, env);
        assert_ne!(lane.end(), Some(0), "{words}");
        // Its last line may still be on its way.
        until(words, || lane.said().concat().contains(words).then_some(()));
    }
}
