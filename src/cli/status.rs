//! `keyholder status`

pub(super) mod args;

use std::process::ExitCode;

use super::ask::{outcome, unexpected_reply};
use super::ending;
use super::exit::{self, Exit};
use super::link::{Link, QUESTION_DEADLINE};
use super::render;
use super::screen;
use super::subject::Subject;
use super::watch;
use crate::peer::wire::{NodeReport, Outcome, Refusal, Verb};
pub use args::StatusArgs;

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
        screen::say(&render::fleet(&reports, &args::look(&link, &args.color)))?;
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
        | Outcome::ExplainedNode(_)
        | Outcome::Audit(_)
        | Outcome::Proof(_)
        | Outcome::Remedied(_)
        | Outcome::Powered { .. }
        | Outcome::Drilled(_)
        | Outcome::Noted
        | Outcome::Watching => Err(unexpected_reply("status")),
    }
}

/// Ends a watch for something that there is not: it would stay empty for ever. Any other refusal may pass while it is
/// watched.
fn exists(link: &mut Link, subject: Option<&Subject>) -> anyhow::Result<()> {
    match ask(link, subject, false) {
        Err(error) if error.is::<Refusal>() && ending::exit(&error) != Exit::NoSuch => Ok(()),
        asked => asked.map(drop),
    }
}
