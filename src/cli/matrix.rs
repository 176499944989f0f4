//! `keyholder matrix`: the table without blanks, from the fleet file and from what the supervisor knows of rehearsals.

mod show;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde::Serialize;

use super::ask::whole_fleet;
use super::exit::Exit;
use super::link::{LinkArgs, LinkError};
use super::problems;
use super::screen::{self, ColorArgs};
use super::subject::Subject;
use crate::fleet::matrix::{self, Matrix, MatrixCell, Rehearsals, Source};
use crate::fleet::{Fleet, Severity};
use crate::peer::wire::{NodeReport, NodeState};
use crate::vocabulary::{FleetHash, NodeName, WorkerName};

/// Show, for every worker and node and every way to fall, what sees it, what is done, by whom, and when that was rehearsed
///
/// Where nothing sees it or nothing can be done it says UNHANDLED; no cell is blank. A remedy that no watcher may use, and
/// one that was never rehearsed, is named as well, with the way out.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  keyholder matrix\n  keyholder matrix --strict > /dev/null || echo 'see to it'\n  \
    keyholder matrix --offline catalogs/fleet.yaml --markdown"
)]
pub struct MatrixArgs {
    /// One node, or one worker of it [default: the whole fleet]
    #[arg(value_name = "NODE[/WORKER]")]
    pub subject: Option<Subject>,
    /// Exit with 3 unless every cell is handled, granted to a watcher, and rehearsed in time
    #[arg(long)]
    pub strict: bool,
    /// Answer in JSON on standard output
    #[arg(long)]
    pub json: bool,
    /// Answer as a table in Markdown
    #[arg(long, conflicts_with = "json")]
    pub markdown: bool,
    /// The fleet file
    #[arg(long, value_name = "FILE", default_value = "/etc/keyholder/fleet.yaml")]
    pub fleet: PathBuf,
    /// Read this fleet file and ask nobody: rehearsals are not known then, and --strict does not judge them
    #[arg(long, value_name = "FILE", conflicts_with = "fleet")]
    pub offline: Option<PathBuf>,
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
/// A refusal, an answer that is none, or an output that cannot be written.
pub fn run(args: MatrixArgs) -> anyhow::Result<ExitCode> {
    let path = args.offline.as_ref().unwrap_or(&args.fleet);
    let Some(fleet) = fleet(path) else { return Ok(Exit::Failed.into()) };
    let asked = if args.offline.is_none() { ask(&args.link)? } else { Asked::Nobody };
    let source = match &asked {
        Asked::Nobody => Source::FileAlone,
        Asked::Silent(_) => Source::NobodyAnswered,
        Asked::Supervisor { rehearsals, .. } => Source::Asked(rehearsals),
    };
    let mut matrix = Matrix::of(&fleet, source);
    if let Some(subject) = &args.subject {
        matrix.narrow(&fleet, subject.node(), subject.worker());
        if matrix.rows.is_empty() {
            screen::complain(&no_such(&fleet, subject, path));
            return Ok(Exit::NoSuch.into());
        }
    }
    matrix.notes.extend(asked.note(path, fleet.hash));
    if args.json {
        screen::print(&screen::json(&Report::of(&matrix))?)?;
    } else if args.markdown {
        screen::print(&show::markdown(&matrix))?;
    } else {
        screen::print(&show::text(&matrix, screen::width(), args.color.paint()))?;
    }
    Ok(if args.strict && matrix.open() > 0 { Exit::NotHealthy } else { Exit::Ok }.into())
}

/// What a program wants to know.
#[derive(Debug, Serialize)]
struct Report<'a> {
    /// Whether `--strict` would be content.
    ok: bool,
    /// How many cells somebody has to see to.
    open: usize,
    #[serde(flatten)]
    matrix: &'a Matrix,
}

impl<'a> Report<'a> {
    fn of(matrix: &'a Matrix) -> Self {
        let open = matrix.open();
        Self { ok: open == 0, open, matrix }
    }
}

/// The fleet of the file, its problems and warnings told. The warnings are left to `check`.
fn fleet(path: &Path) -> Option<Fleet> {
    match Fleet::load(path) {
        Ok(loaded) => Some(loaded.fleet),
        Err(problems) => {
            let shown = problems::ProblemStyle::of_stderr().show(&problems, Severity::Error);
            screen::pass_on(shown.trim_end_matches('\n'));
            None
        }
    }
}

