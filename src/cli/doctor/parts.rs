//! What the examination asks of the other parts of keyholder other than through the socket, a function for each.

use std::path::Path;
use std::time::Duration;

use super::finding::Finding;
use crate::cli::key;
use crate::fleet::{self, Fleet};
use crate::peer::identity::{Identity, KEY_FILE};
use crate::queue::{self, Level};
use crate::vocabulary::{NodeName, Pin};

/// How long the Redis of the lanes may take for all questions together.
const REDIS_DEADLINE: Duration = Duration::from_secs(5);

/// The fleet file at `path`, and what somebody should know about it.
///
/// # Errors
/// It cannot be read or is not valid: every problem at once.
pub(super) fn fleet(path: &Path) -> Result<(Fleet, Vec<String>), Vec<String>> {
    let texts = |problems: &fleet::Problems| problems.iter().map(ToString::to_string).collect();
    match Fleet::load(path) {
        Ok(loaded) => Ok((loaded.fleet, texts(&loaded.warnings))),
        Err(problems) => Err(texts(&problems)),
    }
}

/// What this node is called.
///
/// # Errors
/// It is said nowhere, or what is said is no name.
pub(super) fn whoami(given: Option<&NodeName>) -> anyhow::Result<NodeName> {
    Ok(fleet::whoami(given.map(NodeName::as_str))?)
}

/// The pin of the key in `dir`.
///
/// # Errors
/// It is not there, cannot be read, or others could read it.
pub(super) fn pin(dir: &Path) -> anyhow::Result<Pin> {
    Ok(Identity::load(&dir.join(KEY_FILE))?.pin())
}

/// Whether each peer can be reached, accepts us and is the one that the fleet file means.
pub(super) fn probe(fleet: &Fleet, me: &NodeName, key_dir: &Path) -> Vec<Finding> {
    // A key that cannot be used has its own finding already.
    let Ok(identity) = Identity::load(&key_dir.join(KEY_FILE)) else { return Vec::new() };
    let others = fleet.nodes.iter().filter(|(name, node)| *name != me && !node.disabled);
    let others: Vec<NodeName> = others.map(|(name, _)| name.clone()).collect();
    match key::probe(fleet, me, &identity, &others) {
        Ok(probes) => probes.iter().map(probed).collect(),
        Err(error) => vec![Finding::warn("peer", format!("could not be tried: {error:#}"))],
    }
}

fn probed(probe: &key::Probe) -> Finding {
    let text = format!("{}: {}", probe.node, probe.said());
    let finding = if probe.passed() { Finding::ok("peer", text) } else { Finding::fail("peer", text) };
    match probe.way_out() {
        Some(way_out) => finding.way_out(way_out),
        None => finding,
    }
}

/// Whether the lanes' Redis is there and fit for it. No relaunch needs it, the lanes do.
pub(super) fn redis(url: &str) -> Vec<Finding> {
    let asked = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map(|runtime| runtime.block_on(queue::preflight(url, REDIS_DEADLINE)));
    match asked {
        Ok(Ok(found)) => found
            .into_iter()
            .map(|found| match found.level {
                Level::Ok => Finding::ok("redis", found.text),
                Level::Warn => Finding::warn("redis", found.text),
                Level::Error => Finding::fail("redis", found.text),
            })
            .collect(),
        Ok(Err(error)) => vec![Finding::fail("redis", format!("{:#}", anyhow::Error::new(error)))],
        Err(error) => vec![Finding::warn("redis", format!("could not be checked: {error}"))],
    }
}
