//! `keyholder hold`

use std::process::ExitCode;
use std::time::Duration;

use super::ask::{duration, outcome, reason, unexpected_reply};
use super::exit::Exit;
use super::link::{LinkArgs, QUESTION_DEADLINE};
use super::{render, screen};
use crate::peer::wire::{Outcome, Verb};
use crate::vocabulary::Target;

/// Leave a worker alone for a while: it may be down, nobody brings it back
///
/// A hold ends by itself, so it cannot be forgotten. A second one replaces the first. Only root may.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  keyholder hold mars/write --for 30m --why \"deploy\"")]
pub struct HoldArgs {
    /// The worker
    #[arg(value_name = "NODE/WORKER")]
    pub target: Target,
    /// For how long, 7d at most: a whole number with its unit, such as 90s, 30m or 1h30m
    #[arg(long = "for", value_name = "TIME", value_parser = duration)]
    pub length: Duration,
    /// Why, for the audit and for whoever finds it down
    #[arg(long, value_name = "TEXT", value_parser = reason)]
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
pub fn run(args: HoldArgs) -> anyhow::Result<ExitCode> {
    let target = &args.target;
    let for_ms = args.length.as_millis().try_into().unwrap_or(u64::MAX);
    let mut link = args.link.open()?;
    let verdict =
        link.ask(&target.node, Some(&target.worker), Verb::Hold { for_ms }, &args.why, QUESTION_DEADLINE)?;
    let Outcome::Held { for_ms } = outcome(verdict, args.json)? else {
        return Err(unexpected_reply("hold"));
    };
    if !args.json {
        screen::say(&render::held(target, for_ms))?;
    }
    Ok(Exit::Ok.into())
}
