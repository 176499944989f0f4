//! What every part of a status has to know of the reader.

use crate::cli::screen::Paint;
use crate::peer::wire::Hello;

/// How it is to look, and what it is compared with.
#[derive(Debug, Clone, Copy)]
pub struct Look<'a> {
    /// Columns.
    pub width: u16,
    /// Colour.
    pub paint: Paint,
    /// The supervisor that was asked: what differs from its version or its fleet file has drifted.
    pub server: &'a Hello,
    /// The version of this command itself.
    pub version: &'a str,
}
