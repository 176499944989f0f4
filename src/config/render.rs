//! Problems with their source lines, for a person at a terminal.

use std::fmt;

use miette::{
    Diagnostic, GraphicalReportHandler, GraphicalTheme, LabeledSpan, MietteError, MietteSpanContents,
    SourceCode, SourceSpan, SpanContents, ThemeCharacters, ThemeStyles,
};

use super::problem::{Problem, Problems, Severity, escape};
use crate::vocabulary::is_unsafe;

/// Columns. Wider lines wrap badly on a console at three in the morning.
const WIDTH: usize = 100;
/// How much of a line is shown before the place of the problem, in characters, …
const MAX_BEFORE: usize = 100;
/// … and from it on.
const MAX_AFTER: usize = 120;

impl Problems {
    /// The form for a terminal: each problem with its source line. Colours only if asked for.
    pub fn fancy(&self, severity: Severity, colour: bool) -> String {
        let theme = GraphicalTheme {
            characters: ThemeCharacters::unicode(),
            styles: if colour { ThemeStyles::ansi() } else { ThemeStyles::none() },
        };
        let handler =
            GraphicalReportHandler::new_themed(theme).with_width(WIDTH).with_links(false).with_urls(false);
        let mut out = String::new();
        for problem in self {
            let shown = MietteProblem::new(problem, severity, &self.source);
            // Without a report there is still the line.
            if handler.render_report(&mut out, &shown).is_err() {
                out.push_str(&problem.to_string());
            }
            out.push('\n');
        }
        if let Some(line) = self.omitted_line() {
            out.push_str(&line);
            out.push('\n');
        }
        out
    }
}

/// A problem as miette wants it.
#[derive(Debug)]
struct MietteProblem<'a> {
    message: String,
    help: Option<String>,
    severity: Severity,
    line: Option<SourceLine<'a>>,
}

impl<'a> MietteProblem<'a> {
    fn new(problem: &Problem, severity: Severity, source: &'a str) -> Self {
        let line = SourceLine::of(problem, source);
        let message = escape(&problem.message);
        Self {
            message: if line.is_some() { message } else { format!("{}: {message}", escape(&problem.file)) },
            help: (!problem.help.is_empty()).then(|| escape(&problem.help)),
            severity,
            line,
        }
    }
}

impl fmt::Display for MietteProblem<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for MietteProblem<'_> {}

impl Diagnostic for MietteProblem<'_> {
    fn severity(&self) -> Option<miette::Severity> {
        Some(match self.severity {
            Severity::Error => miette::Severity::Error,
            Severity::Warning => miette::Severity::Warning,
        })
    }

    fn help<'h>(&'h self) -> Option<Box<dyn fmt::Display + 'h>> {
        self.help.as_ref().map(|help| Box::new(help) as Box<dyn fmt::Display>)
    }

    fn source_code(&self) -> Option<&dyn SourceCode> {
        self.line.as_ref().map(|line| line as &dyn SourceCode)
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        let label = LabeledSpan::new_primary_with_span(None, self.line.as_ref()?.label);
        Some(Box::new(std::iter::once(label)))
    }
}

/// The one line that a problem is about, or the part of it that fits: a file of one endless line is shown in pieces
/// and copied nowhere.
#[derive(Debug)]
struct SourceLine<'a> {
    file: String,
    text: &'a str,
    start: usize,
    label: SourceSpan,
    line: usize,
    column: usize,
}

impl<'a> SourceLine<'a> {
    fn of(problem: &Problem, source: &'a str) -> Option<Self> {
        let (start, len) = problem.span?;
        let (before, after) = source.split_at_checked(start)?;
        let before = before.rsplit('\n').next().unwrap_or_default();
        let after = after.lines().next().unwrap_or_default();
        let left = before.char_indices().rev().take(MAX_BEFORE).last().map_or(before.len(), |(n, _)| n);
        let right = after.char_indices().nth(MAX_AFTER).map_or(after.len(), |(n, _)| n);
        let from = start - (before.len() - left);
        Some(Self {
            file: escape(&problem.file),
            text: source.get(from..start + right)?,
            start: from,
            label: SourceSpan::from((start, len.min(right))),
            line: usize::try_from(problem.line).ok()?.saturating_sub(1),
            column: usize::try_from(problem.column).ok()?.saturating_sub(1),
        })
    }
}

impl SourceCode for SourceLine<'_> {
    /// Whatever is asked for, the answer is this line; nothing else is ever asked for.
    fn read_span<'s>(
        &'s self,
        _: &SourceSpan,
        _: usize,
        _: usize,
    ) -> Result<Box<dyn SpanContents<'s> + 's>, MietteError> {
        let span = SourceSpan::from((self.start, self.text.len()));
        Ok(Box::new(MietteSpanContents::new_named(
            self.file.clone(),
            self.text.as_bytes(),
            span,
            self.line,
            self.column,
            1,
        )))
    }
}

/// The source as it may be shown: passwords in URLs masked, characters that would deceive replaced. Every byte stays
/// where it was, so that spans still fit.
pub(crate) fn showable(source: &str) -> String {
    let mut shown = String::with_capacity(source.len());
    for word in source.split_inclusive([' ', '\t', '\r', '\n', '"', '\'', ',']) {
        let secret = secret(word);
        for (at, c) in word.char_indices() {
            match c {
                _ if secret.contains(&at) => shown.extend(std::iter::repeat_n('*', c.len_utf8())),
                '\n' | '\t' => shown.push(c),
                c if is_unsafe(c) => shown.extend(std::iter::repeat_n('?', c.len_utf8())),
                c => shown.push(c),
            }
        }
    }
    shown
}

/// Where in a word a URL's user and password stand: from the first colon (and the slashes after it, if they were not
/// forgotten) to the last `@`. A unit like `getty@tty1.service` has no colon before it.
fn secret(word: &str) -> std::ops::Range<usize> {
    let (Some(colon), Some(at)) = (word.find(':'), word.rfind('@')) else { return 0..0 };
    let slashes = word.get(colon + 1..).unwrap_or_default().bytes().take_while(|b| *b == b'/').count();
    colon + 1 + slashes..at
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_masked_and_nothing_moves() {
        let source = "redis: { url: \"redis://me:s3cr@t@host:1/0\" } # a@b\nx: é\u{202e}\x1b\n";
        let shown = showable(source);
        assert_eq!(shown, "redis: { url: \"redis://*********@host:1/0\" } # a@b\nx: é????\n");
        assert_eq!(shown.len(), source.len());
        assert_eq!(
            showable("url: redis:/me:x@h, unit: a@b.service"),
            "url: redis:/****@h, unit: a@b.service"
        );
        assert_eq!(showable("a@b: c"), "a@b: c");
    }
}
