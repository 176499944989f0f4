//! `keyholder key`: make, show, try out and change this node's key.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use serde::Serialize;

use super::exit::Exit;
use super::screen;
use crate::fleet::{self, Fleet};
use crate::lane::approval::{APPROVER_KEY_FILE, Approver};
use crate::lane::{Signer, TASK_KEY_FILE};
use crate::peer::identity::{Identity, KEY_FILE, NEXT_FILE, OLD_FILE, activate_next, generate};
use crate::vocabulary::{NodeName, printable};

mod probe;

pub use probe::{KeyProbeReply, Outcome, Probe, ProbeFailure, probe};

/// Make, show, try out and change this node's key
///
/// To change it without a gap: `generate --next`, add the new pin to this node's pins in fleet.yaml on every node and
/// reload there, `probe --next`, `switch`, restart keyholder, and take the old pin away again.
#[derive(Debug, clap::Args)]
pub struct KeyArgs {
    /// What to do.
    #[command(subcommand)]
    pub what: KeyCommand,
}

/// What to do with the key. What each does is said at its arguments.
#[derive(Debug, clap::Subcommand)]
#[expect(missing_docs, reason = "a variant's documentation would replace that of its arguments in the help")]
pub enum KeyCommand {
    Generate(GenerateArgs),
    Show(ShowArgs),
    Probe(ProbeArgs),
    Switch(SwitchArgs),
}

/// Where the keys are.
#[derive(Debug, Clone, clap::Args)]
pub struct KeyDirArgs {
    /// Where this node's keys are
    #[arg(long, value_name = "DIR", default_value = "/etc/keyholder")]
    pub key_dir: PathBuf,
    /// Use key.next.pem, the key that is to follow, instead of key.pem
    #[arg(long)]
    pub next: bool,
}

/// Who this node is, and who its peers are.
#[derive(Debug, Clone, clap::Args)]
pub struct FleetArgs {
    /// The fleet file
    #[arg(long, value_name = "FILE", default_value = "/etc/keyholder/fleet.yaml")]
    pub fleet: PathBuf,
    /// What the fleet file calls this node [default: NODE_NAME, else what is in /etc/keyholder/node]
    #[arg(long, value_name = "NAME")]
    pub node: Option<NodeName>,
}

/// Make a key, and print the pin that peers know it by
///
/// A key that exists is never overwritten.
#[derive(Debug, clap::Args)]
pub struct GenerateArgs {
    /// Where.
    #[command(flatten)]
    pub key: KeyDirArgs,
    /// Throw away a key.next.pem that is there already; key.pem is changed by `switch` only
    #[arg(long, requires = "next")]
    pub replace: bool,
    /// Make a key that signs tasks, task.pem: for whoever gives them with `keyholder run`
    #[arg(long, conflicts_with = "next")]
    pub task: bool,
    /// Make a key that approves tasks, approve.pem: for a person who may say yes to what catalogs want approved
    #[arg(long, conflicts_with_all = ["next", "task"])]
    pub approver: bool,
}

/// Print the key's pin, as it belongs into fleet.yaml
#[derive(Debug, clap::Args)]
pub struct ShowArgs {
    /// Which.
    #[command(flatten)]
    pub key: KeyDirArgs,
    /// Print pin, algorithm and file as one line of JSON
    #[arg(long)]
    pub json: bool,
    /// The key that signs tasks, as it belongs into `task_keys` of fleet.yaml
    #[arg(long, conflicts_with = "next")]
    pub task: bool,
    /// The key that approves tasks, as it belongs into `approver_keys` of fleet.yaml
    #[arg(long, conflicts_with_all = ["next", "task"])]
    pub approver: bool,
}

/// Connect to peers with the key: are they there, do we accept them, do they accept us?
#[derive(Debug, clap::Args)]
#[command(after_help = "Exit status 1 if any of them fails.")]
pub struct ProbeArgs {
    /// Which peers [default: all that are not disabled]
    #[arg(value_name = "NODE")]
    pub nodes: Vec<NodeName>,
    /// Which key.
    #[command(flatten)]
    pub key: KeyDirArgs,
    /// The fleet.
    #[command(flatten)]
    pub fleet: FleetArgs,
    /// Print the findings as one line of JSON
    #[arg(long)]
    pub json: bool,
}

