//! `keyholder audit`

use std::path::PathBuf;
use std::process::ExitCode;

use nix::unistd::geteuid;

use super::ask::{outcome, unexpected_reply};
use super::exit::Exit;
use super::link::{LinkArgs, LinkError, QUESTION_DEADLINE};
use super::screen::ColorArgs;
use super::{render, screen};
use crate::peer::wire::{Outcome, Verb, Verdict};
use crate::store;
use crate::vocabulary::printable;

/// Show the trail of what was ordered, refused and done, and by whom
///
/// If the supervisor is down, root reads its database directly. Times are in UTC. Into a pipe each record is one line: time,
/// kind, by whom, about what, text.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  keyholder audit -n 50")]
pub struct AuditArgs {
    /// How many records, newest last
    #[arg(short = 'n', long = "last", value_name = "N", default_value_t = 20,
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub last: u32,
    /// Print the supervisor's answer as one line of JSON: {"outcome":{"audit":[…]}}
    #[arg(long)]
    pub json: bool,
    /// Where the supervisor keeps its state, for when it is down
    #[arg(long, value_name = "DIR", default_value = "/var/lib/keyholder")]
    pub state_dir: PathBuf,
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
/// No answer from the supervisor and no right to read its database, a refusal, or an output that cannot be written.
pub fn run(args: AuditArgs) -> anyhow::Result<ExitCode> {
    let verdict = match ask(&args) {
        Ok(verdict) => verdict,
        Err(error) if geteuid().is_root() => match store::read_audit(&args.state_dir, args.last) {
            Ok(lines) => {
                let from = args.state_dir.display();
                screen::complain(&format!("keyholder: what follows is read from {from}, because {error}"));
                Verdict::Outcome(Outcome::Audit(lines))
            }
            Err(offline) => {
                screen::complain(&format!("keyholder: {}", printable(&format!("{offline:#}"))));
                return Err(error.into());
            }
        },
        Err(error) => return Err(error.into()),
    };
    let Outcome::Audit(lines) = outcome(verdict, args.json)? else {
        return Err(unexpected_reply("audit"));
    };
    if !args.json {
        screen::print(&render::audit(&lines, screen::fold_at(), args.color.paint()))?;
    }
    Ok(Exit::Ok.into())
}

fn ask(args: &AuditArgs) -> Result<Verdict, LinkError> {
    let mut link = args.link.open()?;
    let here = link.server().node.clone();
    link.ask(&here, None, Verb::Audit { last: args.last }, "", QUESTION_DEADLINE)
}
