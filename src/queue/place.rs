//! Where a Redis is: at an address, or where its sentinels say that the master is now.

use std::collections::BTreeSet;
use std::net::Ipv6Addr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::io::tcp::{TcpSettings, socket2::TcpKeepalive};
use redis::{AsyncConnectionConfig, Client, IntoConnectionInfo as _, TlsCertificates};
use tokio::time::timeout;

use super::error::{QueueError, mask, shown};

/// After which silence the kernel asks whether the other side is still there, and how often.
const KEEPALIVE: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(2));
/// How long the kernel waits for an acknowledgement before it gives the connection up. Without it a cable pulled under
/// a blocking command was noticed after more than 25 s.
const USER_TIMEOUT: Duration = Duration::from_secs(8);
/// How long one sentinel may take, or the server that it names. The next is asked then: a lane must be back within 5 s.
const SENTINEL_DEADLINE: Duration = Duration::from_secs(1);
/// How long all of them may take: a lane that connects must not count as stuck. The next time begins where this one ended.
const SEARCH_DEADLINE: Duration = Duration::from_secs(6);
/// How many sentinels there may be; three or five are usual.
const MAX_SENTINELS: usize = 8;
/// Where a sentinel listens if nothing else is said, from Redis' documentation.
const SENTINEL_PORT: u16 = 26379;
/// The longest certificate file that is read, in bytes.
const MAX_CA: u64 = 1024 * 1024;

/// A URL that was understood.
#[derive(Debug)]
pub(super) enum Place {
    /// `redis://` or `rediss://`: always the same.
    One(String),
    /// `redis-sentinel://` or `rediss-sentinel://`: asked anew for each connection.
    Sentinels(Sentinels),
}

/// Who knows the master.
#[derive(Debug)]
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
    first: AtomicUsize,
}

/// Where to connect to.
pub(super) struct Found {
    /// The address with everything.
    pub(super) url: String,
    client: Client,
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

    /// Where to connect to now. A server that sentinels call the master must say so itself: one that was cut off names the
    /// old one, and all of them do until the new one is elected.
    ///
    /// # Errors
    /// [`QueueError::NoMaster`] or [`QueueError::Authority`], within [`SEARCH_DEADLINE`].
    pub(super) async fn find(&self) -> Result<Found, QueueError> {
        match self {
            Self::One(url) => Ok(Found { client: client(url)?, url: url.clone() }),
            Self::Sentinels(sentinels) => sentinels.find().await,
        }
    }

    /// Where to connect to instead, if whoever is connected to `url` should leave it: a master that another was elected
    /// beside goes on answering for seconds, or for as long as it is cut off from the sentinels. Not to know is to stay.
    pub(super) async fn elsewhere(&self, url: &str) -> Option<String> {
        match self {
            Self::One(_) => None,
            Self::Sentinels(sentinels) => sentinels.elsewhere(url).await,
        }
    }
}

impl Found {
    /// Connects.
    ///
    /// # Errors
    /// Any [`QueueError`] but [`QueueError::Url`]; the caller has the deadline.
    pub(super) async fn connect(
        &self,
        config: &AsyncConnectionConfig,
    ) -> Result<MultiplexedConnection, QueueError> {
        let connected = self.client.get_multiplexed_async_connection_with_config(config).await;
        connected.map_err(|error| QueueError::of(&error, &self.url))
    }

