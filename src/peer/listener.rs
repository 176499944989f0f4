//! The door itself: takes connections from sockets that somebody else has bound (PID 1, or a test), finds out who is
//! behind them within five seconds, and hands them to a session. Who cannot prove a pinned key gets no answer.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use nix::errno::Errno;
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout_at};

use super::channel::{Carrier, Channel};
use super::gate::{Admission, ConnectionPermit, Gate, Pool, Reason};
use super::identity::Identity;
use super::inbox::{Asker, Inbox};
use super::orders::Orders;
use super::refusals::Refusals;
use super::replay::Replays;
use super::session::{CROWDED, Room, Session};
use super::socket::{small_packets, tune};
use super::tls::{Distrust, Server, TlsError};
use super::wire::MAX_REQUEST;
use crate::journal::{Event, Priority, Record};
use crate::vocabulary::{NodeName, Pin};

/// How long handshake and hello may take together (design, section 7).
pub const ARRIVAL_DEADLINE: Duration = Duration::from_secs(5);
/// How long the door rests after a failed accept, first and at most. Without a rest it would spin when descriptors run
/// out, since the connection stays in the queue.
const REST: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));
/// How long the sessions get to close when the door does.
const CLOSING: Duration = Duration::from_millis(500);

/// The sockets that the door listens on, bound already.
#[derive(Debug, Default)]
pub struct Listeners {
    /// For peers.
    pub tcp: Vec<std::net::TcpListener>,
    /// For this host's own users; the file's mode decides who may connect at all.
    pub unix: Vec<std::os::unix::net::UnixListener>,
}

/// The door cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum DoorError {
    /// The key does not work.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// A listening socket does not work.
    #[error("a listening socket cannot be used")]
    Socket(#[from] io::Error),
}

/// Serves until `shutdown`, then closes every connection. Needs a tokio runtime with I/O and time.
///
/// # Errors
/// [`DoorError`] before the first connection is taken; once open, the door stays open.
pub async fn serve(
    listeners: Listeners,
    identity: &Identity,
    inbox: Inbox,
    shutdown: impl Future<Output = ()>,
) -> Result<(), DoorError> {
    let door = Arc::new(Door {
        tls: Server::new(identity.credentials(), inbox.fleet.clone())?,
        gate: Arc::default(),
        room: Room {
            refusals: Refusals::new(inbox.recorder.clone()),
            replays: Replays::default(),
            orders: Orders::new(),
            inbox,
        },
    });
    let mut loops = JoinSet::new();
    for listener in listeners.tcp {
        listener.set_nonblocking(true)?;
        small_packets(&listener);
        loops.spawn(take_peers(Arc::clone(&door), TcpListener::from_std(listener)?));
    }
    for listener in listeners.unix {
        listener.set_nonblocking(true)?;
        loops.spawn(take_users(Arc::clone(&door), UnixListener::from_std(listener)?));
    }
    shutdown.await;
    loops.abort_all();
    door.gate.close_all();
    let by = Instant::now() + CLOSING;
    while door.gate.count() > 0 && Instant::now() < by {
        sleep(Duration::from_millis(5)).await;
    }
    Ok(())
}

struct Door {
    tls: Server,
    gate: Arc<Gate>,
    room: Room,
}

async fn take_peers(door: Arc<Door>, listener: TcpListener) {
    let mut rest = Rest::new(&door);
    loop {
        match listener.accept().await {
            Ok((stream, from)) => {
                rest.over();
                tune(&stream);
                let entry = door.gate.enter(door.pool(from));
                tokio::spawn(Arc::clone(&door).meet(stream, from, entry));
                let_go_first().await;
            }
            Err(error) => rest.after(&error).await,
        }
    }
}

/// Lets the tasks of the connections that there are run before another is taken in. Those that have ended leave their seats, those
/// that were told to go give their descriptors back: after a stall of this process many wait at once, most of them ended.
async fn let_go_first() {
    tokio::task::yield_now().await;
}

async fn take_users(door: Arc<Door>, listener: UnixListener) {
    let mut rest = Rest::new(&door);
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                rest.over();
                // A peer without credentials is none that the kernel vouches for.
                let Ok(credentials) = stream.peer_cred() else { continue };
                let uid = credentials.uid();
                let entry = door.gate.enter(if uid == 0 { Pool::Root } else { Pool::Users });
                tokio::spawn(door.welcome(stream, uid, entry));
                let_go_first().await;
            }
            Err(error) => rest.after(&error).await,
        }
    }
}

impl Door {
    fn pool(&self, from: SocketAddr) -> Pool {
        let ip = from.ip().to_canonical();
        if self.node_at(ip).is_some() { Pool::Address(ip) } else { Pool::Stranger }
    }

