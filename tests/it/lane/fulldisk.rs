//! A disk that is full: what a command did is known, and stays known, whether the ledger has room for it or not.

use std::path::PathBuf;

use keyholder::lane::Status;

use super::rig::{Client, Lane, Rig, old_ledger, task, until};
use crate::redis_server::Redis;

const ACTIONS: &str = r#"
  big:
    mode: write
    description: has more to say than there is room for
    argv: [DIR/big]
  last:
    mode: write
    description: leaves no room at all
    argv: [DIR/last]
"#;

/// A lane whose state directory is a file system of its own with `size` bytes. It begins with a ledger that is older than any task.
fn lane(rig: &Rig, redis: &Redis, size: &str) -> Lane {
    let state = rig.path("state");
    let old = rig.path("old");
    std::fs::create_dir_all(&state).unwrap();
    old_ledger(&old);
    let mount = format!(
        "mount -t tmpfs -o size={size},mode=700 tmpfs {state} && cp {old}/* {state}/ && exec \"$0\" \"$@\"",
        state = state.display(),
        old = old.display()
    );
    let root = nix::unistd::geteuid().is_root();
    let before = ["unshare", if root { "-m" } else { "-rm" }, "sh", "-c", &mount];
    rig.bare_lane(redis, &before, &[("NODE_NAME", "mars")])
}

#[test]
fn a_verdict_whose_output_has_no_room_is_kept_without_it() {
    let (redis, rig) = (Redis::start(&[]), Rig::new(ACTIONS));
    rig.program("big", "echo big >>DIR/log; head -c 400000 /dev/urandom");
    let lane = lane(&rig, &redis, "240k");
    let mut client = Client::new(&redis, "write");
    let raw = task("1", "big", "{}");
    client.push(raw.as_bytes());
    assert_eq!(client.result("1").status, Status::Ok, "{:?}", lane.said());
    // Redis loses it, and the same bytes come once more: the ledger has the verdict, and says that the output is missing.
    redis::cmd("FLUSHALL").exec(&mut client.conn).unwrap();
    client.push(raw.as_bytes());
    let again = client.result("1");
    assert_eq!(again.status, Status::Ok, "{again:?}");
    assert!(again.note.is_some_and(|note| note.contains("output was not kept")));
    assert_eq!(rig.log(), ["big"]);
}

#[test]
fn a_verdict_that_has_no_room_at_all_stays_in_memory_until_there_is() {
    let (redis, rig) = (Redis::start(&[]), Rig::new(ACTIONS));
    rig.program("big", "echo big >>DIR/log");
    rig.program("last", "echo last >>DIR/log; cat /dev/zero >DIR/state/fill 2>/dev/null; echo done");
    let lane = lane(&rig, &redis, "1m");
    let mut client = Client::new(&redis, "write");
    let raw = task("1", "last", "{}");
    client.push(raw.as_bytes());
    let first = client.result("1");
    assert_eq!(first.status, Status::Ok, "{first:?} {:?}", lane.said());
    // It is given once more, and another with it: nothing is begun that cannot be taken down, and nothing is called interrupted.
    redis::cmd("FLUSHALL").exec(&mut client.conn).unwrap();
    client.push(raw.as_bytes());
    client.task("2", "big", "{}");
    lane.wait_for("is the disk full");
    let inside = PathBuf::from(format!("/proc/{}/root", lane.pid()))
        .join(rig.path("state/fill").strip_prefix("/").unwrap());
    std::fs::remove_file(inside).unwrap();
    assert_eq!(client.result("1").status, Status::Ok);
    assert_eq!(client.result("2").status, Status::Ok);
    until("both ran, once each", || (rig.log() == ["last", "big"]).then_some(()));
}
