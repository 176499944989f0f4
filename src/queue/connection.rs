//! Everything a lane says to Redis besides claiming.

use std::rc::Rc;
use std::time::Duration;

use redis::{RedisError, Script};
use tokio::time::{sleep, timeout};

use super::claim::LONGEST;
use super::conn::Conn;
use super::error::{QueueError, mask};
use super::keys::Keys;
use super::limit::Limit;
use super::place::{Found, RedisAddress};
use super::scripts;
use super::server::DEADLINE;
use crate::vocabulary::clipped;

/// How long a lane owns its queue without a word from it. A lane on another host has to wait this long for a dead one.
pub const OWNED_FOR: Duration = Duration::from_secs(10);
/// How long a result can be fetched.
const RESULT_TTL: Duration = Duration::from_secs(24 * 3600);
/// How long a canary's answer can be fetched: whoever sent it looks every few seconds.
const CANARY_TTL: Duration = Duration::from_secs(600);
/// How many elements of the in-flight list, and of the queue's end, are looked at for what is too long; one at a time, some
/// microseconds each.
const SWEPT: usize = 200;
/// How much of the in-flight list is read in one go: what a reply may have ([`DESK_LIMIT`](super::server)), twice over.
const PAGE: (usize, usize) = (500, 1024 * 1024);
/// The longest mark: a lane's own has some 400 bytes.
const MAX_MARK: usize = 4096;
/// The longest result: see the limit of what is read of an answer.
const MAX_RESULT: usize = 1024 * 1024;
/// How long the server may take for what is too long: it reads, compares and hashes some hundred megabytes at worst.
const SWEEP_DEADLINE: Duration = Duration::from_secs(8);
/// How long a claim of a ghost that could not be ended waits in the server at most, and some.
const GHOST_GONE: Duration = Duration::from_millis(2_500);
/// What is read of `CLIENT LIST`, 20,000 connections and more, and of a sweep.
const GHOST_LIMIT: Limit = Limit { string: 8 * 1024 * 1024, reply: 9 * 1024 * 1024, values: 1024 };

/// How many results wait for a collector; if there is none, they must not fill the server.
const MAX_RESULTS: usize = 10_000;
/// Whose a queue is after a lane has asked for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Owned {
    /// The lane's, as before.
    Kept,
    /// The lane's from now on; before it was nobody's.
    Taken,
    /// Another lane's, which runs there.
    ByAnother(String),
}

/// How much of where another owner says that it runs is shown, in bytes.
const MAX_PLACE: usize = 120;
/// How many dead tasks are kept, for the same reason.
const MAX_DEAD: usize = 1_000;

/// What stands before the hash where an element goes by its SHA-1.
pub const SHA1: &str = "sha1:";

/// Who a lane is, to Redis.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    /// Tells this lane from all others, also from one with the same node name on another host. No spaces.
    pub id: String,
    /// Where it runs, for people.
    pub place: String,
}

impl Owner {
    fn words(&self) -> String {
        format!("{} {}", self.id, self.place)
    }

    fn prefix(&self) -> String {
        format!("{} ", self.id)
    }
}

/// A task as the queue knows it.
#[derive(Debug, Clone, Copy)]
pub struct Piece<'a> {
    /// Its bytes.
    pub raw: &'a [u8],
    /// Their SHA-256 in hex.
    pub hash: &'a str,
}

/// Something too long to be a task, which the server has put away.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Oversize {
    /// What it goes by.
    pub sha1: String,
    /// How long it is, in bytes.
    pub bytes: String,
}

#[derive(Debug)]
struct Scripts {
    sweep: Script,
    in_flight: Script,
    mark: Script,
    read: Script,
    own: Script,
    disown: Script,
    begin: Script,
    finish: Script,
    put_back: Script,
    answer_canary: Script,
}

/// What the server calls the lane's two connections.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ids {
    pub(super) claimer: i64,
    pub(super) connection: i64,
}

/// The lane's connection for everything but claiming. Cheap to clone; all clones use the one connection, in turn.
#[derive(Debug, Clone)]
pub struct Connection {
    conn: Conn,
    ours: Ids,
    name: String,
    keys: Keys,
    place: Rc<RedisAddress>,
    /// The server that was connected to.
    found: Rc<Found>,
    scripts: Rc<Scripts>,
}

