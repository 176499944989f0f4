//! Where records end up: journald, or what stands for it in a test.

use std::io;

use super::record::Record;

/// A record on its way, with its number in the audit if it has one.
#[derive(Debug)]
pub(crate) struct NumberedRecord {
    /// Number in the audit; `None` while the database was never open.
    pub(crate) seq: Option<i64>,
    /// The record.
    pub(crate) record: Record,
}

/// Where lines end up.
pub(super) trait Sink: Send + 'static {
    /// Whether somebody is there to read. May block.
    fn ready(&mut self) -> io::Result<()>;
    /// Writes a line. May block.
    fn write(&mut self, line: &NumberedRecord);
}
