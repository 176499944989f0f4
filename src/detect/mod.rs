//! Detectors.

use crate::judge::{Reading, Sign};
use crate::vocabulary::Target;

/// What a detector read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Vital {
    /// The worker, of this node or of one that it watches.
    pub target: Target,
    /// Which sign of it.
    pub sign: Sign,
    /// What was read.
    pub reading: Reading,
}
