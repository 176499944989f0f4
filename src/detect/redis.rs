//! Signs in Redis: all that are due are read in one round trip.

use std::collections::BTreeMap;

use tokio::time::Instant;

use super::canary::Aviary;
use super::look::{Look, Place};
use crate::judge::{Reading, Sign};
use crate::queue::{Answer, Eyes, LaneSeen, Question};
use crate::vocabulary::Target;

/// The connection, and what has to be remembered from one look to the next.
#[derive(Debug)]
pub(super) struct Watcher {
    /// Or why there is none.
    eyes: Result<Eyes, String>,
    lengths: BTreeMap<(Target, Sign), u64>,
    canaries: BTreeMap<Target, Aviary>,
}

impl Watcher {
    pub(super) fn new(url: Option<&str>) -> Self {
        let eyes = match url {
            Some(url) => Eyes::new(url).map_err(|error| error.to_string()),
            None => Err("the fleet file names no Redis".to_owned()),
        };
        Self { eyes, lengths: BTreeMap::new(), canaries: BTreeMap::new() }
    }

    /// What is remembered of workers that are no longer looked at.
    pub(super) fn keep(&mut self, looks: &[Look]) {
        self.lengths.retain(|(target, sign), _| {
            looks.iter().any(|look| look.target == *target && look.sign == *sign)
        });
        self.canaries
            .retain(|target, _| looks.iter().any(|look| look.target == *target && look.sign == Sign::Canary));
    }

    /// Reads these, in their order.
    pub(super) async fn read(&mut self, looks: &[Look]) -> Vec<Reading> {
        let all = |why: &String| looks.iter().map(|_| Reading::Failed(why.clone())).collect();
        let eyes = match &mut self.eyes {
            Ok(eyes) => eyes,
            Err(why) => return all(why),
        };
        let mut unsent = BTreeMap::new();
        let mut questions = Vec::with_capacity(looks.len());
        for look in looks {
            questions.push(match &look.place {
                Place::Key(key) => Question::Key(key.clone()),
                Place::Queue(key) => Question::List(key.clone()),
                Place::LaneQueue(queue) => Question::Lane { queue: queue.clone(), canary: None },
                Place::Canary(queue, every) => {
                    let now = Instant::now();
                    let aviary =
                        self.canaries.entry(look.target.clone()).or_insert_with(|| Aviary::new(now, *every));
                    if let Some(bird) = aviary.due(&look.target.node, now) {
                        match eyes.push(queue, &bird.raw).await {
                            Ok(()) => aviary.sent(bird, now),
                            Err(why) => drop(unsent.insert(look.target.clone(), why)),
                        }
                    }
                    Question::Lane { queue: queue.clone(), canary: aviary.out() }
                }
                Place::File(_)
                | Place::Lane(_)
                | Place::Journal(_)
                | Place::Command(_)
                | Place::Watchdog(_) => continue,
            });
        }
        let answers = match eyes.look(&questions).await {
            Ok(answers) => answers,
            Err(why) => return all(&why),
        };
        let readings = looks.iter().zip(answers).map(|(look, answer)| self.reading(look, &answer, &unsent));
        let mut readings: Vec<Reading> = readings.collect();
        if readings.iter().any(rests_on_writes)
            && let Ok(eyes) = &mut self.eyes
        {
            match eyes.refusal().await {
                Ok(None) => {}
                Ok(Some(why)) | Err(why) => {
                    for reading in readings.iter_mut().filter(|reading| rests_on_writes(reading)) {
                        *reading = Reading::Failed(why.clone());
                    }
                }
            }
        }
        readings
    }

