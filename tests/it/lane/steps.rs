//! Between a lane and its server: each command is two points, before the server carries it out and after, and at any point
//! something may happen.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::redis_server::Redis;

/// What may happen at a point.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Act {
    /// SIGKILL for the lane; the next one has the same ledger.
    Crash,
    /// SIGKILL for the lane; the next one is another host's, with a ledger of its own, and the owner key has expired.
    Takeover,
    /// The server loses its last write, and all connections.
    Failover,
    /// The first task is pushed once more, byte for byte.
    Duplicate,
    /// A variant of the first task, as its signature allows, is put in flight with a mark that names another task.
    ForgedElement,
    /// The first task gets a mark that names another task.
    ForgedMark,
    /// All marks are gone.
    LostMarks,
    /// An unsigned task is put in flight.
    Unsigned,
}

impl Act {
    pub(super) const ALL: [Self; 8] = [
        Self::Crash,
        Self::Takeover,
        Self::Failover,
        Self::Duplicate,
        Self::ForgedElement,
        Self::ForgedMark,
        Self::LostMarks,
        Self::Unsigned,
    ];

    /// Whether the lane is gone afterwards.
    pub(super) fn kills(self) -> bool {
        matches!(self, Self::Crash | Self::Takeover)
    }
}

/// Something that is to happen at a point, counted from 0 over all lanes of one path.
pub(super) type Plan = Vec<(usize, Act)>;

/// What a stage knows of the path that is played on it.
#[derive(Default)]
struct Path {
    plan: Plan,
    /// How many points have gone by.
    points: usize,
    /// The commands that were seen, for the report.
    seen: Vec<String>,
    /// The process of the lane; nothing happens before it is known.
    lane: Option<i32>,
    /// What killed the lane, until the player has looked.
    killed: Option<Act>,
    /// Raised when all connections are to end.
    round: usize,
    /// All keys as they were last seen, and as they were before they changed last.
    now: Keys,
    before: Keys,
}

/// Keys and their values as `DUMP` gives them.
type Keys = Vec<(Vec<u8>, Vec<u8>)>;

impl Path {
    fn look(&mut self, keys: Keys) {
        if self.now != keys {
            self.before = std::mem::replace(&mut self.now, keys);
        }
    }
}

/// A server with the stage in front of it.
pub(super) struct Stage {
    pub(super) redis: Redis,
    port: u16,
    inner: Arc<Inner>,
}

/// Carries out an act on the server.
type Carry = dyn Fn(Act, &mut redis::Connection) + Send + Sync;

