//! The sudoers lines that a catalog's write actions need: every command with its exact arguments, and nothing else.
//!
//! sudo joins a command's arguments with blanks and compares them with `fnmatch(3)` (measured with sudo 1.9.13: a line with
//! `restart app-*.service` also allowed `restart app-x.service --evil ../sshd.service`, one with a blank in an argument
//! also allowed two arguments, and a backslash that is escaped once still escapes the character after it). So whatever
//! would be a pattern is refused, and a backslash is escaped for both readers.

use super::model::{Action, Arg, Catalog, Param};
use crate::vocabulary::ActionName;

/// How a command is called through sudo: never waiting for a password, and nothing after `--` an option of sudo.
pub const SUDO: [&str; 3] = ["/usr/bin/sudo", "-n", "--"];
/// Lines for one action. Nobody reads more, and what nobody reads nobody has allowed.
pub const MAX_LINES: u64 = 256;
/// Who the write lane runs as, and nobody else.
pub const USER: &str = "keyholder-write";

/// Why there are no sudoers lines. `parse` refuses such catalogs already.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SudoersError {
    /// An action has too many combinations of values.
    #[error(
        "{action} would need {lines} sudoers lines; expected at most {MAX_LINES}: narrow its ranges or enums"
    )]
    TooMany {
        /// Which.
        action: ActionName,
        /// One for each combination.
        lines: u64,
    },
    /// A word that sudo would not compare exactly.
    #[error("{action} has an argument that sudo cannot be given exactly: {why}")]
    Ambiguous {
        /// Which.
        action: ActionName,
        /// What sudo would make of it.
        why: &'static str,
    },
}

impl Action {
    /// What sudo is to run, if the action calls sudo.
    pub fn sudo_command(&self) -> Option<&[Arg]> {
        let (sudo, command) = self.argv.split_at_checked(SUDO.len())?;
        let is = |(arg, wanted): (&Arg, &str)| matches!(arg, Arg::Literal(text) if text == wanted);
        (sudo.iter().zip(SUDO).all(is) && !command.is_empty()).then_some(command)
    }
}

/// The lines that user `keyholder-write` needs for this catalog, by action. Empty if nothing in it calls sudo.
///
/// # Errors
/// [`SudoersError`], for a catalog that was not made by `parse`.
pub fn lines(catalog: &Catalog) -> Result<Vec<(&ActionName, Vec<String>)>, SudoersError> {
    let with_sudo =
        catalog.actions.iter().filter_map(|(name, action)| Some((name, action, action.sudo_command()?)));
    with_sudo.map(|(name, action, command)| Ok((name, of_action(name, action, command)?))).collect()
}

fn of_action(name: &ActionName, action: &Action, command: &[Arg]) -> Result<Vec<String>, SudoersError> {
    let params = command.iter().filter_map(|arg| match arg {
        Arg::Literal(_) => None,
        Arg::Param(param) => action.params.get(param),
    });
    let lines = params.fold(1_u64, |lines, param| lines.saturating_mul(param.size()));
    if lines > MAX_LINES {
        return Err(SudoersError::TooMany { action: name.clone(), lines });
    }
    let mut commands = vec![String::new()];
    for (place, arg) in command.iter().enumerate() {
        let mut longer = Vec::new();
        for word in words(action, arg) {
            if let Some(why) = ambiguous(&word) {
                return Err(SudoersError::Ambiguous { action: name.clone(), why });
            }
            let word = escaped(&word);
            longer.extend(commands.iter().map(|so_far| match place {
                0 => word.clone(),
                _ => format!("{so_far} {word}"),
            }));
        }
        commands = longer;
    }
    // A command without arguments would be allowed with any; "" says that it has none.
    let none = if command.len() == 1 { " \"\"" } else { "" };
    commands.sort();
    Ok(commands.into_iter().map(|command| format!("{USER} ALL=(root) NOPASSWD: {command}{none}")).collect())
}

/// Everything that an argument may be.
fn words(action: &Action, arg: &Arg) -> Vec<String> {
    match arg {
        Arg::Literal(text) => vec![text.clone()],
        Arg::Param(name) => match action.params.get(name) {
            Some(Param::Enum(values)) => values.clone(),
            Some(Param::Int { min, max }) => (*min..=*max).map(|number| number.to_string()).collect(),
            None => Vec::new(),
        },
    }
}

/// Why sudo would not compare a word exactly, if so.
pub(super) fn ambiguous(word: &str) -> Option<&'static str> {
    if word.is_empty() {
        Some("an empty argument would stand for no arguments")
    } else if word.contains(['*', '?', '[', ']']) {
        Some("it would be a pattern, and a pattern matches blanks and further arguments too")
    } else if word.contains(' ') {
        Some("one argument with a blank and two arguments are the same to it")
    } else if word.starts_with('^') {
        Some("it would be a regular expression")
    } else if word.contains(['"', '!']) {
        Some("quotes and exclamation marks have meanings of their own there")
    } else if !word.bytes().all(|b| b.is_ascii_graphic()) {
        Some("it has characters that are not printable ASCII")
    } else {
        None
    }
}

/// A word as sudoers wants it: its own separators escaped once, a backslash for sudoers and for `fnmatch`.
fn escaped(word: &str) -> String {
    let mut text = String::with_capacity(word.len());
    for c in word.chars() {
        match c {
            '\\' => text.push_str("\\\\\\\\"),
            ',' | ':' | '=' | '#' => text.extend(['\\', c]),
            c => text.push(c),
        }
    }
    text
}

/// The whole file for `/etc/sudoers.d`. `source` is what to call the catalog in it.
///
/// # Errors
/// As [`lines`].
pub fn file(catalog: &Catalog, source: &str) -> Result<String, SudoersError> {
    let lines = lines(catalog)?;
    let mut text = format!(
        "# What the write lane of node {} may do as root: made by `keyholder catalog sudoers`, not to be edited.\n\
         # catalog {} ({})\n",
        catalog.node,
        source.escape_default(),
        catalog.hash,
    );
    if lines.is_empty() {
        text.push_str("# No action of it uses sudo.\n");
    }
    for (action, lines) in lines {
        text.push_str(&format!("\n# {action}\n"));
        for line in lines {
            text.push_str(&line);
            text.push('\n');
        }
    }
    Ok(text)
}
