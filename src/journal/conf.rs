//! What journald's own settings say about lines that it does not keep.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Where the settings are, in the order in which they count; of two drop-ins with the same name the later place wins.
const DROP_INS: [&str; 4] = [
    "/usr/lib/systemd/journald.conf.d",
    "/usr/local/lib/systemd/journald.conf.d",
    "/run/systemd/journald.conf.d",
    "/etc/systemd/journald.conf.d",
];
/// The main file, in the order in which it is looked for.
const MAIN: [&str; 4] = [
    "/etc/systemd/journald.conf",
    "/run/systemd/journald.conf",
    "/usr/local/lib/systemd/journald.conf",
    "/usr/lib/systemd/journald.conf",
];

/// journald's settings, as far as they decide whether a line is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conf {
    /// `Storage=none`: nothing is kept.
    pub keeps_nothing: bool,
    /// `RateLimitIntervalSec=` and `RateLimitBurst=`; none if there is no limit.
    pub rate: Option<(Duration, u64)>,
}

impl Default for Conf {
    fn default() -> Self {
        Self { keeps_nothing: false, rate: Some((Duration::from_secs(30), 10_000)) }
    }
}

impl Conf {
    /// The settings of this host. A file that cannot be read leaves systemd's defaults in force, as it does for journald.
    pub fn of_host() -> Self {
        Self::of(&MAIN.map(Path::new), &DROP_INS.map(Path::new))
    }

    fn of(main: &[&Path], drop_ins: &[&Path]) -> Self {
        let mut text = main.iter().find_map(|file| fs::read_to_string(file).ok()).unwrap_or_default();
        let mut files = BTreeMap::new();
        for entry in drop_ins.iter().filter_map(|dir| fs::read_dir(dir).ok()).flatten().flatten() {
            let path: PathBuf = entry.path();
            if path.extension().is_some_and(|extension| extension == "conf") {
                files.insert(entry.file_name(), path);
            }
        }
        for file in files.values() {
            text.push('\n');
            text.push_str(&fs::read_to_string(file).unwrap_or_default());
        }
        Self::parse(&text)
    }

    fn parse(text: &str) -> Self {
        let last = |name: &str| {
            let values = text.lines().filter_map(|line| line.trim().split_once('='));
            values.filter(|(key, _)| key.trim() == name).map(|(_, value)| value.trim()).next_back()
        };
        let default = Self::default();
        let (interval, burst) = default.rate.unwrap_or_default();
        let interval = last("RateLimitIntervalSec").and_then(span).unwrap_or(interval);
        let burst = last("RateLimitBurst").and_then(|text| text.parse().ok()).unwrap_or(burst);
        Self {
            keeps_nothing: last("Storage") == Some("none"),
            rate: (!interval.is_zero() && burst > 0).then_some((interval, burst)),
        }
    }
}

/// A time as systemd's files have it; a bare number is seconds.
fn span(text: &str) -> Option<Duration> {
    let mut total = Duration::ZERO;
    let mut rest = text.trim();
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let number: u64 = rest.get(..digits)?.parse().ok()?;
        rest = rest.get(digits..)?.trim_start();
        let letters = rest.bytes().take_while(u8::is_ascii_alphabetic).count();
        let unit = match rest.get(..letters)? {
            "us" | "usec" => Duration::from_micros(1),
            "ms" | "msec" => Duration::from_millis(1),
            "" | "s" | "sec" | "second" | "seconds" => Duration::from_secs(1),
            "m" | "min" | "minute" | "minutes" => Duration::from_secs(60),
            "h" | "hr" | "hour" | "hours" => Duration::from_secs(3_600),
            "d" | "day" | "days" => Duration::from_secs(86_400),
            _ => return None,
        };
        total = total.checked_add(unit.checked_mul(u32::try_from(number).ok()?)?)?;
        rest = rest.get(letters..)?.trim_start();
    }
    Some(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_setting_counts_and_comments_do_not() {
        let conf = |text: &str| Conf::parse(text);
        assert_eq!(conf("[Journal]\n#Storage=none\n#RateLimitBurst=1\n"), Conf::default());
        let both = conf(
            "[Journal]\nStorage=none\nRateLimitIntervalSec=1min 30s\nRateLimitBurst=5\nRateLimitBurst=7",
        );
        assert_eq!(both, Conf { keeps_nothing: true, rate: Some((Duration::from_secs(90), 7)) });
        assert_eq!(conf("RateLimitIntervalSec=0").rate, None);
        assert_eq!(conf("RateLimitBurst=0").rate, None);
        assert_eq!(conf("RateLimitIntervalSec=soon").rate, Conf::default().rate);
    }

    #[test]
    fn a_drop_in_of_the_same_name_hides_the_other() {
        let dir = tempfile::tempdir().unwrap();
        let (low, high) = (dir.path().join("low"), dir.path().join("high"));
        for (place, name, body) in
            [(&low, "a.conf", "RateLimitBurst=1"), (&high, "a.conf", "Storage=none"), (&low, "b.txt", "x")]
        {
            fs::create_dir_all(place).unwrap();
            fs::write(place.join(name), body).unwrap();
        }
        let conf = Conf::of(&[&dir.path().join("none")], &[&low, &high]);
        assert_eq!(conf, Conf { keeps_nothing: true, ..Conf::default() });
    }
}
