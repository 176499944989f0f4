//! `keyholder prove`: which lane ran a task, by what journald itself says.

use std::process::ExitCode;
use std::time::Duration;

use super::ask::{outcome, refused, unexpected_reply};
use super::exit::Exit;
use super::link::LinkArgs;
use super::screen;
use crate::catalog::Mode;
use crate::journal::{Evidence, Proof, ProofVerdict, Shows};
use crate::peer::wire::{Outcome, Verb, Verdict};
use crate::vocabulary::{NodeName, TaskId, printable};

use super::lane::ModeArg;

/// How long to wait for an answer: a journal is searched, perhaps on a peer, which has 10 s for it.
const PATIENCE: Duration = Duration::from_secs(15);

/// Say which lane ran a task, with the journal's own fields as evidence
///
/// proved: exactly one lane ran it, once, it is the expected one, and the other lane was there, was heard, and has nothing
/// of it. refuted: it was not so. inconclusive: the journal cannot say, because of a gap, of records that are gone, or of a
/// lane that was not there. That a task succeeded proves nothing about its path.
///
/// Exit status 0 if it is proved, 1 if refuted, 3 if inconclusive.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  \
    keyholder prove 019ad0c2-0f7b-7000-8000-1234567890ab --node mars --lane read")]
pub struct ProveArgs {
    /// The task's id, as `keyholder run` prints it
    #[arg(value_name = "TASK")]
    pub task: TaskId,
    /// The node whose journal is searched [default: this one]
    #[arg(long, value_name = "NODE")]
    pub node: Option<NodeName>,
    /// The lane that should have run it [default: whichever did]
    #[arg(long, value_enum, value_name = "LANE")]
    pub lane: Option<ModeArg>,
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
pub fn run(args: ProveArgs) -> anyhow::Result<ExitCode> {
    let lane = args.lane.map(|lane| match lane {
        ModeArg::Read => Mode::Read,
        ModeArg::Write => Mode::Write,
    });
    let mut link = args.link.open()?;
    let node = args.node.unwrap_or_else(|| link.server().node.clone());
    let verdict = link.ask(&node, None, Verb::Prove { task: args.task, lane }, "", PATIENCE)?;
    let Outcome::Proof(proof) = outcome(verdict, args.json)? else { return Err(unexpected_reply("prove")) };
    if !args.json {
        screen::say(&shown(&proof))?;
    }
    Ok(exit(proof.verdict).into())
}

/// Asks the supervisor here for a proof from `node`.
///
/// # Errors
/// No answer from it, or a refusal.
pub(super) fn ask(
    link: &LinkArgs,
    node: &NodeName,
    task: &TaskId,
    lane: Option<Mode>,
) -> anyhow::Result<Proof> {
    let verb = Verb::Prove { task: task.clone(), lane };
    match link.open()?.ask(node, None, verb, "", PATIENCE)? {
        Verdict::Outcome(Outcome::Proof(proof)) => Ok(proof),
        Verdict::Outcome(_) => Err(unexpected_reply("prove")),
        Verdict::Refused(refusal) => Err(refused(refusal)),
    }
}

/// The exit code for a verdict.
pub(super) fn exit(verdict: ProofVerdict) -> Exit {
    match verdict {
        ProofVerdict::Proved => Exit::Ok,
        ProofVerdict::Refuted => Exit::Failed,
        ProofVerdict::Inconclusive => Exit::NotHealthy,
    }
}

/// The proof as text: the verdict, then a record a line.
pub(super) fn shown(proof: &Proof) -> String {
    let mut text = format!("{}: {}\n", proof.verdict.name(), printable(&proof.why));
    for Evidence { shows, at, unit, invocation, pid, boot, text: message } in &proof.evidence {
        let shows = match shows {
            Shows::Ran => "ran it",
            Shows::NotRun => "did not run it",
            Shows::Forged => "no lane",
            Shows::OtherLane => "other lane",
            Shows::Gap => "gap",
        };
        let field = |value: &Option<String>| printable(value.as_deref().unwrap_or("?")).into_owned();
        let run: String = field(invocation).chars().take(8).collect();
        let boot: String = field(boot).chars().take(8).collect();
        text += &format!(
            "  {shows:14}  {}  {}  pid {}  run {run}  boot {boot}  {}\n",
            printable(at),
            field(unit),
            field(pid),
            printable(message)
        );
    }
    text
}
