//! The single values that every file has: names, durations, numbers, words. Each reports what is wrong with it and
//! then is left out.

use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

use super::report::{Located, Report};
use super::walk;
use super::yaml::{Kind, Value};
use crate::vocabulary::{NameError, human, parse_duration};

/// A name of the vocabulary.
pub(crate) fn name<T: FromStr<Err = NameError>>(
    report: &mut Report<'_>,
    given: &Located<String>,
) -> Option<T> {
    match given.value.parse() {
        Ok(name) => Some(name),
        Err(error) => {
            report.error(given.at, "this name is not allowed", format!("expected {}", error.rule()));
            None
        }
    }
}

/// A duration within bounds.
pub(crate) fn duration(
    report: &mut Report<'_>,
    value: &Value,
    bounds: &RangeInclusive<Duration>,
) -> Option<Duration> {
    let range = format!("from {} to {}", human(*bounds.start()), human(*bounds.end()));
    let given = walk::word(report, value, "a duration such as 90s, 2m or 1h30m")?;
    let duration = parse_duration(&given.value);
    match duration {
        Some(duration) if bounds.contains(&duration) => return Some(duration),
        Some(duration) if duration < *bounds.start() => {
            report.error(given.at, "this is too short", format!("expected a duration {range}"));
        }
        Some(_) => report.error(given.at, "this is too long", format!("expected a duration {range}")),
        None if matches!(value.kind, Kind::Number) => {
            report.error(
                given.at,
                "this has no unit",
                "expected ms, s, m, h or d after the number, as in 90s or 1h30m",
            );
        }
        None => {
            report.error(
                given.at,
                "this is not a duration",
                format!("expected 90s, 2m, 1h30m or the like, {range}"),
            );
        }
    }
    None
}

/// A whole number within bounds, written in decimal digits.
pub(crate) fn count(report: &mut Report<'_>, value: &Value, bounds: &RangeInclusive<u32>) -> Option<u32> {
    let spelling = match value.kind {
        Kind::Number => report.spelling(value.at),
        Kind::Null | Kind::Bool(_) | Kind::Text(_) | Kind::List(_) | Kind::Map(_) => "",
    };
    let plain =
        spelling.bytes().all(|b| b.is_ascii_digit()) && (spelling == "0" || !spelling.starts_with('0'));
    let number = spelling.parse().ok().filter(|n| plain && bounds.contains(n));
    if number.is_none() {
        let help = format!("expected a whole number from {} to {}", bounds.start(), bounds.end());
        report.error(value.at, "this number is not allowed", help);
    }
    number
}

/// `true` or `false`.
pub(crate) fn boolean(report: &mut Report<'_>, value: &Value) -> Option<bool> {
    match value.kind {
        Kind::Bool(value) => Some(value),
        Kind::Null | Kind::Number | Kind::Text(_) | Kind::List(_) | Kind::Map(_) => {
            report.error(value.at, "this is neither true nor false", "expected true or false");
            None
        }
    }
}

/// One of a few words.
pub(crate) fn one_of<T: Copy>(report: &mut Report<'_>, value: &Value, words: &[(&str, T)]) -> Option<T> {
    let names = words.iter().map(|(name, _)| *name);
    let given =
        walk::word(report, value, &format!("one of {}", names.clone().collect::<Vec<_>>().join(", ")))?;
    let found = words.iter().find(|(name, _)| *name == given.value).map(|(_, value)| *value);
    if found.is_none() {
        let help = report.did_you_mean(&given.value, names);
        report.error(given.at, "this word is not known here", help);
    }
    found
}
