//! The other side of a queue: who gives tasks, waits for their results, and looks what waits.

use std::time::Duration;

use redis::Value;
use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, SHA256, digest};
use tokio::time::{Instant, sleep, timeout};

use super::claim::LONGEST;
use super::conn::Conn;
use super::connection::SHA1;
use super::error::{QueueError, mask};
use super::keys::{Keys, QueueName};
use super::limit::Limit;
use super::place::RedisAddress;
use super::scripts;
use super::server::DEADLINE;
use crate::vocabulary::hex;

/// How soon a result is asked for again at first, and at last: most actions take milliseconds, some take minutes. A result is
/// a key, so that whoever asks later finds it too; Redis has no way to wait for one.
const ASK: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(100));
/// For so long it is asked for again and again, because the shortest sleep is longer than what the shortest actions take. A
/// question takes about a tenth of a millisecond.
const AT_ONCE: Duration = Duration::from_millis(3);
/// How many entries of a list are looked at: more than a person reads.
const SEEN: usize = 1_000;
/// How many bytes of what waits, and of what is in flight.
const SEEN_BYTES: usize = 512 * 1024;
/// How many bytes of the dead.
const SEEN_DEAD: usize = 2 * 1024 * 1024;
/// The longest entry of the dead that is read: a task as long as tasks may be, each byte escaped and then once more.
const LONGEST_DEAD: usize = 256 * 1024;

/// What is read of an answer: see [`SEEN`], and for a result the lane's own limits.
const LIMIT: Limit = Limit { string: 1024 * 1024, reply: 4 * 1024 * 1024, values: 16 * 1024 };

/// A connection of who gives tasks or looks.
#[derive(Debug, Clone)]
pub struct Front {
    conn: Conn,
    /// As it was given.
    url: String,
    /// Of the server that was connected to.
    at: String,
}

/// What is in and around one queue at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// How many tasks wait.
    pub waiting: u64,
    /// The next to be taken first; of very many only the first thousand.
    pub next: Vec<Vec<u8>>,
    /// What a lane has taken and not answered, oldest first.
    pub in_flight: Vec<Vec<u8>>,
    /// What was begun: the SHA-256 of a task's bytes in hex, and JSON as the lane wrote it.
    pub begun: Vec<(Vec<u8>, Vec<u8>)>,
    /// What could not be done: JSON, oldest first.
    pub dead: Vec<Vec<u8>>,
    /// Whether a lane owns the queue, and its words about itself.
    pub owner: Option<Vec<u8>>,
}

impl Front {
    /// Connects to the server at `url`, or to the master if that names sentinels.
    ///
    /// # Errors
    /// Any [`QueueError`], within 3 s, and 6 s more for sentinels.
    pub async fn connect(url: &str) -> Result<Self, QueueError> {
        let place = RedisAddress::parse(url)?;
        let found = place.find().await?;
        let late = QueueError::Late { url: mask(&found.url), deadline: DEADLINE };
        let conn = timeout(DEADLINE, found.connect(Some(DEADLINE), LIMIT)).await.unwrap_or(Err(late))?;
        Ok(Self { conn, url: url.to_owned(), at: found.url })
    }

    fn wrong(&self, error: &redis::RedisError) -> QueueError {
        QueueError::of(error, &self.at)
    }

    /// Puts a task at the end of a queue; answers with how many wait now.
    ///
    /// # Errors
    /// As [`connect`](Self::connect). Whether the task is in the queue is not known then: look for its result, or give it
    /// again with the same bytes, which no lane runs twice.
    pub async fn push(&self, queue: &QueueName, task: &[u8]) -> Result<u64, QueueError> {
        let mut cmd = redis::cmd("LPUSH");
        cmd.arg(Keys::of(queue).queue).arg(task);
        cmd.query_async(&mut self.conn.clone()).await.map_err(|e| self.wrong(&e))
    }

    /// The result of a task, if there is one. A lane that does not believe a task's signature does not believe its id either,
    /// and answers under the hash of its bytes.
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    pub async fn result(
        &self,
        queue: &QueueName,
        id: &str,
        task: &[u8],
    ) -> Result<Option<Vec<u8>>, QueueError> {
        let keys = Keys::of(queue);
        let hash = if task.len() > LONGEST {
            format!("{SHA1}{}", hex(digest(&SHA1_FOR_LEGACY_USE_ONLY, task).as_ref()))
        } else {
            format!("sha256:{}", hex(digest(&SHA256, task).as_ref()))
        };
        let mut pipe = redis::pipe();
        pipe.cmd("GET").arg(keys.result(id)).cmd("GET").arg(keys.result(&hash));
        let answer = pipe.query_async(&mut self.conn.clone()).await;
        let (by_id, by_hash): (Option<Vec<u8>>, Option<Vec<u8>>) = answer.map_err(|e| self.wrong(&e))?;
        Ok(by_id.or(by_hash))
    }

