//! The collecting side: everything that reads or checks the file reports here and goes on.

use std::sync::Arc;

use super::problem::{MAX_PROBLEMS, Problem, Problems, escape};
use super::render;
use super::suggest;

/// How much of the offending text is shown, in characters.
const MAX_TEXT: usize = 80;

/// Where something stands in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct At {
    /// Line, from 1; 0 means the file as a whole.
    pub line: u32,
    /// Column in characters, from 1.
    pub column: u32,
    /// Byte offset.
    pub start: usize,
    /// Length in bytes; 0 or 1 for lists and maps, of which only the beginning is known.
    pub len: usize,
}

impl At {
    /// The beginning of the file.
    pub(crate) const START: Self = Self { line: 1, column: 1, start: 0, len: 0 };
}

/// A value and where it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Located<T> {
    /// Where.
    pub at: At,
    /// What.
    pub value: T,
}

/// Collects problems.
#[derive(Debug)]
pub(crate) struct Report<'a> {
    file: Arc<str>,
    source: &'a str,
    shown: Arc<str>,
    errors: Problems,
    warnings: Problems,
}

impl<'a> Report<'a> {
    /// An empty report on a file.
    pub(crate) fn new(file: Arc<str>, source: &'a str) -> Self {
        let shown: Arc<str> = render::showable(source).into();
        let empty = || Problems { source: Arc::clone(&shown), ..Problems::default() };
        Self { file, source, errors: empty(), warnings: empty(), shown: Arc::clone(&shown) }
    }

    /// The source text between two places: how a number or a word was spelt.
    pub(crate) fn spelling(&self, at: At) -> &'a str {
        self.source.get(at.start..at.start.saturating_add(at.len)).unwrap_or_default()
    }

    /// Takes down something for which the file is refused.
    pub(crate) fn error(&mut self, at: At, message: impl Into<String>, help: impl Into<String>) {
        let problem = self.problem(at, message.into(), help.into());
        self.errors.push(problem);
    }

    /// Takes down something that somebody should know.
    pub(crate) fn warn(&mut self, at: At, message: impl Into<String>, help: impl Into<String>) {
        let problem = self.problem(at, message.into(), help.into());
        self.warnings.push(problem);
    }

    /// "did you mean" if one of `known` is close to what was written, else a list of them.
    pub(crate) fn did_you_mean<'k>(
        &self,
        given: &str,
        known: impl Iterator<Item = &'k str> + Clone,
    ) -> String {
        // Comparing with every name costs time, and a problem that is not kept needs no suggestion.
        if self.errors.list.len() >= MAX_PROBLEMS {
            return String::new();
        }
        suggest::did_you_mean(given, known)
    }

    /// How many errors there are so far.
    pub(crate) fn errors(&self) -> usize {
        self.errors.len()
    }

    /// What was read and the warnings, unless there is an error: then all of them.
    pub(crate) fn finish_with<T>(mut self, value: Option<T>) -> Result<(T, Problems), Problems> {
        if value.is_none() && self.errors.is_empty() {
            // Cannot happen; and if it does, a file that is not understood is not served.
            self.error(
                At::START,
                "this file could not be understood",
                "report this as a defect of keyholder",
            );
        }
        let (errors, warnings) = self.finish();
        value.filter(|_| errors.is_empty()).map(|value| (value, warnings)).ok_or(errors)
    }

    /// Errors and warnings, each in the order of the file.
    pub(crate) fn finish(mut self) -> (Problems, Problems) {
        // Stable, so that what was found first about one place stays first.
        self.errors.list.sort_by_key(|problem| (problem.line, problem.column));
        self.warnings.list.sort_by_key(|problem| (problem.line, problem.column));
        // A good file's warnings are kept with what it says; its source need not be.
        if self.warnings.is_empty() {
            self.warnings = Problems::default();
        }
        (self.errors, self.warnings)
    }

    fn problem(&self, at: At, message: String, help: String) -> Problem {
        let file = Arc::clone(&self.file);
        // Names from the file stand in both.
        let (message, help) = (escape(&message), escape(&help));
        if at.line == 0 {
            return Problem::of_file(&file, message, help);
        }
        let (start, len) = self.extent(at);
        let text = self.shown.get(start..start + len).unwrap_or_default();
        let text = match text.char_indices().nth(MAX_TEXT) {
            Some((cut, _)) => format!("{}…", text.get(..cut).unwrap_or_default()),
            None => text.to_owned(),
        };
        Problem { file, line: at.line, column: at.column, text, message, help, span: Some((start, len)) }
    }

    /// What to show for a place: the scalar, `[…]` or `{…}` if it closes on that line, else the rest of the line.
    fn extent(&self, at: At) -> (usize, usize) {
        let rest = self.source.get(at.start..).unwrap_or_default();
        let flow = rest.starts_with(['[', '{']);
        let shown = if flow || at.len == 0 { rest } else { rest.get(..at.len).unwrap_or(rest) };
        let line = shown.lines().next().unwrap_or_default().trim_end();
        (at.start, if flow { closes(line).unwrap_or(line.len()) } else { line.len() })
    }
}

/// How long a `[…]` or `{…}` is that a line begins with, if it closes there. Brackets in quotes may fool it: it only
/// decides how much is shown.
fn closes(line: &str) -> Option<usize> {
    let mut depth = 0_usize;
    for (at, c) in line.char_indices() {
        match c {
            '[' | '{' => depth += 1,
            ']' | '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth == 0 {
            return Some(at + 1);
        }
    }
    None
}
