//! Where a Redis is: at an address, or where its sentinels say that the master is now.

use std::cell::Cell;
use std::net::Ipv6Addr;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::io::tcp::{TcpSettings, socket2::TcpKeepalive};
use redis::{AsyncConnectionConfig, Client, IntoConnectionInfo as _, RedisError, TlsCertificates};
use tokio::time::timeout;

use super::error::{QueueError, mask, shown};

/// After which silence the kernel asks whether the other side is still there, and how often.
const KEEPALIVE: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(2));
/// How long the kernel waits for an acknowledgement before it gives the connection up. Without it a cable pulled under
/// a blocking command was noticed after more than 25 s.
const USER_TIMEOUT: Duration = Duration::from_secs(8);
/// How long one sentinel may take. The next is asked then, and a lane must be back within 5 s.
const SENTINEL_DEADLINE: Duration = Duration::from_secs(1);
/// How many sentinels there may be: asking them all must end before a lane counts as stuck.
const MAX_SENTINELS: usize = 8;
/// Where a sentinel listens if nothing else is said, from Redis' documentation.
const SENTINEL_PORT: u16 = 26379;
/// The longest certificate file that is read, in bytes.
const MAX_CA: u64 = 1024 * 1024;

/// A URL that was understood.
#[derive(Debug, Clone)]
pub(super) enum Place {
    /// `redis://` or `rediss://`: always the same.
    One(String),
    /// `redis-sentinel://` or `rediss-sentinel://`: asked anew for each connection.
    Sentinels(Sentinels),
}

/// Who knows the master.
#[derive(Debug, Clone)]
pub(super) struct Sentinels {
    url: String,
    scheme: &'static str,
    /// With its `@`, if there is one.
    userinfo: String,
    nodes: Vec<String>,
    master: String,
    /// With its `/`, and what comes after it.
    tail: String,
    /// Which is asked first: the one that knew it last, or the one after it if that was wrong.
    first: Cell<usize>,
}

/// Where to connect to.
pub(super) struct Found<'p> {
    /// The address with everything.
    pub(super) url: String,
    client: Client,
    sentinels: Option<&'p Sentinels>,
}

impl Place {
    /// Takes a URL apart. Nothing is connected.
    ///
    /// # Errors
    /// [`QueueError::Url`].
    pub(super) fn parse(url: &str) -> Result<Self, QueueError> {
        let sentinels = [("redis-sentinel://", "redis"), ("rediss-sentinel://", "rediss")]
            .into_iter()
            .find_map(|(begin, scheme)| url.strip_prefix(begin).map(|rest| (scheme, rest)));
        let Some((scheme, rest)) = sentinels else {
            info(url)?;
            return Ok(Self::One(url.to_owned()));
        };
        let sentinels = Sentinels::parse(url, scheme, rest)?;
        // Whatever is wrong with the rest is said now and not when there is a master.
        info(&sentinels.master_at("localhost", 1))?;
        Ok(Self::Sentinels(sentinels))
    }

    /// The address without its password.
    pub(super) fn shown(&self) -> String {
        match self {
            Self::One(url) => mask(url),
            Self::Sentinels(sentinels) => mask(&sentinels.url),
        }
    }

    /// Where to connect to now.
    ///
    /// # Errors
    /// [`QueueError::NoMaster`] or [`QueueError::Authority`], within a second for each sentinel.
    pub(super) async fn find(&self) -> Result<Found<'_>, QueueError> {
        let (url, sentinels) = match self {
            Self::One(url) => (url.clone(), None),
            Self::Sentinels(sentinels) => (sentinels.ask().await?, Some(sentinels)),
        };
        Ok(Found { client: client(&url)?, url, sentinels })
    }
}