    /// Waits for the result of a task; `None` if there is none within `time`. `look` hears now and then how long it has
    /// been, for whoever waits with us. A server that goes away and comes back in that time is connected to again.
    ///
    /// # Errors
    /// As [`connect`](Self::connect): what the server said last, if it does not come back.
    pub async fn wait(
        &mut self,
        queue: &QueueName,
        id: &str,
        task: &[u8],
        time: Duration,
        mut look: impl FnMut(Duration),
    ) -> Result<Option<Vec<u8>>, QueueError> {
        let (begun, mut pause) = (Instant::now(), ASK.0);
        loop {
            let answer = self.result(queue, id, task).await;
            if let Ok(Some(result)) = answer {
                return Ok(Some(result));
            }
            let passed = begun.elapsed();
            if passed >= time {
                return answer;
            }
            look(passed);
            if answer.is_err() {
                sleep(ASK.1.min(time - passed)).await;
                if let Ok(again) = Self::connect(&self.url).await {
                    *self = again;
                }
                continue;
            }
            if passed < AT_ONCE {
                continue;
            }
            sleep(pause.min(time - passed)).await;
            // Never later than by a fiftieth of the time that it has taken.
            pause = (passed / 50).clamp(ASK.0, ASK.1);
        }
    }

    /// How many tasks wait in a queue, and whether a lane owns it.
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    pub async fn served(&self, queue: &QueueName) -> Result<(u64, bool), QueueError> {
        let keys = Keys::of(queue);
        let mut pipe = redis::pipe();
        pipe.cmd("LLEN").arg(&keys.queue).cmd("EXISTS").arg(&keys.owner);
        pipe.query_async(&mut self.conn.clone()).await.map_err(|e| self.wrong(&e))
    }

    /// What is in and around a queue. Nothing of it is longer than what a lane reads: what is longer is shown as a task, or as an
    /// entry of the dead, that says so.
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    pub async fn look(&self, queue: &QueueName) -> Result<Seen, QueueError> {
        let keys = Keys::of(queue);
        let mut cmd = redis::cmd("EVAL");
        cmd.arg(scripts::VIEW).arg(0);
        cmd.arg(keys.queue).arg(keys.in_flight).arg(keys.begun).arg(keys.dead).arg(keys.owner);
        cmd.arg(SEEN).arg(SEEN_BYTES).arg(SEEN_DEAD).arg(LONGEST).arg(LONGEST_DEAD);
        type Marks = Vec<(Vec<u8>, Vec<u8>)>;
        type Answer = (u64, Vec<Value>, Vec<Value>, Marks, Vec<Value>, Option<Vec<u8>>);
        let answer: Answer = cmd.query_async(&mut self.conn.clone()).await.map_err(|e| self.wrong(&e))?;
        let (waiting, next, in_flight, begun, dead, owner) = answer;
        let list = |all: Vec<Value>, long: fn(&str, &str) -> String| {
            all.into_iter().filter_map(|one| element(one, long)).collect()
        };
        Ok(Seen {
            waiting,
            next: list(next, long_task),
            in_flight: list(in_flight, long_task),
            begun,
            dead: list(dead, long_dead),
            owner,
        })
    }

    /// Takes an entry away from the dead, byte for byte as [`look`](Self::look) has shown it; false if it is not there.
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    pub async fn remove_dead_letter(&self, queue: &QueueName, entry: &[u8]) -> Result<bool, QueueError> {
        let mut cmd = redis::cmd("EVAL");
        cmd.arg(scripts::BURY).arg(1).arg(Keys::of(queue).dead).arg(entry).arg(sha1_of(entry)).arg(SEEN);
        let removed: u64 = cmd.query_async(&mut self.conn.clone()).await.map_err(|e| self.wrong(&e))?;
        Ok(removed > 0)
    }
}

/// An element, or what stands for one that is too long.
#[expect(clippy::wildcard_enum_match_arm, reason = "the library's enum is not ours")]
fn element(one: Value, long: fn(&str, &str) -> String) -> Option<Vec<u8>> {
    match one {
        Value::BulkString(bytes) => Some(bytes),
        Value::Array(_) => {
            let (sha1, bytes): (String, String) = redis::from_redis_value(one).ok()?;
            let fit =
                sha1.bytes().all(|b| b.is_ascii_hexdigit()) && bytes.bytes().all(|b| b.is_ascii_digit());
            fit.then(|| long(&sha1, &bytes).into_bytes())
        }
        _ => None,
    }
}

fn long_task(sha1: &str, bytes: &str) -> String {
    format!(r#"{{"id":"{PART}{sha1}","action":"({bytes} bytes)","params":{{}},"by":"?","issued_at":"?"}}"#)
}

fn long_dead(sha1: &str, bytes: &str) -> String {
    format!(
        r#"{{"code":"malformed","text":"{bytes} bytes, and no lane wrote them","at":"","sha256":"{PART}{sha1}","bytes":{bytes},"task":{{"text":""}}}}"#
    )
}

/// What stands before the SHA-1 of the beginning and the length of what is too long to be shown.
const PART: &str = "part-";

/// The SHA-1 that an entry goes by, empty if it goes by another hash.
fn sha1_of(entry: &[u8]) -> String {
    let text = String::from_utf8_lossy(entry);
    let hash = text.split_once(PART).and_then(|(_, rest)| rest.get(..40));
    hash.filter(|hash| hash.bytes().all(|b| b.is_ascii_hexdigit())).unwrap_or_default().to_owned()
}
