//! A unit that falls and that systemd itself restarts, again and again. It is never down for long enough to be repaired or put
//! in quarantine, so it is at least said. Nothing is decided by it.

use std::collections::VecDeque;

use crate::judge::{ActiveState, Observation, UnitSnapshot};
use crate::vocabulary::{Moment, Policy, human};

/// How many restarts are remembered; of more it is only known that there were more.
const KEPT: usize = 100;

/// The restarts of one worker's unit that nobody ordered, as far as they followed a run that failed.
#[derive(Debug, Default)]
pub(super) struct Loops {
    /// What systemd's own counter (`NRestarts`) showed last. Whoever starts or resets the unit by hand sets it back.
    counter: Option<u32>,
    // Boxed: most workers never fell.
    falls: Option<Box<Falls>>,
}

#[derive(Debug, Default)]
struct Falls {
    /// When it was restarted, oldest first. They belong together as long as it has not stayed up in between.
    at: VecDeque<Moment>,
    /// Since when it has been up, if it is.
    up: Option<Moment>,
    /// How the last run ended, in words; none if it ended well, as the run of a worker that restarts by design.
    failed: Option<String>,
    /// How the run before the last of these restarts ended.
    last: String,
    /// It was told, and has not been quiet since.
    told: bool,
}

impl Loops {
    /// Takes a look in. True if it is the one by which the restarts have become too many: as many as the flap guard allows
    /// everybody else.
    pub(super) fn take(&mut self, seen: &Observation, policy: &Policy, now: Moment) -> bool {
        let Observation::Unit(unit) = seen else { return false };
        let more = match self.counter.replace(unit.restarts) {
            // What was before the first look nobody knows the time of.
            None => 0,
            Some(before) => unit.restarts.checked_sub(before).unwrap_or_else(|| {
                // Somebody has acted, so it is not left to systemd alone any more: what comes now is news.
                if let Some(falls) = &mut self.falls {
                    falls.at.clear();
                }
                unit.restarts
            }),
        };
        // A look that shows a restart may show the new run's result already.
        if more == 0 && ended(unit) {
            let failed = unit.result != "success";
            if failed || self.falls.is_some() {
                let how = || unit.exit.clone().unwrap_or_else(|| unit.result.clone());
                self.falls.get_or_insert_default().failed = failed.then(how);
            }
        }
        let Some(falls) = &mut self.falls else { return false };
        if falls.stayed_up(policy, now) {
            falls.at.clear();
        }
        let up =
            matches!(unit.active, ActiveState::Active | ActiveState::Reloading | ActiveState::Refreshing);
        falls.up = up.then(|| falls.up.filter(|_| more == 0).unwrap_or(now));
        falls.told &= !falls.at.is_empty();
        let Some(how) = falls.failed.as_ref().filter(|_| more > 0) else { return false };
        falls.last.clone_from(how);
        for _ in 0..usize::try_from(more).unwrap_or(KEPT).min(KEPT) {
            if falls.at.len() == KEPT {
                falls.at.pop_front();
            }
            falls.at.push_back(now);
        }
        let tell = falls.at.len() >= enough(policy) && !falls.told;
        falls.told |= tell;
        tell
    }

    /// How many there were since it last stayed up for the flap guard's time. A loop that is slow is one all the same.
    fn count(&self, policy: &Policy, now: Moment) -> usize {
        self.falls.as_ref().filter(|falls| !falls.stayed_up(policy, now)).map_or(0, |falls| falls.at.len())
    }

    /// Whether those are too many.
    pub(super) fn too_many(&self, policy: &Policy, now: Moment) -> bool {
        self.count(policy, now) >= enough(policy)
    }

    /// When they will be too many no longer, if nothing happens.
    pub(super) fn wake(&self, policy: &Policy) -> Option<Moment> {
        let falls = self.falls.as_ref().filter(|falls| falls.at.len() >= enough(policy))?;
        falls.up.map(|up| up + policy.per)
    }

