//! Detectors against a real Redis and real files.

use std::net::TcpListener;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use keyholder::detect::{self, Check, Plan, SignSource, Vital};
use keyholder::judge::{Reading, Sign};
use keyholder::queue::{CanaryAt, Keys, LaneSeen, ProbeReply, Question, QueueName, QueueProbe};
use keyholder::systemd;
use tokio::sync::{mpsc, watch};

use crate::redis_server::Redis;

const DEADLINE: Duration = Duration::from_secs(20);
const OFTEN: Duration = Duration::from_millis(50);

/// Detectors at work, on a host without a system bus.
struct Scene {
    runtime: tokio::runtime::Runtime,
    plan: watch::Sender<Plan>,
    vitals: mpsc::Receiver<Vec<Vital>>,
    _units: watch::Sender<Vec<keyholder::vocabulary::UnitName>>,
    _events: mpsc::Receiver<systemd::SystemdEvent>,
}

impl Scene {
    fn new(looks: Vec<Check>, redis: Option<String>) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (plan, from) = watch::channel(Plan { looks, redis });
        let (to, vitals) = mpsc::channel(4);
        let (units, list) = watch::channel(Vec::new());
        let (events_to, events) = mpsc::channel(64);
        runtime.block_on(async { detect::start(from, systemd::start(list, events_to), to) });
        Self { runtime, plan, vitals, _units: units, _events: events }
    }

    /// The next readings.
    fn next(&mut self) -> Vec<Vital> {
        let next = async { tokio::time::timeout(DEADLINE, self.vitals.recv()).await };
        self.runtime.block_on(next).expect("readings come").expect("the detectors live")
    }

    /// Waits until a worker's reading is as wanted.
    fn until(&mut self, worker: &str, wanted: impl Fn(&Reading) -> bool) -> Reading {
        let end = Instant::now() + DEADLINE;
        let mut last = None;
        while Instant::now() < end {
            for vital in self.next() {
                if vital.target.worker.as_str() == worker {
                    if wanted(&vital.reading) {
                        return vital.reading;
                    }
                    last = Some(vital.reading);
                }
            }
        }
        panic!("{worker} was last read as {last:?}");
    }
}

fn look(worker: &str, place: SignSource) -> Check {
    let target = format!("mars/{worker}").parse().unwrap();
    let sign = match place {
        SignSource::Canary(..) => Sign::Canary,
        SignSource::Queue { .. } | SignSource::LaneQueue(_) => Sign::Flow,
        _ => Sign::Beat,
    };
    Check { target, sign, place, every: OFTEN }
}

fn is_failed(reading: &Reading) -> bool {
    matches!(reading, Reading::Failed(_))
}

fn do_all(redis: &Redis, commands: &[&[&str]]) {
    let mut conn = redis.conn();
    for command in commands {
        redis::cmd(command[0]).arg(&command[1..]).exec(&mut conn).unwrap();
    }
}

#[test]
fn keys_and_lists_are_read_in_one_go_and_each_failure_is_its_own() {
    let redis = Redis::start(&[]);
    do_all(
        &redis,
        &[
            &["SET", "beating", "1", "EX", "100"],
            &["SET", "for-ever", "1"],
            &["LPUSH", "inbox", "first", "second"],
            &["LPUSH", "equal", "same", "same", "same"],
        ],
    );
    let key = |name: &str| SignSource::Key(name.to_owned());
    let list = |name: &str| SignSource::Queue { key: name.to_owned(), busy: None };
    let looks = vec![
        look("beating", key("beating")),
        look("missing", key("missing")),
        look("for-ever", key("for-ever")),
        look("inbox", list("inbox")),
        look("equal", list("equal")),
        look("empty", list("empty")),
        look("no-list", list("for-ever")),
    ];
    let mut scene = Scene::new(looks, Some(redis.url("")));
    let readings = scene.next();
    assert_eq!(readings.len(), 7, "not in one go: {readings:?}");
    let of = |worker: &str| {
        readings.iter().find(|vital| vital.target.worker.as_str() == worker).unwrap().reading.clone()
    };
    assert_eq!(of("beating"), Reading::Moving);
    assert_eq!(of("missing"), Reading::Silent("the key missing is missing".to_owned()));
    assert!(matches!(of("for-ever"), Reading::Failed(why) if why.contains("no time to live")));
    assert_eq!(of("empty"), Reading::Moving);
    assert_eq!(of("no-list"), Reading::Failed("for-ever: in Redis it is no list".to_owned()));
    let head = of("inbox");
    assert!(matches!(head, Reading::Mark(_)), "{head:?}");

    do_all(&redis, &[&["LPUSH", "inbox", "third"], &["RPOP", "equal"]]);
    scene.until("equal", |reading| *reading == Reading::Moving);
    // One more that waits is no progress; one that is taken is.
    scene.until("inbox", |reading| *reading == head);
    do_all(&redis, &[&["RPOP", "inbox"]]);
    scene.until("inbox", |reading| *reading != head);
    do_all(&redis, &[&["DEL", "beating"]]);
    scene.until("beating", |reading| matches!(reading, Reading::Silent(_)));
}

