//! `keyholder run`: has a node do what its catalog allows, through the lane that the catalog names.

mod approve;
mod give;
mod plan;
mod show;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use serde::Serialize;

use super::ask::{duration, reason};
use super::exit::Exit;
use super::link::LinkArgs;
use super::prove;
use super::{redis, screen};
use crate::catalog::Mode;
use crate::fleet::Fleet;
use crate::journal::Proof;
use crate::lane::{Status, TaskResult};
use crate::queue::Front;
use crate::vocabulary::{NodeName, TaskId, printable};

pub use approve::NotApproved;
pub use plan::{CatalogTrouble, NoSuchNode, PlanRefused, StepRefused};
use plan::{Catalogs, Checked, PlanStep};

/// How much longer than its action may run a result is waited for: there may be others before it in the lane.
const PATIENCE: Duration = Duration::from_secs(300);

/// Have a node do what its catalog allows, and wait for what comes of it
///
/// Every step is checked against its node's catalog before any task is submitted; then each is signed, put into the
/// queue of the lane that the catalog names, and waited for. What was printed by the command goes to standard output, how
/// it ended to standard error. A plan ends at the first step that does not succeed.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  keyholder run mars service.logs unit=apache2.service lines=20\n  \
    keyholder run mars service.restart unit=apache2.service --yes --why renewed\n  \
    keyholder run --plan plan.yaml --prove")]
pub struct RunArgs {
    /// The node that is to do it
    #[arg(value_name = "NODE", required_unless_present = "plan", conflicts_with = "plan")]
    pub node: Option<String>,
    /// What it is to do, by the name in its catalog
    #[arg(value_name = "ACTION", required_unless_present = "plan", conflicts_with = "plan")]
    pub action: Option<String>,
    /// The values for its parameters
    #[arg(value_name = "NAME=VALUE", value_parser = plan::param)]
    pub params: Vec<(String, String)>,
    /// Several steps from a YAML or JSON file: {steps: [{node, action, params}]}
    #[arg(long, value_name = "FILE")]
    pub plan: Option<PathBuf>,
    /// Approve what the catalog wants a person's approval for; on a terminal one is asked otherwise
    #[arg(long)]
    pub yes: bool,
    /// Who asks, for the records [default: the user and host]
    #[arg(long, value_name = "WHO", value_parser = reason)]
    pub by: Option<String>,
    /// Why, for the records
    #[arg(long, value_name = "WHY", value_parser = reason)]
    pub why: Option<String>,
    /// Give the tasks and do not wait for their results
    #[arg(long, conflicts_with_all = ["timeout", "prove"])]
    pub no_wait: bool,
    /// How long to wait for each result; a task is not taken back [default: its action's time and 5m]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub timeout: Option<Duration>,
    /// Have the node's journal searched for who ran it, and fail unless that is proved
    #[arg(long)]
    pub prove: bool,
    /// Print each step as one line of JSON: step, task, node, action, lane, result, proof
    #[arg(long)]
    pub json: bool,
    /// The key to sign with
    #[arg(long, value_name = "FILE", default_value = "/etc/keyholder/task.pem")]
    pub key: PathBuf,
    /// The key to approve with what the catalog wants a person's approval for
    #[arg(long, value_name = "FILE", default_value = "/etc/keyholder/approve.pem")]
    pub approver_key: PathBuf,
    /// The fleet file; the catalogs lie beside it
    #[arg(long, value_name = "FILE", default_value = "/etc/keyholder/fleet.yaml")]
    pub fleet: PathBuf,
    /// The supervisor, which is asked for proof.
    #[command(flatten)]
    pub link: LinkArgs,
}

/// What is said of one step.
#[derive(Debug, Serialize)]
struct StepOutput<'a> {
    step: usize,
    task: &'a TaskId,
    node: &'a NodeName,
    action: &'a str,
    lane: Mode,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<&'a TaskResult>,
    #[serde(skip_serializing_if = "Option::is_none")]
    proof: Option<&'a Proof>,
}