    /// Whether it calls itself a master.
    async fn is_master(&self) -> Result<(), QueueError> {
        let mut conn = self.connect(&quick()).await?;
        let role = redis::cmd("ROLE").query_async::<Vec<redis::Value>>(&mut conn).await;
        let role = role.map_err(|error| QueueError::of(&error, &self.url))?;
        let role: Option<String> = role.first().and_then(|role| redis::from_redis_value_ref(role).ok());
        match role.as_deref() {
            Some("master") => Ok(()),
            other => {
                let why = format!("its role is {}", shown(other.unwrap_or("unknown"), ""));
                Err(QueueError::ReadOnly { url: mask(&self.url), why })
            }
        }
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
            first: AtomicUsize::new(0),
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

    fn none(&self, why: &str) -> QueueError {
        QueueError::NoMaster { url: mask(&self.url), master: self.master.clone(), why: shown(why, &self.url) }
    }

    /// Another is asked first from now on.
    fn next(&self) {
        let next = self.first.load(Ordering::Relaxed).wrapping_add(1) % self.nodes.len().max(1);
        self.first.store(next, Ordering::Relaxed);
    }

    async fn find(&self) -> Result<Found, QueueError> {
        let late = || self.none(&format!("no answer within {SEARCH_DEADLINE:?}"));
        timeout(SEARCH_DEADLINE, self.search()).await.unwrap_or_else(|_| Err(late()))
    }

    /// One sentinel is asked, because this is asked every few seconds; another one the next time if it does not know.
    async fn elsewhere(&self, url: &str) -> Option<String> {
        let node = self.nodes.get(self.first.load(Ordering::Relaxed)).map_or("", String::as_str);
        let Ok(Some((host, port))) = within(self.ask(node)).await else {
            self.next();
            return None;
        };
        if self.master_at(&host, port) == url {
            return None;
        }
        self.find().await.ok().map(|found| found.url).filter(|found| found != url)
    }

    /// The first server that a sentinel calls the master and that does so itself.
    async fn search(&self) -> Result<Found, QueueError> {
        let (mut said, mut tried) = (Vec::new(), BTreeSet::new());
        for _ in &self.nodes {
            let node = self.nodes.get(self.first.load(Ordering::Relaxed)).map_or("", String::as_str);
            let why = match within(self.ask(node)).await {
                Ok(Some((host, port))) if fit(&host) => {
                    let url = self.master_at(&host, port);
                    let found = Found { client: client(&url)?, url };
                    if tried.insert(found.url.clone()) {
                        match within(found.is_master()).await {
                            Ok(()) => return Ok(found),
                            Err(why) => format!("it names {}: {why}", mask(&found.url)),
                        }
                    } else {
                        format!("it names {} as well", mask(&found.url))
                    }
                }
                Ok(Some(_)) => "it names no address".to_owned(),
                Ok(None) => "it knows no such master".to_owned(),
                Err(why) => why,
            };
            said.push(format!("{node}: {why}"));
            self.next();
        }
        Err(self.none(&said.join("; ")))
    }

    /// What one sentinel calls the master.
    async fn ask(&self, node: &str) -> Result<Option<(String, u16)>, QueueError> {
        let query = self.tail.find(['?', '#']).map_or("", |at| self.tail.get(at..).unwrap_or_default());
        match self.ask_at(format!("{}://{node}/{query}", self.scheme)).await {
            // Most sentinels ask for nothing, and would refuse a password; those that want one get the master's.
            Err(QueueError::Denied { .. }) if !self.userinfo.is_empty() => {
                self.ask_at(format!("{}://{}{node}/{query}", self.scheme, self.userinfo)).await
            }
            other => other,
        }
    }

    async fn ask_at(&self, url: String) -> Result<Option<(String, u16)>, QueueError> {
        let found = Found { client: client(&url)?, url };
        let mut conn = found.connect(&quick()).await?;
        let mut cmd = redis::cmd("SENTINEL");
        cmd.arg("get-master-addr-by-name").arg(&self.master);
        cmd.query_async(&mut conn).await.map_err(|error| QueueError::of(&error, &found.url))
    }
}

fn quick() -> AsyncConnectionConfig {
    AsyncConnectionConfig::new()
        .set_connection_timeout(Some(SENTINEL_DEADLINE))
        .set_response_timeout(Some(SENTINEL_DEADLINE))
}

/// What it came to within the deadline, and in short why not: several of these stand in one line.
async fn within<T>(asking: impl Future<Output = Result<T, QueueError>>) -> Result<T, String> {
    match timeout(SENTINEL_DEADLINE, asking).await {
        Ok(answer) => answer.map_err(QueueError::why),
        Err(_) => Err(format!("no answer within {SENTINEL_DEADLINE:?}")),
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
    let Some(path) = ca(url) else {
        let wrong = |error: redis::RedisError| shown(&error.to_string(), url);
        return Client::open(info).map_err(|error| QueueError::Url { url: mask(url), why: wrong(error) });
    };
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
