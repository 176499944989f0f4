//! `keyholder status`

use std::process::ExitCode;

use super::ask::{beside_the_point, outcome};
use super::exit::{self, Exit};
use super::link::{Link, LinkArgs, QUESTION_DEADLINE};
use super::render::{self, Look};
use super::screen::{self, ColorArgs};
use super::subject::Subject;
use super::watch;
use crate::peer::wire::{NodeReport, Outcome, Refusal, Verb};

/// Show nodes and workers: health, since when, which run, what was done last
///
/// HEALTH is healthy, starting, held (down, and somebody said so), dead, stuck (it runs, and its loop makes no progress),
/// delivery-gap (it runs, and nothing reaches it) or unknown (it could not be observed). A question mark means that its node is
/// silent and this is the last that was known. SINCE is for how long. Exit status 3 if anything is not well.
///
/// Lanes have a table of their own: how many tasks wait, what runs and for how long, how many are done since its start, and what
/// came last, all by the lane's own word. A question mark there means that it takes no tasks at present.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  keyholder status\n  keyholder status mars --watch\n  \
    keyholder status --json | jq '.outcome.fleet[].workers[] | .class'")]
pub struct StatusArgs {
    /// One node, or one worker of it [default: the whole fleet]
    #[arg(value_name = "NODE[/WORKER]")]
    pub subject: Option<Subject>,
    /// Keep it on a screen as it changes, with keys (? shows them); into a pipe, one line per change
    #[arg(long, short)]
    pub watch: bool,
    /// Print the supervisor's answer as one line of JSON; with --watch one such line per change
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
pub fn run(args: StatusArgs) -> anyhow::Result<ExitCode> {
    let mut link = args.link.open()?;
    if args.watch {
        if args.subject.is_some() {
            exists(&mut link, args.subject.as_ref())?;
        }
        return watch::run(&args, link);
    }
    let reports = ask(&mut link, args.subject.as_ref(), args.json)?;
    if !args.json {
        screen::say(&render::fleet(&reports, &look(&link, &args.color)))?;
    }
    Ok(exit::of_reports(&reports).into())
}

fn ask(link: &mut Link, subject: Option<&Subject>, json: bool) -> anyhow::Result<Vec<NodeReport>> {
    let (node, worker, verb) = match subject {
        None => (link.server().node.clone(), None, Verb::Fleet {}),
        Some(subject) => (subject.node().clone(), subject.worker(), Verb::Status {}),
    };
    match outcome(link.ask(&node, worker, verb, "", QUESTION_DEADLINE)?, json)? {
        Outcome::Fleet(reports) if subject.is_none() => Ok(reports),
        Outcome::Status(report) => Ok(match subject {
            Some(subject) => subject.narrow(report).into_iter().collect(),
            None => vec![report],
        }),
        Outcome::Fleet(_)
        | Outcome::Relaunched(_)
        | Outcome::AlreadyRecovered { .. }
        | Outcome::Failed(_)
        | Outcome::Held { .. }
        | Outcome::Released { .. }
        | Outcome::Explained(_)
        | Outcome::Audit(_)
        | Outcome::Proof(_)
        | Outcome::Remedied(_)
        | Outcome::Powered { .. }
        | Outcome::Drilled(_)
        | Outcome::Noted
        | Outcome::Watching => Err(beside_the_point("status")),
    }
}

/// Ends a watch for something that there is not: it would stay empty for ever. Any other refusal may pass while it is
/// watched.
fn exists(link: &mut Link, subject: Option<&Subject>) -> anyhow::Result<()> {
    match ask(link, subject, false) {
        Err(error) if error.is::<Refusal>() && exit::of(&error) != Exit::NoSuch => Ok(()),
        asked => asked.map(drop),
    }
}

/// How to show what this link's supervisor says.
pub(super) fn look<'a>(link: &'a Link, color: &ColorArgs) -> Look<'a> {
    Look {
        width: screen::width(),
        paint: color.paint(),
        server: link.server(),
        version: env!("CARGO_PKG_VERSION"),
    }
}
