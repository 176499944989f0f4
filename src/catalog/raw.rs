//! The file as it was written: each value checked for itself and still knowing where it stands. What was wrong has been
//! reported and is missing here. How the values fit together is for `validate.rs`.

use std::ops::RangeInclusive;
use std::time::Duration;

use super::leaf as own;
use super::model::{Arg, DEFAULT_TIMEOUT, Mode, Param, Rate};
use crate::config::leaf;
use crate::config::report::{At, Located, Report};
use crate::config::walk::{Fields, distinct, entries, items, word};
use crate::config::yaml::{Kind, Value};
use crate::vocabulary::{ActionName, NodeName, ParamName};

/// The settings of a file, …
pub(super) const FILE: [&str; 3] = ["version", "node", "actions"];
/// … of an action, …
pub(super) const ACTION: [&str; 9] =
    ["mode", "description", "argv", "params", "timeout", "rate", "approval", "idempotent", "only_here"];
/// … of a parameter, one of the two, …
pub(super) const PARAM: [&str; 2] = ["enum", "int"];
/// … of a range …
pub(super) const INT: [&str; 2] = ["min", "max"];
/// … and of a rate.
pub(super) const RATE: [&str; 2] = ["at_most", "per"];

/// The words for `approval`.
pub(super) const APPROVAL: [(&str, bool); 2] = [("required", true), ("none", false)];
/// The words for `mode`.
pub(super) const MODE: [(&str, Mode); 2] = [("read", Mode::Read), ("write", Mode::Write)];

/// A planner, human or not, has to choose from all of them.
pub(super) const MAX_ACTIONS: usize = 256;
/// Elements of a command.
pub(super) const MAX_ARGV: usize = 32;
/// Parameters of an action.
pub(super) const MAX_PARAMS: usize = 8;
/// Values of an enum.
pub(super) const MAX_VALUES: usize = 128;
/// Shorter than any useful command; as long as the longest upgrade that somebody waits for.
pub(super) const TIMEOUT: RangeInclusive<Duration> =
    Duration::from_millis(100)..=Duration::from_secs(6 * 3600);
/// The lane remembers each run for as long as this.
pub(super) const PER: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(7 * 86_400);
/// … and therefore not too many of them.
pub(super) const AT_MOST: RangeInclusive<u32> = 1..=10_000;

/// The whole file.
#[derive(Debug)]
pub(super) struct RawCatalog {
    pub node: Option<Located<NodeName>>,
    pub actions: Vec<RawAction>,
}

/// One action. `name` is as written, `parsed` is missing if it is not allowed.
#[derive(Debug)]
pub(super) struct RawAction {
    pub name: Located<String>,
    pub parsed: Option<ActionName>,
    pub mode: Option<Located<Mode>>,
    pub description: String,
    pub argv: Vec<Located<Arg>>,
    pub params: Vec<RawParam>,
    /// Whether all of `argv` and `params` could be read, so that what is missing in one is missing indeed.
    pub readable: bool,
    pub timeout: Duration,
    pub rate: Option<Rate>,
    pub approval: bool,
    pub idempotent: bool,
    /// Where it says `only_here: true`.
    pub only_here: Option<At>,
}

/// One parameter.
#[derive(Debug)]
pub(super) struct RawParam {
    pub name: Located<String>,
    pub parsed: Option<ParamName>,
    pub param: Option<Param>,
    /// Where the values of its enum stand, in the order of the enum.
    pub places: Vec<At>,
}

/// Takes the tree apart.
pub(super) fn read(report: &mut Report<'_>, tree: &Value) -> Option<RawCatalog> {
    if matches!(tree.kind, Kind::Null) {
        report.error(At::default(), "the file is empty", "expected `version: 1`, `node:` and `actions:`");
        return None;
    }
    let fields = Fields::of(report, At::START, "the file", tree, &FILE)?;
    fields.version(report);
    let node = fields.need(report, "node", "expected the node whose lanes serve this catalog");
    let node = node.and_then(|value| word(report, value, "a node's name"));
    let node = node.and_then(|given| Some(Located { at: given.at, value: leaf::name(report, &given)? }));
    let value = fields.need(report, "actions", "expected `actions:` with at least one action below it");
    let actions = value.zip(fields.key("actions")).map(|(value, key)| actions(report, key, value));
    Some(RawCatalog { node, actions: actions? })
}

fn actions(report: &mut Report<'_>, key: At, value: &Value) -> Vec<RawAction> {
    let Some(all) = entries(report, key, "`actions`", value) else { return Vec::new() };
    if all.is_empty() {
        report.error(key, "there is no action", "expected at least one");
    }
    if all.len() > MAX_ACTIONS {
        let message = format!("there are {} actions", all.len());
        report.error(key, message, format!("expected at most {MAX_ACTIONS}"));
    }
    all.into_iter().take(MAX_ACTIONS).map(|(name, value)| action(report, name, value)).collect()
}

