//! Whoever may write to Redis as a lane writes there what it likes: marks, answers, the same signed task in other bytes.

use keyholder::catalog::Mode;
use keyholder::lane::{Context, RefusalCode, Status, seal};
use ring::signature::{Ed25519KeyPair, KeyPair as _};
use rusqlite::Connection;

use super::rig::{Client, Lane, Rig, task, until};
use crate::redis_server::Redis;

const ACTIONS: &str = r#"
  once:
    mode: write
    description: must never run twice, and not twice a week either
    argv: [DIR/once, "{n}"]
    params: { n: { int: { min: 0, max: 999 } } }
    rate: { at_most: 1, per: 7d }
  again:
    mode: write
    description: may run again after its lane died
    argv: [DIR/again]
    idempotent: true
"#;

struct Scene {
    rig: Rig,
    redis: Redis,
    client: Client,
    pair: Ed25519KeyPair,
}

impl Scene {
    /// With a ledger that is older than the tasks.
    fn new() -> Self {
        let (rig, redis) = (Rig::new(ACTIONS), Redis::start(&[]));
        rig.program("once", "echo once $1 >>DIR/log");
        rig.program("again", "echo again >>DIR/log");
        let pair = Ed25519KeyPair::from_seed_unchecked(&[7; 32]).unwrap();
        let client = Client::new(&redis, "write");
        let scene = Self { rig, redis, client, pair };
        scene.lane().die();
        scene
    }

    fn lane(&self) -> Lane {
        let key: String = self.pair.public_key().as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        let signer = format!("hub=ed25519:{key}");
        let lane = self.rig.lane_with("write", &self.redis, &["--signer", &signer], &[]);
        lane.wait_for("serving");
        lane
    }

    fn sign(&self, task: String) -> String {
        let node = "mars".parse().unwrap();
        let context = Context { node: &node, lane: Mode::Write };
        serde_json::to_string(&seal(task, "hub", &self.pair, &context)).unwrap()
    }

    /// In flight, with a mark that names what it likes.
    fn forge(&mut self, raw: &str, id: &str, attempts: u32) {
        let hash: String = ring::digest::digest(&ring::digest::SHA256, raw.as_bytes())
            .as_ref()
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        let mark = serde_json::json!({
            "owner": "another", "place": "x", "id": id, "action": "look", "issued_ms": 1, "again": true,
            "attempts": attempts, "at": "2026-11-29T14:02:00Z",
        });
        let keys = self.client.keys.clone();
        redis::cmd("LPUSH").arg(&keys.in_flight).arg(raw).exec(&mut self.client.conn).unwrap();
        redis::cmd("HSET")
            .arg(&keys.begun)
            .arg(hash)
            .arg(mark.to_string())
            .exec(&mut self.client.conn)
            .unwrap();
    }

    fn settled(&mut self) {
        until("nothing waits and nothing is in flight", || {
            let keys = self.client.keys.clone();
            let left = self.client.length(&keys.queue) + self.client.length(&keys.in_flight);
            (left == 0).then_some(())
        });
    }

    fn ids(&self) -> Vec<String> {
        let ledger = Connection::open(self.rig.path("state-write/ledger.db")).unwrap();
        let mut ids = ledger.prepare("SELECT id FROM task ORDER BY seq").unwrap();
        let ids = ids.query_map([], |row| row.get(0)).unwrap();
        ids.collect::<Result<_, _>>().unwrap()
    }
}

