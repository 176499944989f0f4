//! A ledger that was removed, or put back from a copy, does not know what was run: nothing runs twice for that.

use std::fs;

use keyholder::lane::{RefusalCode, Status};

use super::rig::{Client, Rig, task, until};
use crate::redis_server::Redis;

const ACTIONS: &str = r#"
  once:
    mode: write
    description: must never run twice
    argv: [DIR/once]
  again:
    mode: write
    description: may run again after its lane died
    argv: [DIR/once]
    idempotent: true
  rated:
    mode: read
    description: has a rate
    argv: [DIR/once]
    rate: { at_most: 9, per: 1h }
  look:
    mode: read
    description: changes nothing
    argv: [/bin/true]
"#;

struct Scene {
    rig: Rig,
    redis: Redis,
    client: Client,
}

impl Scene {
    fn new() -> Self {
        let (rig, redis) = (Rig::new(ACTIONS), Redis::start(&[]));
        rig.program("once", "echo once >>DIR/log");
        let client = Client::new(&redis, "write");
        Self { rig, redis, client }
    }

    /// Runs one task of each action; their bytes.
    fn run_all(&mut self) -> Vec<String> {
        let lane = self.rig.lane("write", &self.redis);
        lane.wait_for("serving");
        let all = ["once", "again", "rated", "look"].map(|action| task(action, action, "{}"));
        for (task, id) in all.iter().zip(["once", "again", "rated", "look"]) {
            self.client.push(task.as_bytes());
            assert_eq!(self.client.result(id).status, Status::Ok);
        }
        assert_eq!(lane.leave(), Some(0));
        all.into()
    }

    /// All that was run is given once more to a lane that says `words` of its ledger, from a server that forgot everything.
    fn nothing_runs_twice(&mut self, all: &[String], words: &str) {
        redis::cmd("FLUSHALL").exec(&mut self.client.conn).unwrap();
        let before = self.rig.log();
        let lane = self.rig.lane("write", &self.redis);
        lane.wait_for(words);
        for task in all {
            self.client.push(task.as_bytes());
        }
        assert_eq!(self.client.result("look").status, Status::Ok, "nothing depends on how often it runs");
        for id in ["once", "again", "rated"] {
            let refusal = self.client.result(id).refusal.unwrap();
            assert_eq!(refusal.code, RefusalCode::BeforeLedger, "{id}");
            assert!(refusal.text.contains("ask again"), "{refusal}");
        }
        assert_eq!(self.rig.log(), before);
        let dead = until("they are listed", || Some(self.client.dead()).filter(|dead| dead.len() == 3));
        assert!(dead.iter().all(|dead| dead["code"] == "before_ledger"), "{dead:?}");
        // The way out.
        self.client.task("anew", "once", "{}");
        assert_eq!(self.client.result("anew").status, Status::Ok);
        assert_eq!(lane.leave(), Some(0));
        // From here on it is complete.
        let lane = self.rig.lane("write", &self.redis);
        lane.wait_for("serving");
        assert!(!lane.said().concat().contains("refused and must be asked"), "{:?}", lane.said());
    }
}

#[test]
fn after_a_ledger_was_removed_nothing_runs_twice() {
    let mut scene = Scene::new();
    let all = scene.run_all();
    fs::remove_dir_all(scene.rig.path("state-write")).unwrap();
    scene.nothing_runs_twice(&all, "the ledger is new");
}

#[test]
fn after_a_ledger_was_restored_from_a_copy_nothing_runs_twice() {
    let mut scene = Scene::new();
    let first = scene.rig.lane("write", &scene.redis);
    first.wait_for("serving");
    assert_eq!(first.leave(), Some(0));
    let (ledger, backup) = (scene.rig.path("state-write/ledger.db"), scene.rig.path("backup"));
    fs::copy(&ledger, &backup).unwrap();
    let all = scene.run_all();
    fs::remove_dir_all(scene.rig.path("state-write")).unwrap();
    fs::create_dir(scene.rig.path("state-write")).unwrap();
    fs::copy(&backup, &ledger).unwrap();
    scene.nothing_runs_twice(&all, "the ledger is a copy");
}

#[test]
fn what_waited_before_the_first_start_is_refused_with_the_way_out() {
    let mut scene = Scene::new();
    fs::remove_dir_all(scene.rig.path("state-write")).unwrap();
    scene.client.task("early", "once", "{}");
    scene.client.task("look", "look", "{}");
    let _lane = scene.rig.lane("write", &scene.redis);
    let refusal = scene.client.result("early").refusal.unwrap();
    assert!(refusal.text.contains("before this lane's ledger begins"), "{refusal}");
    assert_eq!(scene.client.result("look").status, Status::Ok);
    assert_eq!(scene.rig.log(), [""; 0]);
}