fn action(report: &mut Report<'_>, name: &Located<String>, value: &Value) -> RawAction {
    let mut action = RawAction {
        parsed: leaf::name(report, name),
        name: name.clone(),
        mode: None,
        description: String::new(),
        argv: Vec::new(),
        params: Vec::new(),
        readable: false,
        timeout: DEFAULT_TIMEOUT,
        rate: None,
        approval: false,
        idempotent: false,
        only_here: None,
    };
    let what = format!("action `{}`", name.value);
    let Some(fields) = Fields::of(report, name.at, what, value, &ACTION) else { return action };
    if let Some(value) = fields.need(report, "mode", "expected `mode: read` or `mode: write`") {
        let mode = leaf::one_of(report, value, &MODE);
        action.mode = mode.map(|mode| Located { at: value.at, value: mode });
    }
    let description = fields.get("description").and_then(|value| own::description(report, value));
    action.description = description.unwrap_or_default();
    let before = report.errors();
    let argv = fields.need(report, "argv", "expected `argv: [/path/of/the/command, argument, …]`");
    if let Some((value, key)) = argv.zip(fields.key("argv")) {
        action.argv = command(report, key, value);
    }
    if let Some((value, key)) = fields.get("params").zip(fields.key("params")) {
        action.params = params(report, key, value);
    }
    action.readable = report.errors() == before;
    let timeout = fields.get("timeout").and_then(|value| leaf::duration(report, value, &TIMEOUT));
    action.timeout = timeout.unwrap_or(DEFAULT_TIMEOUT);
    action.rate =
        fields.get("rate").zip(fields.key("rate")).and_then(|(value, key)| rate(report, key, value));
    let approval = fields.get("approval").and_then(|value| leaf::one_of(report, value, &APPROVAL));
    action.approval = approval.unwrap_or_default();
    let idempotent = fields.get("idempotent").and_then(|value| leaf::boolean(report, value));
    action.idempotent = idempotent.unwrap_or_default();
    if let Some((value, key)) = fields.get("only_here").zip(fields.key("only_here")) {
        action.only_here = leaf::boolean(report, value).filter(|only| *only).map(|_| key);
    }
    action
}

fn command(report: &mut Report<'_>, key: At, value: &Value) -> Vec<Located<Arg>> {
    let Some(list) = items(report, key, value, "[/path/of/the/command, argument, …]") else {
        return Vec::new();
    };
    if list.len() > MAX_ARGV {
        let message = format!("this command has {} elements", list.len());
        report.error(value.at, message, format!("expected at most {MAX_ARGV}"));
    }
    list.iter().take(MAX_ARGV).filter_map(|value| own::argument(report, value)).collect()
}

fn params(report: &mut Report<'_>, key: At, value: &Value) -> Vec<RawParam> {
    let Some(all) = entries(report, key, "`params`", value) else { return Vec::new() };
    if all.is_empty() {
        report.error(key, "there is no parameter here", "expected at least one, or no `params`");
    }
    if all.len() > MAX_PARAMS {
        let message = format!("there are {} parameters", all.len());
        report.error(key, message, format!("expected at most {MAX_PARAMS}"));
    }
    all.into_iter().take(MAX_PARAMS).map(|(name, value)| param(report, name, value)).collect()
}

fn param(report: &mut Report<'_>, name: &Located<String>, value: &Value) -> RawParam {
    const HELP: &str = "expected either `enum: [value, …]` or `int: { min: 1, max: 100 }`";
    let mut param =
        RawParam { parsed: leaf::name(report, name), name: name.clone(), param: None, places: Vec::new() };
    let what = format!("parameter `{}`", name.value);
    let Some(fields) = Fields::of(report, name.at, &what, value, &PARAM) else { return param };
    match (fields.get("enum").zip(fields.key("enum")), fields.get("int").zip(fields.key("int"))) {
        (Some((value, key)), None) => {
            let values = choices(report, key, value);
            param.places = values.iter().map(|value| value.at).collect();
            let values: Vec<String> = values.into_iter().map(|value| value.value).collect();
            param.param = (!values.is_empty()).then_some(Param::Enum(values));
        }
        (None, Some((value, key))) => param.param = int(report, key, value),
        (Some(_), Some((_, key))) => report.error(key, format!("{what} has both `enum` and `int`"), HELP),
        (None, None) => report.error(name.at, format!("{what} has neither `enum` nor `int`"), HELP),
    }
    param
}

fn choices(report: &mut Report<'_>, key: At, value: &Value) -> Vec<Located<String>> {
    let Some(list) = items(report, key, value, "the allowed values, such as [one, two]") else {
        return Vec::new();
    };
    if list.len() > MAX_VALUES {
        let message = format!("there are {} values", list.len());
        report.error(value.at, message, format!("expected at most {MAX_VALUES}"));
    }
    let list = list.get(..MAX_VALUES).unwrap_or(list);
    distinct(report, list, "a value", own::choice)
}

fn int(report: &mut Report<'_>, key: At, value: &Value) -> Option<Param> {
    let fields = Fields::of(report, key, "`int`", value, &INT)?;
    let mut bound = |name: &str| {
        let value = fields.need(report, name, "expected { min: 1, max: 100 } or the like")?;
        Some((value.at, leaf::count(report, value, &(0..=u32::MAX))?))
    };
    let (min, max) = (bound("min"), bound("max"));
    let ((_, min), (at, max)) = (min?, max?);
    if min > max {
        report.error(
            at,
            format!("no number is from {min} to {max}"),
            "expected a `max` that is not below `min`",
        );
        return None;
    }
    Some(Param::Int { min, max })
}

fn rate(report: &mut Report<'_>, key: At, value: &Value) -> Option<Rate> {
    let fields = Fields::of(report, key, "`rate`", value, &RATE)?;
    let at_most = fields.need(report, "at_most", "expected { at_most: 3, per: 1h } or the like");
    let at_most = at_most.and_then(|value| leaf::count(report, value, &AT_MOST));
    let per = fields.need(report, "per", "expected { at_most: 3, per: 1h } or the like");
    let per = per.and_then(|value| leaf::duration(report, value, &PER));
    Some(Rate { at_most: at_most?, per: per? })
}
