//! `keyholder nudge` and `keyholder repipe`

use std::io::{self, IsTerminal};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use super::ask::{duration, outcome, reason, unexpected_reply};
use super::exit::Exit;
use super::link::LinkArgs;
use super::{render, screen};
use crate::peer::wire::{GentleOrder, Outcome, Verb};
use crate::vocabulary::{InvocationId, Remedy, Target};

/// What a nudge and a repipe take.
#[derive(Debug, clap::Args)]
pub struct GentleArgs {
    /// The worker
    #[arg(value_name = "NODE/WORKER")]
    pub target: Target,
    /// Why, for the audit
    #[arg(long, value_name = "TEXT", value_parser = reason, default_value = "asked for on the command line")]
    pub why: String,
    /// Override a hold or a quarantine; on the worker's own node only
    #[arg(long)]
    pub force: bool,
    /// Only if it still runs under this invocation id (32 digits, as explain shows it)
    #[arg(long, value_name = "INVOCATION")]
    pub expect: Option<InvocationId>,
    /// How long to wait for the outcome; the order itself is not taken back
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "2m")]
    pub timeout: Duration,
    /// Print the supervisor's verdict as one line of JSON
    #[arg(long)]
    pub json: bool,
    /// The supervisor.
    #[command(flatten)]
    pub link: LinkArgs,
}

/// Wake a worker's loop as fleet.yaml says (stuck.nudge), and see whether it makes progress
///
/// Only for a worker that runs: the dead cannot be nudged. Only root may.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  keyholder nudge mars/agent --why \"its loop hangs\"")]
pub struct NudgeArgs {
    /// What it takes.
    #[command(flatten)]
    pub order: GentleArgs,
}

/// Build a worker's receive pipe again as fleet.yaml says (delivery_gap.repipe), and see whether work reaches it
///
/// Only for a worker that runs. Only root may.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  keyholder repipe mars/write --why \"its queue does not drain\"")]
pub struct RepipeArgs {
    /// What it takes.
    #[command(flatten)]
    pub order: GentleArgs,
}

/// Carries it out.
///
/// # Errors
/// No answer from the supervisor, a refusal, or an output that cannot be written. A remedy that did not help is exit
/// code 1 and no error.
pub fn run(remedy: Remedy, args: GentleArgs) -> anyhow::Result<ExitCode> {
    let started = Instant::now();
    let target = &args.target;
    if !args.json && io::stderr().is_terminal() {
        screen::complain(&format!("{remedy} of {target} …"));
    }
    let mut link = args.link.open()?;
    let order = GentleOrder { expect: args.expect, force: args.force };
    let verb = if remedy == Remedy::Nudge { Verb::Nudge(order) } else { Verb::Repipe(order) };
    let verdict = link.ask(&target.node, Some(&target.worker), verb, &args.why, args.timeout)?;
    let whole = started.elapsed();
    let outcome = outcome(verdict, args.json)?;
    let told = render::remedied(target, &outcome, whole).ok_or_else(|| unexpected_reply(remedy.name()))?;
    if !args.json {
        screen::say(&told)?;
    }
    let failed = matches!(&outcome, Outcome::Remedied(done) if done.helped == Some(false));
    Ok(if failed { Exit::Failed } else { Exit::Ok }.into())
}
