//! Connecting, with everything set that a dead or half-dead server would otherwise hide behind.

use std::rc::Rc;
use std::time::Duration;

use tokio::time::timeout;

use super::claim::{Claimer, How, LONGEST};
use super::conn::Conn;
use super::connection::{Connection, Ids};
use super::error::{QueueError, mask};
use super::keys::{Keys, QueueName};
use super::limit::Limit;
use super::place::{Found, RedisAddress};

/// The environment variable with another address of Redis than the fleet file's, with a user and a password of one's own. A file
/// that only root reads hands it to the units.
pub const ADDRESS_VARIABLE: &str = "KEYHOLDER_REDIS";

/// What the environment says; empty counts as not set.
pub fn address_from_environment() -> Option<String> {
    std::env::var(ADDRESS_VARIABLE).ok().filter(|url| !url.is_empty())
}

/// How long a connection may take to come about, and how long an answer may take that is not waited for on purpose.
pub(super) const DEADLINE: Duration = Duration::from_secs(3);
/// What is read of a claim: the task, and the queue's name with `BRPOP`.
const CLAIM_LIMIT: Limit = Limit { string: LONGEST, reply: 2 * LONGEST, values: 2 };
/// What is read of any other answer to a lane: a result has at most 64 KiB of output twice, each byte six in JSON.
const DESK_LIMIT: Limit = Limit { string: 1024 * 1024, reply: 2 * 1024 * 1024, values: 2048 };

/// Where a queue is.
#[derive(Debug, Clone)]
pub struct Server {
    place: Rc<RedisAddress>,
    name: String,
    keys: Keys,
}

impl Server {
    /// The server at `url`, for the lane of `queue`. Nothing is connected yet.
    ///
    /// # Errors
    /// [`QueueError::Url`].
    pub fn new(url: &str, queue: &QueueName) -> Result<Self, QueueError> {
        let name = format!("keyholder-lane:{queue}");
        Ok(Self { place: RedisAddress::parse(url)?.into(), name, keys: Keys::of(queue) })
    }

    /// The address without its password.
    pub fn shown(&self) -> String {
        self.place.shown()
    }

    /// Two connections, both under the lane's name: one that only claims and waits there, one for everything else. The
    /// host's name is looked up again, and sentinels are asked again.
    ///
    /// # Errors
    /// Any [`QueueError`] but [`QueueError::Url`], within about 6 s, and 6 s more for sentinels.
    pub async fn connect(&self, how: How) -> Result<(Connection, Claimer), QueueError> {
        // Both to the same server, also if there is another master a moment later.
        let found = self.place.find().await?;
        // A blocking command is answered late by design; its own deadline is with the claimer.
        let (waiting, claimer) = self.one(&found, None, CLAIM_LIMIT).await?;
        let (busy, connection) = self.one(&found, Some(DEADLINE), DESK_LIMIT).await?;
        let ids = Ids { claimer, connection };
        let keys = self.keys.clone();
        let claimer = Claimer::new(waiting, how, keys.clone(), found.url.clone());
        Ok((Connection::new(busy, ids, self.name.clone(), keys, self.place.clone(), found), claimer))
    }

    async fn one(
        &self,
        found: &Found,
        answer: Option<Duration>,
        limit: Limit,
    ) -> Result<(Conn, i64), QueueError> {
        let wrong = |error| QueueError::of(&error, &found.url);
        let connect = async {
            let mut conn = found.connect(answer, limit).await?;
            // Not in one pipeline: its error would not say which of Redis' errors it is.
            let mut cmd = redis::cmd("CLIENT");
            cmd.arg("SETNAME").arg(&self.name).exec_async(&mut conn).await.map_err(wrong)?;
            let id = redis::cmd("CLIENT").arg("ID").query_async(&mut conn).await.map_err(wrong)?;
            Ok((conn, id))
        };
        let late = QueueError::Late { url: mask(&found.url), deadline: DEADLINE };
        timeout(DEADLINE, connect).await.unwrap_or(Err(late))
    }
}
