//! How long to wait before the next attempt.

use std::time::Duration;

use ring::rand::{SecureRandom, SystemRandom};

const FIRST: Duration = Duration::from_millis(100);
/// A server that is back must be found within 5 s, connecting included.
const LONGEST: Duration = Duration::from_secs(2);

/// Twice as long each time, and half of that at random, so that lanes which lost their server together do not come back
/// together.
#[derive(Debug)]
pub struct Backoff {
    next: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { next: FIRST }
    }
}

impl Backoff {
    /// How long to wait now.
    pub fn wait(&mut self) -> Duration {
        let whole = self.next;
        self.next = (whole * 2).min(LONGEST);
        let mut byte = [0];
        // Without randomness all lanes wait the same; that is no reason not to wait.
        let _ = SystemRandom::new().fill(&mut byte);
        whole / 2 + whole.mul_f64(f64::from(byte[0]) / 512.0)
    }

    /// All is well again.
    pub fn reset(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_grows_to_its_bound_and_never_hurries() {
        let mut backoff = Backoff::default();
        let waits: Vec<_> = (0..20).map(|_| backoff.wait()).collect();
        assert!(waits.iter().all(|wait| *wait >= FIRST / 2 && *wait <= LONGEST), "{waits:?}");
        assert!(waits.iter().skip(6).all(|wait| *wait >= LONGEST / 2), "{waits:?}");
        backoff.reset();
        assert!(backoff.wait() <= FIRST);
    }
}