    /// The node of the fleet that has this address.
    fn node_at(&self, ip: IpAddr) -> Option<NodeName> {
        let fleet = self.room.inbox.fleet.borrow();
        let mut nodes = fleet.nodes.iter();
        nodes.find(|(_, n)| !n.disabled && n.address.ip().to_canonical() == ip).map(|(name, _)| name.clone())
    }

    fn welcome(&self, stream: UnixStream, uid: u32, entry: Admission) -> impl Future<Output = ()> + use<> {
        let channel = Channel::new(Box::new(stream), MAX_REQUEST);
        let session = Session::new(self.room.clone(), channel, Asker::Local { uid });
        session.run(entry.seat, entry.told, Instant::now() + ARRIVAL_DEADLINE)
    }

    /// From an accepted connection to a peer's session, or to one audit line.
    async fn meet(self: Arc<Self>, stream: TcpStream, from: SocketAddr, entry: Admission) {
        let Admission { seat, mut told } = entry;
        let by = Instant::now() + ARRIVAL_DEADLINE;
        let met = tokio::select! {
            // A caller who has gone away by himself is not one who was turned away.
            biased;
            met = timeout_at(by, self.authenticate(stream, &seat)) => {
                met.unwrap_or_else(|_| Err(Unmet::Refused("it did not prove who it is within 5 s".to_owned())))
            }
            reason = told.why() => match reason {
                Reason::Crowded => Err(Unmet::Refused(CROWDED.to_owned())),
                Reason::Closing => return,
            },
        };
        match met {
            Ok((carrier, node, pin)) => {
                seat.authenticated(&node);
                let channel = Channel::new(carrier, MAX_REQUEST);
                let session = Session::new(self.room.clone(), channel, Asker::Peer { node, pin });
                drop(self);
                session.run(seat, told, by).await;
            }
            Err(why) => {
                let ip = from.ip().to_canonical();
                let why = match (why, self.node_at(ip)) {
                    (Unmet::HungUp, Some(node)) => return self.room.refusals.ended(&node, ip),
                    (Unmet::HungUp, None) => Distrust::HungUp.to_string(),
                    (Unmet::Refused(why), _) => why,
                };
                let by = ip.to_string();
                let text = format!("a connection was refused: {why}");
                let record = Record { by, ..Record::local(Event::Refused, Priority::Warning, "", text) };
                self.room.refusals.tell(record);
            }
        }
    }

    async fn authenticate(
        &self,
        stream: TcpStream,
        seat: &ConnectionPermit,
    ) -> Result<(Box<dyn Carrier>, NodeName, Pin), Unmet> {
        let mut head = [0; 4];
        let count = stream.peek(&mut head).await.map_err(|_| Unmet::HungUp)?;
        seat.spoke();
        // No TLS state is set up for what cannot become a handshake.
        match head.get(..count).unwrap_or_default() {
            [] => return Err(Unmet::HungUp),
            [HANDSHAKE_RECORD, ..] => {}
            b"GET " | b"HEAD" | b"POST" | b"PUT " | b"OPTI" | b"CONN" | b"PRI " => {
                return Err(Unmet::Refused("it speaks HTTP".to_owned()));
            }
            _ => return Err(Distrust::NotTls.into()),
        }
        let (carrier, pin) = self.tls.accept(stream).await.map_err(Unmet::from)?;
        // The fleet may have changed during the handshake; what counts is now.
        let node = self.room.inbox.fleet.borrow().node_of(&pin).cloned();
        node.map(|node| (carrier, node, pin)).ok_or_else(|| Distrust::Unpinned(pin).into())
    }
}

/// Why a connection did not become a session.
enum Unmet {
    /// Whoever called has gone away.
    HungUp,
    /// It is refused, in words.
    Refused(String),
}

impl From<Distrust> for Unmet {
    fn from(why: Distrust) -> Self {
        if why == Distrust::HungUp { Self::HungUp } else { Self::Refused(why.to_string()) }
    }
}

/// The first byte of a TLS record that carries a handshake (RFC 8446, section 5.1).
const HANDSHAKE_RECORD: u8 = 22;

/// The pause between failed accepts.
struct Rest<'a> {
    door: &'a Door,
    next: Duration,
}

impl<'a> Rest<'a> {
    fn new(door: &'a Door) -> Self {
        Self { door, next: REST.0 }
    }

    fn over(&mut self) {
        self.next = REST.0;
    }

    async fn after(&mut self, error: &io::Error) {
        // That one connection went away while it queued; the listener is fine.
        if matches!(error.raw_os_error().map(Errno::from_raw), Some(Errno::ECONNABORTED | Errno::EPROTO)) {
            return;
        }
        if self.next == REST.0 {
            let text = format!("the door cannot take connections for the moment: {error}");
            self.door.room.inbox.recorder.record(Record::local(Event::Degraded, Priority::Error, "", text));
        }
        sleep(self.next).await;
        self.next = (self.next * 2).min(REST.1);
    }
}
