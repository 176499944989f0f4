//! Evidence: what was seen, decided and done, first into our own database, then into the journal.

mod bridge;
mod emit;
mod event;
mod inside;
mod journald;
mod read;
mod record;

pub use bridge::take_warnings;
pub(crate) use emit::{Journal, Line};
pub use event::{Event, Priority};
pub(crate) use inside::Inside;
pub use read::{ReadError, last_lines, persistent};
pub use record::{MAX_TEXT, Record, Recorder};
pub(crate) use record::{Mail, Stamped, Stamper, wall_ms};
