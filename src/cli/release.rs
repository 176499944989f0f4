//! `keyholder release`

use std::process::ExitCode;

use super::ask::{outcome, reason, unexpected_reply};
use super::exit::Exit;
use super::link::{LinkArgs, QUESTION_DEADLINE};
use super::{render, screen};
use crate::peer::wire::{Outcome, Verb};
use crate::vocabulary::Target;

/// End a worker's hold or quarantine
///
/// What is dead then is repaired at once. Only root may. What root on the node has declared, and a quarantine, only root there
/// ends; from next door `release` ends what peers have declared.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  keyholder release mars/write")]
pub struct ReleaseArgs {
    /// The worker
    #[arg(value_name = "NODE/WORKER")]
    pub target: Target,
    /// Why, for the audit
    #[arg(long, value_name = "TEXT", value_parser = reason, default_value = "asked for on the command line")]
    pub why: String,
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
pub fn run(args: ReleaseArgs) -> anyhow::Result<ExitCode> {
    let target = &args.target;
    let mut link = args.link.open()?;
    let verdict =
        link.ask(&target.node, Some(&target.worker), Verb::Release {}, &args.why, QUESTION_DEADLINE)?;
    let Outcome::Released { hold, quarantine } = outcome(verdict, args.json)? else {
        return Err(unexpected_reply("release"));
    };
    if !args.json {
        screen::say(&render::released(target, hold, quarantine))?;
    }
    Ok(Exit::Ok.into())
}
