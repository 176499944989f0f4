//! What `systemctl show` says of units.

use std::time::Duration;

use super::child::{self, ChildError};

/// PID 1 answers in milliseconds; after this long it does not answer at all.
pub(super) const DEADLINE: Duration = Duration::from_secs(5);

/// The properties of one unit, as printed; a property may come several times.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct UnitProperties(Vec<(String, String)>);

impl UnitProperties {
    /// The first value of a property; empty if it has none, which is what systemd prints for it too.
    pub(super) fn get(&self, name: &str) -> &str {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str()).unwrap_or_default()
    }

    /// All values of a property.
    pub(super) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

/// Asks for some properties of some units; one answer for each, in their order.
///
/// # Errors
/// systemctl cannot be run, or PID 1 does not answer it.
pub(super) fn show(properties: &str, units: &[&str]) -> Result<Vec<UnitProperties>, ChildError> {
    let property = format!("--property={properties}");
    let mut args = vec!["show", "--no-pager", property.as_str(), "--"];
    args.extend(units);
    child::output("/usr/bin/systemctl", &args, DEADLINE).map(|text| parse(&text))
}

/// Units are separated by an empty line.
pub(super) fn parse(text: &str) -> Vec<UnitProperties> {
    text.split("\n\n")
        .map(|unit| {
            let pairs = unit.lines().filter_map(|line| line.split_once('='));
            UnitProperties(pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
        })
        .filter(|shown| !shown.0.is_empty())
        .collect()
}
