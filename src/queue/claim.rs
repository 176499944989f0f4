//! Taking the oldest task.

use std::time::Duration;

use redis::Script;
use redis::aio::MultiplexedConnection;
use tokio::time::timeout;

use super::error::{QueueError, mask};
use super::keys::Keys;
use super::scripts;

/// How long the server lets a claim wait. Whole seconds: fractions blocked for ever before Redis 7.0.8.
const BLOCK: u64 = 2;
/// How long we wait for its answer, which comes after [`BLOCK`] at the latest.
const DEADLINE: Duration = Duration::from_secs(5);

/// How a task is taken from the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum How {
    /// `BLMOVE`: it is in the in-flight list the moment it leaves the queue, so nothing is lost.
    #[default]
    Blmove,
    /// `BRPOP`, as lanes did before: what is taken is lost if the lane or the connection dies before it begins.
    Brpop,
}

/// The connection that takes tasks. It belongs to one lane and is never shared: a claim that is given up half-way would
/// be carried out by the server nevertheless.
#[derive(Debug)]
pub struct Claimer {
    conn: MultiplexedConnection,
    how: How,
    keys: Keys,
    url: String,
    when_full: Script,
}

impl Claimer {
    pub(super) fn new(conn: MultiplexedConnection, how: How, keys: Keys, url: String) -> Self {
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
                timeout(DEADLINE, cmd.query_async::<Option<Vec<u8>>>(&mut self.conn)).await
            }
            How::Brpop => {
                let mut cmd = redis::cmd("BRPOP");
                cmd.arg(&self.keys.queue).arg(BLOCK);
                timeout(DEADLINE, cmd.query_async::<Option<(Vec<u8>, Vec<u8>)>>(&mut self.conn))
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
        let answer = timeout(DEADLINE, call.invoke_async(&mut self.conn)).await;
        self.within(answer)
    }

    fn within<T>(
        &self,
        answer: Result<redis::RedisResult<T>, tokio::time::error::Elapsed>,
    ) -> Result<T, QueueError> {
        answer
            .map_err(|_| QueueError::Late { url: mask(&self.url), deadline: DEADLINE })?
            .map_err(|error| QueueError::of(&error, &self.url))
    }
}
