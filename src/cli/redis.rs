//! Where the lanes' Redis is, for commands.

use std::env;
use std::path::Path;

use anyhow::Context as _;

use crate::fleet::Fleet;

/// Another address of Redis than the fleet file's, with a user and a password of one's own.
const VARIABLE: &str = "KEYHOLDER_REDIS";

/// What the environment says.
pub(super) fn said() -> Option<String> {
    env::var(VARIABLE).ok().filter(|url| !url.is_empty())
}

/// The address.
///
/// # Errors
/// Nobody names one.
pub(super) fn url(fleet: &Fleet, path: &Path) -> anyhow::Result<String> {
    said().or_else(|| fleet.redis.clone()).with_context(|| {
        format!(
            "{} names no redis, and without it there is no queue; add it, or set {VARIABLE}",
            path.display()
        )
    })
}
