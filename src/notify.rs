//! What systemd is told: READY, STATUS at each transition, and the watchdog's ping after each pass of the loop.

use std::time::{Duration, Instant};

use sd_notify::NotifyState;

/// A daemon's line to PID 1. Outside systemd it does nothing.
pub(crate) struct Notifier {
    /// How often the watchdog wants to hear of a completed pass; none if the unit has no `WatchdogSec=`.
    every: Option<Duration>,
    pinged: Instant,
    status: String,
}

impl Notifier {
    /// Reads from the environment what systemd expects.
    pub(crate) fn from_environment() -> Self {
        // A third of the limit: two pings may be late before systemd gives us up.
        let every = sd_notify::watchdog_enabled().map(|limit| limit / 3);
        Self { every, pinged: Instant::now(), status: String::new() }
    }

    /// Initialisation is complete.
    pub(crate) fn ready(&self) {
        tell(&[NotifyState::Ready]);
    }

    /// A clean stop has begun.
    pub(crate) fn stopping(&self) {
        tell(&[NotifyState::Stopping]);
    }

    /// Shows `status` in `systemctl status`, if it is a new one.
    pub(crate) fn status(&mut self, status: String) {
        if status != self.status {
            tell(&[NotifyState::Status(&status)]);
            self.status = status;
        }
    }

    /// The loop has just completed a pass. Only it calls this: a ping from a timer would say nothing.
    pub(crate) fn passed(&mut self) {
        if let Some(every) = self.every
            && self.pinged.elapsed() >= every / 2
        {
            tell(&[NotifyState::Watchdog]);
            self.pinged = Instant::now();
        }
    }

    /// How long the loop may sleep before it has to complete another pass.
    pub(crate) fn at_most(&self) -> Duration {
        self.every.unwrap_or(Duration::from_secs(30))
    }
}

fn tell(state: &[NotifyState<'_>]) {
    // Without a service manager there is nobody to tell, and a lost message is repeated by the next pass.
    let _ = sd_notify::notify(state);
}
