//! Where the command line reaches into the other parts of keyholder other than through the socket. One function per
//! part, so that each can be put in its place without touching a command.

use std::path::Path;

use super::doctor::Finding;
use crate::fleet::{self, Fleet};
use crate::peer::identity::Identity;
use crate::peer::wire::AuditLine;
use crate::store;
use crate::vocabulary::{NodeName, Pin};

/// The last `last` lines of the audit trail, newest last, from the supervisor's database in `dir`.
///
/// # Errors
/// The database cannot be read.
pub(super) fn read_audit(dir: &Path, last: u32) -> anyhow::Result<Vec<AuditLine>> {
    Ok(store::read_audit(dir, last)?)
}

/// The fleet file at `path`, and what somebody should know about it.
///
/// # Errors
/// It cannot be read or is not valid.
pub(super) fn fleet(path: &Path) -> anyhow::Result<(Fleet, Vec<String>)> {
    let loaded = Fleet::load(path)?;
    Ok((loaded.fleet, loaded.warnings.iter().map(ToString::to_string).collect()))
}

/// What this node is called.
///
/// # Errors
/// It is said nowhere, or what is said is no name.
pub(super) fn whoami(given: Option<&NodeName>) -> anyhow::Result<NodeName> {
    Ok(fleet::whoami(given.map(NodeName::as_str))?)
}

/// The pin of the key in `dir`.
///
/// # Errors
/// It cannot be read, or others could.
pub(super) fn pin(dir: &Path) -> anyhow::Result<Pin> {
    Ok(Identity::load(&dir.join("key.pem"))?.pin())
}

/// Whether each peer can be reached and accepts us.
pub(super) fn probe(_fleet: &Fleet, _me: &NodeName, _key_dir: &Path) -> Vec<Finding> {
    vec![Finding::warn("peer", "whether the peers accept this node was not checked: this build has no probe")]
}

/// Whether the lanes' Redis is there and fit for it.
pub(super) fn redis(_url: &str) -> Vec<Finding> {
    vec![Finding::warn("redis", "not checked: this build has no preflight")]
}
