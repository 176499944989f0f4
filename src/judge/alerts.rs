//! Who has to be called, and who has to be told that it is over: one alert for each cause of an episode, after a moment in
//! which it may pass by itself, and one end for the whole episode.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::vocabulary::Moment;

/// How long trouble may pass by itself before anybody is called: a package upgrade, a restart by systemd, a cable that is
/// plugged in again.
pub const ALERT_SETTLE: Duration = Duration::from_secs(3);
/// How many causes of one episode are kept. There are a dozen in all.
const CAUSES: usize = 16;

/// The open alerts. They are saved, so that a supervisor that is restarted tells the end of what an earlier run has told.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Alerts {
    episodes: BTreeMap<String, OpenTrouble>,
}

/// One episode of trouble with one thing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct OpenTrouble {
    since: Moment,
    /// The causes that people were told.
    told: Vec<String>,
    /// Those that they will be told unless it passes.
    waiting: Vec<Waiting>,
    /// Those that are about to be told: what else people want to know is being read.
    #[serde(default)]
    telling: Vec<String>,
    /// It is over, in these words, but for what is about to be told.
    #[serde(default)]
    over: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Waiting {
    due: Moment,
    #[serde(flatten)]
    alert: Alert,
}

/// What people are told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Alert {
    /// Which kind of trouble it is; each is told once in an episode.
    pub cause: String,
    /// In a sentence.
    pub text: String,
    /// Whether somebody must look, not only know.
    pub urgent: bool,
}

impl Alerts {
    /// There is trouble with `about`: people are told after `wait`, unless it is over by then or they have been told.
    pub fn raise(&mut self, about: &str, alert: Alert, wait: Duration, now: Moment) {
        let trouble = self.episodes.entry(about.to_owned()).or_insert_with(|| OpenTrouble {
            since: now,
            told: Vec::new(),
            waiting: Vec::new(),
            telling: Vec::new(),
            over: None,
        });
        trouble.over = None;
        let known = trouble.told.contains(&alert.cause) || trouble.telling.contains(&alert.cause);
        if known || trouble.told.len() + trouble.waiting.len() >= CAUSES {
            return;
        }
        match trouble.waiting.iter_mut().find(|waiting| waiting.alert.cause == alert.cause) {
            Some(waiting) => waiting.alert = alert,
            None => trouble.waiting.push(Waiting { due: now + wait, alert }),
        }
    }

    /// The trouble with `about` is over. Returns for how long it lasted if people were told of it and have to be told this;
    /// what they had not been told yet is forgotten.
    pub fn end(&mut self, about: &str, how: &str, now: Moment) -> Option<Duration> {
        let trouble = self.episodes.get_mut(about)?;
        trouble.waiting.clear();
        if !trouble.telling.is_empty() {
            trouble.over = Some(how.to_owned());
            return None;
        }
        let trouble = self.episodes.remove(about)?;
        (!trouble.told.is_empty()).then(|| now.since(trouble.since))
    }

    /// What people have to be told now. [`Alerts::told`] has to follow for each.
    pub fn due(&mut self, now: Moment) -> Vec<(String, Alert)> {
        let mut due = Vec::new();
        for (about, trouble) in &mut self.episodes {
            let (ripe, rest): (Vec<_>, Vec<_>) =
                std::mem::take(&mut trouble.waiting).into_iter().partition(|waiting| waiting.due <= now);
            trouble.waiting = rest;
            for Waiting { alert, .. } in ripe {
                trouble.telling.push(alert.cause.clone());
                due.push((about.clone(), alert));
            }
        }
        due
    }

    /// People have been told. Returns how it ended and how long it lasted if it was over before that.
    pub fn told(&mut self, about: &str, cause: &str, now: Moment) -> Option<(String, Duration)> {
        let trouble = self.episodes.get_mut(about)?;
        trouble.telling.retain(|telling| telling != cause);
        trouble.told.push(cause.to_owned());
        if !trouble.telling.is_empty() {
            return None;
        }
        let how = trouble.over.clone()?;
        let trouble = self.episodes.remove(about)?;
        Some((how, now.since(trouble.since)))
    }

    /// When something has to be told if nothing happens.
    pub fn wake(&self) -> Option<Moment> {
        self.episodes.values().flat_map(|trouble| &trouble.waiting).map(|waiting| waiting.due).min()
    }

    /// What there is trouble with.
    pub fn open(&self) -> impl Iterator<Item = &str> {
        self.episodes.keys().map(String::as_str)
    }

    /// Whether there is no trouble with anything.
    pub fn none_open(&self) -> bool {
        self.episodes.is_empty()
    }

    /// Whether there is trouble with it.
    pub fn is_open(&self, about: &str) -> bool {
        self.episodes.contains_key(about)
    }

