//! Whether this host's clock may be believed, before a task is refused by its date: a clock that is an hour back at boot would use
//! up every task that was signed meanwhile.

use std::path::Path;
use std::time::{Duration, Instant};

use tokio::time::sleep;

use super::admit::{MAX_AGE, MAX_AHEAD};
use super::shared::{Shared, Taking};
use crate::vocabulary::human;

/// How long a lane waits for the clock to be set; once in its run, since a time server may be out of reach for good.
const AT_MOST: Duration = Duration::from_secs(120);
/// Before the watchdog of the lane's pipe would miss a step.
const LOOK: Duration = Duration::from_millis(500);
/// Where systemd-timesyncd is while it runs, with a file that it makes when it has set the clock.
const TIMESYNC: &str = "/run/systemd/timesync";

/// What is known of the clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Clock {
    /// It was set in this boot.
    Set,
    /// Somebody is there to set it and has not yet.
    Awaited,
    /// Nobody is there who says so. It is gone by as it is.
    Unattended,
}

fn clock(timesync: &Path) -> Clock {
    match (timesync.is_dir(), timesync.join("synchronized").exists()) {
        (_, true) => Clock::Set,
        (true, false) => Clock::Awaited,
        (false, false) => Clock::Unattended,
    }
}

/// Whether a task of this moment of issue would be refused for its date.
pub(super) fn out_of_date(issued_ms: i64, now_ms: i64) -> bool {
    let ms = |time: Duration| i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
    let age = now_ms.saturating_sub(issued_ms);
    issued_ms != 0 && (age > ms(MAX_AGE) || age < -ms(MAX_AHEAD))
}

impl Shared {
    /// Waits until the clock is set, if somebody is there to do it, and says so. False if the lane is to leave meanwhile: then
    /// nothing is judged.
    pub(super) async fn await_clock(&self) -> bool {
        if self.waited_for_clock.get() || clock(Path::new(TIMESYNC)) != Clock::Awaited {
            return true;
        }
        let (taking, what) = if self.all_slots == 1 {
            (Taking::Nothing, "taking no tasks: one")
        } else {
            (Taking::TasksStill, "a task waits: it")
        };
        let text = format!(
            "{what} would be refused for its date, and this host's clock has not been set since it booted; waiting at most {} for \
             systemd-timesyncd (timedatectl timesync-status)",
            human(AT_MOST)
        );
        self.enter("clock", taking, text);
        self.await_clock.set(self.await_clock.get() + 1);
        let set = self.clock_is_set().await;
        self.await_clock.set(self.await_clock.get() - 1);
        set
    }

    async fn clock_is_set(&self) -> bool {
        let since = Instant::now();
        while clock(Path::new(TIMESYNC)) == Clock::Awaited {
            if self.leaving.get() {
                return false;
            }
            if since.elapsed() >= AT_MOST {
                let text = format!(
                    "the clock was not set within {}; dates are judged by it as it is",
                    human(AT_MOST)
                );
                self.waited_for_clock.set(true);
                self.enter("clock-unset", Taking::TasksStill, text);
                return true;
            }
            self.passed();
            sleep(LOOK).await;
        }
        self.enter("serving", Taking::Tasks, format!("the clock is set; serving {} again", self.queue));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_is_awaited_only_while_somebody_is_there_to_set_it() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(clock(&dir.path().join("none")), Clock::Unattended);
        assert_eq!(clock(dir.path()), Clock::Awaited);
        std::fs::write(dir.path().join("synchronized"), "").unwrap();
        assert_eq!(clock(dir.path()), Clock::Set);
    }

    #[test]
    fn only_a_date_that_would_be_refused_is_a_reason_to_wait() {
        let (now, hour) = (1_700_000_000_000, 3_600_000);
        assert!(out_of_date(now + hour, now), "the clock is an hour back");
        assert!(out_of_date(now - 25 * hour, now));
        assert!(!out_of_date(now - hour, now) && !out_of_date(now + 60_000, now) && !out_of_date(0, now));
    }
}