    fn reading(&mut self, look: &Look, answer: &Answer, unsent: &BTreeMap<Target, String>) -> Reading {
        let name = match &look.place {
            Place::Key(name) | Place::Queue(name) => name.as_str(),
            Place::LaneQueue(queue) | Place::Canary(queue, _) => queue.as_str(),
            Place::File(_) | Place::Lane(_) | Place::Journal(_) | Place::Command(_) | Place::Watchdog(_) => {
                ""
            }
        };
        match answer {
            Answer::Wrong(why) => Reading::Failed(format!("{name}: {why}")),
            Answer::Lives => Reading::Moving,
            Answer::Gone => Reading::Silent(format!("the key {name} is missing")),
            Answer::Stays => Reading::Failed(format!(
                "the key {name} has no time to live, so that it is there proves nothing; write it with SET … EX"
            )),
            Answer::List { length, head } => self.list(look, *length, *head),
            Answer::Lane(seen) if look.sign == Sign::Canary => match unsent.get(&look.target) {
                Some(why) => Reading::Failed(format!("the canary cannot be sent: {why}")),
                None => {
                    self.canaries.get_mut(&look.target).map_or(Reading::Moving, |aviary| aviary.seen(seen))
                }
            },
            Answer::Lane(seen) => lane(seen),
        }
    }

    /// Taking from the right changes what is there, or the length if two elements are the same.
    fn list(&mut self, look: &Look, length: u64, head: u64) -> Reading {
        let before = self.lengths.insert((look.target.clone(), look.sign), length);
        if length == 0 || before.is_some_and(|before| length < before) {
            Reading::Moving
        } else {
            Reading::Mark(head)
        }
    }
}

/// Whether a reading says something only of a server that takes writes: no beat can be left and no work be taken in another.
fn rests_on_writes(reading: &Reading) -> bool {
    match reading {
        Reading::Silent(_) | Reading::Mark(_) => true,
        Reading::Moving | Reading::Failed(_) => false,
    }
}

/// A task that was begun is progress for as long as its lane lets it run. What was only taken may have been taken by a
/// connection that nobody listens at any more.
fn lane(seen: &LaneSeen) -> Reading {
    match seen {
        LaneSeen { begun: 1.., .. } | LaneSeen { waiting: 0, taken: 0, .. } => Reading::Moving,
        LaneSeen { head, oldest, .. } => Reading::Mark(head.rotate_left(32) ^ oldest),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lane_moves_while_something_runs_or_nothing_waits() {
        let seen = |waiting, head, taken, oldest, begun| {
            lane(&LaneSeen { waiting, head, taken, oldest, begun, canary: None })
        };
        assert_eq!(seen(0, 0, 0, 0, 0), Reading::Moving);
        assert_eq!(seen(9, 5, 1, 7, 1), Reading::Moving);
        // Taken by BRPOP and begun.
        assert_eq!(seen(9, 5, 0, 0, 1), Reading::Moving);
        let waits = seen(9, 5, 0, 0, 0);
        assert_eq!(seen(10, 5, 0, 0, 0), waits, "one more has come");
        assert_ne!(seen(9, 6, 0, 0, 0), waits, "one was taken");
        let taken = seen(0, 0, 1, 7, 0);
        assert!(matches!(taken, Reading::Mark(_)), "taken by a ghost");
        assert_ne!(taken, seen(0, 0, 1, 8, 0));
    }

    #[test]
    fn of_equal_elements_a_shrinking_list_is_progress() {
        let mut watcher = Watcher::new(None);
        let look = Look {
            target: "mars/agent".parse().unwrap(),
            sign: Sign::Flow,
            place: Place::Queue("inbox".to_owned()),
            every: std::time::Duration::from_secs(1),
        };
        assert_eq!(watcher.list(&look, 5, 7), Reading::Mark(7));
        assert_eq!(watcher.list(&look, 6, 7), Reading::Mark(7));
        assert_eq!(watcher.list(&look, 5, 7), Reading::Moving);
        assert_eq!(watcher.list(&look, 0, 0), Reading::Moving);
        watcher.keep(&[]);
        assert_eq!(watcher.list(&look, 1, 7), Reading::Mark(7));
    }
}
