//! How often peers may have a worker broken, and for how long. The node itself decides that; root on the node is not bound.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::vocabulary::{Moment, human};

/// How many rehearsals of one worker peers get within [`HOUR`]: one of each class.
const AN_HOUR: usize = 3;
const HOUR: Duration = Duration::from_secs(3600);
/// For how long a worker may be broken by them within [`DAY`].
const BROKEN_A_DAY: Duration = Duration::from_secs(600);
const DAY: Duration = Duration::from_secs(86_400);

/// The rehearsals of one worker (or of this node's supervisor) that peers had within the last day, oldest first.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Asked(Vec<(Moment, Duration)>);

impl Asked {
    /// Whether a peer may have another one now that breaks the worker for as long as `lease`.
    ///
    /// # Errors
    /// Why not, and from when on.
    pub fn may(&self, lease: Duration, now: Moment) -> Result<(), String> {
        let within = |time: Duration| self.0.iter().filter(move |(began, _)| now.since(*began) < time);
        if let Some((first, _)) = within(HOUR).rev().nth(AN_HOUR - 1) {
            let left = human(HOUR.saturating_sub(now.since(*first)));
            return Err(format!(
                "peers had {AN_HOUR} rehearsals of it within an hour, and the next is in {left}"
            ));
        }
        let broken: Duration = within(DAY).map(|(_, broken)| *broken).sum();
        if !broken.is_zero() && broken + lease > BROKEN_A_DAY {
            return Err(format!(
                "rehearsals for peers have broken it for {} of the {} that they may within a day",
                human(broken),
                human(BROKEN_A_DAY)
            ));
        }
        Ok(())
    }

    /// One begins. Until it is over it counts with its whole lease.
    pub fn begin(&mut self, lease: Duration, now: Moment) {
        self.0.retain(|(began, _)| now.since(*began) < DAY);
        self.0.push((now, lease));
    }

    /// The last one is over.
    pub fn end(&mut self, began: Moment, now: Moment) {
        if let Some((_, broken)) = self.0.iter_mut().rev().find(|(other, _)| *other == began) {
            *broken = now.since(began);
        }
    }

    /// The last one did not take place.
    pub fn forget(&mut self, began: Moment) {
        self.0.retain(|(other, _)| *other != began);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(secs: u64) -> Moment {
        Moment::from_millis((100_000 + secs) * 1000)
    }

    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn three_an_hour_and_no_more() {
        let mut asked = Asked::default();
        for n in 0..3 {
            assert_eq!(asked.may(MINUTE, at(n * 10)), Ok(()));
            asked.begin(MINUTE, at(n * 10));
            asked.end(at(n * 10), at(n * 10 + 1));
        }
        let why = asked.may(MINUTE, at(30)).unwrap_err();
        assert!(why.contains("3 rehearsals") && why.contains("59m 30s"), "{why}");
        assert!(asked.may(MINUTE, at(3599)).is_err());
        assert_eq!(asked.may(MINUTE, at(3600)), Ok(()));
    }

    #[test]
    fn the_time_that_it_spent_broken_is_budgeted_and_one_that_was_not_seen_through_counts_in_full() {
        let mut asked = Asked::default();
        asked.begin(MINUTE * 9, at(0));
        assert!(asked.may(MINUTE * 2, at(7200)).unwrap_err().contains("within a day"));
        assert_eq!(asked.may(MINUTE, at(7200)), Ok(()));
        asked.end(at(0), at(60));
        assert_eq!(asked.may(MINUTE * 2, at(7200)), Ok(()));
        asked.begin(MINUTE * 9, at(7200));
        assert!(asked.may(MINUTE, at(20_000)).is_err());
        asked.forget(at(7200));
        assert_eq!(asked.may(MINUTE, at(20_000)), Ok(()));
        asked.begin(MINUTE * 9, at(20_000));
        assert_eq!(asked.may(MINUTE * 9, at(20_000 + 86_400)), Ok(()), "it was yesterday");
        let kept: Asked = serde_json::from_str(&serde_json::to_string(&asked).unwrap()).unwrap();
        assert_eq!(kept, asked);
        assert_eq!(
            Asked::default().may(BROKEN_A_DAY * 2, at(0)),
            Ok(()),
            "the first one takes what it needs"
        );
    }
}
