//! The single values that only a catalog has: arguments, placeholders, values of an enum, descriptions.

use super::model::Arg;
use crate::config::report::{Located, Report};
use crate::config::walk;
use crate::config::yaml::{Kind, Value};
use crate::vocabulary::{ParamName, printable};

/// Characters of an argument or of a value.
pub(super) const MAX_ARG: usize = 256;
/// Characters of a description: one line for a person, a sentence for a planner.
pub(super) const MAX_DESCRIPTION: usize = 200;

/// One element of a command: `{name}` as a whole, or a literal without braces.
pub(super) fn argument(report: &mut Report<'_>, value: &Value) -> Option<Located<Arg>> {
    // To YAML, braces without quotes are a map.
    if let Kind::Map(entries) = &value.kind
        && let [(name, Value { kind: Kind::Null, .. })] = entries.as_slice()
    {
        let help = format!("expected \"{{{}}}\" in quotes; without them YAML reads a map", name.value);
        report.error(value.at, "a placeholder must stand in quotes", help);
        return None;
    }
    let given = walk::word(report, value, "an argument: text, or a placeholder such as \"{unit}\"")?;
    let text = visible(report, given)?;
    let inner = text.value.strip_prefix('{').and_then(|rest| rest.strip_suffix('}'));
    if let Some(name) = inner.and_then(|name| name.parse::<ParamName>().ok()) {
        return Some(Located { at: text.at, value: Arg::Param(name) });
    }
    if text.value.contains(['{', '}']) {
        report.error(
            text.at,
            "a parameter fills a whole argument, and braces mean nothing else",
            "expected an element that is \"{name}\" and nothing more; for a literal brace use an enum of one value",
        );
        return None;
    }
    Some(Located { at: text.at, value: Arg::Literal(text.value) })
}

/// One value of an enum.
pub(super) fn choice(report: &mut Report<'_>, given: &Located<String>) -> Option<String> {
    let text = visible(report, given.clone())?;
    if text.value.starts_with('-') {
        report.error(
            text.at,
            "a value that begins with `-` would be an option of the command",
            "expected a value that begins with something else; a fixed option belongs into `argv`",
        );
        return None;
    }
    Some(text.value)
}

/// Text that means the same to a person, a log, a shell's history, sudo and the command itself.
fn visible(report: &mut Report<'_>, given: Located<String>) -> Option<Located<String>> {
    let message = if given.value.is_empty() {
        "an empty argument is not allowed"
    } else if given.value.len() > MAX_ARG {
        "this is too long"
    } else if !given.value.bytes().all(|b| b == b' ' || b.is_ascii_graphic()) {
        "this has characters that are not printable ASCII"
    } else {
        return Some(given);
    };
    report.error(given.at, message, format!("expected 1 to {MAX_ARG} printable ASCII characters"));
    None
}

/// One line for people and planners, in any language.
pub(super) fn description(report: &mut Report<'_>, value: &Value) -> Option<String> {
    let given = walk::word(report, value, "one line that says what the action does")?;
    let message = if given.value.chars().count() > MAX_DESCRIPTION {
        "this description is too long"
    } else if printable(&given.value) != given.value.as_str() {
        "this description has characters that cannot be shown"
    } else {
        return Some(given.value);
    };
    report.error(given.at, message, format!("expected one line of at most {MAX_DESCRIPTION} characters"));
    None
}
