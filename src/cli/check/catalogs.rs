//! The catalogs' part of `keyholder check`.

use std::collections::BTreeSet;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::super::problems::ProblemStyle;
use super::{CheckArgs, count};
use crate::catalog::{self, Mode};
use crate::fleet::{self, Problem, Problems, Severity, escape};
use crate::vocabulary::NodeName;

/// What was found: each file and what is to be said about it.
#[derive(Debug, Default)]
pub(super) struct Catalogs {
    files: Vec<(String, Result<catalog::Loaded, Problems>)>,
}

impl Catalogs {
    /// Looks at every `catalog_*.yaml` of the directory. One that was not asked for need not be there.
    pub(super) fn of(args: &CheckArgs, fleet: Option<&BTreeSet<NodeName>>) -> Self {
        if args.no_catalogs {
            return Self::default();
        }
        let beside = args.fleet.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let dir = args.catalogs.as_deref().unwrap_or(beside);
        match find(dir) {
            Ok(paths) => {
                let names = paths.iter().map(|path| path.to_string_lossy().into_owned());
                Self { files: names.zip(catalog::inspect(&paths, fleet)).collect() }
            }
            Err(_) if args.catalogs.is_none() => Self::default(),
            Err(error) => {
                let name = dir.to_string_lossy().into_owned();
                let help = if error.kind() == ErrorKind::NotFound {
                    "expected a directory there; is the name right?"
                } else {
                    "expected a directory that may be read"
                };
                let problem = format!("cannot look for catalogs there: {error}");
                let problems = Problems::default().and_first(&name, &problem, help);
                Self { files: vec![(name, Err(problems))] }
            }
        }
    }

    /// Whether there is nothing wrong with any of them.
    pub(super) fn good(&self) -> bool {
        self.files.iter().all(|(_, result)| result.is_ok())
    }

    /// The fleet with a warning if there are catalogs but none for the lanes of this node.
    pub(super) fn missed(&self, fleet: fleet::Loaded, me: Option<&NodeName>, file: &str) -> fleet::Loaded {
        let mut loaded = fleet;
        let Some((me, node)) = me.and_then(|me| Some((me, loaded.fleet.nodes.get(me)?))) else {
            return loaded;
        };
        let lane = |unit: &str| unit.starts_with("keyholder-lane-");
        let has_lane = node.workers.values().any(|worker| lane(worker.unit.as_str()));
        let has_catalog = self.files.iter().any(|(_, result)| match result {
            Ok(loaded) => loaded.catalog.node == *me,
            // It may be the one, and its problems come first.
            Err(_) => true,
        });
        if has_lane && !has_catalog && !self.files.is_empty() {
            let message = format!("this node, `{me}`, has lanes, and none of the catalogs is for it");
            let help = format!("expected a file catalog_{me}.yaml: its lanes would refuse every task");
            loaded.warnings = loaded.warnings.and_first(file, &message, &help);
        }
        loaded
    }

    /// The fleet with a warning if catalogs want a person's approval that nobody can give.
    pub(super) fn unapprovable(&self, fleet: fleet::Loaded, file: &str) -> fleet::Loaded {
        let mut loaded = fleet;
        if !loaded.fleet.approver_keys.is_empty() {
            return loaded;
        }
        let catalogs = self.files.iter().filter_map(|(_, result)| Some(&result.as_ref().ok()?.catalog));
        let wanting: Vec<String> = catalogs
            .flat_map(|catalog| {
                let wanting = catalog.actions.iter().filter(|(_, action)| action.approval);
                wanting.map(|(name, _)| format!("{name} on {}", catalog.node))
            })
            .collect();
        if let Some(first) = wanting.first() {
            let more = match wanting.len() - 1 {
                0 => String::new(),
                more => format!(" (and {more} more)"),
            };
            let message = format!("{first}{more} needs approval, and there are no `approver_keys`");
            let help = "expected the keys of who may approve, from `keyholder key generate --approver`: the lanes refuse \
                        such tasks otherwise";
            loaded.warnings = loaded.warnings.and_first(file, &message, help);
        }
        loaded
    }

    /// Problems, and warnings unless it is to be quiet.
    pub(super) fn tell(&self, look: ProblemStyle, quiet: bool, err: &mut dyn Write) -> io::Result<()> {
        for (file, result) in &self.files {
            match result {
                Err(problems) => {
                    write!(err, "{}", look.show(problems, Severity::Error))?;
                    writeln!(err, "{} is not good: {}", escape(file), count(problems.len(), "problem"))?;
                }
                Ok(_) if quiet => {}
                Ok(loaded) => write!(err, "{}", look.show(&loaded.warnings, Severity::Warning))?,
            }
        }
        Ok(())
    }

    /// A line for each, after an empty one; nothing if there is none.
    pub(super) fn summary(&self) -> String {
        let mut text = String::new();
        for (file, result) in &self.files {
            let Ok(loaded) = result else { continue };
            let actions = &loaded.catalog.actions;
            let writes = actions.values().filter(|action| action.mode == Mode::Write).count();
            let counts = [
                format!("{}, {writes} of them write", count(actions.len(), "action")),
                count(loaded.warnings.len(), "warning"),
            ];
            if text.is_empty() {
                text.push('\n');
            }
            let node = &loaded.catalog.node;
            text.push_str(&format!("{} is good: node {node}, {}\n", escape(file), counts.join(", ")));
        }
        text
    }

    /// The same for a program.
    pub(super) fn reports(&self) -> Vec<CatalogReport<'_>> {
        self.files
            .iter()
            .map(|(file, result)| {
                let catalog = result.as_ref().ok().map(|loaded| &loaded.catalog);
                CatalogReport {
                    ok: result.is_ok(),
                    file: escape(file),
                    node: catalog.map(|catalog| &catalog.node),
                    hash: catalog.map(|catalog| catalog.hash.to_string()),
                    actions: catalog.map_or(0, |catalog| catalog.actions.len()),
                    problems: result.as_ref().err().map(|all| all.iter().collect()).unwrap_or_default(),
                    warnings: result.as_ref().map(|all| all.warnings.iter().collect()).unwrap_or_default(),
                }
            })
            .collect()
    }
}

/// What a program wants to know of one catalog.
#[derive(Debug, Serialize)]
pub(super) struct CatalogReport<'a> {
    ok: bool,
    file: String,
    node: Option<&'a NodeName>,
    hash: Option<String>,
    actions: usize,
    problems: Vec<&'a Problem>,
    warnings: Vec<&'a Problem>,
}

/// Every `catalog_*.yaml` in a directory, in the order of their names.
fn find(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        let name = entry?.file_name();
        let text = name.to_string_lossy();
        if text.starts_with("catalog_") && text.ends_with(".yaml") {
            found.push(dir.join(name));
        }
    }
    found.sort();
    Ok(found)
}
