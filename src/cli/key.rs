//! `keyholder key`: the place of it, until its own file is merged over this one.

use std::process::ExitCode;

/// Make, show and probe this node's key
#[derive(Debug, clap::Args)]
pub struct KeyArgs {}

/// Says that it is not in this build.
///
/// # Errors
/// Always.
pub fn run(_args: KeyArgs) -> anyhow::Result<ExitCode> {
    anyhow::bail!("this build has no `key`")
}
