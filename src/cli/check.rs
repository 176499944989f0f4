//! `keyholder check`: the place of it, until its own file is merged over this one.

use std::process::ExitCode;

/// Validate the fleet file, offline
#[derive(Debug, clap::Args)]
pub struct CheckArgs {}

/// Says that it is not in this build.
///
/// # Errors
/// Always.
pub fn run(_args: CheckArgs) -> anyhow::Result<ExitCode> {
    anyhow::bail!("this build has no `check`")
}