    /// As a new supervisor takes them over: what was about to be told may have been told or not. What waits stays so only for a
    /// worker, of which it is said once; all else is found again. Moments of an earlier boot mean nothing.
    #[must_use]
    pub fn taken_over(mut self, same_boot: bool, now: Moment) -> Self {
        self.episodes.retain(|about, trouble| {
            trouble.told.append(&mut trouble.telling);
            if !same_boot || !about.contains('/') {
                trouble.waiting.clear();
            }
            trouble.over = None;
            if !same_boot {
                trouble.since = now;
            }
            !trouble.told.is_empty() || !trouble.waiting.is_empty()
        });
        self
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const START: Moment = Moment::from_millis(1_000_000);

    fn alert(cause: &str) -> Alert {
        Alert { cause: cause.to_owned(), text: "x".to_owned(), urgent: true }
    }

    #[test]
    fn what_passes_by_itself_calls_nobody_and_what_does_not_calls_once_and_has_an_end() {
        let mut alerts = Alerts::default();
        alerts.raise("mars/a", alert("stop"), ALERT_SETTLE, START);
        assert_eq!(alerts.wake(), Some(START + ALERT_SETTLE));
        assert_eq!(alerts.due(START + ALERT_SETTLE / 2), []);
        assert_eq!(alerts.end("mars/a", "well", START + ALERT_SETTLE / 2), None, "nobody was told");
        assert_eq!(alerts.due(START + ALERT_SETTLE), []);

        alerts.raise("mars/a", alert("stop"), ALERT_SETTLE, START);
        // Said again, it is told no later.
        alerts.raise("mars/a", alert("stop"), ALERT_SETTLE, START + ALERT_SETTLE / 2);
        let now = START + ALERT_SETTLE;
        assert_eq!(alerts.due(now), [("mars/a".to_owned(), alert("stop"))]);
        assert_eq!(alerts.told("mars/a", "stop", now), None);
        for _ in 0..3 {
            alerts.raise("mars/a", alert("stop"), Duration::ZERO, now);
            assert_eq!(alerts.due(now), [], "once in an episode");
        }
        alerts.raise("mars/a", alert("quarantine"), Duration::ZERO, now);
        assert_eq!(alerts.due(now).len(), 1, "it got worse");
        alerts.told("mars/a", "quarantine", now);
        assert_eq!(alerts.end("mars/a", "well", now + ALERT_SETTLE), Some(2 * ALERT_SETTLE));
        assert_eq!(alerts.end("mars/a", "well", now), None);
    }

    #[test]
    fn an_end_that_comes_while_an_alert_is_being_told_is_told_after_it() {
        let mut alerts = Alerts::default();
        alerts.raise("mars/a", alert("fall"), Duration::ZERO, START);
        alerts.due(START);
        assert_eq!(alerts.end("mars/a", "well", START), None);
        let (how, lasted) = alerts.told("mars/a", "fall", START + ALERT_SETTLE).unwrap();
        assert_eq!((how.as_str(), lasted), ("well", ALERT_SETTLE));
        // It fell again meanwhile: then it is not over.
        alerts.raise("mars/a", alert("fall"), Duration::ZERO, START);
        alerts.due(START);
        alerts.end("mars/a", "well", START);
        alerts.raise("mars/a", alert("fall"), Duration::ZERO, START);
        assert_eq!(alerts.told("mars/a", "fall", START), None);
        assert!(alerts.is_open("mars/a"));
    }

    #[test]
    fn a_restart_of_the_supervisor_loses_no_end() {
        let mut alerts = Alerts::default();
        alerts.raise("mars/a", alert("fall"), Duration::ZERO, START);
        alerts.due(START);
        alerts.told("mars/a", "fall", START);
        alerts.raise("mars/b", alert("stop"), ALERT_SETTLE, START);
        let json = serde_json::to_string(&alerts).unwrap();
        let back = serde_json::from_str::<Alerts>(&json).unwrap();
        assert_eq!(back, alerts);
        let mut back = back.taken_over(true, START);
        assert_eq!(back.open().collect::<Vec<_>>(), ["mars/a", "mars/b"]);
        assert_eq!(back.due(START + ALERT_SETTLE), [("mars/b".to_owned(), alert("stop"))]);
        assert_eq!(back.end("mars/a", "well", START + ALERT_SETTLE), Some(ALERT_SETTLE));
    }

    proptest! {
        #[test]
        fn every_alert_has_one_end_and_no_end_is_without_one(steps in prop::collection::vec((0u8..5, 0u8..3, 0u64..4000), 0..60)) {
            let (mut alerts, mut now) = (Alerts::default(), START);
            let (mut open, mut telling) = (false, Vec::<String>::new());
            for (what, cause, ms) in steps {
                now = now + Duration::from_millis(ms);
                match what {
                    0 | 1 => alerts.raise("x", alert(&cause.to_string()), ALERT_SETTLE * u32::from(what), now),
                    2 => telling.extend(alerts.due(now).into_iter().map(|(_, alert)| alert.cause)),
                    3 => if let Some(cause) = telling.pop() {
                        open = true;
                        open &= alerts.told("x", &cause, now).is_none();
                    },
                    _ => if alerts.end("x", "well", now).is_some() {
                        prop_assert!(open && telling.is_empty());
                        open = false;
                    },
                }
            }
            for cause in telling {
                open = alerts.told("x", &cause, now).is_none();
            }
            prop_assert_eq!(alerts.end("x", "well", now).is_some(), open);
            prop_assert_eq!(alerts, Alerts::default());
        }
    }
}
