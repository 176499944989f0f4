//! Redis, for the lanes; relaunching never needs it. The only place that imports `redis`.
//!
//! Tasks are bytes here: what is in a list is found again only by exactly what it was.

mod backoff;
mod canary;
mod claim;
mod conn;
mod connection;
mod error;
mod front;
mod keys;
mod limit;
mod look;
mod place;
mod preflight;
mod scripts;
mod server;
mod tls;

pub use backoff::Backoff;
pub use canary::{CANARY, CANARY_ID, CanaryTask, canary_once};
pub use claim::{Claimer, How, LONGEST};
pub use connection::{Connection, OWNED_FOR, Oversize, Owned, Owner, Piece, SHA1};
pub use error::QueueError;
pub use front::{Front, Seen};
pub use keys::{Keys, QueueName, QueueNameError};
pub use limit::{Excess, Limit, Scanner};
pub use look::{CanaryAt, LaneSeen, ProbeReply, Question, QueueProbe};
pub use preflight::{Finding, Level, preflight};
pub use server::{ADDRESS_VARIABLE, Server, address_from_environment};