/// Put key.next.pem in the place of key.pem, once every peer accepts it
///
/// The old key is kept as key.old.pem. Refused while a peer that this node watches, or that watches it, does not accept
/// the new key.
#[derive(Debug, clap::Args)]
pub struct SwitchArgs {
    /// Where this node's keys are
    #[arg(long, value_name = "DIR", default_value = "/etc/keyholder")]
    pub key_dir: PathBuf,
    /// The fleet.
    #[command(flatten)]
    pub fleet: FleetArgs,
    /// Switch also if a peer does not accept the new key, or cannot be asked: it will no longer know this node
    #[arg(long)]
    pub force: bool,
}

/// Carries it out.
///
/// # Errors
/// One clear sentence: a key that cannot be used, a fleet file that cannot be read, a switch that was refused.
pub fn run(args: KeyArgs) -> anyhow::Result<ExitCode> {
    let exit = match args.what {
        KeyCommand::Generate(args) => make(&args)?,
        KeyCommand::Show(args) => show(&args)?,
        KeyCommand::Probe(args) => try_out(&args)?,
        KeyCommand::Switch(args) => switch(&args)?,
    };
    Ok(exit.into())
}

impl KeyDirArgs {
    fn path(&self) -> PathBuf {
        self.key_dir.join(if self.next { NEXT_FILE } else { KEY_FILE })
    }
}

impl FleetArgs {
    fn load(&self) -> anyhow::Result<(Fleet, NodeName)> {
        let me = fleet::whoami(self.node.as_ref().map(NodeName::as_str))?;
        let loaded = Fleet::load(&self.fleet)?;
        if !loaded.fleet.nodes.contains_key(&me) {
            bail!("{} has no node {me}: is /etc/keyholder/node right?", self.fleet.display());
        }
        Ok((loaded.fleet, me))
    }
}

fn make(args: &GenerateArgs) -> anyhow::Result<Exit> {
    if args.task || args.approver {
        let path = args.key.key_dir.join(if args.task { TASK_KEY_FILE } else { APPROVER_KEY_FILE });
        generate(&path, false)?;
        let (public, list) = match args.task {
            true => (Signer::load(&path)?.public(), "task_keys"),
            false => (Approver::load(&path)?.public(), "approver_keys"),
        };
        screen::print(&format!("{public}\n"))?;
        screen::complain(&format!(
            "made {}; add this key under a name of your choice to {list} in fleet.yaml on every node",
            printable(&path.to_string_lossy())
        ));
        return Ok(Exit::Ok);
    }
    let path = args.key.path();
    let identity = generate(&path, args.replace)?;
    screen::print(&format!("{}\n", identity.pin()))?;
    screen::complain(&format!(
        "made {}; add this pin to this node's pins in fleet.yaml on every node",
        printable(&path.to_string_lossy())
    ));
    Ok(Exit::Ok)
}

/// What is said of a key.
#[derive(Debug, Serialize)]
struct ShownKey<'a> {
    pin: String,
    algorithm: &'a str,
    file: &'a Path,
}

fn show(args: &ShowArgs) -> anyhow::Result<Exit> {
    let (path, pin, algorithm) = if args.task {
        let path = args.key.key_dir.join(TASK_KEY_FILE);
        let signer = Signer::load(&path)?;
        (path, signer.public().to_string(), "Ed25519")
    } else if args.approver {
        let path = args.key.key_dir.join(APPROVER_KEY_FILE);
        let approver = Approver::load(&path)?;
        (path, approver.public().to_string(), "Ed25519")
    } else {
        let path = args.key.path();
        let identity = Identity::load(&path)?;
        let (pin, algorithm) = (identity.pin().to_string(), identity.algorithm());
        (path, pin, algorithm)
    };
    let shown = ShownKey { pin, algorithm, file: &path };
    screen::print(&if args.json {
        screen::json(&shown)?
    } else if screen::is_terminal() {
        format!("{}\n{}, {}\n", shown.pin, shown.algorithm, printable(&path.to_string_lossy()))
    } else {
        // The pin alone: what scripts take.
        format!("{}\n", shown.pin)
    })?;
    Ok(Exit::Ok)
}

