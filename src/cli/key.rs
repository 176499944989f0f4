//! temporary
use crate::peer::identity::{Identity, generate};
use std::path::Path;
use std::process::ExitCode;

/// Make, show and probe this node's key
#[derive(Debug, clap::Args)]
pub struct KeyArgs {
    /// what
    #[command(subcommand)]
    pub what: What,
}
/// what
#[derive(Debug, clap::Subcommand)]
pub enum What {
    /// make
    Generate,
    /// show
    Show,
}

/// Temp
///
/// # Errors
/// Always.
pub fn run(args: KeyArgs) -> anyhow::Result<ExitCode> {
    let path = Path::new("/etc/keyholder/key.pem");
    match args.what {
        What::Generate => {
            generate(path, false)?;
        }
        What::Show => println!("{}", Identity::load(path)?.pin()),
    }
    Ok(ExitCode::SUCCESS)
}
