//! What reaches the terminal, and how: colour, width, closed pipes, JSON.

use std::borrow::Cow;
use std::env;
use std::fmt::Write as _;
use std::io::{self, ErrorKind, IsTerminal, Write};

use clap::builder::styling::{AnsiColor, Effects, Style};
use serde::Serialize;

use super::fold::fold_lines;
use crate::vocabulary::printable;

/// When to use colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Color {
    /// On a terminal, unless NO_COLOR is set or TERM is dumb
    Auto,
    /// Also into a pipe
    Always,
    /// Not at all
    Never,
}

/// The choice of colour, for the commands that show some.
#[derive(Debug, Clone, clap::Args)]
pub struct ColorArgs {
    /// When to use colour
    #[arg(long, value_enum, value_name = "WHEN", default_value_t = Color::Auto, hide_possible_values = false)]
    pub color: Color,
}

impl ColorArgs {
    /// The paint for standard output.
    pub fn paint(&self) -> Paint {
        let asked_for_none = env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
            || env::var_os("TERM").is_some_and(|term| term == "dumb");
        Paint(match self.color {
            Color::Auto => io::stdout().is_terminal() && !asked_for_none,
            Color::Always => true,
            Color::Never => false,
        })
    }
}

/// Puts colour on words, or leaves them alone.
#[derive(Debug, Clone, Copy)]
pub struct Paint(pub bool);

/// What a word's colour means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tone {
    /// Well.
    Good,
    /// On its way, or worth a look.
    Fair,
    /// Needs somebody.
    Bad,
    /// Less important.
    Faint,
}

impl Paint {
    /// The word in that tone.
    pub fn on<'a>(&self, tone: Tone, word: &'a str) -> Cow<'a, str> {
        if !self.0 || word.is_empty() {
            return Cow::Borrowed(word);
        }
        let style = match tone {
            Tone::Good => AnsiColor::Green.on_default(),
            Tone::Fair => AnsiColor::Yellow.on_default(),
            Tone::Bad => AnsiColor::Red.on_default().effects(Effects::BOLD),
            Tone::Faint => Style::new().effects(Effects::DIMMED),
        };
        Cow::Owned(format!("{style}{word}{style:#}"))
    }
}

/// How many columns there are: `COLUMNS` if it says so, else what the terminal has, else the 80 that every one had.
pub fn width() -> u16 {
    let said = env::var("COLUMNS").ok().and_then(|text| text.parse().ok());
    let has = || terminal_size::terminal_size().map(|(width, _)| width.0);
    said.or_else(has).filter(|width| *width >= 40).unwrap_or(80)
}

/// Into how many columns text is to be broken: the terminal's; into a pipe a line stays a line, whatever its length.
pub fn fold_at() -> Option<u16> {
    is_terminal().then(width)
}

/// Whether somebody looks at standard output right now.
pub fn is_terminal() -> bool {
    io::stdout().is_terminal()
}

/// Whether somebody looks at standard output and can answer, on a terminal that can be drawn on.
pub fn is_interactive() -> bool {
    let dumb = env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
    io::stdout().is_terminal() && io::stdin().is_terminal() && !dumb
}

/// Writes to standard output. False if its reader has gone, which is no error: `| head` has seen enough.
pub fn print(text: &str) -> io::Result<bool> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(error),
    }
}

/// Writes sentences to standard output, as [`print()`]; on a terminal their lines end between words.
///
/// # Errors
/// As [`print()`].
pub fn say(text: &str) -> io::Result<bool> {
    print(&fold_lines(text, fold_at()))
}

/// Writes a sentence to standard error; on a terminal its lines end between words.
pub fn complain(text: &str) {
    pass_on(&fold_lines(text, io::stderr().is_terminal().then(width)));
}

/// Writes what was laid out elsewhere to standard error, and a line feed. If even that is closed there is nobody left to tell.
pub fn pass_on(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// A value as one line of JSON with a line feed. What a terminal would obey is escaped, as JSON allows in any string.
pub fn json<T: Serialize>(value: &T) -> serde_json::Result<String> {
    let mut line = escape(&serde_json::to_string(value)?);
    line.push('\n');
    Ok(line)
}

/// Compact JSON has such characters inside strings only, so `\uXXXX` is right wherever one stands.
fn escape(json: &str) -> String {
    let mut safe = String::with_capacity(json.len() + 1);
    for c in json.chars() {
        let mut one = [0; 4];
        match printable(c.encode_utf8(&mut one)) {
            Cow::Borrowed(text) => safe.push_str(text),
            Cow::Owned(_) => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    // Writing to a String cannot fail.
                    let _ = write!(safe, "\\u{unit:04x}");
                }
            }
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_safe_on_a_terminal_and_still_the_same_value() {
        let hostile = "\x1b[2J \u{9b}1m \u{202e} \u{e0041} \" \\ 日本";
        let line = json(&hostile).unwrap();
        assert_eq!(serde_json::from_str::<String>(&line).unwrap(), hostile);
        assert_eq!(printable(line.trim_end()), line.trim_end());
    }

    #[test]
    fn colour_is_on_request_only() {
        assert_eq!(Paint(false).on(Tone::Bad, "dead"), "dead");
        assert_eq!(Paint(true).on(Tone::Bad, "dead"), "\x1b[1m\x1b[31mdead\x1b[0m");
    }
}