/// Carries it out.
///
/// # Errors
/// A step that is refused before anything is given, files that cannot be used, a server that does not do what is needed. A
/// step that does not succeed is no error but an exit code.
pub fn run(args: RunArgs) -> anyhow::Result<ExitCode> {
    let fleet = Fleet::load(&args.fleet).context("the fleet file is not valid")?.fleet;
    let checked = plan::check(steps(&args)?, &fleet, &mut Catalogs::beside(&args.fleet));
    let checked = match checked {
        Ok(checked) => checked,
        Err(error) => {
            if let (true, Some(refused)) = (args.json, error.downcast_ref::<PlanRefused>()) {
                screen::print(&screen::json(refused)?)?;
            }
            return Err(error);
        }
    };
    let approving = approve::approve(&checked, args.yes, &args.approver_key, &fleet)?;
    let url = redis::url(&fleet, &args.fleet)?;
    let giver = give::Giver::new(&args.key, by(&args), &fleet, &checked, approving)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let exit = runtime.block_on(async {
        let mut front = Front::connect(&url).await?;
        for (n, step) in checked.iter().enumerate() {
            let exit = one(&args, &mut front, &giver, n, step).await?;
            if exit != Exit::Ok {
                let left = checked.len() - n - 1;
                if left > 0 {
                    screen::complain(&format!(
                        "step[{n}] did not succeed; the {left} after it were not submitted"
                    ));
                }
                return Ok(exit);
            }
        }
        anyhow::Ok(Exit::Ok)
    })?;
    Ok(exit.into())
}

fn steps(args: &RunArgs) -> anyhow::Result<Vec<PlanStep>> {
    if let Some(path) = &args.plan {
        let bytes = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        return Ok(plan::parse(&path.to_string_lossy(), &bytes)?);
    }
    let (node, action) = (args.node.clone().unwrap_or_default(), args.action.clone().unwrap_or_default());
    Ok(vec![PlanStep { node, action, params: plan::params(&args.params)? }])
}

/// Whom the records name.
fn by(args: &RunArgs) -> String {
    let who = args.by.clone().unwrap_or_else(|| {
        let user = nix::unistd::User::from_uid(nix::unistd::getuid()).ok().flatten();
        let user = user.map_or_else(|| format!("uid {}", nix::unistd::getuid()), |user| user.name);
        let host =
            nix::unistd::gethostname().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        format!("{user}@{host}")
    });
    match &args.why {
        Some(why) => format!("{who}: {why}"),
        None => who,
    }
}

async fn one(
    args: &RunArgs,
    front: &mut Front,
    giver: &give::Giver,
    n: usize,
    step: &Checked,
) -> anyhow::Result<Exit> {
    let id = give::id()?;
    let task = giver.write(step, &id)?;
    front
        .push(&step.queue(), &task)
        .await
        .with_context(|| format!("whether task {id} is in the queue is not known"))?;
    let mut told = StepOutput {
        step: n,
        task: &id,
        node: &step.node,
        action: step.action.as_str(),
        lane: step.lane,
        result: None,
        proof: None,
    };
    if args.no_wait {
        screen::print(&if args.json { screen::json(&told)? } else { format!("{id}\n") })?;
        return Ok(Exit::Ok);
    }
    let time = args.timeout.unwrap_or(step.timeout + PATIENCE);
    let Some(result) = give::wait(front, step, (&id, &task), time, args.json).await? else {
        if args.json {
            screen::print(&screen::json(&told)?)?;
        }
        screen::complain(&printable(&give::unanswered(step, &id, time)));
        return Ok(Exit::Unreachable);
    };
    if !args.json {
        if let Some(ran) = &result.ran {
            screen::print(&show::output(&ran.stdout))?;
            let stderr = show::output(&ran.stderr);
            if !stderr.is_empty() {
                screen::pass_on(stderr.trim_end_matches('\n'));
            }
        }
        let step = if args.plan.is_some() { format!("step[{n}]: ") } else { String::new() };
        screen::complain(&format!("{step}{}", show::summary(&result)));
    }
    let proof = match args.prove && result.ran.is_some() {
        true => Some(prove::ask(&args.link, &step.node, &id, Some(step.lane))?),
        false => None,
    };
    told.result = Some(&result);
    told.proof = proof.as_ref();
    if args.json {
        screen::print(&screen::json(&told)?)?;
    } else if let Some(proof) = &proof {
        screen::say(&prove::shown(proof))?;
    }
    Ok(match (exit(result.status), &proof) {
        (Exit::Ok, Some(proof)) => prove::exit(proof.verdict),
        (exit, _) => exit,
    })
}

/// Whether there is such a node.
///
/// # Errors
/// [`NoSuchNode`].
pub(super) fn wanted(node: &NodeName, fleet: &Fleet) -> Result<(), NoSuchNode> {
    if fleet.nodes.contains_key(node) { Ok(()) } else { Err(NoSuchNode::new(None, node.as_str(), fleet)) }
}

fn exit(status: Status) -> Exit {
    match status {
        Status::Ok => Exit::Ok,
        Status::Refused => Exit::Refused,
        Status::Failed | Status::Killed | Status::TimedOut | Status::Interrupted => Exit::Failed,
    }
}
