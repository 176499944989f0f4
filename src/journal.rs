//! Evidence: what was seen, decided and done, first into our own database, then into the journal.

mod beat;
mod bridge;
mod conf;
mod emit;
mod event;
mod inside;
mod journald;
mod prove;
mod read;
mod record;
mod recorder;
mod seek;
mod sink;
mod stream;
mod tap;

pub use beat::{LastLine, count_since, last_line, sync};
pub use bridge::take_warnings;
pub use conf::Conf;
pub(crate) use emit::Journal;
pub use event::{EXECUTED, Event, Priority, TRANSITION};
pub(crate) use inside::Inside;
pub use prove::{Evidence, Proof, ProofVerdict, Shows};
pub use read::{ReadError, last_lines, persistent};
pub use record::{MAX_TEXT, Record};
pub(crate) use record::{Mail, Stamped, rfc3339, wall_ms};
pub use recorder::Recorder;
pub(crate) use recorder::Stamper;
pub use seek::prove;
pub(crate) use sink::NumberedRecord;
pub(crate) use stream::leads_to_journal;
pub use tap::EventLine;
