//! SIGHUP: what stands in the catalog now counts, and a catalog that is broken changes nothing.

use std::fs;

use keyholder::lane::{RefusalCode, Status};
use nix::sys::signal::Signal;

use super::rig::{Client, Rig};
use crate::redis_server::Redis;

const ONE: &str = "
  one:
    mode: read
    argv: [/bin/echo, one]
";

#[test]
fn a_new_catalog_is_taken_and_a_broken_one_is_not() {
    let (redis, rig) = (Redis::start(&[]), Rig::new(ONE));
    let mut client = Client::new(&redis, "read");
    let lane = rig.lane("read", &redis);
    lane.wait_for("serving");
    client.task("1", "two", "{}");
    assert_eq!(client.result("1").refusal.unwrap().code, RefusalCode::UnknownAction);
    let path = rig.path("catalog_mars.yaml");
    let old = fs::read_to_string(&path).unwrap();
    let write = |text: &str| {
        fs::write(rig.path("new"), text).unwrap();
        fs::rename(rig.path("new"), &path).unwrap();
        lane.signal(Signal::SIGHUP);
    };
    write(&old.replace("  one:", "  two:"));
    lane.wait_for("catalog read again: 1 actions, sha256:");
    client.task("2", "two", "{}");
    assert_eq!(client.result("2").status, Status::Ok);
    client.task("3", "one", "{}");
    assert_eq!(client.result("3").refusal.unwrap().code, RefusalCode::UnknownAction);

    for (broken, why) in [
        (
            old.replace("read", "wrote"),
            "the new catalog is refused, the old one stays in force: the catalog is not valid",
        ),
        (old.replace("node: mars", "node: venus"), "the file's name says that it is the catalog of node"),
    ] {
        write(&broken);
        lane.wait_for(why);
        let id = why.rsplit(' ').next().unwrap();
        client.task(id, "two", "{}");
        assert_eq!(client.result(id).status, Status::Ok);
    }
}
