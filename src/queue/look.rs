//! What detectors see in Redis: one connection and one question per look, however many workers are watched.

use std::time::Duration;

use redis::Value;
use tokio::time::{Instant, timeout};

use super::backoff::Backoff;
use super::conn::Conn;
use super::error::{QueueError, mask, shown};
use super::keys::{Keys, QueueName};
use super::limit::Limit;
use super::place::RedisAddress;

/// How long one look may take, connecting included. Sooner than a lane's deadline: nobody waits for it but detectors,
/// and what they do not know does no harm.
const DEADLINE: Duration = Duration::from_secs(2);
/// How often sentinels are asked whether another is the master by now.
const STILL_MASTER: Duration = Duration::from_secs(5);
/// How many keys are looked at in one go: a script is in everybody's way while it runs, some microseconds per key.
const AT_ONCE: usize = 200;
/// What is read of one answer: numbers, hashes and errors of [`AT_ONCE`] keys.
const LIMIT: Limit = Limit { string: 4 * 1024, reply: 256 * 1024, values: 2 * AT_ONCE * ARGS };
/// What a write is tried with: of no length at the beginning of a text, it changes nothing whether the key is there or not, and
/// yet the server refuses it whenever it refuses any.
pub(super) const PROBE: &str = "tasks:maintenance:write-probe";
/// How many arguments a key has in [`LOOK`].
const ARGS: usize = 6;

/// Reads only. Elements are hashed by the server: a task may be as long as 512 MB, and what looks at it runs as root in
/// a few megabytes. Of a long one only the beginning is hashed, which would take the server a second otherwise. Names are arguments and not keys, so that one that this user may not read spoils only its own
/// answer. Arguments, for each key: kind, key, in-flight (of a list: busy), begun, result, canary.
const LOOK: &str = "
local function hash(list, at)
  local element = redis.call('LINDEX', list, at)
  if not element then return '' end
  if #element > 65536 then element = string.sub(element, 1, 1024) .. #element end
  return redis.sha1hex(element)
end
local function one(kind, key, flight, begun, result, canary)
  if kind == 'key' then return { redis.call('PTTL', key) } end
  local seen = { redis.call('LLEN', key), hash(key, -1) }
  if kind == 'list' then
    local busy = flight ~= '' and redis.call('EXISTS', flight) or 0
    return { seen[1], hash(key, 0), seen[2], busy }
  end
  seen[3] = redis.call('LLEN', flight)
  seen[4] = hash(flight, -1)
  seen[5] = redis.call('HLEN', begun)
  seen[6] = ''
  seen[7] = hash(key, 0)
  if canary ~= '' then
    if redis.call('EXISTS', result) == 1 then seen[6] = 'answered'
    elseif redis.call('LPOS', key, canary) or redis.call('LPOS', flight, canary) then seen[6] = 'waits'
    else seen[6] = 'lost' end
  end
  return seen
end
local all = {}
for i = 1, #ARGV, 6 do
  local fine, seen = pcall(one, ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3], ARGV[i + 4], ARGV[i + 5])
  if not fine then seen = type(seen) == 'table' and seen.err or tostring(seen) end
  all[#all + 1] = seen
end
return all
";

/// What is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Question {
    /// Whether a key is there, and whether it expires.
    Key(String),
    /// How many elements a list has, and which are at its ends.
    List {
        /// The list.
        key: String,
        /// A key that is there while something is in its worker's hands.
        busy: Option<String>,
    },
    /// How a lane gets on with its queue.
    Lane {
        /// The queue.
        queue: QueueName,
        /// A canary that is out: its id and its bytes.
        canary: Option<(String, Vec<u8>)>,
    },
}

