//! Where the lanes' Redis is, for commands.

use std::path::Path;

use anyhow::Context as _;

use crate::fleet::Fleet;
use crate::queue::{ADDRESS_VARIABLE as VARIABLE, address_from_environment};

/// The address.
///
/// # Errors
/// Nobody names one.
pub(super) fn url(fleet: &Fleet, path: &Path) -> anyhow::Result<String> {
    address_from_environment().or_else(|| fleet.redis.clone()).with_context(|| {
        format!(
            "{} names no redis, and without it there is no queue; add it, or set {VARIABLE}",
            path.display()
        )
    })
}
