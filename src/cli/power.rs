//! `keyholder power`

use std::process::ExitCode;
use std::time::Duration;

use super::ask::{duration, outcome, reason, unexpected_reply};
use super::exit::Exit;
use super::link::LinkArgs;
use super::screen;
use crate::peer::wire::{Outcome, Verb};
use crate::vocabulary::{NodeName, human, printable};

/// Run a node's power command (fleet.yaml) on this host, which must be a watcher of it
///
/// For a host that is down: wake-on-LAN, a fence agent. It is refused while this node or another watcher still reaches
/// it. Only root may.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  keyholder power mars --why \"no answer, and nobody is near\"")]
pub struct PowerArgs {
    /// The node
    #[arg(value_name = "NODE")]
    pub node: NodeName,
    /// Why, for the audit
    #[arg(long, value_name = "TEXT", value_parser = reason, default_value = "asked for on the command line")]
    pub why: String,
    /// Also when somebody still reaches the node
    #[arg(long)]
    pub force: bool,
    /// How long to wait for the command
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "1m")]
    pub timeout: Duration,
    /// Print the supervisor's verdict as one line of JSON
    #[arg(long)]
    pub json: bool,
    /// The supervisor.
    #[command(flatten)]
    pub link: LinkArgs,
}

/// Carries it out.
///
/// # Errors
/// No answer from the supervisor, a refusal, or an output that cannot be written.
pub fn run(args: PowerArgs) -> anyhow::Result<ExitCode> {
    let mut link = args.link.open()?;
    let verdict = link.ask(&args.node, None, Verb::Power { force: args.force }, &args.why, args.timeout)?;
    let outcome = outcome(verdict, args.json)?;
    let Outcome::Powered { done, how, took_us } = outcome else { return Err(unexpected_reply("power")) };
    if !args.json {
        let took = human(Duration::from_micros(took_us));
        screen::say(&format!(
            "the power command for {} {} after {took}; whether the host comes back shows in: keyholder status --watch\n",
            args.node,
            printable(&how)
        ))?;
    }
    Ok(if done { Exit::Ok } else { Exit::Failed }.into())
}
