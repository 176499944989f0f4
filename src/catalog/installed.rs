//! Whether a sudoers file that is installed says what the catalog says, no more and no less.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use super::model::Catalog;
use super::sudoers;
use crate::config::file;
use crate::config::problem::Problems;
use crate::config::report::{At, Report};

/// Reads a sudoers file of the lanes and compares it with the lines that the catalog needs.
///
/// # Errors
/// Every line that is too much and what it would allow, every line that is missing; or why the file cannot be read or
/// trusted.
pub fn installed(path: &Path, catalog: &Catalog) -> Result<(), Problems> {
    compare(&path.to_string_lossy(), &file::of_ours(path)?.bytes, catalog)
}

/// As [`installed`], for bytes.
pub(super) fn compare(name: &str, bytes: &[u8], catalog: &Catalog) -> Result<(), Problems> {
    let file: Arc<str> = name.into();
    let needed = sudoers::lines(catalog)
        .map_err(|error| Problems::of_file(&file, error.to_string(), "fix the catalog first"))?;
    let mut missing: BTreeSet<String> = needed.into_iter().flat_map(|(_, lines)| lines).collect();
    let allowed = missing.clone();
    let source = file::text(&file, bytes)?;
    let mut report = Report::new(file, source);
    let mut start = 0;
    for (number, line) in (1..).zip(source.split_inclusive('\n')) {
        let text = line.trim();
        let blanks = line.len() - line.trim_start().len();
        missing.remove(text);
        if !comment(text) && !allowed.contains(text) {
            let column = u32::try_from(blanks).unwrap_or(u32::MAX).saturating_add(1);
            let at = At { line: number, column, start: start + blanks, len: text.len() };
            report.error(
                at,
                too_much(text),
                "take it out, and install what `keyholder catalog sudoers` prints",
            );
        }
        start += line.len();
    }
    for line in &missing {
        report.error(
            At::default(),
            format!("this line is missing: {line}"),
            "install what `keyholder catalog sudoers` prints",
        );
    }
    report.finish_with(Some(())).map(|_| ())
}

/// `#include` and `#includedir` are none, and a backslash at the end joins the next line to one.
fn comment(text: &str) -> bool {
    text.is_empty() || (text.starts_with('#') && !text.starts_with("#include") && !text.ends_with('\\'))
}

/// What a line that no action needs would allow.
fn too_much(text: &str) -> &'static str {
    let command = text.rsplit_once("NOPASSWD:").map_or("", |(_, command)| command.trim());
    let mut escaped = false;
    let mut wild = false;
    for c in command.chars() {
        wild |= !escaped && matches!(c, '*' | '?' | '[' | ']');
        escaped = c == '\\' && !escaped;
    }
    if wild {
        "this is a pattern, and a pattern matches blanks and further arguments too"
    } else if command == "ALL" {
        "this allows every command"
    } else if command.starts_with('/') && !command.contains([' ', '\t']) {
        "this command has no argument list, so it may be run with any arguments"
    } else {
        "no action of the catalog needs this line"
    }
}