impl Connection {
    pub(super) fn new(
        conn: Conn,
        ours: Ids,
        name: String,
        keys: Keys,
        place: Rc<RedisAddress>,
        found: Found,
    ) -> Self {
        let scripts = Scripts {
            sweep: Script::new(scripts::SWEEP),
            in_flight: Script::new(scripts::IN_FLIGHT),
            mark: Script::new(scripts::MARK),
            read: Script::new(scripts::READ),
            own: Script::new(scripts::OWN),
            disown: Script::new(scripts::DISOWN),
            begin: Script::new(scripts::BEGIN),
            finish: Script::new(scripts::FINISH),
            put_back: Script::new(scripts::PUT_BACK),
            answer_canary: Script::new(scripts::ANSWER_CANARY),
        };
        Self { conn, ours, name, keys, place, found: found.into(), scripts: scripts.into() }
    }

    fn wrong(&self, error: &RedisError) -> QueueError {
        QueueError::of(error, &self.found.url)
    }

    /// A connection to the same server for one question: one that is told too much is lost, and one whose answer takes long is
    /// in everybody's way.
    async fn another(&self, answer: Duration) -> Result<Conn, QueueError> {
        let late = QueueError::Late { url: mask(&self.found.url), deadline: DEADLINE };
        let connect = self.found.connect(Some(answer), GHOST_LIMIT);
        timeout(DEADLINE, connect).await.unwrap_or(Err(late))
    }

    /// Becomes or stays the queue's owner for [`OWNED_FOR`], unless another lane is.
    ///
    /// # Errors
    /// As all here: any [`QueueError`] but [`QueueError::Url`], within 3 s.
    pub async fn own(&self, us: &Owner) -> Result<Owned, QueueError> {
        let mut call = self.scripts.own.prepare_invoke();
        call.key(&self.keys.owner).arg(us.words()).arg(us.prefix()).arg(OWNED_FOR.as_millis() as u64);
        let (whose, words): (u8, Vec<u8>) =
            call.invoke_async(&mut self.conn.clone()).await.map_err(|e| self.wrong(&e))?;
        Ok(match whose {
            0 => Owned::Kept,
            1 => Owned::Taken,
            _ => {
                let words = crate::vocabulary::printable_bytes(&words);
                let place = words.split_once(' ').map_or(words.as_str(), |(_, place)| place);
                // Anybody may have written it, and it ends up in the status and the journal.
                Owned::ByAnother(clipped(place, MAX_PLACE).into_owned())
            }
        })
    }

    /// Stays the owner, as [`own`](Self::own), unless sentinels name another master by now.
    ///
    /// # Errors
    /// As [`own`](Self::own), and [`QueueError::ReadOnly`] if this is not the master any more, within 6 s more.
    pub async fn renew(&self, us: &Owner) -> Result<Owned, QueueError> {
        // First, because sentinels may take their time and our ownership runs out.
        let owner = self.own(us).await?;
        if let Some(other) = self.place.elsewhere(&self.found.url).await {
            // The claim would wait on there for up to two seconds; if this fails it does.
            drop(self.wake_claimer().await);
            let why = format!("the sentinels name {}", mask(&other));
            return Err(QueueError::ReadOnly { url: mask(&self.found.url), why });
        }
        Ok(owner)
    }

    /// Gives the queue up, so that nobody has to wait for our time to run out.
    ///
    /// # Errors
    /// As [`own`](Self::own).
    pub async fn disown(&self, us: &Owner) -> Result<(), QueueError> {
        let mut call = self.scripts.disown.prepare_invoke();
        call.key(&self.keys.owner).arg(us.words());
        call.invoke_async(&mut self.conn.clone()).await.map_err(|e| self.wrong(&e))
    }

    /// Ends all connections of this lane's name but these two. A claim of a dead connection that still waits in the
    /// server takes the next task with it. Only for the owner. If the list of connections is too long to be read, which
    /// anybody with a connection can bring about, their claims are waited for instead.
    ///
    /// # Errors
    /// As [`own`](Self::own).
    pub async fn kill_ghosts(&self) -> Result<u32, QueueError> {
        let mut conn = self.another(DEADLINE).await?;
        let list = redis::cmd("CLIENT").arg("LIST").query_async::<Vec<u8>>(&mut conn).await;
        let list = match list.map_err(|e| self.wrong(&e)) {
            Err(QueueError::Excess { .. }) => {
                sleep(GHOST_GONE).await;
                return Ok(0);
            }
            list => list?,
        };
        let list = String::from_utf8_lossy(&list);
        let mut killed = 0;
        for id in
            named(&list, &self.name).filter(|id| *id != self.ours.claimer && *id != self.ours.connection)
        {
            let mut cmd = redis::cmd("CLIENT");
            cmd.arg("KILL").arg("ID").arg(id);
            killed += cmd.query_async::<u32>(&mut conn).await.map_err(|e| self.wrong(&e))?;
        }
        Ok(killed)
    }

