//! `keyholder catalog`: what a node may be asked to do, the sudoers lines for it, and the schema for editors.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use serde_json::{Value, json};

use super::exit::Exit;
use super::problems::ProblemStyle;
use super::screen;
use crate::catalog::{self, Action, Arg, Loaded, Param, sudoers};
use crate::config::{Severity, escape};
use crate::fleet;
use crate::vocabulary::NodeName;

mod table;

/// Show a node's catalog, the sudoers lines it needs, and the schema for editors
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  keyholder catalog show mars\n  keyholder catalog sudoers > /tmp/new && visudo -cf /tmp/new &&\n    install -m 0440 /tmp/new /etc/sudoers.d/keyholder"
)]
pub struct CatalogArgs {
    /// What to do.
    #[command(subcommand)]
    pub what: CatalogCommand,
}

/// What to do with a catalog. What each does is said at its arguments.
#[derive(Debug, clap::Subcommand)]
#[expect(missing_docs, reason = "a variant's documentation would replace that of its arguments in the help")]
pub enum CatalogCommand {
    Show(ShowArgs),
    Sudoers(SudoersArgs),
    Schema(SchemaArgs),
}

/// Which catalog.
#[derive(Debug, Clone, clap::Args)]
pub struct WhichArgs {
    /// A node's name, or a file (with a `/` or ending in .yaml) [default: this node]
    #[arg(value_name = "NODE|FILE")]
    pub which: Option<String>,
    /// Where the nodes' catalogs are, each called catalog_NODE.yaml
    #[arg(long, value_name = "DIR", default_value = "/etc/keyholder")]
    pub catalogs: PathBuf,
}

/// Show what a node may be asked to do
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  keyholder catalog show\n  keyholder catalog show ./catalog_mars.yaml --json"
)]
pub struct ShowArgs {
    /// Which.
    #[command(flatten)]
    pub catalog: WhichArgs,
    /// Answer in JSON
    #[arg(long)]
    pub json: bool,
}

/// Print the sudoers lines that a catalog's write actions need: exact arguments, no patterns
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  keyholder catalog sudoers > /tmp/new && visudo -cf /tmp/new &&\n    install -m 0440 /tmp/new /etc/sudoers.d/keyholder\n  keyholder catalog sudoers --check /etc/sudoers.d/keyholder"
)]
pub struct SudoersArgs {
    /// Which.
    #[command(flatten)]
    pub catalog: WhichArgs,
    /// Print nothing; compare with this file: is every line there, and none too much?
    #[arg(long, value_name = "FILE")]
    pub check: Option<PathBuf>,
}

/// Print the JSON Schema of catalogs, for editors
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  keyholder catalog schema > catalog.schema.json")]
pub struct SchemaArgs {}

/// Carries it out.
///
/// # Errors
/// A node's name that is none or is said nowhere, an output that cannot be written. A catalog that is not good is shown
/// on standard error, and the exit code is 1.
pub fn run(args: CatalogArgs) -> anyhow::Result<ExitCode> {
    let exit = match args.what {
        CatalogCommand::Show(args) => show(&args)?,
        CatalogCommand::Sudoers(args) => print_sudoers(&args)?,
        CatalogCommand::Schema(SchemaArgs {}) => {
            screen::print(&format!("{:#}\n", catalog::schema()))?;
            Exit::Ok
        }
    };
    Ok(exit.into())
}

fn show(args: &ShowArgs) -> anyhow::Result<Exit> {
    let path = args.catalog.path()?;
    let Some(loaded) = load(&path)? else { return Ok(Exit::Failed) };
    if args.json {
        screen::print(&screen::json(&json(&loaded))?)?;
    } else {
        let actions = loaded.catalog.actions.len();
        let head = format!(
            "node {}: {actions} {} in {}\n\n",
            loaded.catalog.node,
            if actions == 1 { "action" } else { "actions" },
            escape(&path.to_string_lossy())
        );
        screen::print(&(head + &table::table(&loaded.catalog, screen::width())))?;
    }
    Ok(Exit::Ok)
}

fn print_sudoers(args: &SudoersArgs) -> anyhow::Result<Exit> {
    let path = args.catalog.path()?;
    let Some(loaded) = load(&path)? else { return Ok(Exit::Failed) };
    let Some(installed) = &args.check else {
        let source = path.file_name().unwrap_or_default().to_string_lossy();
        screen::print(&sudoers::file(&loaded.catalog, &source)?)?;
        return Ok(Exit::Ok);
    };
    match catalog::installed(installed, &loaded.catalog) {
        Ok(()) => {
            let text = format!("{} says what the catalog says\n", escape(&installed.to_string_lossy()));
            screen::print(&text)?;
            Ok(Exit::Ok)
        }
        Err(problems) => {
            tell(&ProblemStyle::of_stderr().show(&problems, Severity::Error))?;
            Ok(Exit::Failed)
        }
    }
}

/// The catalog at `path`; its problems go to standard error, and so do warnings.
fn load(path: &Path) -> anyhow::Result<Option<Loaded>> {
    let look = ProblemStyle::of_stderr();
    match catalog::inspect(&[path], None).into_iter().next().context("the catalog was not looked at")? {
        Ok(loaded) => {
            tell(&look.show(&loaded.warnings, Severity::Warning))?;
            Ok(Some(loaded))
        }
        Err(problems) => {
            tell(&look.show(&problems, Severity::Error))?;
            Ok(None)
        }
    }
}

fn tell(text: &str) -> std::io::Result<()> {
    std::io::stderr().lock().write_all(text.as_bytes())
}

impl WhichArgs {
    /// The file that is meant.
    fn path(&self) -> anyhow::Result<PathBuf> {
        let of_node = |node: NodeName| self.catalogs.join(format!("catalog_{node}.yaml"));
        Ok(match self.which.as_deref() {
            None => of_node(fleet::whoami(None)?),
            Some(file) if file.contains('/') || file.ends_with(".yaml") => file.into(),
            Some(node) => of_node(node.parse()?),
        })
    }
}

/// What a program wants to know.
fn json(loaded: &Loaded) -> Value {
    let actions = loaded.catalog.actions.iter().map(|(name, action)| (name.to_string(), json_of(action)));
    json!({
        "node": loaded.catalog.node,
        "hash": loaded.catalog.hash,
        "actions": actions.collect::<serde_json::Map<_, _>>(),
    })
}

fn json_of(action: &Action) -> Value {
    let millis = |duration: std::time::Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    let params = action.params.iter().map(|(name, param)| {
        let value = match param {
            Param::Enum(values) => json!({ "enum": values }),
            Param::Int { min, max } => json!({ "int": { "min": min, "max": max } }),
        };
        (name.to_string(), value)
    });
    json!({
        "mode": action.mode,
        "description": action.description,
        "argv": action.argv.iter().map(written).collect::<Vec<_>>(),
        "params": params.collect::<serde_json::Map<_, _>>(),
        "timeout_ms": millis(action.timeout),
        "rate": action.rate.map(|rate| json!({ "at_most": rate.at_most, "per_ms": millis(rate.per) })),
        "approval": action.approval,
        "idempotent": action.idempotent,
        "only_here": action.only_here,
    })
}

/// An element of a command as the catalog writes it.
fn written(arg: &Arg) -> String {
    match arg {
        Arg::Literal(text) => text.clone(),
        Arg::Param(name) => format!("{{{name}}}"),
    }
}
