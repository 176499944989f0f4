//! Redis, for the lanes; relaunching never needs it. The only place that imports `redis`.
//!
//! Tasks are bytes here: what is in a list is found again only by exactly what it was.

mod backoff;
mod canary;
mod claim;
mod desk;
mod error;
mod front;
mod keys;
mod look;
mod place;
mod preflight;
mod scripts;
mod server;

pub use backoff::Backoff;
pub use canary::{Bird, CANARY, CANARY_ID, canary_once};
pub use claim::{Claimer, How};
pub use desk::{Desk, OWNED_FOR, Owner, Piece};
pub use error::QueueError;
pub use front::{Front, Seen};
pub use keys::{Keys, QueueName, QueueNameError};
pub use look::{Answer, CanaryAt, Eyes, LaneSeen, Question};
pub use preflight::{Finding, Level, preflight};
pub use server::Server;
