//! Signs in Redis: all that are due are read in one round trip.

use std::collections::BTreeMap;

use tokio::time::Instant;

use super::canary::Aviary;
use super::look::{Check, SignSource};
use crate::judge::{Reading, Sign};
use crate::queue::{LaneSeen, ProbeReply, Question, QueueProbe};
use crate::vocabulary::Target;

/// The connection, and what has to be remembered from one look to the next.
#[derive(Debug)]
pub(super) struct Watcher {
    /// Or why there is none.
    eyes: Result<QueueProbe, String>,
    lists: BTreeMap<(Target, Sign), Ends>,
    canaries: BTreeMap<Target, Aviary>,
}

impl Watcher {
    pub(super) fn new(url: Option<&str>) -> Self {
        let eyes = match url {
            Some(url) => QueueProbe::new(url).map_err(|error| error.to_string()),
            None => Err("the fleet file names no Redis".to_owned()),
        };
        Self { eyes, lists: BTreeMap::new(), canaries: BTreeMap::new() }
    }

    /// What is remembered of workers that are no longer looked at.
    pub(super) fn keep(&mut self, looks: &[Check]) {
        self.lists.retain(|(target, sign), _| {
            looks.iter().any(|look| look.target == *target && look.sign == *sign)
        });
        self.canaries
            .retain(|target, _| looks.iter().any(|look| look.target == *target && look.sign == Sign::Canary));
    }

