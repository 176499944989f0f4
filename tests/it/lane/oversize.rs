//! What is too long to be a task: never loaded, answered, and in nobody's way.

use std::io::Write as _;
use std::process::{Command, Stdio};

use keyholder::lane::{RefusalCode, Status};
use keyholder::queue::Front;
use ring::digest::{SHA256, digest};

use super::rig::{Client, Lane, Rig, until};
use crate::redis_server::Redis;

const ACTIONS: &str = r#"
  echo:
    mode: read
    description: says hello
    argv: [/bin/echo, hello]
"#;
/// Bytes of what is too long.
const LARGE: usize = 60 * 1024 * 1024;
/// Kilobytes a lane may have: some twenty are its own.
const SMALL: u64 = 48 * 1024;

fn large(letter: u8) -> (Vec<u8>, String) {
    let bytes = vec![letter; LARGE];
    // In an unoptimised build our own would take half a minute.
    let mut child =
        Command::new("sha1sum").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("sha1sum");
    child.stdin.take().unwrap().write_all(&bytes).unwrap();
    let told = child.wait_with_output().unwrap();
    (bytes, String::from_utf8_lossy(&told.stdout).split(' ').next().unwrap().to_owned())
}

/// It is answered, among the dead, and nowhere else; the next task ran, and the lane has stayed small.
fn answered(client: &mut Client, lane: &Lane, hashes: &[&str]) {
    for hash in hashes {
        let result = client.result(&format!("sha1:{hash}"));
        assert_eq!(result.status, Status::Refused);
        let refusal = result.refusal.unwrap();
        assert_eq!(refusal.code, RefusalCode::Malformed);
        assert!(refusal.text.contains(&LARGE.to_string()), "{}", refusal.text);
        let name = format!("sha1-{hash}");
        let dead = client.dead();
        let entry = dead.iter().find(|entry| entry["sha256"] == name.as_str());
        let entry = entry.unwrap_or_else(|| panic!("{name} is not among the dead: {dead:?}"));
        assert_eq!((&entry["code"], &entry["bytes"]), (&"malformed".into(), &LARGE.into()));
    }
    let (queue, in_flight) = (client.keys.queue.clone(), client.keys.in_flight.clone());
    until("nothing is left", || (client.length(&queue) == 0 && client.length(&in_flight) == 0).then_some(()));
    assert!(lane.resident() < SMALL, "{} KiB", lane.resident());
}

#[test]
fn an_element_that_is_too_long_is_answered_by_its_hash_and_the_next_task_runs() {
    let (rig, redis) = (Rig::new(ACTIONS), Redis::start(&[]));
    for mode in ["write", "read"] {
        let lane = rig.lane(mode, &redis);
        lane.wait_for("serving");
        let mut client = Client::new(&redis, mode);
        let (bytes, hash) = large(b'a');
        client.push(&bytes);
        client.task(&format!("next-{mode}"), "echo", "{}");
        assert_eq!(client.result(&format!("next-{mode}")).status, Status::Ok);
        answered(&mut client, &lane, &[&hash]);
        lane.wait_for("malformed");
    }
}

#[test]
fn what_is_too_long_at_the_start_is_never_loaded_wherever_it_is() {
    let (rig, redis) = (Rig::new(ACTIONS), Redis::start(&[]));
    let mut client = Client::new(&redis, "write");
    let ((waits, waits_hash), (taken, taken_hash)) = (large(b'a'), large(b'b'));
    client.push(&waits);
    client.task("next", "echo", "{}");
    let keys = client.keys.clone();
    let put = |command: &str, args: &[&[u8]]| {
        redis::cmd(command).arg(args).exec(&mut redis.conn()).unwrap();
    };
    put("LPUSH", &[keys.in_flight.as_bytes(), &taken]);
    // In flight with a mark that is no mark: then it counts as begun.
    let marked = super::rig::task("marked", "echo", "{}");
    put("LPUSH", &[keys.in_flight.as_bytes(), marked.as_bytes()]);
    let hash: String =
        digest(&SHA256, marked.as_bytes()).as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    put("HSET", &[keys.begun.as_bytes(), hash.as_bytes(), &taken]);
    put("LPUSH", &[keys.dead.as_bytes(), &taken]);
    put("LPUSH", &[keys.results.as_bytes(), &taken]);
    // A connection with a name that makes the list of connections too long.
    let mut named = redis.conn();
    redis::cmd("CLIENT").arg("SETNAME").arg(&waits[..20 << 20]).exec(&mut named).unwrap();
    let lane = rig.lane("write", &redis);
    assert_eq!(client.result("next").status, Status::Ok);
    drop(named);
    put("LREM", &[keys.results.as_bytes(), b"0", &taken]);
    // Whoever looks sees all of it and loads none of it.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let queue = keys.queue.parse().unwrap();
    runtime.block_on(async {
        let front = Front::connect(&redis.url("")).await.unwrap();
        let seen = front.look(&queue).await.unwrap();
        let text = |entry: &Vec<u8>| String::from_utf8(entry.clone()).unwrap();
        let put_there = seen.dead.iter().find(|entry| text(entry).contains("no lane wrote")).unwrap();
        assert!(text(put_there).contains(&format!("{LARGE} bytes")), "{}", text(put_there));
        assert!(front.remove_dead_letter(&queue, put_there).await.unwrap());
        assert!(!front.remove_dead_letter(&queue, b"{}").await.unwrap());
    });
    answered(&mut client, &lane, &[&waits_hash, &taken_hash]);
}

#[test]
fn very_much_in_flight_is_put_in_order_piece_by_piece() {
    const MANY: u64 = 300;
    let (rig, redis) = (Rig::new(ACTIONS), Redis::start(&[]));
    let mut client = Client::new(&redis, "write");
    client.task("next", "echo", "{}");
    let mut conn = redis.conn();
    for n in 0..MANY {
        let garbage = format!("{n} {}", "x".repeat(15_000));
        redis::cmd("RPUSH").arg(&client.keys.in_flight).arg(garbage).exec(&mut conn).unwrap();
    }
    let lane = rig.lane("write", &redis);
    assert_eq!(client.result("next").status, Status::Ok);
    let results = client.results();
    assert_eq!(results.len() as u64, MANY + 1);
    assert_eq!(results.last().unwrap().id, "next", "what was taken comes first");
    assert!(lane.resident() < SMALL, "{} KiB", lane.resident());
}

#[test]
fn with_brpop_it_is_lost_and_the_next_task_runs() {
    let (rig, redis) = (Rig::new(ACTIONS), Redis::start(&[]));
    let lane = rig.lane_with("write", &redis, &["--claim", "brpop"], &[]);
    lane.wait_for("serving");
    let mut client = Client::new(&redis, "write");
    client.push(&large(b'a').0);
    client.task("next", "echo", "{}");
    assert_eq!(client.result("next").status, Status::Ok);
    lane.wait_for(&LARGE.to_string());
    assert!(lane.resident() < SMALL, "{} KiB", lane.resident());
}
