//! One connection: its socket, TLS around it, and the bounds of what is read from it.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::select_ok;
use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::io::tcp::socket2::{SockRef, TcpKeepalive};
use redis::{
    AsyncConnectionConfig, Cmd, ConnectionAddr, ConnectionInfo, Pipeline, RedisError, RedisFuture, Value,
};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream, lookup_host};
use tokio::task::AbortHandle;

use super::limit::{Bounded, Fate, Limit};
use super::tls::Tls;

/// After which silence the kernel asks whether the other side is still there, and how often.
const KEEPALIVE: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(2));
/// How long the kernel waits for an acknowledgement before it gives the connection up. Without it a cable pulled under
/// a blocking command was noticed after more than 25 s.
const USER_TIMEOUT: Duration = Duration::from_secs(8);
/// By this code [`super::QueueError`] knows a refused reply. A server that says it itself is refused as well.
pub(super) const EXCESS: &str = "KEYHOLDER-EXCESS";

/// A connection. Cheap to clone; all clones use the one socket, in turn.
#[derive(Debug, Clone)]
pub(super) struct Conn {
    conn: MultiplexedConnection,
    fate: Arc<Fate>,
    _driver: Arc<Driver>,
}

/// What moves the bytes. It ends with its last connection, also if the server does not.
#[derive(Debug)]
struct Driver(AbortHandle);

impl Drop for Driver {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Conn {
    /// Connects, and logs in if the address has a user or a password. No deadline of its own.
    ///
    /// # Errors
    /// What the kernel, TLS or the server says; [`EXCESS`] if the server says too much.
    pub(super) async fn open(
        info: &ConnectionInfo,
        tls: Option<&Tls>,
        answer: Option<Duration>,
        limit: Limit,
    ) -> Result<Self, RedisError> {
        match info.addr() {
            ConnectionAddr::Unix(path) => Self::over(unix(path).await?, info, answer, limit).await,
            ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
                let tcp = tcp(host, *port).await?;
                match tls {
                    Some(tls) => Self::over(tls.connect(host, tcp).await?, info, answer, limit).await,
                    None => Self::over(tcp, info, answer, limit).await,
                }
            }
            other => Err(std::io::Error::other(format!("{other} cannot be connected to")).into()),
        }
    }

    async fn over<S>(
        stream: S,
        info: &ConnectionInfo,
        answer: Option<Duration>,
        limit: Limit,
    ) -> Result<Self, RedisError>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let fate = Arc::default();
        let stream = Bounded::new(stream, limit, Arc::clone(&fate));
        // Connecting is bounded by whoever connects.
        let config = AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(answer);
        let opened = MultiplexedConnection::new_with_config(info.redis_settings(), stream, config).await;
        let (conn, driver) = opened.map_err(|error| refused(&fate, error))?;
        let driver = Arc::new(Driver(tokio::spawn(driver).abort_handle()));
        Ok(Self { conn, fate, _driver: driver })
    }
}

/// What the connection ended with counts more than that it has ended.
fn refused(fate: &Fate, error: RedisError) -> RedisError {
    if let Some(excess) = fate.excess.get() {
        return redis::make_extension_error(EXCESS.to_owned(), Some(excess.to_string()));
    }
    if error.code().is_some() {
        return error;
    }
    let greeting = fate.greeting.lock().ok().and_then(|mut greeting| greeting.take());
    match greeting.map(|greeting| String::from_utf8_lossy(&greeting).into_owned()) {
        Some(greeting) => {
            let (code, detail) = greeting.split_once(' ').unwrap_or((&greeting, ""));
            redis::make_extension_error(code.to_owned(), Some(detail.to_owned()))
        }
        None => error,
    }
}

impl ConnectionLike for Conn {
    fn req_packed_command<'a>(&'a mut self, cmd: &'a Cmd) -> RedisFuture<'a, Value> {
        let Self { conn, fate, .. } = self;
        Box::pin(async move { conn.req_packed_command(cmd).await.map_err(|error| refused(fate, error)) })
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        pipeline: &'a Pipeline,
        offset: usize,
        count: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        let Self { conn, fate, .. } = self;
        Box::pin(async move {
            let answer = conn.req_packed_commands(pipeline, offset, count).await;
            answer.map_err(|error| refused(fate, error))
        })
    }

    fn get_db(&self) -> i64 {
        self.conn.get_db()
    }
}

async fn unix(path: &Path) -> std::io::Result<UnixStream> {
    UnixStream::connect(path).await
}

/// The first address of a host that accepts, all of them tried at a time.
async fn tcp(host: &str, port: u16) -> std::io::Result<TcpStream> {
    let attempts: Vec<_> =
        lookup_host((host, port)).await?.map(|address| Box::pin(TcpStream::connect(address))).collect();
    if attempts.is_empty() {
        return Err(std::io::Error::other(format!("{host} has no address")));
    }
    let (stream, _) = select_ok(attempts).await?;
    stream.set_nodelay(true)?;
    let socket = SockRef::from(&stream);
    socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEPALIVE.0).with_interval(KEEPALIVE.1))?;
    socket.set_tcp_user_timeout(Some(USER_TIMEOUT))?;
    Ok(stream)
}
