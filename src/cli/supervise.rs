//! `keyholder supervise`: its arguments, until its own file is merged over this one.

use std::path::PathBuf;
use std::process::ExitCode;

use crate::vocabulary::NodeName;

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
    /// What the fleet file calls this node [default: NODE_NAME, /etc/keyholder/node, the short host name]
    #[arg(long, value_name = "NAME")]
    pub node: Option<NodeName>,
    /// The local socket, if systemd has not passed one
    #[arg(long, value_name = "PATH", default_value = super::link::SOCKET)]
    pub socket: PathBuf,
}

/// Says that it is not in this build.
///
/// # Errors
/// Always.
pub fn run(_args: SuperviseArgs) -> anyhow::Result<ExitCode> {
    anyhow::bail!("this build has no `supervise`")
}
