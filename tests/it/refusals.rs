//! A Redis that answers and takes no writes carries no heartbeat and moves no queue: that is the server's fault and no worker's.

use std::time::{Duration, Instant};

use keyholder::detect::{self, Check, Plan, SignSource, Vital};
use keyholder::judge::{Reading, Sign};
use keyholder::queue::QueueName;
use keyholder::systemd;
use tokio::sync::{mpsc, watch};

use crate::redis_server::Redis;

const DEADLINE: Duration = Duration::from_secs(20);
const ACL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/catalogs/redis-users.acl");

/// What detectors read of a heartbeat that is missing, a queue and a lane's queue with work in them.
fn read(url: &str, until: impl Fn(&[Reading]) -> bool) -> Vec<Reading> {
    let looks = [
        ("beat", Sign::Beat, SignSource::Key("tasks:maintenance:beat".to_owned())),
        ("queue", Sign::Flow, SignSource::Queue { key: "tasks:maintenance:inbox".to_owned(), busy: None }),
        ("lane", Sign::Flow, SignSource::LaneQueue(QueueName::write(&"mars".parse().unwrap()))),
    ];
    let looks = looks.map(|(worker, sign, place)| Check {
        target: format!("mars/{worker}").parse().unwrap(),
        sign,
        place,
        every: Duration::from_millis(50),
    });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (_plan, from) = watch::channel(Plan { looks: looks.into(), redis: Some(url.to_owned()) });
        let (to, mut vitals) = mpsc::channel::<Vec<Vital>>(4);
        let (_units, list) = watch::channel(Vec::new());
        let (events_to, _events) = mpsc::channel(64);
        detect::start(from, systemd::start(list, events_to), to);
        let end = Instant::now() + DEADLINE;
        loop {
            let vitals = tokio::time::timeout(DEADLINE, vitals.recv()).await.unwrap().unwrap();
            let readings: Vec<Reading> = vitals.into_iter().map(|vital| vital.reading).collect();
            if until(&readings) {
                return readings;
            }
            assert!(Instant::now() < end, "{readings:?}");
        }
    })
}

fn known(readings: &[Reading]) -> bool {
    !readings.iter().all(|reading| matches!(reading, Reading::Failed(why) if why.contains("no answer")))
}

fn all_blame(readings: &[Reading], word: &str) {
    assert_eq!(readings.len(), 3, "{readings:?}");
    for reading in readings {
        assert!(
            matches!(reading, Reading::Failed(why) if why.contains("takes no writes") && why.contains(word)),
            "{word}: {reading:?}"
        );
    }
}

fn does(redis: &Redis, command: &[&str]) {
    redis::cmd(command[0]).arg(&command[1..]).exec(&mut redis.conn()).unwrap();
}

/// With work that waits and a heartbeat that is missing.
fn server() -> Redis {
    let redis = Redis::start(&[]);
    does(&redis, &["LPUSH", "tasks:maintenance:inbox", "work"]);
    does(&redis, &["LPUSH", "tasks:maintenance:mars", "work"]);
    redis
}

#[test]
fn a_server_that_refuses_writes_is_the_cause_of_a_missing_sign_with_its_own_words() {
    let redis = server();
    let before = read(&redis.url(""), known);
    assert!(
        matches!(&before[0], Reading::Silent(_)) && before[1..].iter().all(|r| matches!(r, Reading::Mark(_)))
    );
    for (refuse, allow, word) in [
        (["CONFIG", "SET", "maxmemory", "1"], ["CONFIG", "SET", "maxmemory", "0"], "maxmemory"),
        (
            ["CONFIG", "SET", "min-replicas-to-write", "3"],
            ["CONFIG", "SET", "min-replicas-to-write", "0"],
            "replicas",
        ),
    ] {
        does(&redis, &refuse);
        all_blame(&read(&redis.url(""), known), word);
        does(&redis, &allow);
        assert_eq!(read(&redis.url(""), known), before, "{word} is over");
    }
    does(&redis, &["REPLICAOF", "127.0.0.1", "1"]);
    all_blame(&read(&redis.url(""), known), "read only replica");
    does(&redis, &["REPLICAOF", "NO", "ONE"]);

    // A snapshot that cannot be written, with a server that is told to mind.
    does(&redis, &["CONFIG", "SET", "save", "3600 1"]);
    std::fs::create_dir(redis.dir().join("dump.rdb")).unwrap();
    std::fs::write(redis.dir().join("dump.rdb/x"), "").unwrap();
    does(&redis, &["BGSAVE"]);
    let end = Instant::now() + DEADLINE;
    while !redis::cmd("INFO")
        .query::<String>(&mut redis.conn())
        .unwrap()
        .contains("rdb_last_bgsave_status:err")
    {
        assert!(Instant::now() < end, "the snapshot is written nevertheless");
        std::thread::sleep(Duration::from_millis(20));
    }
    all_blame(&read(&redis.url(""), known), "MISCONF");
}

#[test]
fn the_probe_writes_nothing_and_the_shipped_user_may_make_it() {
    let redis = Redis::start(&["--include", ACL]);
    let mut lane = redis::Client::open(redis.url("lane-write:CHANGE-ME@")).unwrap().get_connection().unwrap();
    redis::cmd("LPUSH").arg(&["tasks:maintenance:mars", "work"]).exec(&mut lane).unwrap();
    let seen = read(&redis.url("detector:CHANGE-ME@"), known);
    assert!(matches!(&seen[2], Reading::Mark(_)), "{seen:?}");
    let client = redis::Client::open(redis.url("watcher:CHANGE-ME@")).unwrap();
    let probe = redis::cmd("EXISTS")
        .arg("tasks:maintenance:write-probe")
        .query::<i64>(&mut client.get_connection().unwrap());
    assert_eq!(probe.unwrap(), 0);

    // A user who may not try it knows nothing of what is missing, and is told what it lacks.
    redis::cmd("AUTH").arg(&["watcher", "CHANGE-ME"]).exec(&mut client.get_connection().unwrap()).unwrap();
    let open = Redis::start(&[]);
    let rule = [
        "ACL", "SETUSER", "bare", "on", ">x", "~*", "-@all", "+eval", "+pttl", "+llen", "+lindex", "+hlen",
        "+hello", "+ping", "+client",
    ];
    does(&open, &rule);
    let blind = read(&open.url("bare:x@"), known);
    assert!(matches!(&blind[0], Reading::Failed(why) if why.contains("+setrange")), "{blind:?}");
}
