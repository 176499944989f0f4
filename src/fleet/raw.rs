//! The file as it was written: each value checked for itself and still knowing where it stands. What was wrong has been
//! reported and is missing here. How the values fit together is for `validate.rs`.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::time::Duration;

use super::care::{RawCare, care, power};
use super::leaf as own;
use super::model::Right;
use super::redis::redis;
use crate::config::leaf;
use crate::config::report::{At, Located, Report};
use crate::config::walk::{Fields, distinct, entries, items, word};
use crate::config::yaml::{Kind, Value};
use crate::vocabulary::{
    BlastRadius, Mode, NodeName, Pin, Policy, Power, RepairBy, TaskKey, UnitName, WorkerName,
};

/// Bounds that keep a small fleet's file from becoming a large fleet's load: a supervisor's memory and the checks
/// below grow with them.
pub(super) const MAX_NODES: usize = 256;
/// A snapshot of this many workers fits into one frame of the peer protocol.
pub(super) const MAX_WORKERS: usize = 1_000;
/// A grant for each verb between each two of 25 nodes.
pub(super) const MAX_GRANTS: usize = 2_000;

/// One for each person and program that gives tasks; more would be a list of people, which belongs elsewhere.
pub(super) const MAX_TASK_KEYS: usize = 64;

/// What the file as a whole may say.
const FILE: [&str; 7] = ["version", "redis", "task_keys", "approver_keys", "lanes", "nodes", "grants"];

/// What stands in a grant.
const VERBS: &str = "a list of status, relaunch, hold, nudge, repipe, drill, power and prove";

const MS: fn(u64) -> Duration = Duration::from_millis;
const HOUR: u64 = 3_600_000;
const DAY: u64 = 24 * HOUR;

/// The whole file.
#[derive(Debug, Default)]
pub(super) struct RawFleet {
    pub redis: Option<String>,
    /// Whether `redis` is there at all: none and one that cannot be read are two mistakes.
    pub has_redis: bool,
    pub task_keys: Vec<(String, TaskKey)>,
    pub approver_keys: Vec<(String, TaskKey)>,
    pub read_routing: bool,
    pub nodes: Vec<RawNode>,
    pub grants: Vec<RawGrant>,
    /// Whether everything was readable that says who watches and who may do what.
    pub promises_readable: bool,
}

/// One node. `name` is as written, `parsed` is missing if it is not allowed; references to it still find it.
#[derive(Debug)]
pub(super) struct RawNode {
    pub name: Located<String>,
    pub parsed: Option<NodeName>,
    pub address: Option<Located<SocketAddr>>,
    pub pins: Vec<Located<Pin>>,
    /// Whether `pins` is there at all: none and none that is valid are two mistakes.
    pub has_pins: bool,
    pub watched_by: Vec<Located<String>>,
    pub watchers_readable: bool,
    pub disabled: bool,
    pub insecure_unsigned_write: bool,
    /// Where `power` stands, and what it says.
    pub power: Option<Located<Power>>,
    pub workers: Vec<RawWorker>,
}

/// One worker.
#[derive(Debug)]
pub(super) struct RawWorker {
    pub name: Located<String>,
    pub parsed: Option<WorkerName>,
    pub unit: Option<Located<UnitName>>,
    pub lane: Option<Mode>,
    pub blast_radius: BlastRadius,
    pub policy: Policy,
    pub care: RawCare,
    /// Where `repair_by` stands, or the worker's name.
    pub repair_at: At,
}

/// One grant.
#[derive(Debug)]
pub(super) struct RawGrant {
    pub at: At,
    pub from: Option<Located<String>>,
    pub on: Option<Located<String>>,
    pub workers: Option<RawScope>,
    pub verbs: Vec<Located<Right>>,
}

/// Which workers.
#[derive(Debug)]
pub(super) enum RawScope {
    All,
    Only(Vec<Located<String>>),
}

