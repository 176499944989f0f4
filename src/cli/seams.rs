//! Where the command line reaches into the other parts of keyholder other than through the socket. One function per
//! part, so that each can be put in its place without touching a command.

use std::path::Path;

use anyhow::bail;

use super::doctor::Finding;
use crate::fleet::Fleet;
use crate::peer::wire::AuditLine;
use crate::vocabulary::{NodeName, Pin};

/// The last `last` lines of the audit trail, newest last, from the supervisor's database in `dir`.
///
/// # Errors
/// The database cannot be read.
pub(super) fn read_audit(dir: &Path, _last: u32) -> anyhow::Result<Vec<AuditLine>> {
    bail!("this build cannot read the audit trail in {} without the supervisor", dir.display())
}

/// The fleet file at `path`, and what somebody should know about it.
///
/// # Errors
/// It cannot be read or is not valid.
pub(super) fn fleet(path: &Path) -> anyhow::Result<(Fleet, Vec<String>)> {
    bail!("this build cannot read {}", path.display())
}

/// What this node is called.
///
/// # Errors
/// It is said nowhere, or what is said is no name.
pub(super) fn whoami(given: Option<&NodeName>) -> anyhow::Result<NodeName> {
    match given {
        Some(name) => Ok(name.clone()),
        None => bail!("this build does not know its node: give --node"),
    }
}

/// The pin of the key in `dir`.
///
/// # Errors
/// It cannot be read, or others could.
pub(super) fn pin(dir: &Path) -> anyhow::Result<Pin> {
    bail!("this build cannot read the key in {}", dir.display())
}

/// Whether each peer can be reached and accepts us.
pub(super) fn probe(_fleet: &Fleet, _me: &NodeName, _key_dir: &Path) -> Vec<Finding> {
    vec![Finding::warn("peer", "whether the peers accept this node was not checked: this build has no probe")]
}

/// Whether the lanes' Redis is there and fit for it.
pub(super) fn redis(_url: &str) -> Vec<Finding> {
    vec![Finding::warn("redis", "not checked: this build has no preflight")]
}
