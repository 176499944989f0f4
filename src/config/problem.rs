//! What is wrong with a file: where, what stands there and what was expected. The one-line form is here, the form for
//! a terminal is in `render.rs`.

use std::fmt;
use std::sync::Arc;

use serde::{Serialize, Serializer};

use crate::vocabulary::printable;

/// How many problems are kept. Who has a hundred mistakes mends some and asks again; a hostile file cannot make more.
pub(crate) const MAX_PROBLEMS: usize = 100;

/// One problem.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// The file, as it was named.
    #[serde(serialize_with = "escaped")]
    pub file: Arc<str>,
    /// The line, from 1; 0 if it is about the file as a whole.
    pub line: u32,
    /// The column in characters, from 1; 0 if it is about the file as a whole.
    pub column: u32,
    /// The offending text as it stands in the file, cut to a line; empty if there is none. Passwords are masked.
    pub text: String,
    /// What is wrong.
    pub message: String,
    /// What was expected, or the way out.
    pub help: String,
    /// Where it stands in the source, in bytes.
    #[serde(skip)]
    pub(crate) span: Option<(usize, usize)>,
}

fn escaped<S: Serializer>(text: &str, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&escape(text))
}

impl Problem {
    /// A problem with the file as a whole.
    pub(crate) fn of_file(file: &Arc<str>, message: impl Into<String>, help: impl Into<String>) -> Self {
        Self {
            file: Arc::clone(file),
            line: 0,
            column: 0,
            text: String::new(),
            message: message.into(),
            help: help.into(),
            span: None,
        }
    }
}

/// `file:line:column: message (found `text`; help)`, on one line and safe for a terminal.
impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&escape(&self.file))?;
        if self.line > 0 {
            write!(f, ":{}:{}", self.line, self.column)?;
        }
        write!(f, ": {}", escape(&self.message))?;
        match (self.text.is_empty(), self.help.is_empty()) {
            (true, true) => Ok(()),
            (true, false) => write!(f, " ({})", escape(&self.help)),
            (false, true) => write!(f, " (found `{}`)", escape(&self.text)),
            (false, false) => write!(f, " (found `{}`; {})", escape(&self.text), escape(&self.help)),
        }
    }
}

/// Problems of one file, in the order of its lines, with what is needed to show them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Problems {
    pub(crate) list: Vec<Problem>,
    pub(crate) omitted: usize,
    /// The source with passwords masked and control characters replaced, byte for byte as long as the original.
    pub(crate) source: Arc<str>,
}

impl Problems {
    /// A single problem with a file as a whole.
    pub(crate) fn of_file(file: &Arc<str>, message: impl Into<String>, help: impl Into<String>) -> Self {
        Self { list: vec![Problem::of_file(file, message, help)], ..Self::default() }
    }

    /// The problems, at most a hundred.
    pub fn iter(&self) -> std::slice::Iter<'_, Problem> {
        self.list.iter()
    }

    /// Puts what was found beside the file in front: which node this is, whom the file belongs to.
    pub fn and_first(mut self, file: &str, message: &str, help: &str) -> Self {
        self.list.insert(0, Problem::of_file(&file.into(), escape(message), escape(help)));
        self
    }

    /// These and then `after`, which keeps what is needed to show its source.
    pub(crate) fn followed_by(self, mut after: Self) -> Self {
        after.list.splice(0..0, self.list);
        after.omitted += self.omitted;
        after
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// How many there are, those that were not kept included.
    pub fn len(&self) -> usize {
        self.list.len() + self.omitted
    }

    pub(crate) fn push(&mut self, problem: Problem) {
        if self.list.len() < MAX_PROBLEMS {
            self.list.push(problem);
        } else {
            self.omitted += 1;
        }
    }

    pub(crate) fn omitted_line(&self) -> Option<String> {
        (self.omitted > 0).then(|| format!("and {} more; fix these first", self.omitted))
    }
}

impl<'a> IntoIterator for &'a Problems {
    type Item = &'a Problem;
    type IntoIter = std::slice::Iter<'a, Problem>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// One line per problem, for the journal.
impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, problem) in self.list.iter().enumerate() {
            if n > 0 {
                f.write_str("\n")?;
            }
            problem.fmt(f)?;
        }
        self.omitted_line().map_or(Ok(()), |line| write!(f, "\n{line}"))
    }
}

impl std::error::Error for Problems {}

/// How bad a list of problems is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    /// The file is refused.
    Error,
    /// The file is taken, but somebody should know.
    Warning,
}

/// Text from outside, made safe for a terminal and a log line.
pub fn escape(text: &str) -> String {
    printable(text).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_from_a_file_reaches_a_terminal_raw() {
        assert_eq!(escape("a\x1b[31m\nü\u{202e}\u{9b}"), "a\\x1b[31m\\nü\\u{202e}\\x9b");
        let problem =
            Problem { text: "x\x07".into(), ..Problem::of_file(&"f\x1b".into(), "bad\r", "mend\n it") };
        assert_eq!(problem.to_string(), "f\\x1b: bad\\r (found `x\\x07`; mend\\n it)");
    }

    #[test]
    fn a_hundred_problems_are_kept_and_the_others_counted() {
        let mut problems = Problems::default();
        for _ in 0..MAX_PROBLEMS + 7 {
            problems.push(Problem::of_file(&"f".into(), "m", ""));
        }
        assert_eq!((problems.iter().count(), problems.len()), (MAX_PROBLEMS, MAX_PROBLEMS + 7));
        assert!(problems.to_string().ends_with("\nand 7 more; fix these first"));
    }
}
