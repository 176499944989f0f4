//! When which look is due. Looks of the same pace are due at the same moments, so that many of them cost one wake.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use tokio::time::Instant;

/// Which looks are due when, by their numbers in the plan.
#[derive(Debug)]
pub(super) struct Timetable {
    start: Instant,
    due: BinaryHeap<Reverse<(Instant, usize)>>,
    every: Vec<Duration>,
}

impl Timetable {
    /// All are due at once, and then each at its own pace.
    pub(super) fn new(now: Instant, every: impl Iterator<Item = Duration>) -> Self {
        let every: Vec<_> = every.collect();
        let due = (0..every.len()).map(|number| Reverse((now, number))).collect();
        Self { start: now, due, every }
    }

    /// When the next one is due.
    pub(super) fn next(&self) -> Option<Instant> {
        self.due.peek().map(|Reverse((at, _))| *at)
    }

    /// Those that are due now. What was missed is not made up for: a process that was stopped does not look many times.
    pub(super) fn take(&mut self, now: Instant) -> Vec<usize> {
        let mut due = Vec::new();
        while let Some(Reverse((at, number))) = self.due.peek().copied()
            && at <= now
        {
            self.due.pop();
            due.push(number);
            let every = self.every.get(number).copied().unwrap_or_default().max(Duration::from_millis(1));
            let passed = now.duration_since(self.start).as_nanos() / every.as_nanos();
            let next = u32::try_from(passed + 1).map_or(now + every, |times| self.start + every * times);
            self.due.push(Reverse((next, number)));
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn the_same_pace_is_due_at_the_same_time_and_nothing_is_made_up_for() {
        let start = Instant::now();
        let mut table = Timetable::new(start, [ms(250), ms(1000), ms(250)].into_iter());
        assert_eq!(table.take(start), [0, 1, 2]);
        assert_eq!(table.next(), Some(start + ms(250)));
        // A little late does not shift the following ones.
        assert_eq!(table.take(start + ms(260)), [0, 2]);
        assert_eq!(table.next(), Some(start + ms(500)));
        assert_eq!(table.take(start + ms(60_100)), [0, 2, 1]);
        assert_eq!(table.next(), Some(start + ms(60_250)));
        assert_eq!(Timetable::new(start, std::iter::empty()).next(), None);
    }
}
