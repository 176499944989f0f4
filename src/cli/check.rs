//! `keyholder check`: are the fleet file and the catalogs good, alone and together, and is this node in the fleet? It reads
//! files and, on a node itself, asks systemd about the units that the file names; no network.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use comfy_table::{Table, presets};
use serde::Serialize;

use super::doctor::{self, Finding};
use super::problems::ProblemStyle;
use crate::fleet::{
    self, Fleet, Grant, Loaded, Node, Problem, Problems, Right, Scope, Severity, WhoamiError, escape,
};
use crate::vocabulary::{NodeName, with_causes};
use catalogs::{CatalogReport, Catalogs};

mod alike;
mod catalogs;

/// Check the fleet file, this node's place in it, and the catalogs; touches nothing, no network
#[derive(Debug, Clone, Args)]
pub struct CheckArgs {
    /// The fleet file
    #[arg(long, value_name = "FILE", default_value = "/etc/keyholder/fleet.yaml")]
    pub fleet: PathBuf,
    /// Where the catalogs are, each called catalog_NODE.yaml; there may be none [default: where the fleet file is]
    #[arg(long, value_name = "DIR")]
    pub catalogs: Option<PathBuf>,
    /// Leave the catalogs alone: the supervisor runs whatever they say
    #[arg(long, conflicts_with = "catalogs")]
    pub no_catalogs: bool,
    /// What the fleet file calls this node [default: NODE_NAME, else what is in /etc/keyholder/node]
    #[arg(long, value_name = "NAME")]
    pub node: Option<String>,
    /// Answer in JSON on standard output
    #[arg(long)]
    pub json: bool,
    /// Say nothing unless something is wrong
    #[arg(short, long)]
    pub quiet: bool,
}

/// The file is good.
const GOOD: u8 = 0;
/// The file, or this node's place in it, is not.
const BAD: u8 = 1;
/// The command line is not, as clap has it.
const USAGE: u8 = 2;

/// Checks the file and prints what it found: a summary on standard output, problems and warnings on standard error.
///
/// Exit code 0 if the file is good (warnings included), 1 if it is not, 2 if the command line is wrong.
///
/// # Errors
/// Only if the output cannot be written.
pub fn run(args: CheckArgs) -> anyhow::Result<ExitCode> {
    let (mut out, mut err) = (io::stdout().lock(), io::stderr().lock());
    let me = fleet::whoami(args.node.as_deref());
    // A name on the command line is mostly of another host; and a supervisor that starts must not wait for PID 1.
    let senses = |me: &NodeName, node: &Node| {
        if args.node.is_some() || args.quiet { Vec::new() } else { doctor::unseen(me, node) }
    };
    let code = check(&args, me, senses, ProblemStyle::of_stderr(), &mut out, &mut err)?;
    Ok(ExitCode::from(code))
}

fn check(
    args: &CheckArgs,
    me: Result<NodeName, WhoamiError>,
    senses: impl Fn(&NodeName, &Node) -> Vec<Finding>,
    look: ProblemStyle,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> io::Result<u8> {
    let file = args.fleet.to_string_lossy();
    let (me, unnamed) = match me {
        Ok(name) => (Some(name), None),
        Err(WhoamiError::NotSaid(_)) => (None, None),
        Err(error) if args.node.is_some() => {
            writeln!(err, "error: {}", escape(&with_causes(&error)))?;
            return Ok(USAGE);
        }
        Err(error) => (None, Some(with_causes(&error))),
    };
    let result = Fleet::load(&args.fleet);
    let result = match unnamed {
        Some(why) => Err(result.err().unwrap_or_default().and_first(&file, &why, "")),
        None => place(result, me.as_ref(), &file),
    };
    let known = result.as_ref().ok().map(|loaded| loaded.fleet.nodes.keys().cloned().collect());
    let catalogs = Catalogs::of(args, known.as_ref());
    let result = result.map(|loaded| {
        let loaded = catalogs.unapprovable(catalogs.missed(loaded, me.as_ref(), &file), &file);
        let mut loaded = alike::told(loaded, &file);
        let node = me.as_ref().and_then(|me| loaded.fleet.nodes.get_key_value(me));
        for finding in node.map(|(me, node)| senses(me, node)).unwrap_or_default().into_iter().rev() {
            let help = finding.way_out.unwrap_or_default();
            loaded.warnings = loaded.warnings.and_first(&file, &finding.text, &help);
        }
        loaded
    });
    let code = if result.is_ok() && catalogs.good() { GOOD } else { BAD };
    if args.json {
        serde_json::to_writer_pretty(&mut *out, &CheckReport::of(&file, me.as_ref(), &result, &catalogs))?;
        writeln!(out)?;
        return Ok(code);
    }
    match &result {
        Err(problems) => {
            write!(err, "{}", look.show(problems, Severity::Error))?;
            writeln!(err, "{} is not good: {}", escape(&file), count(problems.len(), "problem"))?;
        }
        Ok(_) if args.quiet => {}
        Ok(loaded) => write!(err, "{}", look.show(&loaded.warnings, Severity::Warning))?,
    }
    catalogs.tell(look, args.quiet, err)?;
    if let (GOOD, false, Ok(loaded)) = (code, args.quiet, &result) {
        write!(out, "{}{}", summary(&file, me.as_ref(), loaded), catalogs.summary())?;
    }
    Ok(code)
}

/// Whether this node is in the file.
fn place(result: Result<Loaded, Problems>, me: Option<&NodeName>, file: &str) -> Result<Loaded, Problems> {
    let mut loaded = result?;
    let Some(me) = me else { return Ok(loaded) };
    match loaded.fleet.nodes.get(me) {
        Some(node) if node.disabled => {
            let message = format!("this node, `{me}`, is disabled: its peers refuse it");
            loaded.warnings =
                loaded.warnings.and_first(file, &message, "take out `disabled: true` to bring it back");
            Ok(loaded)
        }
        Some(_) => Ok(loaded),
        None => {
            let names = loaded.fleet.nodes.keys().map(NodeName::as_str);
            let help = fleet::did_you_mean(me.as_str(), names);
            Err(Problems::default().and_first(file, &format!("this node, `{me}`, is not in the file"), &help))
        }
    }
}

/// What a program wants to know.
#[derive(Debug, Serialize)]
struct CheckReport<'a> {
    ok: bool,
    file: String,
    node: Option<&'a NodeName>,
    /// Where this node's door listens.
    address: Option<SocketAddr>,
    hash: Option<String>,
    nodes: usize,
    workers: usize,
    grants: usize,
    problems: Vec<&'a Problem>,
    warnings: Vec<&'a Problem>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    catalogs: Vec<CatalogReport<'a>>,
}