impl Found<'_> {
    /// Connects, and makes sure that a server which sentinels call the master says so itself: a sentinel that was cut off
    /// names the old one.
    ///
    /// # Errors
    /// Any [`QueueError`] but [`QueueError::Url`]; the caller has the deadline.
    pub(super) async fn connect(
        &self,
        config: &AsyncConnectionConfig,
    ) -> Result<MultiplexedConnection, QueueError> {
        let connected = self.verified(config).await;
        if let (Err(_), Some(sentinels)) = (&connected, self.sentinels) {
            sentinels.next();
        }
        connected
    }

    async fn verified(&self, config: &AsyncConnectionConfig) -> Result<MultiplexedConnection, QueueError> {
        let wrong = |error: RedisError| QueueError::of(&error, &self.url);
        let mut conn =
            self.client.get_multiplexed_async_connection_with_config(config).await.map_err(wrong)?;
        if let Some(sentinels) = self.sentinels {
            let role: Vec<redis::Value> = redis::cmd("ROLE").query_async(&mut conn).await.map_err(wrong)?;
            let role: Option<String> = role.first().and_then(|role| redis::from_redis_value_ref(role).ok());
            if role.as_deref() != Some("master") {
                let role = shown(role.as_deref().unwrap_or("unknown"), "");
                let why = format!("{}, which they name, has the role {role}", mask(&self.url));
                return Err(sentinels.none(why));
            }
        }
        Ok(conn)
    }
}

impl Sentinels {
    fn parse(url: &str, scheme: &'static str, rest: &str) -> Result<Self, QueueError> {
        let bad = |why: &str| QueueError::Url { url: mask(url), why: why.to_owned() };
        let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
        let (userinfo, hosts) = authority.split_at(authority.rfind('@').map_or(0, |at| at + 1));
        let (path, query) = path.split_at(path.find(['?', '#']).unwrap_or(path.len()));
        let mut path = path.strip_prefix('/').unwrap_or(path).splitn(2, '/');
        let master = path.next().unwrap_or_default();
        // What Sentinel itself takes for a name.
        if master.is_empty() || !master.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b)) {
            return Err(bad("after the sentinels comes a slash and what they call the master"));
        }
        let nodes: Vec<String> = hosts.split(',').map(with_port).collect();
        if nodes.len() > MAX_SENTINELS {
            return Err(bad(&format!("there are more than {MAX_SENTINELS} sentinels")));
        }
        for node in &nodes {
            info(&format!("{scheme}://{node}")).map_err(|_| bad("a sentinel is HOST or HOST:PORT"))?;
        }
        Ok(Self {
            url: url.to_owned(),
            scheme,
            userinfo: userinfo.to_owned(),
            nodes,
            master: master.to_owned(),
            tail: format!("/{}{query}", path.next().unwrap_or_default()),
            first: Cell::new(0),
        })
    }

    fn master_at(&self, host: &str, port: u16) -> String {
        let Self { scheme, userinfo, tail, .. } = self;
        if host.parse::<Ipv6Addr>().is_ok() {
            format!("{scheme}://{userinfo}[{host}]:{port}{tail}")
        } else {
            format!("{scheme}://{userinfo}{host}:{port}{tail}")
        }
    }

    fn none(&self, why: String) -> QueueError {
        QueueError::NoMaster { url: mask(&self.url), master: self.master.clone(), why }
    }

    /// Another is asked first from now on.
    fn next(&self) {
        self.first.set(self.first.get().wrapping_add(1) % self.nodes.len().max(1));
    }

    /// The master's address from the first sentinel that knows one.
    async fn ask(&self) -> Result<String, QueueError> {
        let mut said = Vec::new();
        for _ in &self.nodes {
            let node = self.nodes.get(self.first.get()).map_or("", String::as_str);
            let why = match timeout(SENTINEL_DEADLINE, self.ask_one(node)).await {
                Ok(Ok(Some((host, port)))) if fit(&host) => return Ok(self.master_at(&host, port)),
                Ok(Ok(Some(_))) => "names no address".to_owned(),
                Ok(Ok(None)) => "knows no such master".to_owned(),
                Ok(Err(error)) => shown(&error.to_string(), &self.url),
                Err(_) => format!("no answer within {SENTINEL_DEADLINE:?}"),
            };
            said.push(format!("{node}: {why}"));
            self.next();
        }
        Err(self.none(shown(&said.join("; "), &self.url)))
    }

    async fn ask_one(&self, node: &str) -> Result<Option<(String, u16)>, QueueError> {
        let query = self.tail.find(['?', '#']).map_or("", |at| self.tail.get(at..).unwrap_or_default());
        let open = self.ask_at(format!("{}://{node}/{query}", self.scheme)).await;
        match open {
            // Most sentinels ask for nothing, and would refuse a password; those that want one get the master's.
            Err(QueueError::Denied { .. }) if !self.userinfo.is_empty() => {
                self.ask_at(format!("{}://{}{node}/{query}", self.scheme, self.userinfo)).await
            }
            other => other,
        }
    }

    async fn ask_at(&self, url: String) -> Result<Option<(String, u16)>, QueueError> {
        let wrong = |error: RedisError| QueueError::of(&error, &url);
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(SENTINEL_DEADLINE))
            .set_response_timeout(Some(SENTINEL_DEADLINE));
        let mut conn =
            client(&url)?.get_multiplexed_async_connection_with_config(&config).await.map_err(wrong)?;
        let mut cmd = redis::cmd("SENTINEL");
        cmd.arg("get-master-addr-by-name").arg(&self.master);
        cmd.query_async(&mut conn).await.map_err(wrong)
    }
}