    /// Reads these, in their order.
    pub(super) async fn read(&mut self, looks: &[Check]) -> Vec<Reading> {
        let all = |why: &String| looks.iter().map(|_| Reading::Failed(why.clone())).collect();
        let eyes = match &mut self.eyes {
            Ok(eyes) => eyes,
            Err(why) => return all(why),
        };
        let mut unsent = BTreeMap::new();
        let mut questions = Vec::with_capacity(looks.len());
        for look in looks {
            questions.push(match &look.place {
                SignSource::Key(key) => Question::Key(key.clone()),
                SignSource::Queue { key, busy } => Question::List { key: key.clone(), busy: busy.clone() },
                SignSource::LaneQueue(queue) => Question::Lane { queue: queue.clone(), canary: None },
                SignSource::Canary(queue, every) => {
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
                SignSource::File(_)
                | SignSource::Lane(_)
                | SignSource::Journal(_)
                | SignSource::Command(_)
                | SignSource::Watchdog(_) => continue,
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

    fn reading(&mut self, look: &Check, answer: &ProbeReply, unsent: &BTreeMap<Target, String>) -> Reading {
        let name = match &look.place {
            SignSource::Key(name) | SignSource::Queue { key: name, .. } => name.as_str(),
            SignSource::LaneQueue(queue) | SignSource::Canary(queue, _) => queue.as_str(),
            SignSource::File(_)
            | SignSource::Lane(_)
            | SignSource::Journal(_)
            | SignSource::Command(_)
            | SignSource::Watchdog(_) => "",
        };
        match answer {
            ProbeReply::Wrong(why) => Reading::Failed(format!("{name}: {why}")),
            ProbeReply::Lives => Reading::Moving,
            ProbeReply::Gone => Reading::Silent(format!("the key {name} is missing")),
            ProbeReply::Stays => Reading::Failed(format!(
                "the key {name} has no time to live, so that it is there proves nothing; write it with SET … EX"
            )),
            // A job in hand is progress for as long as its worker says so.
            ProbeReply::List { busy: true, .. } => Reading::Moving,
            ProbeReply::List { length, left, right, busy: false } => {
                self.list(look, Ends { length: *length, left: *left, right: *right })
            }
            ProbeReply::Lane(seen) if look.sign == Sign::Canary => match unsent.get(&look.target) {
                Some(why) => Reading::Failed(format!("the canary cannot be sent: {why}")),
                None => {
                    self.canaries.get_mut(&look.target).map_or(Reading::Moving, |aviary| aviary.seen(seen))
                }
            },
            ProbeReply::Lane(seen) => self.lane(look, seen),
        }
    }

    /// Progress is that something was taken. Pushing makes a list longer and changes one of its ends; taking makes it shorter
    /// and changes the other. So a list that is as long as before, or longer, was taken from only if both ends have changed:
    /// an end that changes alone was pushed to.
    fn list(&mut self, look: &Check, now: Ends) -> Reading {
        if self.taken(look, now) || now.length == 0 { Reading::Moving } else { Reading::Mark(0) }
    }

    /// A task that was begun is progress for as long as its lane lets it run. What was only taken may have been taken by a
    /// connection that nobody listens at any more.
    fn lane(&mut self, look: &Check, seen: &LaneSeen) -> Reading {
        let LaneSeen { waiting, head, tail, taken, oldest, begun, canary: _ } = *seen;
        let moved = self.taken(look, Ends { length: waiting, left: tail, right: head });
        if moved || begun > 0 || (waiting == 0 && taken == 0) {
            Reading::Moving
        } else {
            Reading::Mark(oldest)
        }
    }

    fn taken(&mut self, look: &Check, now: Ends) -> bool {
        let before = self.lists.insert((look.target.clone(), look.sign), now);
        before.is_some_and(|before| {
            now.length < before.length || (now.left != before.left && now.right != before.right)
        })
    }
}

/// Whether a reading says something only of a server that takes writes: no beat can be left and no work be taken in another.
fn rests_on_writes(reading: &Reading) -> bool {
    match reading {
        Reading::Silent(_) | Reading::Mark(_) => true,
        Reading::Moving | Reading::Failed(_) => false,
    }
}

/// A list at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Ends {
    length: u64,
    left: u64,
    right: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watched(place: SignSource) -> (Watcher, Check) {
        let target = "mars/agent".parse().unwrap();
        let every = std::time::Duration::from_secs(1);
        (Watcher::new(None), Check { target, sign: Sign::Flow, place, every })
    }

    #[test]
    fn a_lane_moves_while_something_runs_or_nothing_waits() {
        let (mut watcher, look) = watched(SignSource::LaneQueue("q".parse().unwrap()));
        let mut seen = |waiting, (tail, head), (taken, oldest), begun| {
            let canary = None;
            watcher.lane(&look, &LaneSeen { waiting, head, tail, taken, oldest, begun, canary })
        };
        assert_eq!(seen(0, (0, 0), (0, 0), 0), Reading::Moving);
        assert_eq!(seen(9, (1, 5), (1, 7), 1), Reading::Moving);
        // Taken by BRPOP and begun.
        assert_eq!(seen(9, (1, 5), (0, 0), 1), Reading::Moving);
        let waits = seen(9, (1, 5), (0, 0), 0);
        assert!(matches!(waits, Reading::Mark(_)), "{waits:?}");
        assert_eq!(seen(10, (2, 5), (0, 0), 0), waits, "one more has come");
        assert_eq!(seen(11, (2, 6), (0, 0), 0), waits, "one was pushed in front of all others");
        assert_eq!(seen(10, (2, 5), (0, 0), 0), Reading::Moving, "one was taken");
        assert_eq!(seen(10, (3, 4), (0, 0), 0), Reading::Moving, "one was taken and another has come");
        assert_eq!(seen(0, (0, 0), (1, 7), 0), Reading::Moving, "the last was taken");
        let taken = seen(0, (0, 0), (1, 7), 0);
        assert!(matches!(taken, Reading::Mark(_)), "taken by a ghost: {taken:?}");
        assert_ne!(taken, seen(0, (0, 0), (1, 8), 0));
    }

    #[test]
    fn of_equal_elements_a_shrinking_list_is_progress() {
        let (mut watcher, look) = watched(SignSource::Queue { key: "inbox".to_owned(), busy: None });
        let mut read = |length, left, right| watcher.list(&look, Ends { length, left, right });
        assert_eq!(read(5, 7, 7), Reading::Mark(0));
        assert_eq!(read(6, 7, 7), Reading::Mark(0));
        assert_eq!(read(5, 7, 7), Reading::Moving);
        assert_eq!(read(0, 0, 0), Reading::Moving);
        watcher.keep(&[]);
        assert_eq!(watcher.list(&look, Ends { length: 1, left: 7, right: 7 }), Reading::Mark(0));
    }

    #[test]
    fn an_end_that_changes_alone_was_pushed_to() {
        let (mut watcher, look) = watched(SignSource::Queue { key: "inbox".to_owned(), busy: None });
        let mut read = |length, left, right| watcher.list(&look, Ends { length, left, right });
        let still = Reading::Mark(0);
        assert_eq!(read(3, 1, 9), still);
        assert_eq!(read(4, 2, 9), still, "pushed on the left");
        assert_eq!(read(5, 2, 10), still, "pushed on the right");
        assert_eq!(read(5, 3, 11), Reading::Moving, "pushed on one side, taken on the other");
        assert_eq!(read(7, 4, 12), Reading::Moving, "more is pushed than taken");
        assert_eq!(read(6, 4, 13), Reading::Moving, "taken on the right");
        assert_eq!(read(5, 5, 13), Reading::Moving, "taken on the left");
        assert_eq!(read(5, 5, 13), still);
    }
}
