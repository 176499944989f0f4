//! The tools for walking a tree and reporting every mistake on the way. Whatever is wrong is reported and left out, and
//! the walk goes on beside it.

use std::collections::BTreeSet;

use super::report::{At, Located, Report};
use super::yaml::{Kind, Value};

/// The settings of one map, each at most once and none unknown.
#[derive(Debug)]
pub(crate) struct Fields<'t> {
    owner: At,
    what: String,
    entries: Vec<&'t (Located<String>, Value)>,
}

impl<'t> Fields<'t> {
    /// Takes a map apart. `what` is what it describes, for messages; `owner` is where that stands.
    pub(crate) fn of(
        report: &mut Report<'_>,
        owner: At,
        what: impl Into<String>,
        value: &'t Value,
        known: &[&str],
    ) -> Option<Self> {
        let what = what.into();
        let entries = entries(report, owner, &what, value)?;
        let (entries, unknown): (Vec<_>, Vec<_>) =
            entries.into_iter().partition(|(key, _)| known.contains(&key.value.as_str()));
        for (key, _) in unknown {
            if key.value == "<<" {
                report.error(key.at, "merge keys are not allowed", "write the settings out");
            } else {
                let help = report.did_you_mean(&key.value, known.iter().copied());
                report.error(key.at, format!("{what} has no such setting"), help);
            }
        }
        Some(Self { owner, what, entries })
    }

    /// The value of an optional setting.
    pub(crate) fn get(&self, name: &str) -> Option<&'t Value> {
        self.entry(name).map(|(_, value)| value)
    }

    /// Where a setting's key stands.
    pub(crate) fn key(&self, name: &str) -> Option<At> {
        self.entry(name).map(|(key, _)| key.at)
    }

    /// The value of a setting that must be there.
    pub(crate) fn need(&self, report: &mut Report<'_>, name: &str, help: &str) -> Option<&'t Value> {
        let value = self.get(name);
        if value.is_none() {
            report.error(self.owner, format!("{} has no `{name}`", self.what), help);
        }
        value
    }

    /// The version, which must be there and be 1.
    pub(crate) fn version(&self, report: &mut Report<'_>) {
        if let Some(version) = self.need(report, "version", "expected `version: 1` as the first line")
            && !(matches!(version.kind, Kind::Number) && report.spelling(version.at) == "1")
        {
            report.error(version.at, "this version of the file is not known here", "expected 1");
        }
    }

    fn entry(&self, name: &str) -> Option<&'t (Located<String>, Value)> {
        self.entries.iter().find(|(key, _)| key.value == name).copied()
    }
}

/// The entries of a map, duplicates reported and left out.
pub(crate) fn entries<'t>(
    report: &mut Report<'_>,
    owner: At,
    what: &str,
    value: &'t Value,
) -> Option<Vec<&'t (Located<String>, Value)>> {
    let Kind::Map(all) = &value.kind else {
        let at = if matches!(value.kind, Kind::Null) { owner } else { value.at };
        report.error(
            at,
            format!("{what} is {}", value.kind.name()),
            "expected a map: lines with `key: value`, indented below it, or {}",
        );
        return None;
    };
    let mut seen = BTreeSet::new();
    Some(
        all.iter()
            .filter(|(key, _)| {
                let new = seen.insert(key.value.as_str());
                if !new {
                    report.error(key.at, "this stands here a second time", "keep one of the two");
                }
                new
            })
            .collect(),
    )
}

/// The items of a list; an empty one is a mistake, because leaving it out says the same.
pub(crate) fn items<'t>(
    report: &mut Report<'_>,
    key: At,
    value: &'t Value,
    example: &str,
) -> Option<&'t [Value]> {
    match &value.kind {
        Kind::List(items) if items.is_empty() => {
            report.error(value.at, "this list is empty", format!("expected {example}"));
            None
        }
        Kind::List(items) => Some(items),
        Kind::Null | Kind::Bool(_) | Kind::Number | Kind::Text(_) | Kind::Map(_) => {
            let at = if matches!(value.kind, Kind::Null) { key } else { value.at };
            report.error(at, "this is not a list", format!("expected {example}"));
            None
        }
    }
}

/// A word: text, or a number or boolean as it was spelt (a node may well be called 7).
pub(crate) fn word(report: &mut Report<'_>, value: &Value, expected: &str) -> Option<Located<String>> {
    let text = match &value.kind {
        Kind::Text(text) => Some(text.clone()),
        Kind::Bool(_) | Kind::Number => Some(report.spelling(value.at).to_owned()),
        Kind::Null | Kind::List(_) | Kind::Map(_) => None,
    };
    if text.is_none() {
        let message = match value.kind {
            Kind::Null => "the value is missing".to_owned(),
            Kind::Bool(_) | Kind::Number | Kind::Text(_) | Kind::List(_) | Kind::Map(_) => {
                format!("{} cannot stand here", value.kind.name())
            }
        };
        report.error(value.at, message, format!("expected {expected}"));
    }
    text.map(|value_text| Located { at: value.at, value: value_text })
}

/// Words that must differ, parsed one by one; what does not parse is reported by `parse` and left out.
pub(crate) fn distinct<T: Ord>(
    report: &mut Report<'_>,
    items: &[Value],
    expected: &str,
    mut parse: impl FnMut(&mut Report<'_>, &Located<String>) -> Option<T>,
) -> Vec<Located<T>> {
    let mut seen = BTreeSet::new();
    let mut all = Vec::new();
    for item in items {
        let Some(word) = word(report, item, expected) else { continue };
        if !seen.insert(word.value.clone()) {
            report.error(word.at, "this stands in the list a second time", "keep one of the two");
        } else if let Some(value) = parse(report, &word) {
            all.push(Located { at: word.at, value });
        }
    }
    all
}