    /// Has the waiting claim answered with nothing now.
    ///
    /// # Errors
    /// As [`own`](Self::own).
    pub async fn wake_claimer(&self) -> Result<(), QueueError> {
        let mut cmd = redis::cmd("CLIENT");
        cmd.arg("UNBLOCK").arg(self.ours.claimer);
        cmd.query_async::<i64>(&mut self.conn.clone()).await.map(drop).map_err(|e| self.wrong(&e))
    }

    /// How many tasks wait.
    ///
    /// # Errors
    /// As [`own`](Self::own).
    pub async fn waiting(&self) -> Result<u64, QueueError> {
        let mut cmd = redis::cmd("LLEN");
        cmd.arg(&self.keys.queue);
        cmd.query_async(&mut self.conn.clone()).await.map_err(|e| self.wrong(&e))
    }

    /// Has the server answer what is too long to be a task, in the in-flight list and at the queue's end, with `result` and an
    /// entry among the dead; in both, `@SHA1@` and `@BYTES@` stand for what the element goes by. Says what it was.
    ///
    /// # Errors
    /// As [`own`](Self::own).
    pub async fn sweep(&self, result: &str, dead: &str) -> Result<Vec<Oversize>, QueueError> {
        let keys = &self.keys;
        let mut call = self.scripts.sweep.prepare_invoke();
        call.key(&keys.in_flight).key(&keys.queue).key(&keys.dead).key(&keys.results);
        call.arg(LONGEST).arg(dead).arg(result).arg(keys.result(SHA1)).arg(RESULT_TTL.as_secs());
        call.arg(MAX_RESULTS - 1).arg(MAX_DEAD - 1).arg(SWEPT);
        let mut conn = self.another(SWEEP_DEADLINE).await?;
        let found: Vec<(String, String)> = call.invoke_async(&mut conn).await.map_err(|e| self.wrong(&e))?;
        Ok(found.into_iter().map(|(sha1, bytes)| Oversize { sha1, bytes }).collect())
    }

    /// What is in flight, newest first, and whether there is more than can be read in one go.
    ///
    /// # Errors
    /// As [`own`](Self::own).
    pub async fn in_flight(&self) -> Result<(Vec<Vec<u8>>, bool), QueueError> {
        let mut call = self.scripts.in_flight.prepare_invoke();
        call.key(&self.keys.in_flight).arg(LONGEST).arg(PAGE.0).arg(PAGE.1);
        call.invoke_async(&mut self.conn.clone()).await.map_err(|e| self.wrong(&e))
    }

    /// The mark of a begun task; empty if it is too long to be one.
    ///
    /// # Errors
    /// As [`own`](Self::own).
    pub async fn mark(&self, hash: &str) -> Result<Option<Vec<u8>>, QueueError> {
        let mut call = self.scripts.mark.prepare_invoke();
        call.key(&self.keys.begun).arg(hash).arg(MAX_MARK);
        call.invoke_async(&mut self.conn.clone()).await.map_err(|e| self.wrong(&e))
    }

    /// The result under an id with the seal that a lane gave it; `None` if either is missing, or is too long to be a lane's.
    ///
    /// # Errors
    /// As [`own`](Self::own).
    pub async fn sealed(&self, id: &str) -> Result<Option<(Vec<u8>, Vec<u8>)>, QueueError> {
        let mut call = self.scripts.read.prepare_invoke();
        call.key(self.keys.result(id)).key(self.keys.seal(id)).arg(MAX_RESULT);
        let answer = call.invoke_async(&mut self.conn.clone()).await;
        let (result, seal): (Option<Vec<u8>>, Option<Vec<u8>>) = answer.map_err(|e| self.wrong(&e))?;
        Ok(result.zip(seal))
    }

