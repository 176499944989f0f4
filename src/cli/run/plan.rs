//! What is to be done, step by step, and whether every step may be: before the first one is begun. Pure but for the files.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;
use serde_json::Value;

use crate::catalog::{Catalog, Mode, inspect};
use crate::config::report::{Located, Report};
use crate::config::walk::{Fields, entries, items, word};
use crate::config::{Problems, file, yaml};
use crate::fleet::Fleet;
use crate::lane::{Refusal, RefusalCode};
use crate::queue::QueueName;
use crate::vocabulary::{ActionName, NodeName, clipped, printable};

/// The most steps: more than anybody reads before saying yes.
const MAX_STEPS: usize = 100;

/// One step as it is asked for.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct PlanStep {
    pub node: String,
    pub action: String,
    pub params: BTreeMap<String, Value>,
}

/// One step that may be done.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Checked {
    pub node: NodeName,
    pub action: ActionName,
    pub params: BTreeMap<String, Value>,
    /// The lane that it goes to, which is not always that of its mode.
    pub lane: Mode,
    pub timeout: Duration,
    /// Whether a person must approve it.
    pub approval: bool,
}

impl Checked {
    pub(super) fn queue(&self) -> QueueName {
        match self.lane {
            Mode::Read => QueueName::read(&self.node),
            Mode::Write => QueueName::write(&self.node),
        }
    }
}

/// Why nothing of it is done: every step that may not be, at once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, thiserror::Error)]
pub struct PlanRefused {
    /// The steps.
    pub refused: Vec<StepRefused>,
    /// A node whose catalog does not have what it was to do.
    #[serde(skip)]
    pub unknown_on: Option<NodeName>,
}

/// One step that may not be done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StepRefused {
    /// Which, from 0.
    pub step: usize,
    /// Why.
    #[serde(flatten)]
    pub refusal: Refusal,
}

impl fmt::Display for PlanRefused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, StepRefused { step, refusal }) in self.refused.iter().enumerate() {
            let separator = if n > 0 { "; " } else { "" };
            write!(f, "{separator}step[{step}]: {refusal}")?;
        }
        match &self.unknown_on {
            Some(node) => write!(f, "; what there is: keyholder catalog show {node}"),
            None => Ok(()),
        }
    }
}

/// A node's catalog cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("the catalog of {node} cannot be used")]
pub struct CatalogTrouble {
    node: NodeName,
    #[source]
    problems: Problems,
}

/// A step's node is none.
#[derive(Debug, thiserror::Error)]
#[error("{step}no node '{node}' in the fleet file, which knows {known}")]
pub struct NoSuchNode {
    step: String,
    node: String,
    known: String,
}

impl NoSuchNode {
    pub(super) fn new(step: Option<usize>, node: &str, fleet: &Fleet) -> Self {
        Self {
            step: step.map(|step| format!("step[{step}]: ")).unwrap_or_default(),
            node: clipped(&printable(node), 80).into_owned(),
            known: fleet.nodes.keys().map(NodeName::as_str).collect::<Vec<_>>().join(", "),
        }
    }
}

/// The catalogs that lie beside a fleet file, each read when it is asked for.
#[derive(Debug)]
pub(super) struct Catalogs {
    dir: PathBuf,
    read: BTreeMap<NodeName, Catalog>,
}

impl Catalogs {
    pub(super) fn beside(fleet: &Path) -> Self {
        let dir = fleet.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
        Self { dir: dir.to_owned(), read: BTreeMap::new() }
    }

    fn of(&mut self, node: &NodeName) -> Result<&Catalog, CatalogTrouble> {
        if !self.read.contains_key(node) {
            let path = self.dir.join(format!("catalog_{node}.yaml"));
            let loaded =
                inspect(&[path], None).into_iter().next().unwrap_or_else(|| Err(Problems::default()));
            let loaded = loaded.map_err(|problems| CatalogTrouble { node: node.clone(), problems })?;
            self.read.insert(node.clone(), loaded.catalog);
        }
        self.read
            .get(node)
            .ok_or_else(|| CatalogTrouble { node: node.clone(), problems: Problems::default() })
    }
}