struct Inner {
    server: u16,
    path: Mutex<Path>,
    live: Mutex<Vec<TcpStream>>,
    /// Does what an act needs; it is called with the server's own connection.
    act: Box<Carry>,
    conn: Mutex<redis::Connection>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Stage {
    /// `act` carries out what does not concern connections and processes.
    pub(super) fn new(act: impl Fn(Act, &mut redis::Connection) + Send + Sync + 'static) -> Self {
        let redis = Redis::start(&["--appendonly", "no"]);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let inner = Arc::new(Inner {
            server: redis.port(),
            path: Mutex::default(),
            live: Mutex::default(),
            act: Box::new(act),
            conn: Mutex::new(redis.conn()),
        });
        let shared = inner.clone();
        std::thread::spawn(move || {
            for lane in listener.incoming().map_while(Result::ok) {
                let inner = shared.clone();
                std::thread::spawn(move || inner.serve(lane));
            }
        });
        Self { redis, port, inner }
    }

    pub(super) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Begins a path. Nothing is counted before [`Self::enter`].
    pub(super) fn begin(&self, plan: Plan) {
        self.cut();
        let mut path = lock(&self.inner.path);
        *path = Path { plan, round: path.round, ..Path::default() };
    }

    /// What is on the server now was given, and no failover loses it.
    pub(super) fn given(&self) {
        let keys = self.inner.keys();
        let mut path = lock(&self.inner.path);
        path.before.clone_from(&keys);
        path.now = keys;
    }

    /// A lane is there, with this process id.
    pub(super) fn enter(&self, lane: i32) {
        lock(&self.inner.path).lane = Some(lane);
    }

    /// What killed the lane, once.
    pub(super) fn killed(&self) -> Option<Act> {
        lock(&self.inner.path).killed.take()
    }

    /// How many points have gone by, and the commands in between.
    pub(super) fn seen(&self) -> (usize, Vec<String>) {
        let path = lock(&self.inner.path);
        (path.points, path.seen.clone())
    }

    /// Ends all connections.
    pub(super) fn cut(&self) {
        lock(&self.inner.path).round += 1;
        for stream in lock(&self.inner.live).drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

/// What becomes of a command at a point.
enum Fate {
    GoesOn,
    Ends,
}

impl Inner {
    fn serve(&self, lane: TcpStream) {
        let Ok(server) = TcpStream::connect(("127.0.0.1", self.server)) else { return };
        let _ = (lane.set_nodelay(true), server.set_nodelay(true));
        let round = {
            let path = lock(&self.path);
            let mut live = lock(&self.live);
            live.extend([lane.try_clone().unwrap(), server.try_clone().unwrap()]);
            path.round
        };
        self.relay(&lane, &server, round);
        let _ = (lane.shutdown(Shutdown::Both), server.shutdown(Shutdown::Both));
    }

    fn relay(&self, lane: &TcpStream, server: &TcpStream, round: usize) -> Option<()> {
        let (mut requests, mut replies) = (Frames::new(lane), Frames::new(server));
        loop {
            let request = requests.next()?;
            let name = word(&request);
            let quiet = ["HELLO", "CLIENT", "INFO", "SCRIPT", "CONFIG", "COMMAND", "SELECT", "AUTH", "LLEN"];
            if quiet.contains(&&*name) {
                (&mut &*server).write_all(&request).ok()?;
                (&mut &*lane).write_all(&replies.next()?).ok()?;
                continue;
            }
            // One command at a time is carried out, except for one that waits in the server.
            let mut path = lock(&self.path);
            if matches!(self.point(&mut path, &name, round), Fate::Ends) {
                return None;
            }
            path.look(self.keys());
            (&mut &*server).write_all(&request).ok()?;
            let waits = name == "BLMOVE";
            if waits {
                drop(path);
                let reply = replies.next()?;
                let mut path = lock(&self.path);
                // A claim that found nothing is no step.
                let nothing = [&b"*-1"[..], b"$-1", b"_"].iter().any(|nil| reply.starts_with(nil));
                if !nothing && matches!(self.point(&mut path, "claimed", round), Fate::Ends) {
                    return None;
                }
                (&mut &*lane).write_all(&reply).ok()?;
                continue;
            }
            let reply = replies.next()?;
            if matches!(self.point(&mut path, "done", round), Fate::Ends) {
                return None;
            }
            (&mut &*lane).write_all(&reply).ok()?;
        }
    }

    fn point(&self, path: &mut Path, name: &str, round: usize) -> Fate {
        if path.round != round {
            return Fate::Ends;
        }
        let Some(pid) = path.lane else { return Fate::GoesOn };
        let n = path.points;
        path.points += 1;
        path.seen.push(name.to_owned());
        let mut ends = false;
        let due: Plan = path.plan.iter().copied().filter(|(at, _)| *at == n).collect();
        for (_, act) in due {
            let keys = self.keys();
            path.look(keys);
            let mut conn = lock(&self.conn);
            if act.kills() {
                let _ = nix::sys::signal::kill(
                    nix::unistd::Pid::from_raw(pid),
                    nix::sys::signal::Signal::SIGKILL,
                );
                (path.lane, path.killed) = (None, Some(act));
                ends = true;
            }
            if act == Act::Failover {
                restore(&mut conn, &path.before);
                ends = true;
            }
            (self.act)(act, &mut conn);
        }
        if !ends {
            return Fate::GoesOn;
        }
        path.round += 1;
        for stream in lock(&self.live).drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
        Fate::Ends
    }

    fn keys(&self) -> Keys {
        let mut conn = lock(&self.conn);
        let mut keys: Vec<Vec<u8>> = redis::cmd("KEYS").arg("*").query(&mut conn).unwrap();
        keys.sort();
        keys.into_iter()
            .filter_map(|key| {
                let dump: Option<Vec<u8>> = redis::cmd("DUMP").arg(&key).query(&mut conn).unwrap();
                dump.map(|dump| (key, dump))
            })
            .collect()
    }
}

fn restore(conn: &mut redis::Connection, keys: &[(Vec<u8>, Vec<u8>)]) {
    redis::cmd("FLUSHALL").exec(conn).unwrap();
    for (key, dump) in keys {
        redis::cmd("RESTORE").arg(key).arg(0).arg(dump).exec(conn).unwrap();
    }
}

/// The first word of a request, in capitals.
fn word(request: &[u8]) -> String {
    let mut lines = request.split(|byte| *byte == b'\n').skip(2);
    let word = lines.next().unwrap_or_default();
    String::from_utf8_lossy(word).trim().to_uppercase()
}

/// Cuts what a stream brings into whole RESP values.
struct Frames<'a> {
    stream: &'a TcpStream,
    buffer: Vec<u8>,
}

impl<'a> Frames<'a> {
    fn new(stream: &'a TcpStream) -> Self {
        Self { stream, buffer: Vec::new() }
    }

    fn next(&mut self) -> Option<Vec<u8>> {
        loop {
            if let Some(end) = value(&self.buffer, 0) {
                return Some(self.buffer.drain(..end).collect());
            }
            let mut chunk = [0; 16 * 1024];
            let read = self.stream.read(&mut chunk).ok().filter(|read| *read > 0)?;
            self.buffer.extend(chunk.get(..read)?);
        }
    }
}

/// Where the value that begins at `at` ends; `None` if it is not all there yet.
fn value(bytes: &[u8], at: usize) -> Option<usize> {
    let line = bytes.get(at..)?.windows(2).position(|pair| pair == b"\r\n")? + at;
    let number = || std::str::from_utf8(bytes.get(at + 1..line)?).ok()?.parse::<i64>().ok();
    let after = line + 2;
    match bytes.get(at)? {
        b'$' | b'=' => match usize::try_from(number()?) {
            Ok(length) => Some(after + length + 2).filter(|end| *end <= bytes.len()),
            Err(_) => Some(after),
        },
        kind @ (b'*' | b'~' | b'>' | b'%') => {
            let values = usize::try_from(number()?).unwrap_or(0) * if *kind == b'%' { 2 } else { 1 };
            (0..values).try_fold(after, |at, _| value(bytes, at))
        }
        _ => Some(after),
    }
}
