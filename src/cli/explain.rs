//! `keyholder explain`

use std::process::ExitCode;

use super::ask::{beside_the_point, outcome};
use super::exit::Exit;
use super::link::{LinkArgs, QUESTION_DEADLINE};
use super::render;
use super::screen::{self, ColorArgs};
use crate::peer::wire::{Outcome, Verb};
use crate::vocabulary::Target;

/// Say what was observed of a worker, what is done about it and why
///
/// Also why nothing is done, and by which rule.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  keyholder explain mars/agent")]
pub struct ExplainArgs {
    /// The worker
    #[arg(value_name = "NODE/WORKER")]
    pub target: Target,
    /// Print the supervisor's verdict as one line of JSON
    #[arg(long)]
    pub json: bool,
    /// Colour.
    #[command(flatten)]
    pub color: ColorArgs,
    /// The supervisor.
    #[command(flatten)]
    pub link: LinkArgs,
}

/// Carries it out.
///
/// # Errors
/// No answer from the supervisor, a refusal, or an output that cannot be written.
pub fn run(args: ExplainArgs) -> anyhow::Result<ExitCode> {
    let target = &args.target;
    let mut link = args.link.open()?;
    let verdict = link.ask(&target.node, Some(&target.worker), Verb::Explain {}, "", QUESTION_DEADLINE)?;
    let Outcome::Explained(explanation) = outcome(verdict, args.json)? else {
        return Err(beside_the_point("explain"));
    };
    if !args.json {
        screen::print(&render::explanation(&explanation, args.color.paint()))?;
    }
    Ok(Exit::Ok.into())
}