/// Takes the tree apart.
pub(super) fn read(report: &mut Report<'_>, tree: &Value) -> Option<RawFleet> {
    let start = At::START;
    if matches!(tree.kind, Kind::Null) {
        report.error(At::default(), "the file is empty", "expected `version: 1`, `nodes:` and `grants:`");
        return None;
    }
    let fields = Fields::of(report, start, "the file", tree, &FILE)?;
    fields.version(report);
    let redis =
        fields.get("redis").zip(fields.key("redis")).and_then(|(value, key)| redis(report, key, value));
    let mut seen = BTreeMap::new();
    let mut keys = |report: &mut Report<'_>, list: &KeyList| {
        let found = fields.get(list.name).zip(fields.key(list.name));
        found.map(|(value, key)| keys(report, (key, value), list, &mut seen)).unwrap_or_default()
    };
    // One list after the other: a key that is in both is one too many.
    let task_keys = keys(report, &TASK_KEYS);
    let approver_keys = keys(report, &APPROVER_KEYS);
    let read_routing = fields
        .get("lanes")
        .zip(fields.key("lanes"))
        .and_then(|(value, key)| read_routing(report, key, value));
    let nodes = fields.need(report, "nodes", "expected `nodes:` with at least one node below it");
    let nodes = nodes.zip(fields.key("nodes")).map(|(value, key)| read_nodes(report, key, value));
    let before = report.errors();
    let grants =
        fields.get("grants").zip(fields.key("grants")).map(|(value, key)| grants(report, key, value));
    let nodes = nodes?;
    let watchers_readable = nodes.iter().all(|node| node.watchers_readable);
    let promises_readable = watchers_readable && report.errors() == before;
    Some(RawFleet {
        redis,
        has_redis: fields.get("redis").is_some(),
        task_keys,
        approver_keys,
        read_routing: read_routing.unwrap_or_default(),
        nodes,
        grants: grants.unwrap_or_default(),
        promises_readable,
    })
}

/// A list of public keys, each under a name.
struct KeyList {
    name: &'static str,
    /// The option of `keyholder key` that makes and shows them.
    option: &'static str,
    what: &'static str,
}

const TASK_KEYS: KeyList =
    KeyList { name: "task_keys", option: "--task", what: "this is not a key for tasks" };
const APPROVER_KEYS: KeyList =
    KeyList { name: "approver_keys", option: "--approver", what: "this is not an approver's key" };

/// `seen` has the keys of the lists before this one as well: who may give tasks and who may approve them are two questions.
fn keys(
    report: &mut Report<'_>,
    (key, value): (At, &Value),
    list: &KeyList,
    seen: &mut BTreeMap<TaskKey, String>,
) -> Vec<(String, TaskKey)> {
    let (name, option) = (list.name, list.option);
    let Some(all) = entries(report, key, &format!("`{name}`"), value) else { return Vec::new() };
    if all.is_empty() {
        report.error(key, "there is no key here", format!("expected at least one, or no `{name}`"));
    }
    if all.len() > MAX_TASK_KEYS {
        let help = format!("expected at most {MAX_TASK_KEYS}");
        report.error(key, format!("there are {} keys", all.len()), help);
    }
    let mut keys = Vec::new();
    for (name, value) in all.into_iter().take(MAX_TASK_KEYS) {
        // The same names as everything else has: a task names its key, and its text ends up in logs.
        if leaf::name::<WorkerName>(report, name).is_none() {
            continue;
        }
        let Some(given) = word(report, value, &format!("ed25519:…, from `keyholder key show {option}`"))
        else {
            continue;
        };
        let Ok(task_key) = given.value.parse::<TaskKey>() else {
            let help = format!(
                "expected ed25519: and 64 lower-case hexadecimal digits, as `keyholder key show {option}` prints it"
            );
            report.error(given.at, list.what, help);
            continue;
        };
        if let Some(other) = seen.insert(task_key, name.value.clone()) {
            let help = "expected a key of its own for each name: it says who has signed";
            report.error(given.at, format!("`{other}` has the same key"), help);
        }
        keys.push((name.value.clone(), task_key));
    }
    keys
}

fn read_routing(report: &mut Report<'_>, key: At, value: &Value) -> Option<bool> {
    let fields = Fields::of(report, key, "`lanes`", value, &["read_routing"])?;
    fields.get("read_routing").and_then(|value| leaf::boolean(report, value))
}

