//! What is asked about a unit beside its state: its main process, and how it is connected to the journal. Where its lines cannot
//! arrive, that they do not come says nothing.

use std::time::Duration;

use super::raw::Value;
use crate::vocabulary::{InvocationId, UnitName};

/// The least severe level that a line of standard output can have (`LOG_DEBUG`); `LogLevelMax=` is -1 if it is not set.
const ALL_LEVELS: i32 = 7;

/// A unit's main process, and what decides whether its lines reach the journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// The unit's proper name. The journal files lines under it, whatever alias the unit is known by elsewhere.
    pub id: Option<UnitName>,
    /// Its main process, 0 for none.
    pub main_pid: u32,
    /// systemd's ActiveState.
    pub active: String,
    /// The present run.
    pub invocation: Option<InvocationId>,
    /// When the present run became active: microseconds of `CLOCK_MONOTONIC`, 0 for never.
    pub active_since: u64,
    /// `StandardOutput=`.
    pub output: String,
    /// `StandardError=`.
    pub error: String,
    /// `LogNamespace=`, empty for the host's own journal.
    pub namespace: String,
    /// `LogLevelMax=`, below which lines are dropped.
    pub level_max: i32,
    /// `SyslogLevel=`, the level of a line that names none.
    pub level: i32,
    /// `LogRateLimitIntervalSec=` in microseconds, 0 if the unit does not set it.
    pub interval_us: u64,
    /// `LogRateLimitBurst=`, 0 if the unit does not set it.
    pub burst: u64,
}

impl Default for Facts {
    fn default() -> Self {
        Self {
            id: None,
            main_pid: 0,
            active: String::new(),
            invocation: None,
            active_since: 0,
            output: String::new(),
            error: String::new(),
            namespace: String::new(),
            level_max: -1,
            level: 6,
            interval_us: 0,
            burst: 0,
        }
    }
}

impl Facts {
    /// Takes one property over; others than those needed are passed by.
    pub(super) fn set(&mut self, name: &str, value: &impl Value) {
        let text = |to: &mut String| {
            if let Some(text) = value.text() {
                text.clone_into(to);
            }
        };
        match name {
            "Id" => self.id = value.text().and_then(|id| id.parse().ok()),
            "MainPID" => {
                self.main_pid = value.number().and_then(|pid| pid.try_into().ok()).unwrap_or_default()
            }
            "ActiveState" => text(&mut self.active),
            "InvocationID" => self.invocation = value.invocation().flatten(),
            "ActiveEnterTimestampMonotonic" => self.active_since = value.number().unwrap_or_default(),
            "StandardOutput" => text(&mut self.output),
            "StandardError" => text(&mut self.error),
            "LogNamespace" => text(&mut self.namespace),
            "LogLevelMax" => self.level_max = value.code().unwrap_or(-1),
            "SyslogLevel" => self.level = value.code().unwrap_or(6),
            "LogRateLimitIntervalUSec" => self.interval_us = value.number().unwrap_or_default(),
            "LogRateLimitBurst" => self.burst = value.number().unwrap_or_default(),
            _ => {}
        }
    }

    /// How many lines journald takes of the unit, and within which time, if the unit itself says so.
    pub fn rate(&self) -> Option<(Duration, u64)> {
        let set = self.interval_us != 0 && self.burst != 0;
        set.then(|| (Duration::from_micros(self.interval_us), self.burst))
    }

    /// Why nothing that the unit's processes write to their standard output or error arrives in the journal; none if it does.
    /// What a process hands to journald or syslog by itself arrives all the same.
    pub fn elsewhere(&self) -> Option<String> {
        stray(&self.output, &self.error).or_else(|| {
            let max = self.level_max;
            (0..ALL_LEVELS).contains(&max).then_some(())?;
            (max < self.level)
                .then(|| format!("LogLevelMax={max} drops its lines, which have level {}", self.level))
        })
    }
}

/// Whether neither of the two streams leads to the journal, and where they lead, in words.
pub(crate) fn stray(output: &str, error: &str) -> Option<String> {
    let arrives = |to: &str| to.is_empty() || to.starts_with("journal") || to.starts_with("syslog");
    let error = if error.is_empty() || error == "inherit" { output } else { error };
    (!arrives(output) && !arrives(error))
        .then(|| format!("its lines go elsewhere (StandardOutput={output}, StandardError={error})"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_arrive_if_either_stream_leads_to_the_journal() {
        for (output, error, arrives) in [
            ("journal", "inherit", true),
            ("journal+console", "inherit", true),
            ("", "", true),
            ("null", "journal", true),
            ("null", "inherit", false),
            ("append:/var/log/x", "append:/var/log/x", false),
            ("file:/var/log/x", "null", false),
            ("tty", "inherit", false),
            ("socket", "inherit", false),
            ("kmsg", "inherit", false),
        ] {
            assert_eq!(stray(output, error).is_none(), arrives, "{output} {error}");
        }
    }

    #[test]
    fn a_level_that_is_dropped_does_not_arrive_and_two_zeros_are_no_rate() {
        let mut logging = Facts::default();
        for (name, value) in [
            ("StandardOutput", "journal"),
            ("LogRateLimitIntervalUSec", "0"),
            ("LogRateLimitBurst", "0"),
            ("LogLevelMax", "-1"),
        ] {
            logging.set(name, &value);
        }
        assert_eq!((logging.elsewhere(), logging.rate()), (None, None));
        logging.set("LogLevelMax", &"4");
        assert!(logging.elsewhere().is_some_and(|why| why.contains("LogLevelMax=4")));
    }
}