/// The same signed task in other bytes: each has a hash of its own.
fn variants(signed: &str) -> Vec<String> {
    let envelope: serde_json::Value = serde_json::from_str(signed).unwrap();
    let reordered =
        format!(r#"{{"sig":{},"key":{},"task":{}}}"#, envelope["sig"], envelope["key"], envelope["task"]);
    vec![
        format!("{signed} "),
        format!("\n{signed}"),
        reordered,
        signed.replacen("\"key\":", "\"key\" : ", 1),
        signed.replacen("\"task\":", "\"\\u0074ask\":", 1),
    ]
}

#[test]
fn a_task_signed_once_runs_once_whatever_marks_say_of_its_variants() {
    let mut scene = Scene::new();
    let good = scene.sign(task("good", "once", r#"{"n":1}"#));
    let lane = scene.lane();
    scene.client.push(good.as_bytes());
    assert_eq!(scene.client.result("good").status, Status::Ok);
    lane.die();
    for (n, variant) in variants(&good).iter().enumerate() {
        scene.forge(variant, &format!("forged-{n}"), 1);
        // Twice in flight is not run twice either.
        scene.forge(variant, &format!("forged-{n}"), 1);
    }
    // Extra fields, and a field twice, are no envelope.
    scene.forge(&good.replacen('{', "{\"more\":1,", 1), "forged-extra", 1);
    scene.forge(&good.replacen('{', "{\"key\":\"hub\",", 1), "forged-twice", 1);
    let lane = scene.lane();
    // What was pushed last is answered last.
    let other = scene.sign(task("other", "once", r#"{"n":2}"#));
    scene.client.push(other.as_bytes());
    let refusal = scene.client.result("other").refusal.unwrap();
    assert_eq!(refusal.code, RefusalCode::RateLimit, "the rate counts what was run: {refusal}");
    scene.settled();
    assert_eq!(scene.rig.log(), ["once 1"]);
    let codes: Vec<_> = scene.client.results().into_iter().filter_map(|r| Some(r.refusal?.code)).collect();
    assert_eq!(codes.iter().filter(|code| **code == RefusalCode::Replayed).count(), 5, "{codes:?}");
    assert_eq!(codes.iter().filter(|code| **code == RefusalCode::Malformed).count(), 2, "{codes:?}");
    drop(lane);
    assert_eq!(scene.ids(), ["good", "other"], "no id of a mark is in the ledger");
}

#[test]
fn variants_that_come_first_run_once_as_well() {
    let mut scene = Scene::new();
    let good = scene.sign(task("good", "once", r#"{"n":1}"#));
    for (n, variant) in variants(&good).iter().enumerate() {
        // As often as 0 times says that nobody began it.
        scene.forge(variant, &format!("forged-{n}"), 0);
    }
    let lane = scene.lane();
    assert_eq!(scene.client.result("good").status, Status::Ok);
    scene.settled();
    assert_eq!(scene.rig.log(), ["once 1"]);
    drop(lane);
    assert_eq!(scene.ids(), ["good"]);
}

#[test]
fn a_mark_of_another_lane_keeps_the_tasks_own_name_and_never_makes_it_run_again() {
    let mut scene = Scene::new();
    let good = scene.sign(task("good", "once", r#"{"n":1}"#));
    let repeatable = scene.sign(task("repeatable", "again", "{}"));
    let tired = scene.sign(task("tired", "again", "{}"));
    // The mark says that it may run again; the catalog says that it must not.
    scene.forge(&good, "forged", 1);
    scene.forge(&repeatable, "forged-2", 1);
    scene.forge(&tired, "forged-3", u32::MAX);
    let _lane = scene.lane();
    assert_eq!(scene.client.result("good").status, Status::Interrupted);
    assert_eq!(scene.client.result("repeatable").status, Status::Ok);
    assert_eq!(scene.client.result("tired").status, Status::Interrupted);
    scene.settled();
    assert_eq!(scene.rig.log(), ["again"]);
}

#[test]
fn nobody_uses_up_the_id_of_a_task_that_was_signed_by_another() {
    let mut scene = Scene::new();
    let good = scene.sign(task("good", "once", r#"{"n":1}"#));
    // Unsigned, and with a signature that is another's: marked as begun, and claimed.
    let unsigned = task("good", "once", r#"{"n":7}"#);
    let node = "mars".parse().unwrap();
    let stranger = Ed25519KeyPair::from_seed_unchecked(&[8; 32]).unwrap();
    let strange = seal(unsigned.clone(), "hub", &stranger, &Context { node: &node, lane: Mode::Write });
    let strange = serde_json::to_string(&strange).unwrap();
    scene.forge(&unsigned, "good", 1);
    scene.forge(&strange, "good", 1);
    let _lane = scene.lane();
    scene.client.push(format!("{unsigned} ").as_bytes());
    scene.client.push(format!("{strange} ").as_bytes());
    scene.client.push(good.as_bytes());
    assert_eq!(scene.client.result("good").status, Status::Ok);
    scene.settled();
    assert_eq!(scene.rig.log(), ["once 1"]);
    let codes: Vec<_> = scene.client.results().into_iter().filter_map(|r| Some(r.refusal?.code)).collect();
    assert_eq!(codes, [RefusalCode::Unsigned; 4]);
    let dead = scene.client.dead();
    assert!(dead.len() == 4 && dead.iter().all(|dead| dead["code"] == "unsigned"), "{dead:?}");
}
