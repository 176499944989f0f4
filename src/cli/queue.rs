//! `keyholder queue`: what waits for a node's lanes, what is in their hands, and what could not be done.

mod dead;
mod show;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, bail};

use super::ask::{outcome, reason, unexpected_reply};
use super::exit::Exit;
use super::link::{LinkArgs, QUESTION_DEADLINE};
use super::run::wanted;
use super::{redis, screen};
use crate::catalog::Mode;
use crate::fleet::Fleet;
use crate::lane::{Context as LaneContext, TaskKeys};
use crate::peer::wire::{DeadLetter, Outcome, Verb};
use crate::queue::{Front, QueueName};
use crate::vocabulary::{NodeName, TaskId};
use dead::Dead;

/// Show what waits for a node's lanes, what is in their hands, and what could not be done
///
/// A dead-lettered task can be requeued, if it bears a valid signature: the same bytes, and nothing is signed for it. So what a
/// lane refused because it did not know the key or the approver yet can run once its fleet file does. Or it can be thrown away.
/// Both are for root, and leave a record in the audit of this node before anything is touched.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  keyholder queue mars\n  keyholder queue mars requeue 3f9c --why 'mars knows the key now'\n  \
    keyholder queue mars drop 3f9c --why 'a test of mine'"
)]
pub struct QueueArgs {
    /// The node
    #[arg(value_name = "NODE")]
    pub node: NodeName,
    /// What to do with a dead-lettered task
    #[arg(value_enum, value_name = "WHAT", requires_all = ["id", "why"])]
    pub what: Option<What>,
    /// Which: the beginning of its id or of its hash, as they are shown
    #[arg(value_name = "ID", value_parser = beginning)]
    pub id: Option<String>,
    /// Why, for the audit; wanted with WHAT
    #[arg(long, value_name = "WHY", value_parser = reason)]
    pub why: Option<String>,
    /// Print what is seen as one line of JSON per lane
    #[arg(long)]
    pub json: bool,
    /// The fleet file
    #[arg(long, value_name = "FILE", default_value = "/etc/keyholder/fleet.yaml")]
    pub fleet: PathBuf,
    /// The supervisor, which keeps the audit.
    #[command(flatten)]
    pub link: LinkArgs,
}

/// What to do with a dead-lettered task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum What {
    /// Put the same bytes into the queue again
    Requeue,
    /// Throw it away
    Drop,
}

fn beginning(text: &str) -> Result<String, String> {
    let parsed: Result<TaskId, _> = text.parse();
    parsed.map(|id| id.to_string()).map_err(|error| error.to_string())
}

/// Carries it out.
///
/// # Errors
/// Files that cannot be used, a server or a supervisor that does not do what is needed, a task that is not there or not only
/// one.
pub fn run(args: QueueArgs) -> anyhow::Result<ExitCode> {
    let fleet = Fleet::load(&args.fleet).context("the fleet file is not valid")?.fleet;
    wanted(&args.node, &fleet)?;
    let url = redis::url(&fleet, &args.fleet)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let front = Front::connect(&url).await?;
        match (args.what, &args.id, &args.why) {
            (Some(what), Some(id), Some(why)) => act(&args, &fleet, &front, what, id, why).await,
            (Some(_), _, _) | (None, _, _) => look(&args, &front).await,
        }
    })
}

fn queues(node: &NodeName) -> [(Mode, QueueName); 2] {
    [(Mode::Write, QueueName::write(node)), (Mode::Read, QueueName::read(node))]
}

async fn look(args: &QueueArgs, front: &Front) -> anyhow::Result<ExitCode> {
    let now = jiff::Timestamp::now();
    for (lane, queue) in queues(&args.node) {
        let seen = show::Lane::of(&args.node, lane, &queue, front.look(&queue).await?, now);
        if args.json {
            screen::print(&screen::json(&seen)?)?;
        } else {
            screen::say(&show::text(&seen))?;
        }
    }
    Ok(Exit::Ok.into())
}

async fn act(
    args: &QueueArgs,
    fleet: &Fleet,
    front: &Front,
    what: What,
    id: &str,
    why: &str,
) -> anyhow::Result<ExitCode> {
    let mut found = Vec::new();
    for (lane, queue) in queues(&args.node) {
        let seen = front.look(&queue).await?;
        let dead = seen.dead.into_iter().map(|raw| Dead::read(raw, &lane.to_string()));
        found.extend(dead.filter(|dead| dead.is_called(id)).map(|dead| (lane, queue.clone(), dead)));
    }
    let [(lane, queue, dead)] = found.as_slice() else {
        bail!(match found.len() {
            0 => format!(
                "no dead-lettered task of {} begins with {id}: keyholder queue {}",
                args.node, args.node
            ),
            n => format!("{n} dead-lettered tasks of {} begin with {id}: give more of it", args.node),
        });
    };
    // Checked before anything is touched: a record of what is then refused would help nobody.
    let task = match what {
        What::Drop => None,
        What::Requeue => Some(signed(dead, fleet, &args.node, *lane)?),
    };
    let letter = DeadLetter { node: args.node.clone(), lane: *lane, task: dead.name().parse()? };
    let verb = match what {
        What::Requeue => Verb::Requeue(letter.into()),
        What::Drop => Verb::Drop(letter.into()),
    };
    let mut link =
        args.link.open().context("nothing was touched, because there is nobody to keep the record of it")?;
    let here = link.server().node.clone();
    let Outcome::Noted = outcome(link.ask(&here, None, verb, why, QUESTION_DEADLINE)?, false)? else {
        return Err(unexpected_reply("requeue or drop"));
    };
    // Given first, then buried: whatever ends this in between, the task is not lost.
    if let Some(bytes) = task {
        front.push(queue, bytes).await?;
        screen::print(&format!("requeued task {}, unchanged\n", dead.name()))?;
    }
    if !front.remove_dead_letter(queue, dead.raw()).await? {
        bail!("task {} is no longer among the dead: somebody else was here at the same time", dead.name());
    }
    screen::complain(&format!("task {} is no longer among the dead of {}", dead.name(), args.node));
    Ok(Exit::Ok.into())
}

/// A dead-lettered task is not requeued.
#[derive(Debug, thiserror::Error)]
#[error("task {name} is not requeued: {why}; give it again, checked, signed and approved as new: {again}")]
pub struct NotRequeued {
    name: String,
    why: String,
    again: String,
}

/// The task's own bytes, if somebody whom the fleet file knows signed them for this lane and the lane would run them. Whatever
/// else is in a dead letter, anybody may have written; it gets no signature here.
fn signed<'d>(dead: &'d Dead, fleet: &Fleet, node: &NodeName, lane: Mode) -> Result<&'d [u8], NotRequeued> {
    let not = |why: String| NotRequeued {
        name: dead.name(),
        why,
        again: format!("keyholder run {node} {}", dead.asked().unwrap_or("ACTION NAME=VALUE")),
    };
    let Some((bytes, envelope)) = dead.envelope() else {
        return Err(not("nobody signed it, so anybody may have written it".to_owned()));
    };
    let keys: TaskKeys = fleet.task_keys.clone().into_iter().collect();
    keys.verify(envelope, &LaneContext { node, lane }).map_err(not)?;
    match dead.code.as_str() {
        // By the entry, which may lie; the lane decides in any case.
        "interrupted" | "replayed" | "before_ledger" => {
            Err(not(format!("it is {}, and the lane never runs the same bytes again", dead.code)))
        }
        _ => Ok(bytes),
    }
}
