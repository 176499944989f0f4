//! `keyholder lane`: what the two lane units run.

use std::env;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use clap::ValueEnum;

use crate::catalog::{Catalog, Mode};
use crate::fleet;
use crate::lane::{Rules, Setup, TaskKeys, work};
use crate::queue::{ADDRESS_VARIABLE, How, QueueName};
use crate::vocabulary::{IdError, NodeName, TaskKey, printable};

/// Another queue than the node's own, as it always was.
const QUEUE_VARIABLE: &str = "MAINT_QUEUE";
/// `read`: refuse what changes something, as it always was.
const MODE_VARIABLE: &str = "MAINT_MODE_ONLY";

/// Takes tasks from this node's queue and runs what its catalog allows; systemd starts one for each mode
///
/// What must not run twice never does: a lane that died in it answers "interrupted". What may run again (a read, or what the
/// catalog calls idempotent) is begun again after the lane died in it, three times in all. A read without a rate is taken down
/// only while its command starts: if the lane dies in just that moment, this time is not counted, and it may run more often.
#[derive(Debug, clap::Args)]
pub struct LaneArgs {
    /// What the lane may do [default: MAINT_MODE_ONLY, else write]
    #[arg(long, value_enum)]
    pub mode: Option<ModeArg>,
    /// How many tasks a read lane runs at a time
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u8).range(1..=64))]
    pub slots: u8,
    /// The fleet file
    #[arg(long, value_name = "FILE", default_value = "/etc/keyholder/fleet.yaml")]
    pub fleet: PathBuf,
    /// This node's catalog [default: /etc/keyholder/catalog_NODE.yaml]
    #[arg(long, value_name = "FILE")]
    pub catalog: Option<PathBuf>,
    /// Where the lane's ledger is kept [default: STATE_DIRECTORY, which systemd sets]
    #[arg(long, value_name = "DIR")]
    pub state_dir: Option<PathBuf>,
    /// What the fleet file calls this node [default: NODE_NAME, else what is in /etc/keyholder/node]
    #[arg(long, value_name = "NAME")]
    pub node: Option<String>,
    /// How tasks are taken; brpop is as lanes did before and loses what is taken when the lane dies at that moment
    #[arg(long, value_enum, default_value_t = ClaimArg::Blmove)]
    pub claim: ClaimArg,
    /// A key that may sign tasks, besides those of the fleet file; can be given several times
    #[arg(long = "signer", value_name = "NAME=ed25519:HEX", value_parser = signer)]
    pub signers: Vec<(String, TaskKey)>,
    /// As insecure_unsigned_write in the fleet file: take tasks that nobody has signed, so that whoever reaches Redis may
    /// order what is in the catalog
    #[arg(long)]
    pub insecure_unsigned_write: bool,
}

/// Which lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ModeArg {
    /// One task at a time, all actions of the catalog
    Write,
    /// Several tasks at a time, only actions that change nothing
    Read,
}

/// How tasks are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ClaimArg {
    /// Without loss
    Blmove,
    /// As before; a task is lost if the lane dies before it begins it, and so is what is too long to be a task
    Brpop,
}

fn signer(text: &str) -> Result<(String, TaskKey), String> {
    let (name, key) = text.split_once('=').ok_or("expected NAME=ed25519:HEX")?;
    Ok((name.to_owned(), key.parse().map_err(|error: IdError| error.to_string())?))
}

/// Runs until SIGTERM or SIGINT, and then until the running tasks are finished.
///
/// # Errors
/// It cannot start; the text says what is missing.
pub fn run(args: LaneArgs) -> anyhow::Result<ExitCode> {
    let node = fleet::whoami(args.node.as_deref())?;
    let lane = mode(args.mode, variable(MODE_VARIABLE)?.as_deref())?;
    let queue = match variable(QUEUE_VARIABLE)? {
        Some(name) => name.parse()?,
        None => default_queue(lane, &node),
    };
    let redis = variable(ADDRESS_VARIABLE)?;
    let fleet = fleet_at(&args.fleet, redis.is_none())?;
    let redis = redis.or_else(|| fleet.as_ref()?.redis.clone()).with_context(|| {
        format!(
            "{} names no redis, and without it there is no queue; add it, or set {ADDRESS_VARIABLE}",
            args.fleet.display()
        )
    })?;
    let catalog = args.catalog.unwrap_or_else(|| format!("/etc/keyholder/catalog_{node}.yaml").into());
    let unsigned = args.insecure_unsigned_write;
    let files = RuleFiles { fleet: args.fleet, catalog, node, lane, signers: args.signers, unsigned };
    let rules = files.rules(fleet.as_ref())?;
    let Some(state_dir) = args.state_dir.or(variable("STATE_DIRECTORY")?.map(PathBuf::from)) else {
        bail!("nobody says where the ledger is kept: give --state-dir, or set StateDirectory= in the unit");
    };
    // systemd sets it; a lane that runs without has nobody who would look.
    let runtime_dir = variable("RUNTIME_DIRECTORY")?.map(PathBuf::from);
    let how = match args.claim {
        ClaimArg::Blmove => How::Blmove,
        ClaimArg::Brpop => How::Brpop,
    };
    // A lane that was started without a fleet file does without one then, too.
    let needed = fleet.is_some();
    let reload = Box::new(move || {
        let rules = fleet_at(&files.fleet, needed).and_then(|fleet| files.rules(fleet.as_ref()));
        rules.map_err(|error| printable(&format!("{error:#}")).into_owned())
    });
    work(Setup { rules, reload, queue, redis, how, slots: args.slots.into(), state_dir, runtime_dir })?;
    Ok(ExitCode::SUCCESS)
}