/// What was seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProbeReply {
    /// The key is there and expires.
    Lives,
    /// The key is there and never expires.
    Stays,
    /// There is no such key.
    Gone,
    /// The list.
    List {
        /// How many elements it has.
        length: u64,
        /// Stands for the element on the left; 0 for none.
        left: u64,
        /// Stands for the element on the right; 0 for none.
        right: u64,
        /// Whether the key that says so was there.
        busy: bool,
    },
    /// The lane.
    Lane(LaneSeen),
    /// It could not be seen; the text says why.
    Wrong(String),
}

/// A lane, seen in Redis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LaneSeen {
    /// How many tasks wait.
    pub waiting: u64,
    /// Stands for the one that is taken next; 0 for none.
    pub head: u64,
    /// Stands for the one that was given last; 0 for none.
    pub tail: u64,
    /// How many tasks were taken and not answered.
    pub taken: u64,
    /// Stands for the oldest of these; 0 for none.
    pub oldest: u64,
    /// How many of these were begun.
    pub begun: u64,
    /// What became of the canary, if one was asked for.
    pub canary: Option<CanaryAt>,
}

/// Where a canary is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CanaryAt {
    /// It was answered.
    Answered,
    /// It waits, or was taken and is not answered.
    Waits,
    /// It is nowhere: Redis has forgotten it, or a lane that takes by BRPOP has it in hand.
    Lost,
}

/// The one connection for looking.
#[derive(Debug)]
pub struct QueueProbe {
    place: RedisAddress,
    /// With the address of the server that was connected to.
    conn: Option<(Conn, String)>,
    /// When sentinels were last asked whether it is still the master.
    asked: Instant,
    backoff: Backoff,
    /// Until when nothing is tried, and what was wrong.
    wrong: Option<(Instant, String)>,
}

impl QueueProbe {
    /// For the server at `url`, or the master that its sentinels name. Nothing is connected yet.
    ///
    /// # Errors
    /// [`QueueError::Url`].
    pub fn new(url: &str) -> Result<Self, QueueError> {
        let place = RedisAddress::parse(url)?;
        Ok(Self { place, conn: None, asked: Instant::now(), backoff: Backoff::default(), wrong: None })
    }

    /// Answers every question, in their order. Connects if need be, at most once in a while.
    ///
    /// # Errors
    /// One sentence that names the server, the same for as long as the same is wrong; within about two seconds.
    pub async fn look(&mut self, questions: &[Question]) -> Result<Vec<ProbeReply>, String> {
        let mut answers = Vec::with_capacity(questions.len());
        for some in questions.chunks(AT_ONCE) {
            let mut cmd = redis::cmd("EVAL");
            cmd.arg(LOOK).arg(0);
            for question in some {
                for arg in args(question) {
                    cmd.arg(arg);
                }
            }
            let Value::Array(values) = self.ask(&cmd).await? else {
                return Err(self.fail("it answers something else than was asked"));
            };
            if values.len() != some.len() {
                return Err(self.fail("it answers something else than was asked"));
            }
            answers.extend(some.iter().zip(&values).map(|(question, value)| answer(question, value)));
        }
        Ok(answers)
    }

    /// Puts a task at the end of a queue.
    ///
    /// # Errors
    /// As [`look`](Self::look). Whether it is in the queue is not known then.
    pub async fn push(&mut self, queue: &QueueName, task: &[u8]) -> Result<(), String> {
        let mut cmd = redis::cmd("LPUSH");
        cmd.arg(Keys::of(queue).queue).arg(task);
        match self.answer(&cmd).await? {
            Ok(_) => Ok(()),
            // It may be looked at nevertheless.
            Err(
                error @ (QueueError::Denied { .. } | QueueError::Full { .. } | QueueError::ReadOnly { .. }),
            ) => {
                // Of a replica that was the master a moment ago there is a better one.
                if matches!(error, QueueError::ReadOnly { .. }) {
                    self.conn = None;
                }
                Err(format!("Redis at {}: {}", self.at(), error.why()))
            }
            Err(error) => Err(self.fail(&error.why())),
        }
    }