fn try_out(args: &ProbeArgs) -> anyhow::Result<Exit> {
    let (fleet, me) = args.fleet.load()?;
    let identity = Identity::load(&args.key.path())?;
    let nodes = if args.nodes.is_empty() { others(&fleet, &me) } else { args.nodes.clone() };
    let probes = probe(&fleet, &me, &identity, &nodes)?;
    screen::print(&if args.json { screen::json(&probes)? } else { table(&probes) })?;
    Ok(if probes.iter().all(Probe::passed) { Exit::Ok } else { Exit::Failed })
}

fn others(fleet: &Fleet, me: &NodeName) -> Vec<NodeName> {
    fleet
        .nodes
        .iter()
        .filter(|(name, node)| *name != me && !node.disabled)
        .map(|(name, _)| name.clone())
        .collect()
}

/// The peers without which the key is worth nothing: those that we watch and those that watch us.
fn concerned(fleet: &Fleet, me: &NodeName) -> Vec<NodeName> {
    let watchers = fleet.nodes.get(me).map(|node| &node.watched_by);
    let watched = |name: &NodeName| fleet.nodes.get(name).is_some_and(|node| node.watched_by.contains(me));
    let mut nodes = others(fleet, me);
    nodes.retain(|name| watched(name) || watchers.is_some_and(|watchers| watchers.contains(name)));
    nodes
}

fn table(probes: &[Probe]) -> String {
    if probes.is_empty() {
        return "no peers\n".to_owned();
    }
    let width = probes.iter().map(|p| p.node.as_str().len()).max().unwrap_or_default();
    let mut text = String::new();
    for probe in probes {
        let (mark, said) = (if probe.passed() { "ok  " } else { "FAIL" }, probe.said());
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{mark}  {:width$}  {}", probe.node, printable(&said));
        if let Some(way_out) = probe.way_out() {
            let _ = writeln!(text, "      {:width$}  {}", "", printable(way_out));
        }
    }
    text
}

fn switch(args: &SwitchArgs) -> anyhow::Result<Exit> {
    let next_path = args.key_dir.join(NEXT_FILE);
    let next = Identity::load(&next_path)
        .context("there is no key to switch to: make one with `keyholder key generate --next`")?;
    let (fleet, me) = args.fleet.load()?;
    let probes = probe(&fleet, &me, &next, &concerned(&fleet, &me))?;
    let against: Vec<&str> = probes.iter().filter(|p| !p.passed()).map(|p| p.node.as_str()).collect();
    let own = fleet.nodes.get(&me).is_some_and(|node| node.pins.contains(&next.pin()));
    if !own {
        screen::complain(&format!(
            "{} does not list {} for {me} itself",
            args.fleet.fleet.display(),
            next.pin()
        ));
    }
    screen::print(&table(&probes))?;
    if !args.force && (!against.is_empty() || !own) {
        let whom =
            if against.is_empty() { "this node's own fleet.yaml".to_owned() } else { against.join(", ") };
        bail!(
            "not switched: the new key is not accepted by {whom}. Add {} to the pins of {me} in fleet.yaml on every \
             node, reload there, and try again; --force switches all the same",
            next.pin()
        );
    }
    activate_next(&args.key_dir)?;
    screen::print(&format!(
        "{KEY_FILE} is now {}; the key before it is kept as {OLD_FILE}\n\
         The supervisor uses it after: systemctl restart keyholder.service\n",
        next.pin()
    ))?;
    Ok(Exit::Ok)
}

#[cfg(test)]
mod tests;