/// What came of asking.
#[derive(Debug)]
enum Asked {
    /// Nobody was to be asked.
    Nobody,
    /// Nobody answered, and why.
    Silent(String),
    /// The supervisor here.
    Supervisor {
        /// What it and its peers know.
        rehearsals: Rehearsals,
        /// The fleet file that it runs.
        hash: FleetHash,
    },
}

impl Asked {
    fn note(&self, path: &Path, file: FleetHash) -> Option<String> {
        match self {
            Self::Nobody => Some("Nobody was asked, so when it was rehearsed is not known here.".to_owned()),
            Self::Silent(why) => Some(format!("When it was rehearsed is not known: {why}")),
            Self::Supervisor { hash, .. } if *hash != file => Some(format!(
                "The supervisor runs another fleet file than {}: systemctl reload keyholder",
                path.display()
            )),
            Self::Supervisor { .. } => None,
        }
    }
}

/// Asks the supervisor. A dead one is no reason to show nothing: the file says most of it.
fn ask(link: &LinkArgs) -> anyhow::Result<Asked> {
    let mut link = match link.open() {
        Ok(link) => link,
        Err(
            error @ (LinkError::Absent { .. }
            | LinkError::Forbidden { .. }
            | LinkError::Silent { .. }
            | LinkError::Closed { .. }
            | LinkError::Io { .. }),
        ) => return Ok(Asked::Silent(error.to_string())),
        Err(
            error @ (LinkError::NoAnswer { .. }
            | LinkError::Garbage { .. }
            | LinkError::TooLong { .. }
            | LinkError::Refused(_)
            | LinkError::Random(_)
            | LinkError::Name(_)),
        ) => return Err(error.into()),
    };
    let reports = whole_fleet(&mut link, "matrix")?;
    Ok(Asked::Supervisor { rehearsals: rehearsals(&reports), hash: link.server().fleet_hash })
}

/// What the reports know of rehearsals, the newest of each.
fn rehearsals(reports: &[NodeReport]) -> Rehearsals {
    let mut known = Rehearsals::default();
    for report in reports {
        // A node that was never heard has told nothing; a silent one is remembered.
        let heard = match report.state {
            NodeState::Up | NodeState::Starting | NodeState::Leaving => true,
            NodeState::SupervisorDead | NodeState::Unreachable | NodeState::CutOff | NodeState::Unknown => {
                !report.workers.is_empty()
            }
        };
        if heard {
            known.told.insert(report.node.clone());
        }
        for told in &report.rehearsed {
            if let Some(node) = &told.node {
                newest(&mut known.last, (node.clone(), None, told.class), told);
            }
        }
        for worker in &report.workers {
            for told in &worker.rehearsed {
                let place = (worker.node.clone(), Some(worker.worker.clone()), told.class);
                newest(&mut known.last, place, told);
            }
        }
    }
    known
}

fn newest(
    last: &mut BTreeMap<MatrixCell, matrix::Rehearsal>,
    place: MatrixCell,
    told: &crate::peer::wire::Rehearsal,
) {
    if last.get(&place).is_some_and(|known| known.ago_ms <= told.ago_ms) {
        return;
    }
    let rehearsal = matrix::Rehearsal {
        passed: told.passed,
        why: told.why.clone(),
        by: told.by.clone(),
        ago_ms: told.ago_ms,
        detect_ms: told.detect_ms,
        repair_ms: told.repair_ms,
    };
    last.insert(place, rehearsal);
}

/// What was asked about is not there; what is.
fn no_such(fleet: &Fleet, subject: &Subject, path: &Path) -> String {
    let (node, path) = (subject.node(), path.display());
    let known: Vec<&str> = match fleet.nodes.get(node) {
        Some(spec) if spec.disabled => {
            return format!("keyholder: error: {node} is disabled in {path}, so nothing is done there");
        }
        Some(spec) => spec.workers.keys().map(WorkerName::as_str).collect(),
        None => fleet.nodes.keys().map(NodeName::as_str).collect(),
    };
    let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
    match (subject.worker(), fleet.nodes.contains_key(node)) {
        (Some(worker), true) => {
            format!("keyholder: error: {node} has no worker {worker} in {path}; it has {known}")
        }
        (Some(_) | None, _) => format!("keyholder: error: {node} is not in {path}, which knows {known}"),
    }
}