/// An IPv6 address stands in brackets, so a port is there if a colon comes after the last of them.
fn with_port(node: &str) -> String {
    let after = node.rfind(']').map_or(0, |at| at + 1);
    let has_port = node.get(after..).is_some_and(|rest| rest.contains(':'));
    if has_port { node.to_owned() } else { format!("{node}:{SENTINEL_PORT}") }
}

/// What a sentinel says becomes part of a URL.
fn fit(host: &str) -> bool {
    host.parse::<Ipv6Addr>().is_ok()
        || (!host.is_empty()
            && host.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_')))
}

/// What the library makes of an address, with our socket settings.
fn info(url: &str) -> Result<redis::ConnectionInfo, QueueError> {
    let bad = |why: &str| QueueError::Url { url: mask(url), why: why.to_owned() };
    if !url.starts_with("redis://") && !url.starts_with("rediss://") {
        return Err(bad("it begins neither with redis:// nor with rediss://, nor with redis-sentinel://"));
    }
    if ca(url).is_some() && !url.starts_with("rediss://") {
        return Err(bad("it names a certificate authority and says not to use TLS"));
    }
    let keepalive = TcpKeepalive::new().with_time(KEEPALIVE.0).with_interval(KEEPALIVE.1);
    let settings =
        TcpSettings::default().set_nodelay(true).set_keepalive(keepalive).set_user_timeout(USER_TIMEOUT);
    let info = url.into_connection_info().map_err(|error| bad(&shown(&error.to_string(), url)))?;
    // Announcing the library's name is one more right and one more round trip.
    let redis = info.redis_settings().clone().set_skip_set_lib_name();
    Ok(info.set_redis_settings(redis).set_tcp_settings(settings))
}

/// The library's client for an address. The certificate authority's file is read each time, so that a new one needs a new
/// connection and no restart.
fn client(url: &str) -> Result<Client, QueueError> {
    let info = info(url)?;
    let wrong = |error: RedisError| QueueError::Url { url: mask(url), why: shown(&error.to_string(), url) };
    let Some(path) = ca(url) else { return Client::open(info).map_err(wrong) };
    let bad = |why: String| QueueError::Authority { path: shown(path, url), why: shown(&why, url) };
    let pem = read(path).map_err(|error| bad(error.to_string()))?;
    if !pem.windows(BEGIN.len()).any(|part| part == BEGIN) {
        return Err(bad("there is no certificate in PEM form in it".to_owned()));
    }
    let tls = TlsCertificates { client_tls: None, root_cert: Some(pem) };
    Client::build_with_tls(info, tls).map_err(|error| bad(error.to_string()))
}

const BEGIN: &[u8] = b"-----BEGIN CERTIFICATE-----";

fn read(path: &str) -> std::io::Result<Vec<u8>> {
    use std::io::Read as _;
    let mut pem = Vec::new();
    std::fs::File::open(path)?.take(MAX_CA).read_to_end(&mut pem)?;
    Ok(pem)
}

/// The path in `?ca=PATH`.
fn ca(url: &str) -> Option<&str> {
    let query = url.split_once('?')?.1.split('#').next()?;
    query.split('&').find_map(|pair| pair.strip_prefix("ca="))
}

#[cfg(test)]
mod tests;
