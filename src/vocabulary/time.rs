//! Time as the supervisor counts it: from the kernel's boot, never from the wall clock, which may step.

use std::ops::{Add, Sub};
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

/// A point in time as milliseconds since the kernel booted, suspend included (`CLOCK_BOOTTIME`). It means nothing on
/// another host or after a reboot, so what crosses either is a duration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Moment(u64);

impl Moment {
    /// Now. `CLOCK_BOOTTIME` exists since Linux 2.6.39, so reading it does not fail on any kernel that we run on.
    pub fn now() -> Self {
        let now = clock_gettime(ClockId::CLOCK_BOOTTIME).map(Duration::from).unwrap_or_default();
        Self(now.as_millis().try_into().unwrap_or(u64::MAX))
    }

    /// The moment `ms` milliseconds after boot.
    pub const fn from_millis(ms: u64) -> Self {
        Self(ms)
    }

    /// Milliseconds since boot.
    pub const fn as_millis(self) -> u64 {
        self.0
    }

    /// How long ago `earlier` was; zero if it is not in the past.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Moment {
    type Output = Self;

    fn add(self, after: Duration) -> Self {
        Self(self.0.saturating_add(after.as_millis().try_into().unwrap_or(u64::MAX)))
    }
}

impl Sub<Duration> for Moment {
    type Output = Self;

    fn sub(self, before: Duration) -> Self {
        Self(self.0.saturating_sub(before.as_millis().try_into().unwrap_or(u64::MAX)))
    }
}

/// Reads a duration as systemd and people write it: a whole number with `ms`, `s`, `m`, `h` or `d`, parts joined
/// (`1h30m`). A bare number is refused, because nobody can see its unit.
pub fn parse_duration(text: &str) -> Option<Duration> {
    let mut rest = text;
    let mut total: u64 = 0;
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let (number, tail) = rest.split_at_checked(digits)?;
        let letters = tail.bytes().take_while(u8::is_ascii_alphabetic).count();
        let (unit, tail) = tail.split_at_checked(letters)?;
        let factor = match unit {
            "ms" => 1,
            "s" => 1_000,
            "m" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            _ => return None,
        };
        total = total.checked_add(number.parse::<u64>().ok()?.checked_mul(factor)?)?;
        rest = tail;
    }
    (!text.is_empty()).then(|| Duration::from_millis(total))
}

/// A duration for a person: the two largest units that matter (`4.1 ms`, `2.3 s`, `5m 02s`, `3h 10m`, `2d 4h`).
pub fn human(duration: Duration) -> String {
    let ms = duration.as_secs_f64() * 1000.0;
    let s = duration.as_secs();
    match s {
        0 if ms < 10.0 => format!("{ms:.1} ms"),
        0 => format!("{ms:.0} ms"),
        1..10 => format!("{:.1} s", duration.as_secs_f64()),
        10..60 => format!("{s} s"),
        60..3600 => format!("{}m {:02}s", s / 60, s % 60),
        3600..86_400 => format!("{}h {:02}m", s / 3600, s % 3600 / 60),
        _ => format!("{}d {}h", s / 86_400, s % 86_400 / 3600),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_with_their_unit_only() {
        assert_eq!(parse_duration("90s"), Some(Duration::from_secs(90)));
        assert_eq!(parse_duration("1h30m"), Some(Duration::from_secs(5400)));
        assert_eq!(parse_duration("250ms"), Some(Duration::from_millis(250)));
        for bad in ["", "90", "s", "-1s", "1.5s", "1 s", "٣s", "99999999999999999999s", "1w"] {
            assert_eq!(parse_duration(bad), None, "{bad}");
        }
    }

    #[test]
    fn durations_are_shown_short() {
        let shown = |ms| human(Duration::from_millis(ms));
        assert_eq!(
            [shown(4), shown(420), shown(2300), shown(302_000), shown(11_400_000), shown(187_200_000)],
            ["4.0 ms", "420 ms", "2.3 s", "5m 02s", "3h 10m", "2d 4h"]
        );
    }

    #[test]
    fn moments_never_wrap() {
        assert_eq!(Moment::from_millis(5) - Duration::from_secs(9), Moment::default());
        assert_eq!(Moment::from_millis(5).since(Moment::from_millis(9)), Duration::ZERO);
    }
}
