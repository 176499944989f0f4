//! A real server for the tests that need one.

use std::ffi::{OsStr, OsString};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tokio::net::TcpSocket;

const DEADLINE: Duration = Duration::from_secs(30);

/// Another server than the host's: the tests run once more with it.
pub(crate) const PROGRAM: &str = "KEYHOLDER_TEST_SERVER";

/// A port of one's own for as long as this lives, also while nobody listens there: who asks for any free port is never given
/// one that somebody is bound to, and who asks for this one may listen at it, because neither insists on being alone and this
/// does not listen.
pub(crate) struct Port(TcpSocket);

impl Port {
    pub(crate) fn new() -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_reuseaddr(true).unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        Self(socket)
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.0.local_addr().unwrap()
    }
}

/// A `redis-server` of our own on a port of its own.
pub(crate) struct Redis {
    child: Child,
    port: Port,
    dir: TempDir,
    args: Vec<String>,
}

impl Redis {
    pub(crate) fn start(args: &[&str]) -> Self {
        Self::start_at("--port", args)
    }

    pub(crate) fn start_at(port_option: &str, args: &[&str]) -> Self {
        let (dir, port) = (TempDir::new().unwrap(), Port::new());
        let child = spawn(port_option, port.address().port(), dir.path(), args);
        let args = args.iter().map(|arg| (*arg).to_owned()).collect();
        let mut redis = Self { child, port, dir, args };
        redis.until(|redis| ready(redis.port.address(), port_option == "--port"));
        redis
    }

    /// Waits until it is so.
    fn until(&mut self, so: impl Fn(&Self) -> bool) {
        let until = Instant::now() + DEADLINE;
        while !so(self) {
            let ended = self.child.try_wait().unwrap();
            assert!(ended.is_none(), "redis-server {:?} ends at once: {ended:?}", self.args);
            assert!(Instant::now() < until, "redis-server {:?} does not come up", self.args);
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    pub(crate) fn url(&self, userinfo: &str) -> String {
        format!("redis://{userinfo}127.0.0.1:{}", self.port())
    }

    pub(crate) fn port(&self) -> u16 {
        self.port.address().port()
    }

    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn pid(&self) -> i32 {
        self.child.id().try_into().unwrap()
    }

    /// As a power cut: nothing is written any more.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// After [`kill`](Self::kill): the same server with what its files had.
    pub(crate) fn come_back(&mut self) {
        self.child = spawn("--port", self.port(), self.dir.path(), &self.args);
        let client = redis::Client::open(self.url("")).unwrap();
        // It answers before it has loaded its data, but only with a refusal.
        self.until(|_| {
            client.get_connection().and_then(|mut conn| redis::cmd("PING").exec(&mut conn)).is_ok()
        });
    }

    /// A connection, if it is there and answers soon.
    pub(crate) fn try_conn(&self) -> Option<redis::Connection> {
        let soon = Duration::from_millis(500);
        let conn = redis::Client::open(self.url("")).unwrap().get_connection_with_timeout(soon).ok()?;
        conn.set_read_timeout(Some(soon)).ok()?;
        Some(conn)
    }

    pub(crate) fn conn(&self) -> redis::Connection {
        let client = redis::Client::open(self.url("")).unwrap();
        // A child of another test that ends interrupts a read that has a deadline, and redis-rs does not go on by itself.
        loop {
            match client.get_connection_with_timeout(DEADLINE) {
                Err(error) if error.to_string().contains("Interrupted") => {}
                answer => return answer.unwrap(),
            }
        }
    }
}

/// Somebody who knows the master, and elects another one with the others when it has been gone for `down_after`.
pub(crate) struct Sentinel(Redis);

impl Sentinel {
    pub(crate) fn start(master: u16, quorum: usize, down_after: Duration) -> Self {
        Self::start_at("port", master, quorum, down_after, "")
    }

    /// `more` is for the end of its file.
    pub(crate) fn start_at(
        port_option: &str,
        master: u16,
        quorum: usize,
        down_after: Duration,
        more: &str,
    ) -> Self {
        let (dir, port) = (TempDir::new().unwrap(), Port::new());
        let down_after = down_after.as_millis();
        let text = format!(
            "{port_option} {}\nbind 127.0.0.1\ndir {}\nsentinel monitor mymaster 127.0.0.1 {master} {quorum}\nsentinel \
             down-after-milliseconds mymaster {down_after}\nsentinel failover-timeout mymaster 3000\n{more}",
            port.address().port(),
            dir.path().display()
        );
        let file = dir.path().join("sentinel.conf");
        std::fs::write(&file, text).unwrap();
        let child =
            Command::new(program()).arg(file).arg("--sentinel").stdout(Stdio::null()).spawn().unwrap();
        let mut redis = Redis { child, port, dir, args: vec!["--sentinel".to_owned()] };
        redis.until(|redis| ready(redis.port.address(), port_option == "port"));
        Self(redis)
    }

    pub(crate) fn ask<T: redis::FromRedisValue>(&self, what: &[&str]) -> redis::RedisResult<T> {
        redis::cmd("SENTINEL").arg(what).query(&mut self.0.conn())
    }
}

impl std::ops::Deref for Sentinel {
    type Target = Redis;

    fn deref(&self) -> &Redis {
        &self.0
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Whether it answers, if only with a refusal. A listening port alone is not enough: it listens before it has read its
/// users, and may yet end over them.
fn ready(address: SocketAddr, plain: bool) -> bool {
    let Ok(mut stream) = TcpStream::connect(address) else { return false };
    let answers = |stream: &mut TcpStream| {
        stream.write_all(b"PING\r\n")?;
        stream.read(&mut [0; 16])
    };
    !plain || answers(&mut stream).is_ok_and(|read| read > 0)
}

fn program() -> OsString {
    std::env::var_os(PROGRAM).unwrap_or_else(|| "redis-server".into())
}

fn spawn(port_option: &str, port: u16, dir: &Path, args: &[impl AsRef<OsStr>]) -> Child {
    Command::new(program())
        .args([port_option, &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--dir"])
        .arg(dir)
        .args(args)
        .stdout(Stdio::null())
        .spawn()
        .expect(
            "redis-server is missing, and these tests need it: \
             apt-get install -y --no-install-recommends redis-server",
        )
}
