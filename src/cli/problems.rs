//! How the problems of a file are shown: with their source lines to a person, one line each to everything else.

use std::io::{self, IsTerminal};

use crate::config::{Problems, Severity};

/// How problems are shown.
#[derive(Debug, Clone, Copy)]
pub(super) struct ProblemStyle {
    /// Whether a person looks.
    pub terminal: bool,
    /// Whether with colours.
    pub colour: bool,
}

impl ProblemStyle {
    /// For whoever reads standard error.
    pub(super) fn of_stderr() -> Self {
        let terminal = io::stderr().is_terminal();
        let colour = terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        Self { terminal, colour }
    }

    /// The problems as text that ends with a line feed; nothing if there is none.
    pub(super) fn show(self, problems: &Problems, severity: Severity) -> String {
        match (self.terminal, severity) {
            _ if problems.is_empty() => String::new(),
            (true, _) => problems.fancy(severity, self.colour),
            (false, Severity::Error) => format!("{problems}\n"),
            (false, Severity::Warning) => {
                problems.to_string().lines().fold(String::new(), |all, line| all + "warning: " + line + "\n")
            }
        }
    }
}