#[test]
fn of_a_list_only_what_is_taken_is_progress_and_a_job_in_hand_is() {
    let redis = Redis::start(&[]);
    do_all(
        &redis,
        &[
            &["RPUSH", "right", "1", "2", "3"],
            &["LPUSH", "left", "1", "2", "3"],
            &["RPUSH", "long", "1", "2"],
        ],
    );
    let list = |name: &str, busy: Option<&str>| SignSource::Queue {
        key: name.to_owned(),
        busy: busy.map(str::to_owned),
    };
    let looks = vec![
        look("right", list("right", None)),
        look("left", list("left", None)),
        look("long", list("long", Some("in-hand"))),
    ];
    let mut scene = Scene::new(looks, Some(redis.url("")));
    let still = |reading: &Reading| matches!(reading, Reading::Mark(_));
    let mark = scene.until("right", still);
    scene.until("left", still);
    scene.until("long", still);
    // Nobody takes, whichever end the producers use.
    for n in 4..10 {
        let n = n.to_string();
        do_all(&redis, &[&["RPUSH", "right", &n], &["LPUSH", "left", &n]]);
        for vital in scene.next() {
            assert_eq!(vital.reading, mark, "{} is pushed to and not taken from", vital.target);
        }
    }
    // Somebody takes, from the end where nobody pushes.
    for (push, take, name) in [("RPUSH", "LPOP", "right"), ("LPUSH", "RPOP", "left")] {
        let worker = name;
        do_all(&redis, &[&[take, name]]);
        scene.until(worker, |reading| *reading == Reading::Moving);
        scene.until(worker, still);
        // As many come as go, in one step: nobody sees it shorter.
        let both = "redis.call(ARGV[1], KEYS[1], 'new'); redis.call(ARGV[2], KEYS[1])";
        do_all(&redis, &[&["EVAL", both, "1", name, push, take]]);
        scene.until(worker, |reading| *reading == Reading::Moving);
    }
    // One long job in hand, two behind it.
    do_all(&redis, &[&["RPUSH", "in-hand", "0"]]);
    scene.until("long", |reading| *reading == Reading::Moving);
    do_all(&redis, &[&["DEL", "in-hand"]]);
    scene.until("long", still);
}

#[test]
fn a_redis_that_is_gone_is_one_cause_with_one_text_and_is_found_again() {
    let mut redis = Redis::start(&[]);
    let looks = vec![
        look("one", SignSource::Key("x".to_owned())),
        look("two", SignSource::Queue { key: "y".to_owned(), busy: None }),
        look("lane", SignSource::LaneQueue(QueueName::write(&"mars".parse().unwrap()))),
    ];
    let mut scene = Scene::new(looks, Some(format!("redis://user:secret@127.0.0.1:{}", redis.port())));
    // The server knows no such password.
    scene.until("one", |reading| matches!(reading, Reading::Failed(why) if !why.contains("secret")));
    let plan = Plan { redis: Some(redis.url("")), ..scene.plan.borrow().clone() };
    scene.plan.send(plan).unwrap();
    scene.until("lane", |reading| *reading == Reading::Moving);
    redis.kill();
    let down = scene.until("two", is_failed);
    let begin = format!("Redis at 127.0.0.1:{}: ", redis.port());
    assert!(matches!(&down, Reading::Failed(why) if why.starts_with(&begin)), "{down:?}");
    let all = loop {
        let all = scene.next();
        if all.iter().all(|vital| is_failed(&vital.reading)) {
            break all;
        }
    };
    assert!(all.len() == 3 && all.iter().all(|vital| vital.reading == all[0].reading), "{all:?}");
    redis.come_back();
    scene.until("lane", |reading| *reading == Reading::Moving);
    assert!(matches!(Scene::new(vec![look("one", SignSource::Key("x".to_owned()))], None)
        .until("one", is_failed), Reading::Failed(why) if why.contains("names no Redis")));
}

