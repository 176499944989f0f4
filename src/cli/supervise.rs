//! `keyholder supervise`: what keyholder.service runs.

use std::path::PathBuf;
use std::process::ExitCode;

use crate::fleet;
use crate::supervise::{self, Setup};

/// The supervisor itself; systemd starts it and holds its sockets
#[derive(Debug, clap::Args)]
pub struct SuperviseArgs {
    /// The fleet file
    #[arg(long, value_name = "FILE", default_value = "/etc/keyholder/fleet.yaml")]
    pub fleet: PathBuf,
    /// Where this node's key is
    #[arg(long, value_name = "DIR", default_value = "/etc/keyholder")]
    pub key_dir: PathBuf,
    /// Where the state is kept
    #[arg(long, value_name = "DIR", default_value = "/var/lib/keyholder")]
    pub state_dir: PathBuf,
    /// What the fleet file calls this node [default: NODE_NAME, else what is in /etc/keyholder/node]
    #[arg(long, value_name = "NAME")]
    pub node: Option<String>,
}

/// Runs until SIGTERM or SIGINT.
///
/// # Errors
/// It cannot start; the text says what is missing.
pub fn run(args: SuperviseArgs) -> anyhow::Result<ExitCode> {
    let node = fleet::whoami(args.node.as_deref())?;
    let SuperviseArgs { fleet, key_dir, state_dir, .. } = args;
    let redis = super::redis::said();
    supervise::supervise(Setup { node, fleet, key: key_dir.join("key.pem"), state_dir, redis })?;
    Ok(ExitCode::SUCCESS)
}