impl<'a> CheckReport<'a> {
    fn of(
        file: &str,
        node: Option<&'a NodeName>,
        result: &'a Result<Loaded, Problems>,
        catalogs: &'a Catalogs,
    ) -> Self {
        let fleet = result.as_ref().ok().map(|loaded| &loaded.fleet);
        Self {
            ok: result.is_ok() && catalogs.good(),
            file: escape(file),
            node,
            address: fleet.zip(node).and_then(|(fleet, me)| fleet.nodes.get(me)).map(|own| own.address),
            hash: fleet.map(|fleet| fleet.hash.to_string()),
            nodes: fleet.map_or(0, |fleet| fleet.nodes.len()),
            workers: fleet.map_or(0, workers),
            grants: fleet.map_or(0, |fleet| fleet.grants.len()),
            problems: result.as_ref().err().map(|problems| problems.iter().collect()).unwrap_or_default(),
            warnings: result.as_ref().map(|loaded| loaded.warnings.iter().collect()).unwrap_or_default(),
            catalogs: catalogs.reports(),
        }
    }
}

fn workers(fleet: &Fleet) -> usize {
    fleet.nodes.values().map(|node| node.workers.len()).sum()
}

fn count(n: usize, what: &str) -> String {
    if n == 1 { format!("1 {what}") } else { format!("{n} {what}s") }
}

/// What the file says, for a person who wants to see at a glance that it says what was meant.
fn summary(file: &str, me: Option<&NodeName>, loaded: &Loaded) -> String {
    let fleet = &loaded.fleet;
    let counts = [
        count(fleet.nodes.len(), "node"),
        count(workers(fleet), "worker"),
        count(fleet.grants.len(), "grant"),
        count(loaded.warnings.len(), "warning"),
    ];
    let mut nodes = table(["", "node", "address", "watched by", "workers"]);
    for (name, node) in &fleet.nodes {
        let mark = if me == Some(name) { "*" } else { "" };
        let name = if node.disabled { format!("{name} (disabled)") } else { name.to_string() };
        nodes.add_row([
            mark,
            &name,
            &node.address.to_string(),
            &list(&node.watched_by),
            &list(node.workers.keys()),
        ]);
    }
    let mut grants = table(["", "peer", "may", "on", "workers"]);
    for grant in &fleet.grants {
        grants.add_row(["", grant.from.as_str(), &rights(&grant.rights), grant.on.as_str(), &scope(grant)]);
    }
    let here = me.map_or_else(
        || format!("not said here (--node, {} or {})", fleet::NODE_VARIABLE, fleet::NODE_FILE),
        |me| format!("{me} (*)"),
    );
    let grants = if fleet.grants.is_empty() {
        "  no grants: no peer may do anything".to_owned()
    } else {
        lines(&grants)
    };
    format!(
        "{} is good: {}\n\n{}\n\n{grants}\n\n  this node  {here}\n  hash       {}\n",
        escape(file),
        counts.join(", "),
        lines(&nodes),
        fleet.hash
    )
}

fn table<const N: usize>(header: [&str; N]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(header.map(str::to_uppercase));
    table
}

/// Without the blanks that fill the last column.
fn lines(table: &Table) -> String {
    table.lines().map(|line| line.trim_end().to_owned()).collect::<Vec<_>>().join("\n")
}

fn list<T: std::fmt::Display>(items: impl IntoIterator<Item = T>) -> String {
    let items: Vec<String> = items.into_iter().map(|item| item.to_string()).collect();
    if items.is_empty() { "-".to_owned() } else { items.join(", ") }
}

fn rights(rights: &BTreeSet<Right>) -> String {
    list(rights.iter().map(|right| right.name()))
}

fn scope(grant: &Grant) -> String {
    match &grant.workers {
        Scope::All => "all".to_owned(),
        Scope::Only(names) => list(names),
    }
}

#[cfg(test)]
mod tests;
