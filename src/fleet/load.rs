//! From a file, or from bytes, to a fleet that everybody may rely on.

use std::path::Path;
use std::sync::Arc;

use nix::unistd::geteuid;

use super::model::Fleet;
use super::problem::{Problem, Problems, deceives};
use super::report::{At, Report};
use super::{raw, trust, validate, yaml};
use crate::vocabulary::FleetHash;

/// The largest fleet file, in bytes. A thousand workers with every setting written out fit in.
pub const MAX_FILE: usize = 256 * 1024;

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
        let name = path.to_string_lossy();
        let file: Arc<str> = name.as_ref().into();
        let read = trust::read(path, MAX_FILE, geteuid())
            .map_err(|refused| Problems::of_file(&file, refused.message, refused.help))?;
        // What there is to say beside the text itself.
        let mut beside = Problems::default();
        for doubt in read.doubts {
            beside.push(Problem::of_file(&file, doubt.message, doubt.help));
        }
        // What root obeys must come from root. Anybody else may look at a file of their own, and is told.
        if geteuid().is_root() && !beside.is_empty() {
            return Err(beside);
        }
        let mut loaded = parse(&name, &read.bytes)?;
        if read.public && loaded.fleet.redis.as_ref().is_some_and(|url| url.contains('@')) {
            let path = trust::quoted(path);
            beside.push(Problem::of_file(
                &file,
                "everybody on this host can read the Redis password in it",
                format!("run: chgrp keyholder {path}; chmod 0640 {path}"),
            ));
        }
        beside.list.append(&mut loaded.warnings.list);
        loaded.warnings.list = beside.list;
        Ok(loaded)
    }
}

/// Checks the bytes of a fleet file; `name` is what to call it in messages. No input or output happens here.
///
/// # Errors
/// Every problem at once, each with its place. A file that is not text or not YAML has only the first.
pub fn parse(name: &str, bytes: &[u8]) -> Result<Loaded, Problems> {
    let file: Arc<str> = name.into();
    if bytes.len() > MAX_FILE {
        return Err(Problems::of_file(&file, trust::TOO_LARGE.0, trust::TOO_LARGE.1));
    }
    let source = text(&file, bytes)?;
    let mut report = Report::new(file, source);
    let tree = match yaml::read(source) {
        Ok(tree) => Some(tree),
        Err(error) => {
            report.error(error.at, error.message, error.help);
            None
        }
    };
    let raw = tree.and_then(|tree| raw::read(&mut report, &tree));
    let fleet = raw.and_then(|raw| validate::validate(&mut report, &raw, FleetHash::of(bytes)));
    if fleet.is_none() && report.errors() == 0 {
        // Cannot happen; and if it does, a fleet that is not understood is not served.
        report.error(At::START, "this file could not be understood", "report this as a defect of keyholder");
    }
    let (errors, warnings) = report.finish();
    match fleet {
        Some(fleet) if errors.is_empty() => Ok(Loaded { fleet, warnings }),
        Some(_) | None => Err(errors),
    }
}

/// UTF-8 without characters that a person could not see or that would change how the rest looks.
fn text<'b>(file: &Arc<str>, bytes: &'b [u8]) -> Result<&'b str, Problems> {
    let source = match std::str::from_utf8(bytes) {
        Ok(source) => source,
        Err(error) => {
            let good = bytes.get(..error.valid_up_to()).unwrap_or_default();
            let good = std::str::from_utf8(good).unwrap_or_default();
            let mut report = Report::new(Arc::clone(file), good);
            report.error(place(good, good.len()), "the file is not UTF-8 from here on", "save it as UTF-8");
            return Err(report.finish().0);
        }
    };
    let mut report = Report::new(Arc::clone(file), source);
    let mut rest = source.char_indices().peekable();
    let (mut line, mut column) = (1, 0);
    while let Some((start, c)) = rest.next() {
        column += 1;
        let allowed = match c {
            '\n' | '\t' => true,
            '\r' => rest.peek().is_some_and(|(_, next)| *next == '\n'),
            c => !deceives(c),
        };
        if !allowed {
            let message = format!("the character U+{:04X} is not allowed in this file", u32::from(c));
            report.error(
                At { line, column, start, len: c.len_utf8() },
                message,
                "take it out; it may be invisible",
            );
        }
        if c == '\n' {
            (line, column) = (line + 1, 0);
        }
    }
    if report.errors() == 0 { Ok(source) } else { Err(report.finish().0) }
}

/// Line and column of a byte offset.
fn place(source: &str, start: usize) -> At {
    let before = source.get(..start).unwrap_or_default();
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    let short = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    At { line: short(line), column: short(column), start, len: 0 }
}
