//! What a check has found, and how it is shown.

use std::fmt::Write as _;

use serde::Serialize;

use crate::cli::exit::Exit;
use crate::cli::fold::fold;
use crate::cli::screen::{Paint, Tone};
use crate::vocabulary::printable;

/// How a check went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// As it should be.
    Ok,
    /// It works, but not as well as it could, or it could not be checked.
    Warn,
    /// It will not work when it is needed.
    Fail,
}

/// What a check has found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What was checked, in a word.
    pub check: &'static str,
    /// How it went.
    pub level: Level,
    /// What was found.
    pub text: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub way_out: Option<String>,
}

impl Finding {
    /// As it should be.
    pub fn ok(check: &'static str, text: impl Into<String>) -> Self {
        Self { check, level: Level::Ok, text: text.into(), way_out: None }
    }

    /// Worth a look.
    pub fn warn(check: &'static str, text: impl Into<String>) -> Self {
        Self { check, level: Level::Warn, text: text.into(), way_out: None }
    }

    /// Broken.
    pub fn fail(check: &'static str, text: impl Into<String>) -> Self {
        Self { check, level: Level::Fail, text: text.into(), way_out: None }
    }

    /// With what to do about it.
    #[must_use]
    pub fn way_out(self, way_out: impl Into<String>) -> Self {
        Self { way_out: Some(way_out.into()), ..self }
    }
}

/// All findings for a person in lines of at most `width`, and a line that counts them.
pub(super) fn report(findings: &[Finding], width: Option<u16>, paint: Paint) -> String {
    let mut text = String::new();
    let widest = findings.iter().map(|finding| finding.check.len()).max().unwrap_or(0);
    for finding in findings {
        let (word, tone) = match finding.level {
            Level::Ok => ("ok  ", Tone::Good),
            Level::Warn => ("warn", Tone::Fair),
            Level::Fail => ("FAIL", Tone::Bad),
        };
        // Writing to a String cannot fail, here and below.
        let _ = writeln!(
            text,
            "{}  {:widest$}  {}",
            paint.on(tone, word),
            finding.check,
            fold(&printable(&finding.text), width, widest + 8, widest + 8)
        );
        if let Some(way_out) = &finding.way_out {
            let way_out = fold(&printable(way_out), width, widest + 11, widest + 11);
            let _ = writeln!(text, "      {:widest$}  -> {way_out}", "");
        }
    }
    let count = |level| findings.iter().filter(|finding| finding.level == level).count();
    let (ok, warn, fail) = (count(Level::Ok), count(Level::Warn), count(Level::Fail));
    let _ = writeln!(text, "{} checks: {ok} ok, {warn} to look at, {fail} FAILED", findings.len());
    text
}

/// The exit code: a warning alone is no failure.
pub(super) fn exit(findings: &[Finding]) -> Exit {
    if findings.iter().any(|finding| finding.level == Level::Fail) { Exit::NotHealthy } else { Exit::Ok }
}
