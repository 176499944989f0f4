//! Where a Redis is: at an address, or where its sentinels say that the master is now.

use std::collections::BTreeSet;
use std::net::Ipv6Addr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo as _, ProtocolVersion};
use tokio::time::timeout;

use super::conn::Conn;
use super::error::{QueueError, mask, shown};
use super::limit::Limit;
use super::tls::{Files, Tls, Unfit};

/// How long one sentinel may take, or the server that it names. The next is asked then: a lane must be back within 5 s.
const SENTINEL_DEADLINE: Duration = Duration::from_secs(1);
/// How long all of them may take: a lane that connects must not count as stuck. The next time begins where this one ended.
const SEARCH_DEADLINE: Duration = Duration::from_secs(6);
/// How many sentinels there may be; three or five are usual.
const MAX_SENTINELS: usize = 8;
/// Where a sentinel listens if nothing else is said, from Redis' documentation.
const SENTINEL_PORT: u16 = 26379;
/// What is read of a sentinel, or of `ROLE`, which lists the replicas.
const SENTINEL_LIMIT: Limit = Limit { string: 4 * 1024, reply: 64 * 1024, values: 1024 };

/// A URL that was understood.
#[derive(Debug)]
pub(super) enum RedisAddress {
    /// `redis://`, `rediss://` or `unix://`: always the same.
    One(String),
    /// `redis-sentinel://` or `rediss-sentinel://`: asked again for each connection.
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
#[derive(Debug)]
pub(super) struct Found {
    /// The address with everything.
    pub(super) url: String,
    info: ConnectionInfo,
    tls: Option<Tls>,
}

impl RedisAddress {
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
    /// [`QueueError::NoMaster`] or [`QueueError::TlsFile`], within [`SEARCH_DEADLINE`].
    pub(super) async fn find(&self) -> Result<Found, QueueError> {
        match self {
            Self::One(url) => Found::at(url.clone()),
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
    /// The server at an address. The files that it names are read each time, so that new ones need a new connection and no
    /// restart.
    ///
    /// # Errors
    /// [`QueueError::Url`] and [`QueueError::TlsFile`].
    fn at(url: String) -> Result<Self, QueueError> {
        let info = info(&url)?;
        let unfit = |(what, path, why): Unfit| QueueError::TlsFile {
            what,
            path: shown(&path, &url),
            why: shown(&why, &url),
        };
        let tls = if matches!(info.addr(), ConnectionAddr::TcpTls { .. }) {
            Some(Tls::of(files(&url)).map_err(unfit)?)
        } else {
            None
        };
        Ok(Self { url, info, tls })
    }

    /// Connects. `answer` is how long an answer may take, `limit` how long it may be.
    ///
    /// # Errors
    /// Any [`QueueError`] but [`QueueError::Url`]; the caller has the deadline.
    pub(super) async fn connect(&self, answer: Option<Duration>, limit: Limit) -> Result<Conn, QueueError> {
        let opened = Conn::open(&self.info, self.tls.as_ref(), answer, limit).await;
        opened.map_err(|error| QueueError::of(&error, &self.url))
    }

    async fn quick(&self) -> Result<Conn, QueueError> {
        self.connect(Some(SENTINEL_DEADLINE), SENTINEL_LIMIT).await
    }

    /// Whether it calls itself a master.
    async fn is_master(&self) -> Result<(), QueueError> {
        let mut conn = self.quick().await?;
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
                    let found = Found::at(url)?;
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
        let found = Found::at(url)?;
        let mut conn = found.quick().await?;
        let mut cmd = redis::cmd("SENTINEL");
        cmd.arg("get-master-addr-by-name").arg(&self.master);
        cmd.query_async(&mut conn).await.map_err(|error| QueueError::of(&error, &found.url))
    }
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

/// What the library makes of an address.
fn info(url: &str) -> Result<ConnectionInfo, QueueError> {
    let bad = |why: &str| QueueError::Url { url: mask(url), why: why.to_owned() };
    if !["redis://", "rediss://", "unix://", "redis+unix://"].iter().any(|begin| url.starts_with(begin)) {
        return Err(bad("it begins with none of redis://, rediss://, redis-sentinel:// and unix://"));
    }
    let files = files(url);
    if files != Files::default() && !url.starts_with("rediss://") {
        return Err(bad("it names a certificate or an authority, and no TLS: write rediss://"));
    }
    if files.cert.is_some() != files.key.is_some() {
        return Err(bad("`cert` and `key` go together"));
    }
    let info = url.into_connection_info().map_err(|error| bad(&shown(&error.to_string(), url)))?;
    if let ConnectionAddr::TcpTls { insecure: true, .. } = info.addr() {
        return Err(bad("the server's certificate is always checked: leave out #insecure, and write `ca`"));
    }
    // Announcing the library's name is one more right and one more round trip. The bounds of replies are those of RESP2.
    let redis = info.redis_settings().clone().set_skip_set_lib_name().set_protocol(ProtocolVersion::RESP2);
    Ok(info.set_redis_settings(redis))
}

/// The paths in `?ca=PATH&cert=PATH&key=PATH`.
fn files(url: &str) -> Files<'_> {
    let query = url.split_once('?').map_or("", |(_, rest)| rest).split('#').next().unwrap_or_default();
    let path = |name| query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
    Files { ca: path("ca"), cert: path("cert"), key: path("key") }
}

#[cfg(test)]
mod tests;
