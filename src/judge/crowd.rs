//! Many at once: a common cause is not fixed by restarting everybody who suffers from it.

use serde::{Deserialize, Serialize};

use super::classify::Health;

/// What the other workers of a node are like at the same moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Crowd {
    /// How many are dead.
    pub dead: usize,
    /// Whether most of them make no progress: the brake.
    pub brake: bool,
}

/// So many workers have to make no progress before the brake can be a question. With fewer, "most" is a coincidence, and
/// each one's own flap guard is enough.
const BRAKE_AT: usize = 3;

/// Looks at all workers of a node.
pub fn crowd<'a>(all: impl Iterator<Item = &'a Health>) -> Crowd {
    let (mut dead, mut still, mut up) = (0_usize, 0_usize, 0_usize);
    for health in all {
        match health {
            Health::Dead(_) => dead += 1,
            Health::Stuck(_) | Health::DeliveryGap(_) => {
                still += 1;
                up += 1;
            }
            Health::Healthy | Health::Blind(_) => up += 1,
            Health::InTransition(_) | Health::Idle(_) | Health::Unknown(_) => {}
        }
    }
    Crowd { dead, brake: still >= BRAKE_AT && still * 2 > up }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(stuck: usize, healthy: usize) -> bool {
        let stuck = std::iter::repeat_n(Health::Stuck("x".to_owned()), stuck);
        let all: Vec<Health> = stuck.chain(std::iter::repeat_n(Health::Healthy, healthy)).collect();
        crowd(all.iter()).brake
    }

    #[test]
    fn the_brake_needs_more_than_half_and_more_than_two() {
        assert!(!of(2, 0));
        assert!(of(3, 2));
        assert!(!of(3, 3));
        assert!(of(20, 0));
    }
}
