//! From files, or from bytes, to catalogs that everybody may rely on.

use std::collections::BTreeSet;
use std::path::Path;

use super::draft::{Draft, Loaded};
use super::model::Catalog;
use super::together;
use crate::config::file;
use crate::config::problem::Problems;
use crate::vocabulary::NodeName;

impl Catalog {
    /// Reads a catalog that is to be obeyed. Whoever reads it, only root may have written it, and every directory
    /// above it: a lane that could write its own catalog would have none.
    ///
    /// # Errors
    /// Every problem of the file at once, each with its place; or why it cannot be read or trusted.
    pub fn load(path: &Path) -> Result<Loaded, Problems> {
        parse(&path.to_string_lossy(), &file::of_root(path)?.bytes)
    }
}

/// Checks the bytes of a catalog; `name` is its path, for messages and because a file `catalog_<node>.yaml` must be that
/// node's. No input or output happens here.
///
/// # Errors
/// Every problem at once, each with its place. A file that is not text or not YAML has only the first.
pub fn parse(name: &str, bytes: &[u8]) -> Result<Loaded, Problems> {
    Draft::read(name, bytes)?.finish()
}

/// Reads and checks several catalogs for themselves and together: an action that is `only_here` is nowhere else, each
/// node has one catalog and, if `fleet` is given, is one of its nodes. The answers are in the order of the paths.
///
/// Root is refused files that others could have written; anybody else may look at files of their own, and is warned.
pub fn inspect<P: AsRef<Path>>(
    paths: &[P],
    fleet: Option<&BTreeSet<NodeName>>,
) -> Vec<Result<Loaded, Problems>> {
    let opened: Vec<_> = paths.iter().map(|path| file::of_ours(path.as_ref())).collect();
    let drafts: Vec<Result<Draft<'_>, Problems>> = paths
        .iter()
        .zip(&opened)
        .map(|(path, opened)| match opened {
            Ok(opened) => Draft::read(&path.as_ref().to_string_lossy(), &opened.bytes),
            Err(problems) => Err(problems.clone()),
        })
        .collect();
    let all = together(drafts, fleet);
    all.into_iter()
        .zip(&opened)
        .map(|(result, opened)| {
            let mut loaded = result?;
            if let Ok(opened) = opened {
                loaded.warnings = opened.doubts.clone().followed_by(loaded.warnings);
            }
            Ok(loaded)
        })
        .collect()
}

/// As [`inspect`], for catalogs that have been read already: names and bytes.
pub fn parse_all(
    files: &[(&str, &[u8])],
    fleet: Option<&BTreeSet<NodeName>>,
) -> Vec<Result<Loaded, Problems>> {
    together(files.iter().map(|(name, bytes)| Draft::read(name, bytes)).collect(), fleet)
}

fn together(
    mut drafts: Vec<Result<Draft<'_>, Problems>>,
    fleet: Option<&BTreeSet<NodeName>>,
) -> Vec<Result<Loaded, Problems>> {
    let mut readable: Vec<_> = drafts.iter_mut().filter_map(|draft| draft.as_mut().ok()).collect();
    together::check(&mut readable, fleet);
    drafts.into_iter().map(|draft| draft?.finish()).collect()
}