fn read_nodes(report: &mut Report<'_>, key: At, value: &Value) -> Vec<RawNode> {
    let Some(all) = entries(report, key, "`nodes`", value) else { return Vec::new() };
    if all.is_empty() {
        report.error(key, "there is no node", "expected at least one");
    }
    if all.len() > MAX_NODES {
        report.error(key, format!("there are {} nodes", all.len()), format!("expected at most {MAX_NODES}"));
    }
    all.into_iter().take(MAX_NODES).map(|(name, value)| node(report, name, value)).collect()
}

fn node(report: &mut Report<'_>, name: &Located<String>, value: &Value) -> RawNode {
    let mut node = RawNode {
        parsed: leaf::name(report, name),
        name: name.clone(),
        address: None,
        pins: Vec::new(),
        has_pins: false,
        watched_by: Vec::new(),
        watchers_readable: true,
        disabled: false,
        insecure_unsigned_write: false,
        power: None,
        workers: Vec::new(),
    };
    let what = format!("node `{}`", name.value);
    let known = ["address", "pins", "watched_by", "disabled", "insecure_unsigned_write", "power", "workers"];
    let Some(fields) = Fields::of(report, name.at, what, value, &known) else {
        // Do not complain about what cannot be seen.
        node.has_pins = true;
        node.watchers_readable = false;
        return node;
    };
    node.address = fields
        .need(report, "address", "expected an IP address and a port, such as `address: 192.0.2.40:7433`")
        .and_then(|value| own::address(report, value));
    if let Some((value, key)) = fields.get("pins").zip(fields.key("pins")) {
        node.has_pins = true;
        if let Some(list) =
            items(report, key, value, "[\"sha256:…\"], from `keyholder key show` on that node")
        {
            node.pins = distinct(report, list, "a pin", own::pin);
        }
    }
    if let Some((value, key)) = fields.get("watched_by").zip(fields.key("watched_by")) {
        let before = report.errors();
        if let Some(list) = items(report, key, value, "a list of nodes, or no `watched_by`") {
            node.watched_by = distinct(report, list, "a node's name", |_, word| Some(word.value.clone()));
        }
        node.watchers_readable = report.errors() == before;
    }
    node.disabled = fields.get("disabled").and_then(|value| leaf::boolean(report, value)).unwrap_or_default();
    if let Some(value) = fields.get("insecure_unsigned_write")
        && leaf::boolean(report, value) == Some(true)
    {
        node.insecure_unsigned_write = true;
        report.warn(
            value.at,
            format!("whoever reaches Redis may order what the catalog of node `{}` allows", node.name.value),
            "take it out once every producer signs its tasks (`keyholder run` does)",
        );
    }
    if let Some((value, key)) = fields.get("power").zip(fields.key("power")) {
        node.power = power(report, key, value).map(|value| Located { at: key, value });
    }
    if let Some((value, key)) = fields.get("workers").zip(fields.key("workers")) {
        node.workers = workers(report, key, value);
    }
    node
}

fn workers(report: &mut Report<'_>, key: At, value: &Value) -> Vec<RawWorker> {
    let Some(all) = entries(report, key, "`workers`", value) else { return Vec::new() };
    if all.is_empty() {
        report.error(key, "there is no worker here", "expected at least one, or no `workers`");
    }
    if all.len() > MAX_WORKERS {
        report.error(
            key,
            format!("there are {} workers", all.len()),
            format!("expected at most {MAX_WORKERS}"),
        );
    }
    all.into_iter().take(MAX_WORKERS).map(|(name, value)| worker(report, name, value)).collect()
}

/// Units of Debian's packages that only hold their instances together. Of any other such unit `status` and `doctor` say it.
const HOLLOW: [&str; 2] = ["postgresql.service", "openvpn.service"];