/// Checks every step against its node's catalog and says where each goes.
///
/// # Errors
/// [`PlanRefused`], [`NoSuchNode`] or [`CatalogTrouble`]; no task has been submitted then.
pub(super) fn check(
    steps: Vec<PlanStep>,
    fleet: &Fleet,
    catalogs: &mut Catalogs,
) -> anyhow::Result<Vec<Checked>> {
    let (mut checked, mut refused, mut unknown_on) = (Vec::new(), Vec::new(), None);
    for (n, step) in steps.into_iter().enumerate() {
        let known = step.node.parse::<NodeName>().ok().filter(|node| fleet.nodes.contains_key(node));
        let Some(node) = known else {
            return Err(NoSuchNode::new(Some(n), &step.node, fleet).into());
        };
        match one(step, &node, catalogs.of(&node)?, fleet.lanes.read_routing) {
            Ok(step) => checked.push(step),
            Err(refusal) => {
                if refusal.code == RefusalCode::UnknownAction {
                    unknown_on.get_or_insert(node);
                }
                refused.push(StepRefused { step: n, refusal });
            }
        }
    }
    if refused.is_empty() { Ok(checked) } else { Err(PlanRefused { refused, unknown_on }.into()) }
}

fn one(step: PlanStep, node: &NodeName, catalog: &Catalog, read_routing: bool) -> Result<Checked, Refusal> {
    let found = step.action.parse::<ActionName>().ok();
    let Some((name, action)) = found.and_then(|name| Some((name.clone(), catalog.actions.get(&name)?)))
    else {
        let why = format!("'{}' on {node}", clipped(&printable(&step.action), 80));
        return Err(Refusal::new(RefusalCode::UnknownAction, why));
    };
    action.argv(&step.params).map_err(|why| Refusal::new(RefusalCode::BadParam, why))?;
    let lane = match action.mode {
        Mode::Read if read_routing => Mode::Read,
        Mode::Read | Mode::Write => Mode::Write,
    };
    Ok(Checked {
        node: node.clone(),
        action: name,
        params: step.params,
        lane,
        timeout: action.timeout,
        approval: action.approval,
    })
}

/// Reads a plan: `{steps: [{node, action, params}]}`, YAML or JSON, and nothing besides.
///
/// # Errors
/// Every problem at once, each with its place.
pub(super) fn parse(name: &str, bytes: &[u8]) -> Result<Vec<PlanStep>, Problems> {
    let (mut report, tree) = file::read(name, bytes)?;
    let steps = tree.and_then(|tree| plan(&mut report, &tree));
    Ok(report.finish_with(steps)?.0)
}

fn plan(report: &mut Report<'_>, tree: &yaml::Value) -> Option<Vec<PlanStep>> {
    let start = crate::config::report::At::START;
    let fields = Fields::of(report, start, "the plan", tree, &["steps"])?;
    let example = "steps such as `- { node: mars, action: service.logs, params: { … } }`";
    let value = fields.need(report, "steps", &format!("expected {example}"))?;
    let all = items(report, fields.key("steps")?, value, example)?;
    if all.len() > MAX_STEPS {
        report.error(
            value.at,
            format!("there are {} steps", all.len()),
            format!("expected at most {MAX_STEPS}"),
        );
        return None;
    }
    all.iter().map(|value| step(report, value)).collect::<Vec<_>>().into_iter().collect()
}

fn step(report: &mut Report<'_>, value: &yaml::Value) -> Option<PlanStep> {
    let fields = Fields::of(report, value.at, "this step", value, &["node", "action", "params"])?;
    let node = fields.need(report, "node", "expected the node's name");
    let node = node.and_then(|value| word(report, value, "a node's name"));
    let action = fields.need(report, "action", "expected an action of the node's catalog");
    let action = action.and_then(|value| word(report, value, "an action's name"));
    let params = match fields.get("params").zip(fields.key("params")) {
        None => Some(BTreeMap::new()),
        Some((value, key)) => entries(report, key, "`params`", value).and_then(|all| {
            let params = all.into_iter().map(|(name, value)| {
                let text: Located<String> = word(report, value, "a value")?;
                Some((name.value.clone(), Value::String(text.value)))
            });
            params.collect::<Vec<_>>().into_iter().collect()
        }),
    };
    Some(PlanStep { node: node?.value, action: action?.value, params: params? })
}

/// `name=value` of the command line.
pub(super) fn param(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        Some(_) | None => Err("expected NAME=VALUE".to_owned()),
    }
}

/// The parameters of the command line, none of them twice.
pub(super) fn params(given: &[(String, String)]) -> anyhow::Result<BTreeMap<String, Value>> {
    let mut params = BTreeMap::new();
    for (name, value) in given {
        if params.insert(name.clone(), Value::String(value.clone())).is_some() {
            anyhow::bail!("parameter {} is given twice", clipped(&printable(name), 80));
        }
    }
    Ok(params)
}

#[cfg(test)]
mod tests;