    /// How often, in words; nothing if there was none.
    pub(super) fn told(&self, policy: &Policy, now: Moment) -> Option<String> {
        let times = match self.count(policy, now) {
            0 => return None,
            1 => "once".to_owned(),
            KEPT => format!("{KEPT} times or more"),
            count => format!("{count} times"),
        };
        Some(format!("{times}, and it has never stayed up for {}", human(policy.per)))
    }

    /// How the run before the last of them ended.
    pub(super) fn last(&self) -> &str {
        self.falls.as_ref().map_or("", |falls| &falls.last)
    }
}

impl Falls {
    /// Whether it has been up for so long that what was before is another story.
    fn stayed_up(&self, policy: &Policy, now: Moment) -> bool {
        self.up.is_some_and(|up| now.since(up) >= policy.per)
    }
}

fn enough(policy: &Policy) -> usize {
    usize::try_from(policy.relaunches).unwrap_or(usize::MAX).clamp(1, KEPT)
}

/// Whether it shows how its last run ended.
fn ended(unit: &UnitSnapshot) -> bool {
    match unit.active {
        ActiveState::Inactive | ActiveState::Failed => true,
        ActiveState::Activating => unit.sub == "auto-restart",
        ActiveState::Active
        | ActiveState::Reloading
        | ActiveState::Refreshing
        | ActiveState::Deactivating
        | ActiveState::Maintenance
        | ActiveState::Other(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::judge::StopCause;

    const SECOND: Duration = Duration::from_secs(1);

    fn unit(active: ActiveState, sub: &str, result: &str, restarts: u32) -> Observation {
        Observation::Unit(UnitSnapshot {
            result: result.to_owned(),
            restarts_itself: true,
            restarts,
            stop: StopCause::ByItself,
            exit: (result != "success").then(|| "exit code 7".to_owned()),
            ..UnitSnapshot::plain(active, sub)
        })
    }

    fn up(restarts: u32) -> Observation {
        unit(ActiveState::Active, "running", "success", restarts)
    }

    /// A run ends with this result, and systemd restarts it: what is seen of it, and whether that is told.
    fn falls(loops: &mut Loops, result: &str, restarts: u32, now: Moment) -> bool {
        let policy = Policy::default();
        [
            unit(ActiveState::Activating, "auto-restart", result, restarts - 1),
            // The counter and the new run's result come before its state does.
            unit(ActiveState::Activating, "auto-restart", "success", restarts),
            up(restarts),
        ]
        .iter()
        .map(|seen| loops.take(seen, &policy, now))
        .fold(false, |told, tell| told | tell)
    }

    #[test]
    fn as_many_as_the_flap_guard_allows_are_told_once_and_again_only_after_a_quiet_time() {
        let policy = Policy::default();
        let (mut loops, mut now) = (Loops::default(), Moment::from_millis(1_000_000));
        // What systemd counted before the supervisor looked is not lately.
        assert!(!loops.take(&up(40), &policy, now));
        assert_eq!(loops.told(&policy, now), None);
        for n in 41..60 {
            now = now + SECOND;
            assert_eq!(falls(&mut loops, "exit-code", n, now), n == 40 + policy.relaunches, "{n}");
            assert_eq!(loops.too_many(&policy, now), n >= 40 + policy.relaunches, "{n}");
        }
        assert_eq!(loops.told(&policy, now).unwrap(), "19 times, and it has never stayed up for 10m 00s");
        assert_eq!(loops.last(), "exit code 7");
        let calm = loops.wake(&policy).unwrap();
        assert!(!loops.too_many(&policy, calm) && loops.too_many(&policy, calm - SECOND));
        now = now + policy.per;
        assert_eq!(loops.told(&policy, now), None);
        assert!(!falls(&mut loops, "signal", 60, now) && !falls(&mut loops, "signal", 61, now));
        assert!(falls(&mut loops, "signal", 62, now), "another time");
    }

    #[test]
    fn a_slow_loop_is_one_as_long_as_no_run_outlasts_the_flap_guards_time() {
        let policy = Policy::default();
        let (mut loops, mut now) = (Loops::default(), Moment::from_millis(1_000_000));
        loops.take(&up(0), &policy, now);
        // Each attempt to start takes longer than the guard's whole time and brings nothing up.
        let starting = |n| unit(ActiveState::Activating, "start", "success", n);
        let failed = |n| unit(ActiveState::Activating, "auto-restart", "timeout", n);
        let told: Vec<bool> = (0..4)
            .map(|n| {
                now = now + policy.per + SECOND;
                let first = loops.take(&failed(n), &policy, now);
                first | loops.take(&starting(n + 1), &policy, now)
            })
            .collect();
        assert_eq!(told, [false, false, true, false]);
        assert!(loops.too_many(&policy, now) && loops.wake(&policy).is_none(), "until it stays up");
        loops.take(&up(4), &policy, now);
        assert_eq!(loops.wake(&policy), Some(now + policy.per));
        // Runs of nine minutes each, and then one of ten.
        let (mut loops, nine) = (Loops::default(), policy.per - SECOND);
        loops.take(&up(0), &policy, now);
        let told: Vec<bool> = (1..=3)
            .map(|n| {
                now = now + nine;
                falls(&mut loops, "exit-code", n, now)
            })
            .collect();
        assert_eq!(told, [false, false, true]);
        now = now + policy.per;
        assert!(!loops.too_many(&policy, now));
        assert!(
            !falls(&mut loops, "exit-code", 4, now) && loops.told(&policy, now).unwrap().starts_with("once")
        );
    }

    #[test]
    fn an_order_sets_the_counter_back_and_counts_for_nothing() {
        let policy = Policy::default();
        let (mut loops, now) = (Loops::default(), Moment::from_millis(1_000_000));
        loops.take(&up(2), &policy, now);
        for before in std::iter::once(2).chain([0; 50]) {
            // `systemctl restart`, or a relaunch of ours, after a fall.
            assert!(!loops.take(&unit(ActiveState::Failed, "failed", "exit-code", before), &policy, now));
            assert!(!loops.take(&up(0), &policy, now));
        }
        assert_eq!(loops.told(&policy, now), None);
        // From there it counts again, and if that was of no use it is told again.
        assert!(!falls(&mut loops, "exit-code", 1, now));
        assert!(loops.told(&policy, now).unwrap().starts_with("once"));
        assert!(!falls(&mut loops, "exit-code", 2, now) && falls(&mut loops, "exit-code", 3, now));
        loops.take(&up(0), &policy, now);
        assert!(!loops.too_many(&policy, now) && loops.wake(&policy).is_none());
        assert!((1..=3).any(|n| falls(&mut loops, "exit-code", n, now)));
    }

    #[test]
    fn a_worker_that_ends_well_and_is_started_again_does_so_by_design() {
        let policy = Policy::default();
        let (mut loops, now) = (Loops::default(), Moment::from_millis(1_000_000));
        loops.take(&up(0), &policy, now);
        assert!((1..50).all(|n| !falls(&mut loops, "success", n, now)));
        assert!(loops.told(&policy, now).is_none() && loops.wake(&policy).is_none());
    }

    #[test]
    fn what_cannot_be_seen_counts_for_nothing_and_memory_is_bounded() {
        let policy = Policy::default();
        let (mut loops, now) = (Loops::default(), Moment::from_millis(1_000_000));
        loops.take(&up(0), &policy, now);
        assert!(!loops.take(&Observation::Failed("the bus is gone".to_owned()), &policy, now));
        loops.take(&unit(ActiveState::Failed, "failed", "exit-code", 0), &policy, now);
        assert!(loops.take(&up(u32::MAX), &policy, now), "while nobody could look");
        assert_eq!(
            loops.told(&policy, now).unwrap(),
            "100 times or more, and it has never stayed up for 10m 00s"
        );
        assert_eq!(loops.falls.unwrap().at.len(), KEPT);
    }
}