#[test]
fn a_server_that_hangs_is_given_up_in_time_and_files_are_read_meanwhile() {
    let dir = tempfile::tempdir().unwrap();
    let beat = dir.path().join("beat");
    std::fs::write(&beat, "").unwrap();
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}", silent.local_addr().unwrap());
    let looks = vec![look("key", SignSource::Key("x".to_owned())), look("file", SignSource::File(beat))];
    let began = Instant::now();
    let mut scene = Scene::new(looks, Some(url));
    for _ in 0..10 {
        scene.until("file", |reading| matches!(reading, Reading::Mark(_)));
    }
    assert!(began.elapsed() < DEADLINE, "files waited for Redis");
    scene.until("key", is_failed);
    assert!(began.elapsed() < DEADLINE, "{:?}", began.elapsed());
}

#[test]
fn who_does_not_listen_loses_readings_and_holds_nothing_up() {
    let dir = tempfile::tempdir().unwrap();
    let files: Vec<PathBuf> = (0..600).map(|n| dir.path().join(format!("beat{n}"))).collect();
    for file in &files {
        std::fs::write(file, "").unwrap();
    }
    let place = |n: usize| SignSource::File(files[n].clone());
    let looks = (0..files.len()).map(|n| look(&format!("w{n}"), place(n))).collect();
    let mut scene = Scene::new(looks, None);
    // Nobody takes anything, until there is no more room and for some rounds after that.
    let end = Instant::now() + DEADLINE;
    while scene.vitals.len() < 4 {
        assert!(Instant::now() < end, "{} batches", scene.vitals.len());
        scene.runtime.block_on(async { tokio::time::sleep(OFTEN).await });
    }
    scene.runtime.block_on(async { tokio::time::sleep(OFTEN * 16).await });
    let mut waiting = Vec::new();
    while let Ok(some) = scene.vitals.try_recv() {
        waiting.push(some.len());
    }
    assert_eq!(waiting.len(), 4, "{waiting:?}");
    assert!(waiting.iter().all(|some| *some <= 256), "{waiting:?}");
    std::fs::remove_file(&files[7]).unwrap();
    scene.until("w7", |reading| matches!(reading, Reading::Silent(_)));
    // A plan without it: nothing more is read of it, and the others go on.
    let mut plan = scene.plan.borrow().clone();
    plan.looks.truncate(3);
    scene.plan.send(plan).unwrap();
    while scene.next().len() != 3 {}
    for _ in 0..5 {
        assert_eq!(scene.next().len(), 3);
    }
    // A host without a bus has no watchdogs and runs no commands.
    let unit: keyholder::vocabulary::UnitName = "w.service".parse().unwrap();
    let witness = dir.path().join("witness");
    let command = keyholder::vocabulary::Command {
        argv: vec!["/usr/bin/touch".to_owned(), witness.display().to_string()],
        user: "root".to_owned(),
        timeout: Duration::from_secs(5),
    };
    let looks = vec![look("dog", SignSource::Watchdog(unit)), look("command", SignSource::Command(command))];
    scene.plan.send(Plan { looks, redis: None }).unwrap();
    scene.until("dog", is_failed);
    scene.until("command", |reading| matches!(reading, Reading::Failed(why) if why.contains("did not run")));
    assert!(!witness.exists());
}

