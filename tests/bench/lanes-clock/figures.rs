//! What came out, for people and for programs.

use std::fmt::Write as _;
use std::time::Duration;

use serde_json::{Value, json};

/// A distribution of times.
#[derive(Default)]
pub(crate) struct Times(Vec<Duration>);

impl Times {
    pub(crate) fn add(&mut self, times: Vec<Duration>) {
        self.0.extend(times);
        self.0.sort_unstable();
    }

    /// In milliseconds: the time within which this share of all were over.
    pub(crate) fn at(&self, share: f64) -> f64 {
        let last = self.0.len() - 1;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "a place in a list"
        )]
        let place = (last as f64 * share).round() as usize;
        self.0[place].as_secs_f64() * 1e3
    }
}

/// A line of the latencies.
pub(crate) struct Way {
    pub(crate) key: &'static str,
    pub(crate) name: String,
    pub(crate) times: Times,
}

/// Something that was wanted of two figures or one.
pub(crate) struct Wanted {
    pub(crate) key: &'static str,
    pub(crate) text: String,
    pub(crate) is: f64,
    /// At most so much, or at least.
    pub(crate) limit: Limit,
}

pub(crate) enum Limit {
    AtMost(f64),
    AtLeast(f64),
}

impl Wanted {
    fn met(&self) -> bool {
        match self.limit {
            Limit::AtMost(most) => self.is <= most,
            Limit::AtLeast(least) => self.is >= least,
        }
    }
}

/// All of it. The first of `latency` is the floor.
#[derive(Default)]
pub(crate) struct Figures {
    pub(crate) latency: Vec<Way>,
    /// Slots and tasks in a second.
    pub(crate) throughput: Vec<(String, f64)>,
    /// Of what, and kilobytes.
    pub(crate) memory: Vec<(String, u64)>,
    pub(crate) wanted: Vec<Wanted>,
}

impl Figures {
    /// The times of one way.
    pub(crate) fn of(&self, key: &str) -> Option<&Times> {
        self.latency.iter().find(|way| way.key == key).map(|way| &way.times)
    }

    pub(crate) fn table(&self) -> String {
        let mut text = String::new();
        let floor = self.latency[0].times.at(0.5);
        let _ = writeln!(
            text,
            "\n{:<52} {:>8} {:>8} {:>8} {:>7} {:>6}",
            "milliseconds from giving a task to its result", "p50", "p99", "best", "ratio", "laps"
        );
        for way in &self.latency {
            let (p50, p99, best) = (way.times.at(0.5), way.times.at(0.99), way.times.at(0.0));
            let (name, laps) = (&way.name, way.times.0.len());
            let _ =
                writeln!(text, "{name:<52} {p50:>8.2} {p99:>8.2} {best:>8.2} {:>7.2} {laps:>6}", p50 / floor);
        }
        let _ = writeln!(text, "\n{:<52} {:>8}", "tasks a second", "");
        for (name, rate) in &self.throughput {
            let _ = writeln!(text, "{name:<52} {rate:>8.0}");
        }
        let _ = writeln!(text, "\n{:<52} {:>8}", "megabytes resident", "");
        for (name, kilobytes) in &self.memory {
            #[expect(clippy::cast_precision_loss, reason = "shown with two digits")]
            let _ = writeln!(text, "{name:<52} {:>8.2}", *kilobytes as f64 / 1024.0);
        }
        let _ = writeln!(text, "\n{:<52} {:>8} {:>10}", "wanted", "is", "");
        for wanted in &self.wanted {
            let (sign, limit) = match wanted.limit {
                Limit::AtMost(most) => ("<=", most),
                Limit::AtLeast(least) => (">=", least),
            };
            let met = if wanted.met() { "yes" } else { "NO" };
            let _ = writeln!(text, "{:<52} {:>8.2}   {sign} {limit:>5.1}  {met}", wanted.text, wanted.is);
        }
        text
    }

    pub(crate) fn json(&self) -> String {
        let floor = self.latency[0].times.at(0.5);
        let latency = |way: &Way| {
            let times = &way.times;
            let (p50, p99, best) = (times.at(0.5), times.at(0.99), times.at(0.0));
            json!({ "key": way.key, "name": way.name, "laps": times.0.len(), "p50_ms": p50, "p99_ms": p99, "best_ms": best,
                    "of_the_floor": p50 / floor })
        };
        let wanted = |wanted: &Wanted| {
            let (at_most, at_least) = match wanted.limit {
                Limit::AtMost(most) => (Some(most), None),
                Limit::AtLeast(least) => (None, Some(least)),
            };
            json!({ "key": wanted.key, "text": wanted.text, "is": wanted.is, "at_most": at_most, "at_least": at_least,
                    "met": wanted.met() })
        };
        let all = json!({
            "latency": self.latency.iter().map(latency).collect::<Vec<Value>>(),
            "throughput": self.throughput.iter().map(|(name, rate)| json!({ "name": name, "tasks_per_s": rate })).collect::<Vec<_>>(),
            "memory": self.memory.iter().map(|(name, kb)| json!({ "name": name, "resident_kb": kb })).collect::<Vec<_>>(),
            "wanted": self.wanted.iter().map(wanted).collect::<Vec<Value>>(),
        });
        format!("{all:#}\n")
    }
}
