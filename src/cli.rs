//! The command line: one file per subcommand, with its arguments and its `run`.

pub mod ending;
pub mod exit;
pub mod fold;
pub mod link;
pub mod render;
pub mod screen;

pub mod alert;
pub mod audit;
pub mod catalog;
pub mod check;
pub mod completions;
pub mod doctor;
pub mod drill;
pub mod events;
pub mod explain;
pub mod gentle;
pub mod hold;
pub mod key;
pub mod lane;
pub mod man;
pub mod matrix;
pub mod power;
pub mod prove;
pub mod queue;
pub mod relaunch;
pub mod release;
pub mod run;
pub mod status;

mod ask;
mod problems;
mod redis;
mod subject;
mod view;
mod watch;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::vocabulary::Remedy;

/// Looks after the workers of a small fleet, and lets the host next door bring a dead one back
#[derive(Debug, Parser)]
#[command(name = "keyholder", version, propagate_version = false, max_term_width = 100)]
#[command(after_help = exit::table(), subcommand_required = true, arg_required_else_help = true)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The subcommands. What each does is said once, at its arguments, and clap takes it from there.
#[derive(Debug, Subcommand)]
#[expect(missing_docs, reason = "a variant's documentation would replace that of its arguments in the help")]
pub enum Command {
    Status(status::StatusArgs),
    Explain(explain::ExplainArgs),
    Relaunch(relaunch::RelaunchArgs),
    Nudge(gentle::NudgeArgs),
    Repipe(gentle::RepipeArgs),
    Power(power::PowerArgs),
    Hold(hold::HoldArgs),
    Release(release::ReleaseArgs),
    Drill(drill::DrillArgs),
    Matrix(matrix::MatrixArgs),
    Events(events::EventsArgs),
    Audit(audit::AuditArgs),
    Run(run::RunArgs),
    Prove(prove::ProveArgs),
    Queue(queue::QueueArgs),
    Doctor(doctor::DoctorArgs),
    #[command(about = "Validate the fleet file and the catalogs, offline")]
    Check(check::CheckArgs),
    Catalog(catalog::CatalogArgs),
    #[command(about = "Make, show, probe and rotate this node's key")]
    Key(key::KeyArgs),
    Lane(lane::LaneArgs),
    Alert(alert::AlertArgs),
    Completions(completions::CompletionsArgs),
    Man(man::ManArgs),
}

/// Carries a command out.
///
/// # Errors
/// Whatever ended it; [`ending::exit`] gives the exit code for it.
pub fn run(cli: Cli) -> anyhow::Result<ExitCode> {
    match cli.command {
        Command::Status(args) => status::run(args),
        Command::Relaunch(args) => relaunch::run(args),
        Command::Nudge(args) => gentle::run(Remedy::Nudge, args.order),
        Command::Repipe(args) => gentle::run(Remedy::Repipe, args.order),
        Command::Power(args) => power::run(args),
        Command::Hold(args) => hold::run(args),
        Command::Release(args) => release::run(args),
        Command::Drill(args) => drill::run(args),
        Command::Explain(args) => explain::run(args),
        Command::Matrix(args) => matrix::run(args),
        Command::Audit(args) => audit::run(args),
        Command::Events(args) => events::run(args),
        Command::Run(args) => run::run(args),
        Command::Prove(args) => prove::run(args),
        Command::Queue(args) => queue::run(args),
        Command::Doctor(args) => doctor::run(args),
        Command::Check(args) => check::run(args),
        Command::Catalog(args) => catalog::run(args),
        Command::Key(args) => key::run(args),
        Command::Lane(args) => lane::run(args),
        Command::Alert(args) => alert::run(args),
        Command::Completions(args) => completions::run(args),
        Command::Man(args) => man::run(args),
    }
}
