//! From a file, or from bytes, to a fleet that everybody may rely on.

use std::path::Path;

use super::model::Fleet;
use super::{raw, validate};
use crate::config::problem::{Problem, Problems};
use crate::config::{file, trust};
use crate::vocabulary::FleetHash;

/// A good fleet file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loaded {
    /// The fleet.
    pub fleet: Fleet,
    /// What somebody should know about it.
    pub warnings: Problems,
}

impl Fleet {
    /// Reads and checks a fleet file. Run by root it refuses a file that anybody else could have written.
    ///
    /// # Errors
    /// Every problem of the file at once, each with its place; or the one reason why it cannot be read or trusted.
    pub fn load(path: &Path) -> Result<Loaded, Problems> {
        Self::opened(path, file::of_ours(path)?)
    }

    /// As [`load`](Self::load), for whoever obeys the file without being root: a lane believes the keys in it, so only root
    /// may have written it, whoever reads it.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn load_of_root(path: &Path) -> Result<Loaded, Problems> {
        Self::opened(path, file::of_root(path)?)
    }

    fn opened(path: &Path, opened: file::Opened) -> Result<Loaded, Problems> {
        let name = path.to_string_lossy();
        let mut loaded = parse(&name, &opened.bytes)?;
        // What there is to say beside the text itself.
        let mut beside = opened.doubts;
        if opened.public && loaded.fleet.redis.as_ref().is_some_and(|url| url.contains('@')) {
            let path = trust::quoted(path);
            beside.push(Problem::of_file(
                &name.as_ref().into(),
                "everybody on this host can read the Redis password in it",
                format!("run: chgrp keyholder {path}; chmod 0640 {path}"),
            ));
        }
        loaded.warnings = beside.followed_by(loaded.warnings);
        Ok(loaded)
    }
}

/// Checks the bytes of a fleet file; `name` is what to call it in messages. No input or output happens here.
///
/// # Errors
/// Every problem at once, each with its place. A file that is not text or not YAML has only the first.
pub fn parse(name: &str, bytes: &[u8]) -> Result<Loaded, Problems> {
    let (mut report, tree) = file::read(name, bytes)?;
    let raw = tree.and_then(|tree| raw::read(&mut report, &tree));
    let fleet = raw.and_then(|raw| validate::validate(&mut report, &raw, FleetHash::of(bytes)));
    let (fleet, warnings) = report.finish_with(fleet)?;
    Ok(Loaded { fleet, warnings })
}
