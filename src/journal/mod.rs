//! Evidence: what was seen, decided and done, first into our own database, then into the journal.

mod record;

pub use record::{Event, Priority, Record, Recorder};
