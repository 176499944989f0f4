//! wip
use std::process::ExitCode;
/// Checks
#[derive(Debug, clap::Args)]
pub struct DoctorArgs {}
/// Run
pub fn run(_args: DoctorArgs) -> anyhow::Result<ExitCode> {
    Ok(ExitCode::SUCCESS)
}
