//! The elements of a command as they are written, and a program's path, which must be written in full.

use super::model::Arg;
use crate::config::report::{Located, Report};

/// The file name of a literal.
pub(super) fn name(arg: &Located<Arg>) -> &str {
    literal(arg).rsplit('/').next().unwrap_or_default()
}

/// What is written there; nothing for a parameter, of which only its values are known.
pub(super) fn literal(arg: &Located<Arg>) -> &str {
    match &arg.value {
        Arg::Literal(text) => text,
        Arg::Param(_) => "",
    }
}

/// A literal, absolute and clean path.
pub(super) fn absolute(report: &mut Report<'_>, arg: &Located<Arg>) -> bool {
    const HELP: &str = "expected the program's absolute path, such as /usr/bin/journalctl";
    let message = match &arg.value {
        Arg::Param(_) => "a parameter cannot choose the program",
        Arg::Literal(path) if !path.starts_with('/') => "this path is not absolute",
        Arg::Literal(path) if !clean(path) => "this path is not written plainly",
        Arg::Literal(_) => return true,
    };
    report.error(arg.at, message, HELP);
    false
}

/// No `.`, `..` or empty parts, and no character that some reader of a command could take for more than itself.
fn clean(path: &str) -> bool {
    path.bytes().all(|b| b.is_ascii_alphanumeric() || b"/._-+@".contains(&b))
        && path.split('/').skip(1).all(|part| !matches!(part, "" | "." | ".."))
}
