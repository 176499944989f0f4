//! `keyholder doctor`: everything that must be right before a worker dies, checked while there is time.

mod child;
mod finding;
mod host;
mod lanes;
mod parts;
mod rights;
mod senses;
mod show;
mod supervisor;
#[cfg(test)]
mod tests;
mod units;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use nix::unistd::geteuid;

pub use finding::{Finding, Level};
use finding::{exit, report};

use super::link::LinkArgs;
use super::redis;
use super::screen::{self, ColorArgs};
use crate::fleet::{Fleet, Node};
use crate::vocabulary::{NodeName, with_causes};

/// Where `install.sh` puts what the catalog needs.
const SUDOERS: &str = "/etc/sudoers.d/keyholder";

/// Check everything that must be right before a worker dies
///
/// Each line is ok, warn or FAIL, with the way out. Run it as root: others cannot see the key or ask the supervisor.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  sudo keyholder doctor")]
pub struct DoctorArgs {
    /// The fleet file
    #[arg(long, value_name = "FILE", default_value = "/etc/keyholder/fleet.yaml")]
    pub fleet: PathBuf,
    /// Where this node's key is
    #[arg(long, value_name = "DIR", default_value = "/etc/keyholder")]
    pub key_dir: PathBuf,
    /// What the fleet file calls this node [default: NODE_NAME, else what is in /etc/keyholder/node]
    #[arg(long, value_name = "NAME")]
    pub node: Option<NodeName>,
    /// Print the findings as one line of JSON: an array of {check, level, text, way_out}
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
/// An output that cannot be written. What is wrong with the node is no error but exit code 3.
pub fn run(args: DoctorArgs) -> anyhow::Result<ExitCode> {
    let findings = examine(&args);
    let text = if args.json {
        screen::json(&findings)?
    } else {
        report(&findings, screen::fold_at(), args.color.paint())
    };
    screen::print(&text)?;
    Ok(exit(&findings).into())
}

fn examine(args: &DoctorArgs) -> Vec<Finding> {
    let mut findings = Vec::new();
    let fleet = fleet(&args.fleet, &mut findings);
    let me = me(args.node.as_ref(), fleet.as_ref(), &mut findings);
    let node = fleet.as_ref().zip(me.as_ref()).and_then(|(fleet, me)| fleet.nodes.get(me));

    findings.push(host::key_file(&args.key_dir));
    if let Some(node) = node {
        findings.push(match parts::pin(&args.key_dir) {
            Ok(pin) if node.pins.contains(&pin) => {
                Finding::ok("key", format!("the fleet file has its pin {pin}"))
            }
            Ok(pin) => Finding::fail(
                "key",
                format!("the fleet file does not have its pin {pin}: no peer accepts it"),
            )
            .way_out("add it to this node's pins, on every node"),
            Err(error) if geteuid().is_root() => Finding::fail("key", format!("{error:#}")),
            Err(error) => Finding::warn("key", format!("{error:#}")).way_out("sudo keyholder doctor"),
        });
    }
    ours(node, &mut findings);
    findings.push(host::bus());
    findings.extend(supervisor::ask(&args.link, fleet.as_ref().map(|fleet| fleet.hash)));
    if let Some(((fleet, me), node)) = fleet.as_ref().zip(me.as_ref()).zip(node) {
        workers(me, node, &mut findings);
        findings.extend(parts::probe(fleet, me, &args.key_dir));
    }
    if let Some(fleet) = &fleet
        && let Ok(url) = redis::url(fleet, &args.fleet)
    {
        findings.extend(parts::redis(&url));
        findings.extend(lanes::look(fleet, &url));
    }
    findings.push(host::journal(Path::new("/var/log/journal")));
    let etc = args.fleet.parent().unwrap_or(Path::new("/etc/keyholder"));
    findings.push(host::alert_hook(&etc.join("alert"), rights::hook_user));
    findings.extend(me.as_ref().and_then(|me| rights::sudo(etc, me, Path::new(SUDOERS))));
    let mut dirs = vec![etc, Path::new("/etc/systemd/system/keyholder.socket.d")];
    if args.key_dir != etc {
        dirs.push(&args.key_dir);
    }
    findings.extend(host::leftovers(&dirs));
    findings
}

fn fleet(path: &Path, findings: &mut Vec<Finding>) -> Option<Fleet> {
    match parts::fleet(path) {
        Ok((fleet, warnings)) => {
            let (nodes, hash) = (fleet.nodes.len(), fleet.hash);
            findings
                .push(Finding::ok("fleet", format!("{} is valid: {nodes} nodes, {hash}", path.display())));
            findings.extend(warnings.into_iter().map(|warning| Finding::warn("fleet", warning)));
            Some(fleet)
        }
        Err(problems) => {
            findings.extend(problems.into_iter().map(|problem| Finding::fail("fleet", problem)));
            None
        }
    }
}

fn me(given: Option<&NodeName>, fleet: Option<&Fleet>, findings: &mut Vec<Finding>) -> Option<NodeName> {
    let me = match parts::whoami(given) {
        Ok(me) => me,
        Err(error) => {
            findings.push(Finding::fail("node", format!("{error:#}")));
            return None;
        }
    };
    findings.push(match fleet.map(|fleet| fleet.nodes.get(&me)) {
        Some(Some(node)) if node.disabled => {
            Finding::fail("node", format!("{me} is disabled in the fleet file: no peer accepts it"))
                .way_out("take `disabled: true` away, on every node, and reload")
        }
        Some(Some(node)) if node.watched_by.is_empty() => Finding::warn(
            "node",
            format!("this is {me}, and nobody watches it: a dead supervisor stays unseen"),
        )
        .way_out("name a peer in its watched_by"),
        Some(Some(node)) => {
            let watchers: Vec<_> = node.watched_by.iter().map(NodeName::as_str).collect();
            Finding::ok("node", format!("this is {me}, watched by {}", watchers.join(", ")))
        }
        Some(None) => {
            let known: Vec<_> =
                fleet.into_iter().flat_map(|fleet| fleet.nodes.keys()).map(NodeName::as_str).collect();
            Finding::fail("node", format!("this is {me}, and the fleet file does not know it")).way_out(
                format!(
                    "write one of {} into /etc/keyholder/node, or add {me} to the fleet file",
                    known.join(", ")
                ),
            )
        }
        None => {
            Finding::warn("node", format!("this is {me}; whether the fleet file knows it could not be seen"))
        }
    });
    Some(me)
}

/// Our own units and the sandbox of the running supervisor.
fn ours(node: Option<&Node>, findings: &mut Vec<Finding>) {
    match show::show(units::SOCKET_PROPERTIES, &["keyholder.socket"]) {
        Ok(shown) => findings.extend(
            shown.first().into_iter().flat_map(|shown| units::sockets(shown, node.map(|n| n.address))),
        ),
        Err(error) => findings.push(Finding::fail("socket", with_causes(&error))),
    }
    let pid = match show::show(units::SERVICE_PROPERTIES, &["keyholder.service"]) {
        Ok(shown) => shown.first().and_then(|shown| {
            let (finding, pid) = units::service(shown);
            findings.push(finding);
            pid
        }),
        Err(error) => {
            findings.push(Finding::fail("service", with_causes(&error)));
            None
        }
    };
    if let Some(pid) = pid {
        findings.push(match fs::read_to_string(format!("/proc/{pid}/status")) {
            Ok(status) => units::sandbox(&status),
            Err(error) => {
                Finding::warn("sandbox", format!("could not be checked: /proc/{pid}/status: {error}"))
            }
        });
    }
}

/// The units of a node's workers as PID 1 shows them, in the order of the workers.
fn shown(node: &Node, properties: &str) -> Result<Vec<show::UnitProperties>, Finding> {
    let names: Vec<&str> = node.workers.values().map(|worker| worker.unit.as_str()).collect();
    if names.is_empty() {
        return Ok(Vec::new());
    }
    match show::show(properties, &names) {
        Ok(shown) if shown.len() == names.len() => Ok(shown),
        Ok(shown) => Err(Finding::warn(
            "worker",
            format!("systemctl told of {} units where {} were asked for", shown.len(), names.len()),
        )),
        Err(error) => Err(Finding::fail("worker", with_causes(&error))),
    }
}

/// What the detectors of this node's workers can never see as things are set. Nothing where systemd cannot be asked, which is said
/// by `doctor` itself.
pub(super) fn unseen(me: &NodeName, node: &Node) -> Vec<Finding> {
    let shown = shown(node, senses::PROPERTIES).unwrap_or_default();
    let workers = node.workers.iter().zip(&shown);
    workers.flat_map(|((name, worker), shown)| senses::look(&format!("{me}/{name}"), worker, shown)).collect()
}

fn workers(me: &NodeName, node: &Node, findings: &mut Vec<Finding>) {
    if node.workers.is_empty() {
        findings.push(Finding::warn("worker", "the fleet file names no worker on this node"));
        return;
    }
    let asked = format!("{},{}", units::WORKER_PROPERTIES, senses::PROPERTIES);
    match shown(node, &asked) {
        Ok(shown) => {
            for ((name, worker), shown) in node.workers.iter().zip(&shown) {
                let subject = format!("{me}/{name}");
                findings.extend(units::worker(&subject, worker.unit.as_str(), shown));
                findings.extend(senses::look(&subject, worker, shown));
            }
        }
        Err(finding) => findings.push(finding),
    }
}