fn worker(report: &mut Report<'_>, name: &Located<String>, value: &Value) -> RawWorker {
    let mut worker = RawWorker {
        parsed: leaf::name(report, name),
        name: name.clone(),
        unit: None,
        lane: None,
        blast_radius: BlastRadius::default(),
        policy: Policy::default(),
        care: RawCare::default(),
        repair_at: name.at,
    };
    let known = [
        "unit",
        "lane",
        "blast_radius",
        "stuck",
        "delivery_gap",
        "repair_by",
        "undeclared_stop",
        "grace",
        "settle",
        "start_timeout",
        "relaunches",
        "per",
        "quarantine_retry",
        "repair_window",
        "rehearse_every",
        "ends",
    ];
    let Some(fields) = Fields::of(report, name.at, format!("worker `{}`", name.value), value, &known) else {
        return worker;
    };
    (worker.unit, worker.lane) = unit(report, name, &fields);
    if let Some(value) = fields.get("blast_radius") {
        use BlastRadius::{Auxiliary, Critical, Normal};
        let words = [("critical", Critical), ("normal", Normal), ("auxiliary", Auxiliary)];
        worker.blast_radius = leaf::one_of(report, value, &words).unwrap_or_default();
    }
    worker.policy = policy(report, &fields);
    if worker.lane.is_some() {
        // A lane starts for as long as its Redis is away, and says so.
        worker.policy.endless = None;
    }
    if let Some(key) = fields.key("repair_window")
        && worker.blast_radius != BlastRadius::Auxiliary
    {
        // What others depend on is repaired at once; a window that is not kept would be a promise of delay.
        let help = "expected `blast_radius: auxiliary` beside it, or no `repair_window`";
        report.error(key, "only an auxiliary worker may be left lying for a while", help);
    }
    worker.care = care(report, &fields, worker.lane, worker.unit.as_ref().map(|unit| &unit.value));
    worker.repair_at = fields.get("repair_by").map_or(name.at, |value| value.at);
    if let Some(unit) = &worker.unit
        && HOLLOW.contains(&unit.value.as_str())
        && !worker.policy.ends_clean
    {
        report.warn(
            unit.at,
            format!("on Debian nothing runs in `{}`: it is active whatever its instances do", unit.value),
            "expected an instance, such as postgresql@15-main.service, or `ends: clean` beside it",
        );
    }
    worker
}

/// The unit, and which lane it is if it was named as one.
fn unit(
    report: &mut Report<'_>,
    name: &Located<String>,
    fields: &Fields<'_>,
) -> (Option<Located<UnitName>>, Option<Mode>) {
    const HELP: &str = "expected either `unit: some.service` or `lane: write` or `lane: read`";
    match (fields.get("unit"), fields.get("lane")) {
        (Some(value), None) => {
            let given = word(report, value, "a service unit, such as ai-agent.service");
            (given.and_then(|given| own::unit(report, &given)), None)
        }
        (None, Some(value)) => {
            let Some(lane) = leaf::one_of(report, value, &[("write", Mode::Write), ("read", Mode::Read)])
            else {
                return (None, None);
            };
            let unit = format!("keyholder-lane-{lane}.service");
            (own::unit(report, &Located { at: value.at, value: unit }), Some(lane))
        }
        (Some(_), Some(lane)) => {
            report.error(lane.at, format!("worker `{}` has both `unit` and `lane`", name.value), HELP);
            (None, None)
        }
        (None, None) => {
            report.error(name.at, format!("worker `{}` has neither `unit` nor `lane`", name.value), HELP);
            (None, None)
        }
    }
}

