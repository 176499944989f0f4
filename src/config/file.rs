//! From a path, or from bytes, to a tree and the report on it.

use std::path::Path;
use std::sync::Arc;

use nix::unistd::{Uid, geteuid};

use super::problem::{Problem, Problems};
use super::report::{At, Report};
use super::trust;
use super::yaml::{self, Value};
use crate::vocabulary::is_unsafe;

/// The largest file, in bytes. A thousand workers with every setting written out fit in.
pub const MAX_FILE: usize = 256 * 1024;

/// A file that was read.
#[derive(Debug)]
pub(crate) struct Opened {
    pub bytes: Vec<u8>,
    /// Whether everybody on the host may read it.
    pub public: bool,
    /// Who else could have written it.
    pub doubts: Problems,
}

/// Reads a file that is to be obeyed as root's word, whoever reads it: only root may have written it.
pub(crate) fn of_root(path: &Path) -> Result<Opened, Problems> {
    let opened = open(path, Uid::from_raw(0))?;
    if opened.doubts.is_empty() { Ok(opened) } else { Err(opened.doubts) }
}

/// Reads a file of ours. What root obeys must come from root; anybody else may look at a file of their own, and is told.
pub(crate) fn of_ours(path: &Path) -> Result<Opened, Problems> {
    let opened = open(path, geteuid())?;
    if geteuid().is_root() && !opened.doubts.is_empty() { Err(opened.doubts) } else { Ok(opened) }
}

fn open(path: &Path, owner: Uid) -> Result<Opened, Problems> {
    let name: Arc<str> = path.to_string_lossy().as_ref().into();
    let read = trust::read(path, MAX_FILE, owner)
        .map_err(|refused| Problems::of_file(&name, refused.message, refused.help))?;
    let mut doubts = Problems::default();
    for doubt in read.doubts {
        doubts.push(Problem::of_file(&name, doubt.message, doubt.help));
    }
    Ok(Opened { bytes: read.bytes, public: read.public, doubts })
}

/// The tree of a file, if it is YAML at all, and the report that everything about it goes into.
pub(crate) fn read<'b>(name: &str, bytes: &'b [u8]) -> Result<(Report<'b>, Option<Value>), Problems> {
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
    Ok((report, tree))
}

/// UTF-8 without characters that a person could not see or that would change how the rest looks.
pub(crate) fn text<'b>(file: &Arc<str>, bytes: &'b [u8]) -> Result<&'b str, Problems> {
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
            c => !is_unsafe(c),
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
