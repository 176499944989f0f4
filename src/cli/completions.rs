//! `keyholder completions`

use std::process::ExitCode;

use clap::CommandFactory;
use clap_complete::Shell;

use super::exit::Exit;
use super::{Cli, screen};

/// Print a completion script for a shell
#[derive(Debug, clap::Args)]
#[command(after_help = "Example, for this shell only; install.sh installs them for good:\n  \
    source <(keyholder completions bash)")]
pub struct CompletionsArgs {
    /// For which shell
    #[arg(value_enum)]
    pub shell: Shell,
}

/// Carries it out.
///
/// # Errors
/// An output that cannot be written.
pub fn run(args: CompletionsArgs) -> anyhow::Result<ExitCode> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "keyholder", &mut script);
    screen::print(&String::from_utf8(script)?)?;
    Ok(Exit::Ok.into())
}
