//! How often something may happen: some times at once, and one more each so much time.

use std::time::Duration;

/// An allowance (the generic cell rate algorithm). Times are since any fixed moment, so that every clock will do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Allowance {
    every: Duration,
    /// What may be used at once, as the time in which it is earned.
    burst: Duration,
    /// When all that was used will have been earned again.
    until: Duration,
}

impl Allowance {
    /// `burst` times at once, and once more each `every`.
    pub const fn new(burst: u32, every: Duration) -> Self {
        Self { every, burst: every.saturating_mul(burst), until: Duration::ZERO }
    }

    /// Uses it once, if it may be used at `now`.
    pub fn take(&mut self, now: Duration) -> bool {
        let allowed = self.wait(now).is_zero();
        if allowed {
            self.until = self.until.max(now) + self.every;
        }
        allowed
    }

    /// Uses it `times` times in any case. Returns how long to wait until that much was allowed.
    pub fn use_up(&mut self, times: u32, now: Duration) -> Duration {
        self.until = self.until.max(now) + self.every.saturating_mul(times);
        self.until.saturating_sub(now + self.burst)
    }

    /// Whether nothing of it is used at `now`.
    pub fn is_whole(&self, now: Duration) -> bool {
        self.until <= now
    }

    /// How long it may not be used yet.
    pub fn wait(&self, now: Duration) -> Duration {
        (self.until + self.every).saturating_sub(now + self.burst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn some_at_once_and_then_one_each_time() {
        let mut allowance = Allowance::new(3, SECOND);
        let start = SECOND * 1000;
        let taken = |allowance: &mut Allowance, now| (0..10).filter(|_| allowance.take(now)).count();
        assert_eq!(taken(&mut allowance, start), 3);
        assert_eq!(allowance.wait(start), SECOND);
        assert_eq!(taken(&mut allowance, start + SECOND / 2), 0);
        assert_eq!(taken(&mut allowance, start + SECOND), 1);
        assert_eq!(taken(&mut allowance, start + SECOND * 100), 3, "what is not used is not saved up");
    }

    #[test]
    fn what_is_used_beyond_it_is_waited_for() {
        let mut allowance = Allowance::new(10, SECOND);
        assert_eq!(allowance.use_up(10, SECOND), Duration::ZERO);
        assert_eq!(allowance.use_up(4, SECOND), SECOND * 4);
        assert_eq!(allowance.use_up(1, SECOND * 10), Duration::ZERO);
    }
}