/// With the rights of the user that is shipped for it.
#[test]
fn a_lane_is_seen_with_what_it_has_taken_begun_and_answered() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/catalogs/redis-users.acl");
    let redis = Redis::start(&["--include", file]);
    let client = redis::Client::open(redis.url("lane-write:CHANGE-ME@")).unwrap();
    let mut lane = client.get_connection().unwrap();
    let queue = QueueName::write(&"mars".parse().unwrap());
    let keys = Keys::of(&queue);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut eyes = QueueProbe::new(&redis.url("detector:CHANGE-ME@")).unwrap();
    let mut seen = |canary: bool| -> LaneSeen {
        let canary = canary.then(|| ("canary-1".to_owned(), b"bird".to_vec()));
        let question = Question::Lane { queue: queue.clone(), canary };
        match runtime.block_on(eyes.look(&[question])).unwrap().remove(0) {
            ProbeReply::Lane(seen) => seen,
            other => panic!("{other:?}"),
        }
    };
    let mut does = |name: &str, args: &[&str]| redis::cmd(name).arg(args).exec(&mut lane).unwrap();
    let empty = seen(false);
    assert_eq!((empty.waiting, empty.taken, empty.begun, empty.canary), (0, 0, 0, None));
    assert_eq!(seen(true).canary, Some(CanaryAt::Lost));
    does("LPUSH", &[&keys.queue, "bird"]);
    does("LPUSH", &[&keys.queue, "task"]);
    assert_eq!(seen(true).canary, Some(CanaryAt::Waits));
    let waits = seen(false);
    does("BLMOVE", &[&keys.queue, &keys.in_flight, "RIGHT", "LEFT", "1"]);
    let taken = seen(true);
    assert_eq!((taken.waiting, taken.taken, taken.begun, taken.canary), (1, 1, 0, Some(CanaryAt::Waits)));
    assert!(taken.head != waits.head && taken.oldest == waits.head);
    does("HSET", &[&keys.begun, "hash", "{}"]);
    assert_eq!(seen(false).begun, 1);
    does("SET", &[&keys.result("canary-1"), "{}"]);
    assert_eq!(seen(true).canary, Some(CanaryAt::Answered));

    // It looks and sends canaries, and that is all; what it may not see spoils nothing else.
    let questions = [
        Question::List { key: "secret".to_owned(), busy: None },
        Question::List { key: keys.queue.clone(), busy: None },
    ];
    let answers = runtime.block_on(eyes.look(&questions)).unwrap();
    assert!(matches!(&answers[0], ProbeReply::Wrong(why) if why.contains("may not read")), "{answers:?}");
    assert!(matches!(answers[1], ProbeReply::List { length: 1, .. }), "{answers:?}");
    runtime.block_on(eyes.push(&queue, b"bird")).unwrap();
    let mut own = redis::Client::open(redis.url("detector:CHANGE-ME@")).unwrap().get_connection().unwrap();
    for (cmd, args) in [
        ("RPOP", vec![keys.queue.as_str()]),
        ("SET", vec![keys.owner.as_str(), "x"]),
        ("EVAL", vec!["return redis.call('DEL', ARGV[1])", "0", keys.queue.as_str()]),
        ("EVAL", vec!["return redis.call('LPUSH', ARGV[1], 'x')", "0", keys.in_flight.as_str()]),
    ] {
        let denied = redis::cmd(cmd).arg(&args).query::<redis::Value>(&mut own).unwrap_err();
        let denied = denied.to_string();
        assert!(
            ["permission", "can't access", "can't run"].iter().any(|word| denied.contains(word)),
            "{denied}"
        );
    }
    // Without the right to send, it still sees.
    let mut blind = QueueProbe::new(&redis.url("watcher:CHANGE-ME@")).unwrap();
    runtime.block_on(blind.push(&queue, b"x")).unwrap_err();
}

/// What a thousand workers with heartbeat files cost: run it alone, `--ignored --nocapture`.
#[test]
#[ignore = "it takes a minute and prints a figure"]
fn a_thousand_files_for_a_minute() {
    let dir = tempfile::tempdir().unwrap();
    let looks = (0..1_000)
        .map(|n| {
            let file = dir.path().join(format!("beat{n}"));
            std::fs::write(&file, "").unwrap();
            let every = Duration::from_secs(if n % 2 == 0 { 10 } else { 5 });
            Check { every, ..look(&format!("w{n}"), SignSource::File(file)) }
        })
        .collect();
    let mut scene = Scene::new(looks, None);
    let cpu = || {
        let time = nix::time::clock_gettime(nix::time::ClockId::CLOCK_PROCESS_CPUTIME_ID).unwrap();
        Duration::from(time)
    };
    let (before, end) = (cpu(), Instant::now() + Duration::from_secs(60));
    let mut readings = 0;
    while Instant::now() < end {
        readings += scene.next().len();
    }
    println!("{readings} readings in a minute took {:?} of a processor", cpu() - before);
}