    /// Why the server takes no writes at the moment, or why that cannot be seen; none if it takes them. Whoever asks must take a
    /// missing sign for unknown then: nobody can leave one. Changes nothing: nothing is written into what need not be there.
    ///
    /// # Errors
    /// As [`look`](Self::look).
    pub async fn refusal(&mut self) -> Result<Option<String>, String> {
        let mut cmd = redis::cmd("SETRANGE");
        cmd.arg(PROBE).arg(0).arg("");
        let at = self.at();
        Ok(match self.answer(&cmd).await? {
            Ok(_) => None,
            Err(
                error @ (QueueError::Full { .. } | QueueError::ReadOnly { .. } | QueueError::Loading { .. }),
            ) => {
                // Of a replica that was the master a moment ago there is a better one.
                if matches!(error, QueueError::ReadOnly { .. }) {
                    self.conn = None;
                }
                Some(format!("Redis at {at} takes no writes: {}", error.why()))
            }
            Err(error @ QueueError::Denied { .. }) => Some(format!(
                "whether Redis at {at} takes writes cannot be seen: {}; let our user try it with an empty write: ACL SETUSER … \
                 +setrange ~{PROBE} (catalogs/redis-users.acl)",
                error.why()
            )),
            // The server got as far as the key itself.
            Err(error) => match error.why() {
                why if why.contains("WRONGTYPE") => None,
                why => return Err(self.fail(&why)),
            },
        })
    }

    async fn ask(&mut self, cmd: &redis::Cmd) -> Result<Value, String> {
        match self.answer(cmd).await? {
            Ok(value) => Ok(value),
            Err(error) => Err(self.fail(&error.why())),
        }
    }

    /// The outer error is that of a moment ago, and nothing was tried.
    async fn answer(&mut self, cmd: &redis::Cmd) -> Result<Result<Value, QueueError>, String> {
        if let Some((until, why)) = &self.wrong
            && Instant::now() < *until
        {
            return Err(why.clone());
        }
        let all = async {
            // A master that was cut off goes on answering, and in its queues nothing moves any more.
            if let Some((_, at)) = &self.conn
                && self.asked.elapsed() >= STILL_MASTER
            {
                self.asked = Instant::now();
                if self.place.elsewhere(at).await.is_some() {
                    self.conn = None;
                }
            }
            asked(&self.place, &mut self.conn, cmd).await
        };
        let asked = timeout(DEADLINE, all).await;
        let asked = asked.unwrap_or_else(|_| {
            let at = self.conn.as_ref().map_or_else(|| self.place.shown(), |(_, at)| mask(at));
            Err(QueueError::Late { url: at, deadline: DEADLINE })
        });
        if asked.is_ok() {
            self.backoff.reset();
            self.wrong = None;
        }
        Ok(asked)
    }

    /// Drops the connection, of which nothing more is believed, and says what is wrong.
    fn fail(&mut self, why: &str) -> String {
        self.conn = None;
        let why = format!("Redis at {}: {why}", self.at());
        self.wrong = Some((Instant::now() + self.backoff.wait(), why.clone()));
        why
    }
}

impl QueueProbe {
    /// Host and port.
    fn at(&self) -> String {
        let shown = self.place.shown();
        let at = shown.split_once("://").map_or(shown.as_str(), |(_, rest)| rest);
        at.rsplit_once('@').map_or(at, |(_, host)| host).to_owned()
    }
}

async fn asked(
    place: &RedisAddress,
    conn: &mut Option<(Conn, String)>,
    cmd: &redis::Cmd,
) -> Result<Value, QueueError> {
    let (live, at) = match conn {
        Some(conn) => conn,
        None => {
            let found = place.find().await?;
            let live = found.connect(Some(DEADLINE), LIMIT).await?;
            conn.insert((live, found.url))
        }
    };
    cmd.query_async(live).await.map_err(|error| QueueError::of(&error, at))
}

