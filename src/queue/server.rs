//! Connecting, with everything set that a dead or half-dead server would otherwise hide behind.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::io::tcp::{TcpSettings, socket2::TcpKeepalive};
use redis::{AsyncConnectionConfig, Client, IntoConnectionInfo as _};
use tokio::time::timeout;

use super::claim::{Claimer, How};
use super::desk::{Desk, Ids};
use super::error::{QueueError, mask, shown};
use super::keys::{Keys, QueueName};

/// How long a connection may take to come about, and how long an answer may take that is not waited for on purpose.
pub(super) const DEADLINE: Duration = Duration::from_secs(3);
/// After which silence the kernel asks whether the other side is still there, and how often.
const KEEPALIVE: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(2));
/// How long the kernel waits for an acknowledgement before it gives the connection up. Without it a cable pulled under
/// a blocking command was noticed after more than 25 s.
const USER_TIMEOUT: Duration = Duration::from_secs(8);

/// The library's client for an address, with our socket settings.
pub(super) fn client(url: &str) -> Result<Client, QueueError> {
    let bad = |why: &str| QueueError::Url { url: mask(url), why: why.to_owned() };
    if !url.starts_with("redis://") && !url.starts_with("rediss://") {
        return Err(bad("it begins neither with redis:// nor with rediss://"));
    }
    let wrong = |error: redis::RedisError| bad(&shown(&error.to_string(), url));
    let keepalive = TcpKeepalive::new().with_time(KEEPALIVE.0).with_interval(KEEPALIVE.1);
    let settings =
        TcpSettings::default().set_nodelay(true).set_keepalive(keepalive).set_user_timeout(USER_TIMEOUT);
    let info = url.into_connection_info().map_err(wrong)?;
    // Announcing the library's name is one more right and one more round trip.
    let redis = info.redis_settings().clone().set_skip_set_lib_name();
    Client::open(info.set_redis_settings(redis).set_tcp_settings(settings)).map_err(wrong)
}

/// Where a queue is.
#[derive(Debug, Clone)]
pub struct Server {
    client: Client,
    url: String,
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
        Ok(Self { client: client(url)?, url: url.to_owned(), name, keys: Keys::of(queue) })
    }

    /// The address without its password.
    pub fn shown(&self) -> String {
        mask(&self.url)
    }

    /// Two connections, both under the lane's name: one that only claims and waits there, one for everything else. The
    /// host's name is looked up anew.
    ///
    /// # Errors
    /// Any [`QueueError`] but [`QueueError::Url`], within about 6 s.
    pub async fn connect(&self, how: How) -> Result<(Desk, Claimer), QueueError> {
        // A blocking command is answered late by design; its own deadline is with the claimer.
        let (waiting, claimer) = self.one(None).await?;
        let (busy, desk) = self.one(Some(DEADLINE)).await?;
        let ids = Ids { claimer, desk };
        let (keys, url) = (self.keys.clone(), self.url.clone());
        let claimer = Claimer::new(waiting, how, keys.clone(), url.clone());
        Ok((Desk::new(busy, ids, self.name.clone(), keys, url), claimer))
    }

    async fn one(&self, answer: Option<Duration>) -> Result<(MultiplexedConnection, i64), QueueError> {
        let config =
            AsyncConnectionConfig::new().set_connection_timeout(Some(DEADLINE)).set_response_timeout(answer);
        let connect = async {
            let mut conn = self.client.get_multiplexed_async_connection_with_config(&config).await?;
            // Not in one pipeline: its error would not say which of Redis' errors it is.
            redis::cmd("CLIENT").arg("SETNAME").arg(&self.name).exec_async(&mut conn).await?;
            let id = redis::cmd("CLIENT").arg("ID").query_async(&mut conn).await?;
            Ok((conn, id))
        };
        match timeout(DEADLINE, connect).await {
            Ok(connected) => connected.map_err(|error| QueueError::of(&error, &self.url)),
            Err(_) => Err(QueueError::Late { url: mask(&self.url), deadline: DEADLINE }),
        }
    }
}
