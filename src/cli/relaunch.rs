//! `keyholder relaunch`

use std::io::{self, IsTerminal};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use super::ask::{duration, outcome, reason, unexpected_reply};
use super::exit::Exit;
use super::link::LinkArgs;
use super::{render, screen};
use crate::peer::wire::{Outcome, RelaunchOrder, Verb};
use crate::vocabulary::{InvocationId, Target};

/// Restart a worker, here or on another node, and wait for what comes of it
///
/// It is back when systemd's job is done, the unit has a new invocation id, and it has stayed up for its settle time.
/// Only root may. If the worker runs under another invocation than the expected one already, nothing is touched.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  keyholder relaunch mars/agent\n  \
    keyholder relaunch mars/agent --why \"queue does not drain\" --no-settle")]
pub struct RelaunchArgs {
    /// The worker
    #[arg(value_name = "NODE/WORKER")]
    pub target: Target,
    /// Why, for the audit
    #[arg(long, value_name = "TEXT", value_parser = reason, default_value = "asked for on the command line")]
    pub why: String,
    /// Do not wait for the settle time: return when systemd's job is done, as systemctl restart does
    #[arg(long)]
    pub no_settle: bool,
    /// Override a hold or a quarantine; on the worker's own node only
    #[arg(long)]
    pub force: bool,
    /// Only if it still runs, or last ran, under this invocation id (32 digits, as explain shows it)
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

/// Carries it out.
///
/// # Errors
/// No answer from the supervisor, a refusal, or an output that cannot be written. A worker that did not come back is
/// exit code 1 and no error.
pub fn run(args: RelaunchArgs) -> anyhow::Result<ExitCode> {
    let started = Instant::now();
    let target = &args.target;
    if !args.json && io::stderr().is_terminal() {
        screen::complain(&format!("relaunching {target} …"));
    }
    let mut link = args.link.open()?;
    let order = RelaunchOrder { expect: args.expect, settled: !args.no_settle, force: args.force };
    let verdict =
        link.ask(&target.node, Some(&target.worker), Verb::Relaunch(order), &args.why, args.timeout)?;
    let whole = started.elapsed();
    let outcome = outcome(verdict, args.json)?;
    let told = render::relaunched(target, &outcome, whole).ok_or_else(|| unexpected_reply("relaunch"))?;
    if !args.json {
        screen::say(&told)?;
    }
    let failed = matches!(outcome, Outcome::Failed(_));
    Ok(if failed { Exit::Failed } else { Exit::Ok }.into())
}