fn args(question: &Question) -> [Vec<u8>; ARGS] {
    let plain =
        |kind: &str, key: &str| [kind.into(), key.into(), Vec::new(), Vec::new(), Vec::new(), Vec::new()];
    match question {
        Question::Key(key) => plain("key", key),
        Question::List { key, busy } => {
            let busy = busy.clone().unwrap_or_default();
            ["list".into(), key.clone().into(), busy.into(), Vec::new(), Vec::new(), Vec::new()]
        }
        Question::Lane { queue, canary } => {
            let keys = Keys::of(queue);
            let (result, raw) = match canary {
                Some((id, raw)) => (keys.result(id).into_bytes(), raw.clone()),
                None => (Vec::new(), Vec::new()),
            };
            ["lane".into(), keys.queue.into(), keys.in_flight.into(), keys.begun.into(), result, raw]
        }
    }
}

#[expect(clippy::wildcard_enum_match_arm, reason = "the library's enum is not ours")]
fn answer(question: &Question, value: &Value) -> ProbeReply {
    let odd = || ProbeReply::Wrong("Redis answers something else than was asked".to_owned());
    let fields = match value {
        Value::Array(fields) => fields.as_slice(),
        Value::BulkString(_) | Value::SimpleString(_) => return ProbeReply::Wrong(said(&text(value))),
        _ => return odd(),
    };
    match (question, fields) {
        (Question::Key(_), [Value::Int(-2)]) => ProbeReply::Gone,
        (Question::Key(_), [Value::Int(-1)]) => ProbeReply::Stays,
        (Question::Key(_), [Value::Int(_)]) => ProbeReply::Lives,
        (Question::List { .. }, [length, left, right, busy]) => ProbeReply::List {
            length: number(length),
            left: mark(left),
            right: mark(right),
            busy: number(busy) > 0,
        },
        (Question::Lane { canary: asked, .. }, [waiting, head, taken, oldest, begun, canary, tail]) => {
            ProbeReply::Lane(LaneSeen {
                waiting: number(waiting),
                head: mark(head),
                tail: mark(tail),
                taken: number(taken),
                oldest: mark(oldest),
                begun: number(begun),
                canary: match text(canary).as_str() {
                    "answered" => Some(CanaryAt::Answered),
                    "waits" => Some(CanaryAt::Waits),
                    _ => asked.as_ref().map(|_| CanaryAt::Lost),
                },
            })
        }
        (Question::Key(_) | Question::List { .. } | Question::Lane { .. }, _) => odd(),
    }
}

/// What the server says of one key, without the place in the script that older ones add.
fn said(text: &str) -> String {
    let text = text.split_once("-> ").map_or(text, |(_, rest)| rest);
    // Redis 6 and 7, and Valkey.
    let denied =
        ["can't access", "can't run", "No permissions", "NOPERM"].iter().any(|word| text.contains(word));
    match text {
        _ if text.contains("WRONGTYPE") => "in Redis it is no list".to_owned(),
        _ if denied => "our user of Redis may not read it; see catalogs/redis-users.acl".to_owned(),
        _ => format!("Redis: {}", shown(text, "")),
    }
}

#[expect(clippy::wildcard_enum_match_arm, reason = "the library's enum is not ours")]
fn number(value: &Value) -> u64 {
    match value {
        Value::Int(number) => u64::try_from(*number).unwrap_or_default(),
        _ => 0,
    }
}

#[expect(clippy::wildcard_enum_match_arm, reason = "the library's enum is not ours")]
fn text(value: &Value) -> String {
    match value {
        Value::BulkString(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Value::SimpleString(text) => text.clone(),
        _ => String::new(),
    }
}

/// The first 64 bits of a SHA-1 in hex: told apart are only elements that follow each other.
fn mark(value: &Value) -> u64 {
    text(value).get(..16).and_then(|digits| u64::from_str_radix(digits, 16).ok()).unwrap_or_default()
}
