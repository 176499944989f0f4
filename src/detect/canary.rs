//! One lane's canary over time.

use std::time::Duration;

use tokio::time::Instant;

use crate::judge::Reading;
use crate::queue::{CanaryAt, CanaryTask, LaneSeen};
use crate::vocabulary::NodeName;

/// Which canary is out, and when the next one is sent. Never two of one watcher at a time: in a queue that stands still
/// they would pile up.
#[derive(Debug)]
pub(super) struct Aviary {
    out: Option<CanaryTask>,
    next: Instant,
    every: Duration,
}

impl Aviary {
    pub(super) fn new(now: Instant, every: Duration) -> Self {
        Self { out: None, next: now, every }
    }

    /// The canary to be sent now, if one is due.
    pub(super) fn due(&self, from: &NodeName, now: Instant) -> Option<CanaryTask> {
        if self.out.is_some() || now < self.next { None } else { CanaryTask::new(from) }
    }

    /// It was sent.
    pub(super) fn sent(&mut self, bird: CanaryTask, now: Instant) {
        self.out = Some(bird);
        self.next = now + self.every;
    }

    /// What is to be looked for.
    pub(super) fn out(&self) -> Option<(String, Vec<u8>)> {
        self.out.as_ref().map(|bird| (bird.id.clone(), bird.raw.clone()))
    }

    /// What became of it.
    pub(super) fn seen(&mut self, seen: &LaneSeen) -> Reading {
        match seen.canary {
            // While tasks run it rightly waits for its turn.
            Some(CanaryAt::Waits) if seen.begun == 0 => {
                Reading::Silent("a canary has had no answer".to_owned())
            }
            Some(CanaryAt::Waits) => Reading::Moving,
            // A server that has lost it says nothing about the lane; the next one will.
            Some(CanaryAt::Answered | CanaryAt::Lost) => {
                self.out = None;
                Reading::Moving
            }
            None => Reading::Moving,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(canary: Option<CanaryAt>, begun: u64) -> LaneSeen {
        LaneSeen { waiting: 1, head: 1, tail: 1, taken: begun, oldest: 1, begun, canary }
    }

    #[test]
    fn one_at_a_time_is_out_and_it_is_silent_only_while_it_waits_and_nothing_runs() {
        let (start, every) = (Instant::now(), Duration::from_secs(60));
        let node = "mars".parse().unwrap();
        let mut aviary = Aviary::new(start, every);
        assert_eq!(aviary.seen(&seen(None, 0)), Reading::Moving);
        let bird = aviary.due(&node, start).unwrap();
        aviary.sent(bird, start);
        assert!(aviary.due(&node, start + every * 5).is_none(), "the first is still out");
        assert!(matches!(aviary.seen(&seen(Some(CanaryAt::Waits), 0)), Reading::Silent(_)));
        assert_eq!(aviary.seen(&seen(Some(CanaryAt::Waits), 1)), Reading::Moving);
        assert!(aviary.out().is_some());
        for end in [CanaryAt::Answered, CanaryAt::Lost] {
            assert_eq!(aviary.seen(&seen(Some(end), 0)), Reading::Moving);
            assert!(aviary.out().is_none());
            assert!(aviary.due(&node, start + every / 2).is_none());
            let bird = aviary.due(&node, start + every).unwrap();
            aviary.sent(bird, start);
        }
    }
}