    /// Marks a task as begun. False if queue or task are no longer ours: then it must not be run. `held` says that it
    /// must be in flight.
    ///
    /// # Errors
    /// As [`own`](Self::own).
    pub async fn begin(
        &self,
        us: &Owner,
        task: Piece<'_>,
        mark: &str,
        held: bool,
    ) -> Result<bool, QueueError> {
        let mut call = self.scripts.begin.prepare_invoke();
        call.key(&self.keys.owner).key(&self.keys.begun).key(&self.keys.in_flight);
        call.arg(us.words()).arg(task.hash).arg(mark).arg(task.raw).arg(u8::from(held));
        call.invoke_async(&mut self.conn.clone()).await.map_err(|e| self.wrong(&e))
    }

    /// Answers a task: `result` under `id`, and `dead` among the dead if it is one. True if this is the task's first
    /// result; an earlier one stays. Without a result the task only leaves.
    ///
    /// # Errors
    /// As [`own`](Self::own). The same again is harmless.
    pub async fn finish(
        &self,
        task: Piece<'_>,
        id: &str,
        result: Option<&str>,
        dead: Option<&str>,
    ) -> Result<bool, QueueError> {
        self.answer(task, id, (result, None), dead).await
    }

    /// As [`finish`](Self::finish), with a seal by which the lane knows its own result again.
    ///
    /// # Errors
    /// As [`own`](Self::own). The same again is harmless.
    pub async fn finish_sealed(
        &self,
        task: Piece<'_>,
        id: &str,
        result: &str,
        seal: Option<&str>,
    ) -> Result<bool, QueueError> {
        self.answer(task, id, (Some(result), seal), None).await
    }

    async fn answer(
        &self,
        task: Piece<'_>,
        id: &str,
        (result, seal): (Option<&str>, Option<&str>),
        dead: Option<&str>,
    ) -> Result<bool, QueueError> {
        let keys = &self.keys;
        let mut call = self.scripts.finish.prepare_invoke();
        call.key(&keys.in_flight).key(&keys.begun).key(keys.result(id)).key(&keys.results).key(&keys.dead);
        call.key(keys.seal(id));
        call.arg(task.raw).arg(task.hash).arg(result.unwrap_or_default()).arg(RESULT_TTL.as_secs());
        call.arg(MAX_RESULTS - 1).arg(MAX_DEAD - 1).arg(dead.unwrap_or_default());
        call.arg(seal.unwrap_or_default());
        call.invoke_async(&mut self.conn.clone()).await.map_err(|e| self.wrong(&e))
    }

    /// Answers a canary, of which nothing is kept for long.
    ///
    /// # Errors
    /// As [`own`](Self::own). The same again is harmless.
    pub async fn answer_canary(&self, task: Piece<'_>, id: &str, answer: &str) -> Result<(), QueueError> {
        let mut call = self.scripts.answer_canary.prepare_invoke();
        call.key(&self.keys.in_flight).key(self.keys.result(id));
        call.arg(task.raw).arg(answer).arg(CANARY_TTL.as_secs());
        call.invoke_async(&mut self.conn.clone()).await.map_err(|e| self.wrong(&e))
    }

    /// Puts a task that was taken back to the head of the queue; false if it is not in flight.
    ///
    /// # Errors
    /// As [`own`](Self::own).
    pub async fn put_back(&self, task: Piece<'_>) -> Result<bool, QueueError> {
        let mut call = self.scripts.put_back.prepare_invoke();
        call.key(&self.keys.in_flight).key(&self.keys.queue).key(&self.keys.begun);
        call.arg(task.raw).arg(task.hash);
        call.invoke_async(&mut self.conn.clone()).await.map_err(|e| self.wrong(&e))
    }
}

/// The ids of the connections of that name in the text of `CLIENT LIST`.
fn named<'a>(list: &'a str, name: &'a str) -> impl Iterator<Item = i64> + 'a {
    let field = |line: &'a str, key: &str| line.split(' ').find_map(|field| field.strip_prefix(key));
    list.lines()
        .filter(move |line| field(line, "name=") == Some(name))
        .filter_map(move |line| field(line, "id=")?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_found_by_their_whole_name() {
        let list = "id=3 addr=127.0.0.1:5 name=keyholder-lane:q db=0\nid=4 addr=x name=keyholder-lane:q:read db=0\n\
                    id=x name=keyholder-lane:q\nid=9 name= cmd=client|list\n";
        assert_eq!(named(list, "keyholder-lane:q").collect::<Vec<_>>(), [3]);
    }
}
