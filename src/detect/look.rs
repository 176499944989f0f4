//! What is looked at, and how often.

use std::path::PathBuf;
use std::time::Duration;

use crate::judge::Sign;
use crate::queue::QueueName;
use crate::vocabulary::{
    Canary, Command, DeliveryGap, Flow, Heartbeat, LaneStatus, Mode, NodeName, Stuck, Target, UnitName,
};

/// A sign must be read at least twice within its time, or its standing still is not believed; four times leaves room
/// for a look that fails or comes late.
const PER_LIMIT: u32 = 4;
/// No look comes more often …
const SHORTEST: Duration = Duration::from_millis(250);
/// … or less often, so that what was found after a change is shown soon.
const LONGEST: Duration = Duration::from_secs(10);

/// One sign of one worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    /// The worker.
    pub target: Target,
    /// Which sign.
    pub sign: Sign,
    /// Where it is.
    pub place: SignSource,
    /// How often it is read.
    pub every: Duration,
}

/// Where a sign is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SignSource {
    /// A file's modification time.
    File(PathBuf),
    /// A lane's status file.
    Lane(PathBuf),
    /// A key in Redis that expires.
    Key(String),
    /// The unit's last line in the journal.
    Journal(UnitName),
    /// A command, as a transient unit.
    Command(Command),
    /// The last ping of the unit's watchdog.
    Watchdog(UnitName),
    /// The head of a list in Redis.
    Queue {
        /// Its key.
        key: String,
        /// A key that is there while its worker has a job in hand.
        busy: Option<String>,
    },
    /// A lane's queue.
    LaneQueue(QueueName),
    /// A task that does nothing, sent through a lane's queue as often as this says.
    Canary(QueueName, Duration),
}

impl Check {
    fn new(target: &Target, sign: Sign, place: SignSource, limit: Duration) -> Self {
        let every = (limit / PER_LIMIT).clamp(SHORTEST, LONGEST);
        Self { target: target.clone(), sign, place, every }
    }

    /// All that there is to look at for a worker of this node.
    pub fn at(
        target: &Target,
        unit: &UnitName,
        stuck: Option<&Stuck>,
        gap: Option<&DeliveryGap>,
    ) -> Vec<Self> {
        let beat = stuck.map(|stuck| {
            let place = match &stuck.heartbeat {
                Heartbeat::File(path) => SignSource::File(path.clone()),
                Heartbeat::Redis(key) => SignSource::Key(key.clone()),
                Heartbeat::Journal => SignSource::Journal(unit.clone()),
                Heartbeat::Command(command) => SignSource::Command(command.clone()),
                Heartbeat::Watchdog => SignSource::Watchdog(unit.clone()),
                Heartbeat::Lane(mode) => SignSource::Lane(LaneStatus::path(*mode)),
            };
            Self::new(target, Sign::Beat, place, stuck.older_than)
        });
        let flow = gap.map(|gap| Self::flow(target, gap));
        let canary = gap.and_then(|gap| match (&gap.flow, gap.canary) {
            (Flow::Lane(mode), Some(Canary { every, within })) => {
                let place = SignSource::Canary(queue(&target.node, *mode), every);
                Some(Self::new(target, Sign::Canary, place, within))
            }
            (Flow::Lane(_) | Flow::Queue { .. }, _) => None,
        });
        [beat, flow, canary].into_iter().flatten().collect()
    }

    /// What can be seen of a worker of another node: its signs in Redis. A canary is left to its own node; two would be
    /// one too many.
    pub fn from_outside(target: &Target, stuck: Option<&Stuck>, gap: Option<&DeliveryGap>) -> Vec<Self> {
        let beat = stuck.and_then(|stuck| match &stuck.heartbeat {
            Heartbeat::Redis(key) => {
                Some(Self::new(target, Sign::Beat, SignSource::Key(key.clone()), stuck.older_than))
            }
            Heartbeat::File(_)
            | Heartbeat::Journal
            | Heartbeat::Command(_)
            | Heartbeat::Watchdog
            | Heartbeat::Lane(_) => None,
        });
        beat.into_iter().chain(gap.map(|gap| Self::flow(target, gap))).collect()
    }

    fn flow(target: &Target, gap: &DeliveryGap) -> Self {
        let place = match &gap.flow {
            Flow::Queue { key, busy } => SignSource::Queue { key: key.clone(), busy: busy.clone() },
            Flow::Lane(mode) => SignSource::LaneQueue(queue(&target.node, *mode)),
        };
        Self::new(target, Sign::Flow, place, gap.not_draining_for)
    }
}

/// The queue of a node's lane, unless its environment names another (MAINT_QUEUE), of which the fleet file knows
/// nothing.
fn queue(node: &NodeName, mode: Mode) -> QueueName {
    match mode {
        Mode::Write => QueueName::write(node),
        Mode::Read => QueueName::read(node),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target() -> Target {
        "mars/agent".parse().unwrap()
    }

    fn secs(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    #[test]
    fn each_sign_is_read_four_times_within_its_limit_and_within_bounds() {
        for (limit, every) in [(90, 10_000), (20, 5_000), (2, 500), (1, 250)] {
            let stuck = Stuck { heartbeat: Heartbeat::Journal, older_than: secs(limit), nudge: None };
            let unit = "agent.service".parse().unwrap();
            let looks = Check::at(&target(), &unit, Some(&stuck), None);
            let [look] = looks.as_slice() else { panic!("{looks:?}") };
            assert_eq!((look.every, look.sign), (Duration::from_millis(every), Sign::Beat));
        }
    }

    #[test]
    fn from_outside_only_what_is_in_redis_is_seen_and_nothing_is_sent() {
        let gap = DeliveryGap {
            flow: Flow::Lane(Mode::Read),
            not_draining_for: secs(60),
            canary: Some(Canary { every: secs(600), within: secs(20) }),
            repipe: None,
        };
        let stuck = |heartbeat| Stuck { heartbeat, older_than: secs(60), nudge: None };
        let lane = stuck(Heartbeat::Lane(Mode::Read));
        let unit = "keyholder-lane-read.service".parse().unwrap();
        let signs = |looks: Vec<Check>| looks.iter().map(|look| look.sign).collect::<Vec<_>>();
        let here = Check::at(&target(), &unit, Some(&lane), Some(&gap));
        assert_eq!(here[2].every, secs(5), "the canary is looked after by its own limit");
        assert_eq!(signs(here), [Sign::Beat, Sign::Flow, Sign::Canary]);
        assert_eq!(signs(Check::from_outside(&target(), Some(&lane), Some(&gap))), [Sign::Flow]);
        let key = stuck(Heartbeat::Redis("beat".to_owned()));
        assert_eq!(signs(Check::from_outside(&target(), Some(&key), Some(&gap))), [Sign::Beat, Sign::Flow]);
    }
}
