//! Taking the oldest task.

use std::pin::pin;
use std::time::Duration;

use redis::Script;
use tokio::time::error::Elapsed;
use tokio::time::{Instant, timeout, timeout_at};

use super::conn::Conn;
use super::error::{QueueError, mask};
use super::keys::Keys;
use super::scripts;

/// How long the server lets a claim wait. Whole seconds: fractions blocked for ever before Redis 7.0.8.
const BLOCK: u64 = 2;
/// How long we wait for its answer, which comes after [`BLOCK`] at the latest.
const DEADLINE: Duration = Duration::from_secs(5);

/// A wait that ended so much too late says that this process did not run. The answer may lie in the socket, and is read within
/// as much again.
const OVERSLEPT: Duration = Duration::from_millis(250);

/// The longest element that is read of a queue, in bytes: four times the longest task, so that most of what is no task is
/// kept with the dead as it was. Of what is longer only the hash is.
pub const LONGEST: usize = 64 * 1024;

/// How a task is taken from the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum How {
    /// `BLMOVE`: it is in the in-flight list the moment it leaves the queue, so nothing is lost.
    #[default]
    Blmove,
    /// `BRPOP`, as lanes did before: what is taken is lost if the lane or the connection dies before it begins.
    /// So is what is too long to be a task: its length is known only when it has left the queue. The lane says so, and goes
    /// on with the next.
    Brpop,
}

/// The connection that takes tasks. It belongs to one lane and is never shared: a claim that is given up half-way would
/// be carried out by the server nevertheless.
#[derive(Debug)]
pub struct Claimer {
    conn: Conn,
    how: How,
    keys: Keys,
    url: String,
    when_full: Script,
}

impl Claimer {
    pub(super) fn new(conn: Conn, how: How, keys: Keys, url: String) -> Self {
        Self { conn, how, keys, url, when_full: Script::new(scripts::CLAIM_WHEN_FULL) }
    }

    /// The oldest task, byte for byte; `None` if none came within 2 s.
    ///
    /// # Errors
    /// Any [`QueueError`] but [`QueueError::Url`]. Drop the claimer after all but [`QueueError::Full`]: an answer to
    /// the failed claim may still be on its way.
    ///
    /// # Cancel safety
    /// Not cancel safe; see [`Claimer`].
    pub async fn claim(&mut self) -> Result<Option<Vec<u8>>, QueueError> {
        let answer = match self.how {
            How::Blmove => {
                let mut cmd = redis::cmd("BLMOVE");
                cmd.arg(&self.keys.queue).arg(&self.keys.in_flight).arg("RIGHT").arg("LEFT").arg(BLOCK);
                in_time(cmd.query_async::<Option<Vec<u8>>>(&mut self.conn)).await
            }
            How::Brpop => {
                let mut cmd = redis::cmd("BRPOP");
                cmd.arg(&self.keys.queue).arg(BLOCK);
                in_time(cmd.query_async::<Option<(Vec<u8>, Vec<u8>)>>(&mut self.conn))
                    .await
                    .map(|answer| answer.map(|popped| popped.map(|(_, task)| task)))
            }
        };
        self.within(answer)
    }

    /// As [`claim`](Self::claim) without waiting, and even if the server is full: then it refuses `BLMOVE`, although
    /// working the queue off is what makes room.
    ///
    /// # Errors
    /// As [`claim`](Self::claim).
    pub async fn claim_when_full(&mut self) -> Result<Option<Vec<u8>>, QueueError> {
        let mut call = self.when_full.prepare_invoke();
        call.key(&self.keys.queue).key(&self.keys.in_flight);
        let answer = in_time(call.invoke_async(&mut self.conn)).await;
        self.within(answer)
    }

    fn within<T>(&self, answer: Result<redis::RedisResult<T>, Elapsed>) -> Result<T, QueueError> {
        answer
            .map_err(|_| QueueError::Late { url: mask(&self.url), deadline: DEADLINE })?
            .map_err(|error| QueueError::of(&error, &self.url))
    }
}

/// The answer within [`DEADLINE`]. A lane that was stopped for that long is woken by its clock and by the socket at once, and
/// looks before the connection's own task has read: without a second look it would call a well server silent.
async fn in_time<T>(answer: impl Future<Output = T>) -> Result<T, Elapsed> {
    let mut answer = pin!(answer);
    let due = Instant::now() + DEADLINE;
    match timeout_at(due, &mut answer).await {
        Err(_) if Instant::now() > due + OVERSLEPT => timeout(OVERSLEPT, answer).await,
        first => first,
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;
    use tokio::task::yield_now;
    use tokio::time::{advance, sleep};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_came_while_this_process_was_stopped_is_not_late() {
        let (to, answer) = oneshot::channel();
        // As the connection's task, which reads what the server said after two seconds when it runs again.
        tokio::spawn(async move {
            sleep(Duration::from_secs(BLOCK)).await;
            to.send("nothing")
        });
        yield_now().await;
        let (heard, ()) = tokio::join!(in_time(answer), advance(DEADLINE * 2));
        assert_eq!(heard.unwrap().unwrap(), "nothing");
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_says_nothing_is_late_whether_one_was_stopped_or_not() {
        let (_to, answer) = oneshot::channel::<()>();
        let began = Instant::now();
        assert!(in_time(answer).await.is_err());
        assert!(began.elapsed() < DEADLINE + OVERSLEPT);
        let (_to, answer) = oneshot::channel::<()>();
        let began = Instant::now();
        let (heard, ()) = tokio::join!(in_time(answer), advance(DEADLINE * 2));
        assert!(heard.is_err() && began.elapsed() <= DEADLINE * 2 + OVERSLEPT * 2);
    }
}