/// The bounds: nothing shorter than a supervisor can keep, nothing so long that "it will be repaired" is no longer
/// true. A week is the longest absence of an operator that we plan for.
fn policy(report: &mut Report<'_>, fields: &Fields<'_>) -> Policy {
    let default = Policy::default();
    let repair = [("node", RepairBy::Node), ("peer", RepairBy::Peer), ("nobody", RepairBy::Nobody)];
    let repair_by = fields.get("repair_by").and_then(|value| leaf::one_of(report, value, &repair));
    let mut time = |name: &str, default: Duration, bounds: RangeInclusive<u64>| {
        let bounds = MS(*bounds.start())..=MS(*bounds.end());
        fields.get(name).and_then(|value| leaf::duration(report, value, &bounds)).unwrap_or(default)
    };
    let policy = Policy {
        repair_by: repair_by.unwrap_or_default(),
        undeclared_stop: time("undeclared_stop", default.undeclared_stop, 100..=7 * DAY),
        grace: time("grace", default.grace, 100..=HOUR),
        settle: time("settle", default.settle, 100..=HOUR / 6),
        start_timeout: fields
            .get("start_timeout")
            .map(|_| time("start_timeout", Duration::ZERO, 1_000..=HOUR)),
        endless: default.endless,
        relaunches: default.relaunches,
        per: time("per", default.per, 1_000..=7 * DAY),
        quarantine_retry: time("quarantine_retry", default.quarantine_retry, 1_000..=7 * DAY),
        repair_window: time("repair_window", default.repair_window, 0..=7 * DAY),
        rehearse_every: time("rehearse_every", default.rehearse_every, 1_000..=366 * DAY),
        ends_clean: default.ends_clean,
    };
    let relaunches = fields.get("relaunches").and_then(|value| leaf::count(report, value, &(1..=1_000)));
    let ends = fields
        .get("ends")
        .and_then(|value| leaf::one_of(report, value, &[("clean", true), ("never", false)]));
    Policy {
        relaunches: relaunches.unwrap_or(default.relaunches),
        ends_clean: ends.unwrap_or(default.ends_clean),
        ..policy
    }
}

fn grants(report: &mut Report<'_>, key: At, value: &Value) -> Vec<RawGrant> {
    let example =
        "lines such as `- { from: ai-core, on: mars, workers: [\"*\"], verbs: [status, relaunch] }`";
    let Some(all) = items(report, key, value, example) else { return Vec::new() };
    if all.len() > MAX_GRANTS {
        report.error(
            key,
            format!("there are {} grants", all.len()),
            format!("expected at most {MAX_GRANTS}"),
        );
    }
    all.iter().take(MAX_GRANTS).filter_map(|value| grant(report, value)).collect()
}

fn grant(report: &mut Report<'_>, value: &Value) -> Option<RawGrant> {
    let fields = Fields::of(report, value.at, "this grant", value, &["from", "on", "workers", "verbs"])?;
    let from = fields.need(report, "from", "expected the node that may ask");
    let from = from.and_then(|value| word(report, value, "a node's name"));
    let on = fields.need(report, "on", "expected the node that obeys");
    let on = on.and_then(|value| word(report, value, "a node's name"));
    let workers = fields.need(report, "workers", "expected [\"*\"] or a list of that node's workers");
    let workers = workers.zip(fields.key("workers")).and_then(|(value, key)| scope(report, key, value));
    let verbs = fields.need(report, "verbs", &format!("expected {VERBS}"));
    let verbs = verbs.zip(fields.key("verbs")).map(|(value, key)| verbs_of(report, key, value));
    Some(RawGrant { at: value.at, from, on, workers, verbs: verbs.unwrap_or_default() })
}

fn scope(report: &mut Report<'_>, key: At, value: &Value) -> Option<RawScope> {
    let list = items(report, key, value, "[\"*\"] or a list of that node's workers")?;
    let names = distinct(report, list, "a worker's name", |_, word| Some(word.value.clone()));
    let Some(star) = names.iter().find(|name| name.value == "*") else { return Some(RawScope::Only(names)) };
    if names.len() > 1 {
        report.error(star.at, "`*` already means every worker", "keep it alone, or take it out");
    }
    Some(RawScope::All)
}

fn verbs_of(report: &mut Report<'_>, key: At, value: &Value) -> Vec<Located<Right>> {
    let Some(list) = items(report, key, value, VERBS) else { return Vec::new() };
    distinct(report, list, "a verb", |report, word| {
        let found = Right::ALL.into_iter().find(|right| right.name() == word.value);
        if found.is_none() {
            let help = report.did_you_mean(&word.value, Right::ALL.iter().map(|right| right.name()));
            report.error(word.at, "there is no such verb", help);
        }
        found
    })
}
