//! Tells a person: for each alert one run of `keyholder-alert@SEQ.service`, outside root and outside this process. The
//! loop waits for none of it, and a storm of alerts is a few runs and a count.

use std::collections::VecDeque;
use std::path::Path;
use std::time::Duration;

use tokio::sync::broadcast::error::RecvError;
use tokio::time::{Instant, sleep_until};

use crate::journal::{Event as Kind, Priority, Record, Recorder};
use crate::systemd::Systemd;
use crate::vocabulary::{NodeName, UnitName};

/// What the unit runs. Without it there is nothing to start; the unit says the same.
const HOOK: &str = "/etc/keyholder/alert";
/// How many runs there are at most …
const AT_MOST: usize = 10;
/// … within this time. A person reads no more, and each is a process at a time when the host has better things to do.
const WITHIN: Duration = Duration::from_secs(60);
/// How long the start of one may take.
const START: Duration = Duration::from_secs(10);

/// Lets so many through, and counts the rest.
#[derive(Debug, Default)]
struct RateLimiter {
    through: VecDeque<Instant>,
    held_back: u64,
}

impl RateLimiter {
    /// Whether an alert is passed on now.
    fn pass(&mut self, now: Instant) -> bool {
        while self.through.front().is_some_and(|at| now.saturating_duration_since(*at) >= WITHIN) {
            self.through.pop_front();
        }
        let free = self.through.len() < AT_MOST;
        if free {
            self.through.push_back(now);
        } else {
            self.hold_back(1);
        }
        free
    }

    fn hold_back(&mut self, count: u64) {
        self.held_back = self.held_back.saturating_add(count);
    }

    /// When the count of what was held back can be told; never, if nothing was.
    fn due(&self) -> Option<Instant> {
        let first = self.through.front().filter(|_| self.held_back > 0)?;
        Some(*first + WITHIN)
    }
}

/// Passes alerts on for as long as the supervisor runs. What is recorded from here on is heard.
pub(super) fn start(me: NodeName, recorder: Recorder, systemd: Systemd) {
    let mut alerts = recorder.alerts();
    tokio::spawn(async move {
        let mut sluice = RateLimiter::default();
        let mut last = String::new();
        loop {
            let due = sluice.due();
            // Cancel safe: `recv` takes nothing before it is ready.
            let heard = tokio::select! {
                heard = alerts.recv() => heard,
                () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {
                    let count = std::mem::take(&mut sluice.held_back);
                    // This is an alert itself, and now there is room for it.
                    recorder.record(storm(&me, count, &last));
                    continue;
                }
            };
            match heard {
                Ok(line) => {
                    last.clone_from(&line.subject);
                    if Path::new(HOOK).exists() && sluice.pass(Instant::now()) {
                        tokio::spawn(run(recorder.clone(), systemd.clone(), line.seq));
                    }
                }
                Err(RecvError::Lagged(count)) => sluice.hold_back(count),
                Err(RecvError::Closed) => return,
            }
        }
    });
}

fn storm(me: &NodeName, count: u64, last: &str) -> Record {
    let text = format!(
        "{count} more alerts came within {} s and were not told one by one, the last of {last}: keyholder audit -n {}",
        WITHIN.as_secs(),
        count.saturating_add(20).min(1000)
    );
    Record::local(Kind::Alert, Priority::Warning, me.as_str(), text)
}

/// Starts the run of one alert. That it failed is recorded as no alert: nobody could be told of it.
async fn run(recorder: Recorder, systemd: Systemd, seq: u64) {
    let started = match unit(seq) {
        Some(unit) => systemd.start_quietly(&unit, START).await,
        None => Err("its number makes no unit name".to_owned()),
    };
    if let Err(why) = started {
        let text =
            format!("nobody was told of record {seq}: its keyholder-alert@.service did not start: {why}");
        recorder.record(Record::local(Kind::Degraded, Priority::Warning, HOOK, text));
    }
}

fn unit(seq: u64) -> Option<UnitName> {
    format!("keyholder-alert@{seq}.service").parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_storm_is_a_few_runs_and_a_count() {
        let start = Instant::now();
        let second = Duration::from_secs(1);
        let mut sluice = RateLimiter::default();
        let passed = (0..100).filter(|_| sluice.pass(start)).count();
        assert_eq!((passed, sluice.held_back), (AT_MOST, 90));
        assert_eq!(sluice.due(), Some(start + WITHIN));
        assert!(!sluice.pass(start + WITHIN - second), "not one more within the time");
        assert!(sluice.pass(start + WITHIN), "then there is room, first for the count");
        sluice.held_back = 0;
        assert_eq!(sluice.due(), None, "and nothing to wake for");
        // Spread out, all of them pass.
        let mut calm = RateLimiter::default();
        assert!((0u32..100).all(|n| calm.pass(start + WITHIN / 10 * n)));
        assert!(calm.through.len() <= AT_MOST);
    }

    #[test]
    fn an_instance_is_a_number_and_nothing_else() {
        for seq in [1, 4711, u64::MAX] {
            assert_eq!(unit(seq).unwrap().as_str(), format!("keyholder-alert@{seq}.service"));
        }
    }
}