/// Where a lane's rules come from, at its start and at each reload.
struct RuleFiles {
    fleet: PathBuf,
    catalog: PathBuf,
    node: NodeName,
    lane: Mode,
    signers: Vec<(String, TaskKey)>,
    unsigned: bool,
}

impl RuleFiles {
    fn rules(&self, fleet: Option<&fleet::Fleet>) -> anyhow::Result<Rules> {
        let Self { node, lane, .. } = self;
        let catalog = Catalog::load(&self.catalog).context("the catalog is not valid")?.catalog;
        if catalog.node != *node {
            bail!("{} is the catalog of {}, and this node is {node}", self.catalog.display(), catalog.node);
        }
        let fleet_keys = fleet.into_iter().flat_map(|fleet| fleet.task_keys.clone());
        let keys: TaskKeys = fleet_keys.chain(self.signers.iter().cloned()).collect();
        let here = fleet.and_then(|fleet| fleet.nodes.get(node));
        let unsigned = self.unsigned || here.is_some_and(|node| node.insecure_unsigned_write);
        let signed_only = *lane == Mode::Write && !unsigned;
        if signed_only && keys.is_empty() {
            bail!(
                "the write lane takes only signed tasks and knows no key: add the keys to `task_keys` in {}, or \
                 `insecure_unsigned_write: true` to node {node} if everybody who reaches Redis may give it orders",
                self.fleet.display()
            );
        }
        let approvers = fleet.into_iter().flat_map(|fleet| fleet.approver_keys.clone()).collect();
        Ok(Rules { catalog, lane: *lane, keys, approvers, signed_only })
    }
}

/// A variable of the environment; an empty one counts as none.
fn variable(name: &str) -> anyhow::Result<Option<String>> {
    match env::var(name) {
        Ok(value) => Ok(Some(value).filter(|value| !value.is_empty())),
        Err(env::VarError::NotPresent) => Ok(None),
        Err(env::VarError::NotUnicode(_)) => bail!("{name} is not text"),
    }
}

fn mode(asked: Option<ModeArg>, only: Option<&str>) -> anyhow::Result<Mode> {
    match (asked, only) {
        (Some(ModeArg::Read), None | Some("read")) | (None, Some("read")) => Ok(Mode::Read),
        (Some(ModeArg::Write) | None, None) => Ok(Mode::Write),
        (Some(ModeArg::Write), Some("read")) => {
            bail!("--mode write and {MODE_VARIABLE}=read contradict each other; take one away")
        }
        (_, Some(other)) => bail!("{MODE_VARIABLE} can only be read, or empty, not {other:?}"),
    }
}

fn default_queue(lane: Mode, node: &NodeName) -> QueueName {
    match lane {
        Mode::Write => QueueName::write(node),
        Mode::Read => QueueName::read(node),
    }
}

/// The fleet. A lane that is told everything else may do without the file, but not with one that is wrong.
fn fleet_at(path: &Path, needed: bool) -> anyhow::Result<Option<fleet::Fleet>> {
    if !needed && !path.exists() {
        return Ok(None);
    }
    Ok(Some(fleet::Fleet::load_of_root(path).context("the fleet file is not valid")?.fleet))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_old_variable_narrows_and_never_widens() {
        assert_eq!(mode(None, None).unwrap(), Mode::Write);
        assert_eq!(mode(None, Some("read")).unwrap(), Mode::Read);
        assert_eq!(mode(Some(ModeArg::Read), None).unwrap(), Mode::Read);
        assert_eq!(mode(Some(ModeArg::Read), Some("read")).unwrap(), Mode::Read);
        assert!(mode(Some(ModeArg::Write), Some("read")).is_err());
        for bad in ["write", "READ", "1"] {
            assert!(mode(None, Some(bad)).is_err() && mode(Some(ModeArg::Read), Some(bad)).is_err(), "{bad}");
        }
    }
}
