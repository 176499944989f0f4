//! `keyholder explain`

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;

use super::ask::{outcome, unexpected_reply};
use super::exit::Exit;
use super::link::{LinkArgs, QUESTION_DEADLINE};
use super::render;
use super::screen::{self, ColorArgs};
use super::subject::Subject;
use crate::judge::log;
use crate::judge::replay::replay;
use crate::peer::wire::{Explanation, Outcome, Verb};

/// Say what was observed of a worker, what is done about it and why
///
/// Also why nothing is done, and by which rule. For a node that its watcher does not reach: which other causes of the silence are
/// excluded, and how, before its `power` command is run. --record prints what the judge was told of the worker as a log of JSON
/// lines, and --replay has the judge decide it all again, by the log's own clock: offline, asking nobody and doing
/// nothing.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  keyholder explain mars/agent\n  keyholder explain mars\n  keyholder explain mars/agent --record > agent.log\n  keyholder explain --replay agent.log"
)]
pub struct ExplainArgs {
    /// The worker, or a node as its watcher sees it
    #[arg(value_name = "NODE[/WORKER]", required_unless_present = "replay")]
    pub target: Option<Subject>,
    /// Print what the judge was told of it lately, as a log for --replay
    #[arg(long, conflicts_with = "json")]
    pub record: bool,
    /// Have the judge decide again on a recorded log
    #[arg(long, value_name = "FILE", conflicts_with_all = ["target", "record", "socket"])]
    pub replay: Option<PathBuf>,
    /// Print the supervisor's verdict, or the replay, as one line of JSON
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
/// No answer from the supervisor, a refusal, a log that is none, or an output that cannot be written.
pub fn run(args: ExplainArgs) -> anyhow::Result<ExitCode> {
    match (&args.replay, &args.target) {
        (Some(file), _) => again(file, &args),
        (None, Some(target)) => live(target, &args),
        // clap asks for one of the two.
        (None, None) => Ok(Exit::Usage.into()),
    }
}

fn live(target: &Subject, args: &ExplainArgs) -> anyhow::Result<ExitCode> {
    let mut link = args.link.open()?;
    let (node, worker) = match target {
        Subject::Node(node) => (node, None),
        Subject::Worker(target) => (&target.node, Some(&target.worker)),
    };
    let verdict = link.ask(node, worker, Verb::Explain {}, "", QUESTION_DEADLINE)?;
    let explanation = match outcome(verdict, args.json)? {
        Outcome::Explained(explanation) => explanation,
        Outcome::ExplainedNode(explanation) if args.record => {
            anyhow::bail!(
                "a record is kept of workers, not of nodes: name a worker of {}",
                explanation.report.node
            )
        }
        Outcome::ExplainedNode(explanation) => {
            if !args.json {
                let text = render::node_explanation(&explanation, screen::fold_at(), args.color.paint());
                screen::print(&text)?;
            }
            return Ok(Exit::Ok.into());
        }
        Outcome::Relaunched(_)
        | Outcome::AlreadyRecovered { .. }
        | Outcome::Remedied(_)
        | Outcome::Powered { .. }
        | Outcome::Drilled(_)
        | Outcome::Failed(_)
        | Outcome::Status(_)
        | Outcome::Fleet(_)
        | Outcome::Held { .. }
        | Outcome::Released { .. }
        | Outcome::Audit(_)
        | Outcome::Proof(_)
        | Outcome::Noted
        | Outcome::Watching => return Err(unexpected_reply("explain")),
    };
    if args.record {
        screen::print(&recording(&explanation)?)?;
    } else if !args.json {
        screen::print(&render::explanation(&explanation, screen::fold_at(), args.color.paint()))?;
    }
    Ok(Exit::Ok.into())
}

/// The log as it came, safe on a terminal as all our JSON is.
fn recording(explanation: &Explanation) -> anyhow::Result<String> {
    let mut text = screen::json(&log::Head::default())?;
    for line in &explanation.log {
        text.push_str(&screen::json(line)?);
    }
    Ok(text)
}

fn again(file: &Path, args: &ExplainArgs) -> anyhow::Result<ExitCode> {
    let about = || format!("cannot replay {}", file.display());
    let mut text = String::new();
    let room = u64::try_from(log::MAX_LOG).unwrap_or(u64::MAX).saturating_add(1);
    File::open(file).and_then(|file| file.take(room).read_to_string(&mut text)).with_context(about)?;
    let lines = log::read(&text).with_context(about)?;
    let story = replay(&lines).with_context(about)?;
    if args.json {
        screen::print(&screen::json(&story)?)?;
    } else {
        screen::say(&render::story(&story, args.color.paint()))?;
    }
    Ok(Exit::Ok.into())
}
