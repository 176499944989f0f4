//! How many connections there may be, and who goes when there are too many.
//!
//! Each connection sits in a pool with a fixed number of seats. When a pool is full the newcomer gets a seat and an old
//! connection goes: a peer that crashed and comes back must not be kept out by its own half-open connections, and a
//! thousand silent sockets must not keep a genuine peer out. Addresses that the fleet file names have seats of their
//! own, so a flood from anywhere else does not even touch them.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::oneshot;

use crate::vocabulary::NodeName;

/// The pool that a connection sits in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Pool {
    /// Not authenticated, from an address that no enabled node of the fleet has.
    Stranger,
    /// Not authenticated, from a node's address.
    Address(IpAddr),
    /// A peer that has proved its key.
    Peer(NodeName),
    /// Root on this host.
    Root,
    /// Other users of this host, all together.
    Users,
}

impl Pool {
    /// How many connections it has room for. 32 and 4 are from the design (section 7); a node's address has twice what
    /// its peer may have in the end, and the local users cannot use up the descriptors.
    fn seats(&self) -> usize {
        match self {
            Self::Stranger | Self::Root | Self::Users => 32,
            Self::Address(_) => 8,
            Self::Peer(_) => 4,
        }
    }

    fn silent_first(&self) -> bool {
        match self {
            Self::Stranger | Self::Address(_) => true,
            Self::Peer(_) | Self::Root | Self::Users => false,
        }
    }
}

/// Why a connection has to go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reason {
    /// There were too many of its kind, and a newer one came.
    Crowded,
    /// The door closes.
    Closing,
}

#[derive(Debug)]
struct OpenConnection {
    pool: Pool,
    /// Whether a byte has come from it. A genuine client speaks first and at once.
    spoke: bool,
    cut: Option<oneshot::Sender<Reason>>,
}

#[derive(Debug, Default)]
struct Seats {
    /// By number of arrival, so the first one is the oldest.
    taken: BTreeMap<u64, OpenConnection>,
    arrivals: u64,
}

impl Seats {
    /// Makes sure that `newest` is not one too many in its pool.
    fn make_room(&mut self, newest: u64, pool: &Pool) {
        // Those already told to go do not count; they are gone as soon as their task runs.
        let staying = |o: &OpenConnection| o.pool == *pool && o.cut.is_some();
        if self.taken.values().filter(|o| staying(o)).count() <= pool.seats() {
            return;
        }
        let others = || self.taken.iter().filter(|(id, o)| **id != newest && staying(o));
        let silent = others().find(|(_, o)| pool.silent_first() && !o.spoke);
        let Some(leaves) = silent.or_else(|| others().next()).map(|(id, _)| *id) else { return };
        if let Some(cut) = self.taken.get_mut(&leaves).and_then(|o| o.cut.take()) {
            // If its task has ended meanwhile the seat is free anyway.
            let _ = cut.send(Reason::Crowded);
        }
    }
}

/// All connections of the door.
#[derive(Debug, Default)]
pub(super) struct Gate(Mutex<Seats>);

impl Gate {
    /// Gives a newcomer a seat.
    pub(super) fn enter(self: &Arc<Self>, pool: Pool) -> Admission {
        let (cut, told) = oneshot::channel();
        let mut seats = self.lock();
        let id = seats.arrivals;
        seats.arrivals += 1;
        seats.taken.insert(id, OpenConnection { pool: pool.clone(), spoke: false, cut: Some(cut) });
        seats.make_room(id, &pool);
        drop(seats);
        Admission { seat: ConnectionPermit { gate: Arc::clone(self), id }, told: Eviction(told) }
    }

    /// Tells every connection to go.
    pub(super) fn close_all(&self) {
        for occupant in self.lock().taken.values_mut() {
            if let Some(cut) = occupant.cut.take() {
                let _ = cut.send(Reason::Closing);
            }
        }
    }

    /// How many connections there are, those that were told to go included.
    pub(super) fn count(&self) -> usize {
        self.lock().taken.len()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Seats> {
        // A panic while it was held cannot have left the map half changed.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a newcomer gets.
#[derive(Debug)]
pub(super) struct Admission {
    /// Its seat.
    pub(super) seat: ConnectionPermit,
    /// Whether it has to go.
    pub(super) told: Eviction,
}

/// A connection's right to be there; dropping it frees the seat.
#[derive(Debug)]
pub(super) struct ConnectionPermit {
    gate: Arc<Gate>,
    id: u64,
}

/// Where a connection hears that it has to go.
#[derive(Debug)]
pub(super) struct Eviction(oneshot::Receiver<Reason>);

impl Eviction {
    /// Waits until it has to go, and says why. Cancel safe.
    pub(super) async fn why(&mut self) -> Reason {
        (&mut self.0).await.unwrap_or(Reason::Closing)
    }
}

impl ConnectionPermit {
    /// Its first byte has come.
    pub(super) fn spoke(&self) {
        if let Some(occupant) = self.gate.lock().taken.get_mut(&self.id) {
            occupant.spoke = true;
        }
    }

    /// It has proved to be this peer and moves to the peer's seats.
    pub(super) fn authenticated(&self, node: &NodeName) {
        let pool = Pool::Peer(node.clone());
        let mut seats = self.gate.lock();
        if let Some(occupant) = seats.taken.get_mut(&self.id) {
            occupant.pool = pool.clone();
            seats.make_room(self.id, &pool);
        }
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.gate.lock().taken.remove(&self.id);
    }
}

#[cfg(test)]
mod tests;
