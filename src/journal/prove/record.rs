//! One line of `journalctl -o json`.

use std::collections::BTreeMap;

use serde_json::Value;

/// What is kept of a record. Everything else in it does not matter here.
pub(in crate::journal) const FIELDS: [&str; 16] = [
    "MESSAGE",
    "MESSAGE_ID",
    "KEYHOLDER_TASK_ID",
    "KEYHOLDER_LANE",
    "KEYHOLDER_STATUS",
    "KEYHOLDER_RECOVERED",
    "KEYHOLDER_MISSING",
    "UNIT",
    "INVOCATION_ID",
    "_SYSTEMD_UNIT",
    "_SYSTEMD_INVOCATION_ID",
    "_PID",
    "_BOOT_ID",
    "_TRANSPORT",
    "__REALTIME_TIMESTAMP",
    "__MONOTONIC_TIMESTAMP",
];

/// The longest value that is kept, in bytes; messages are shown to 200 characters, everything else is shorter.
const MAX_VALUE: usize = 1_000;

/// A record's fields, those that are text and stand in it once. A field that somebody has written twice is none: journald's own
/// never are.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(in crate::journal) struct Rec {
    fields: BTreeMap<&'static str, String>,
    garbled: bool,
}

impl Rec {
    /// Reads a line; whatever it is, a record comes of it, if need be one that says that it could not be read.
    pub(in crate::journal) fn read(line: &[u8]) -> Self {
        let Ok(Value::Object(object)) = serde_json::from_slice::<Value>(line) else {
            return Self { fields: BTreeMap::new(), garbled: true };
        };
        let fields = FIELDS.into_iter().filter_map(|name| {
            let text = object.get(name)?.as_str()?;
            let mut end = text.len().min(MAX_VALUE);
            while !text.is_char_boundary(end) {
                end -= 1;
            }
            Some((name, text.get(..end)?.to_owned()))
        });
        Self { fields: fields.collect(), garbled: false }
    }

    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.fields.get(name).map(String::as_str)
    }

    pub(super) fn is_garbled(&self) -> bool {
        self.garbled
    }

    /// Microseconds of the boot's monotonic clock.
    pub(super) fn mono(&self) -> Option<i128> {
        self.get("__MONOTONIC_TIMESTAMP")?.parse::<u64>().ok().map(i128::from)
    }

    /// Microseconds since 1970.
    pub(super) fn real(&self) -> Option<i128> {
        self.get("__REALTIME_TIMESTAMP")?.parse::<u64>().ok().map(i128::from)
    }

    /// When, for people.
    pub(super) fn at(&self) -> String {
        let at = self.real().and_then(|us| i64::try_from(us).ok());
        let at = at.and_then(|us| jiff::Timestamp::from_microsecond(us).ok());
        at.map(|at| format!("{at:.6}")).unwrap_or_default()
    }
}
