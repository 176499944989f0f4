//! After every connecting: what Redis calls in flight, against what the lane's own ledger knows.

use std::rc::Rc;

use serde::{Deserialize, Serialize};

use super::ledger::{Begun, Known};
use super::refusal::{Refusal, RefusalCode};
use super::result::{Status, TaskResult};
use super::shared::{Shared, Trouble, hash_of};
use crate::queue::{Desk, Piece};

/// How often a task that may be run again is begun before it is given up.
pub(super) const ATTEMPTS: u32 = 3;

/// What is written into Redis when a task is begun: for people, and for a lane on another host that takes over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    /// The lane's id.
    pub owner: String,
    /// Where it ran.
    pub place: String,
    /// The task's id.
    pub id: String,
    /// Its action.
    pub action: String,
    /// When it was issued, ms since 1970.
    pub issued_ms: i64,
    /// Whether it may be run again.
    pub again: bool,
    /// How often it was begun.
    pub attempts: u32,
    /// When it was begun, RFC 3339.
    pub at: String,
}

impl Mark {
    fn begun(self) -> Begun {
        let Self { id, action, issued_ms, again, attempts, .. } = self;
        Begun { id, action, issued_ms, again, attempts }
    }
}

/// What is to become of a task that is in flight and that nobody runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Fate {
    /// It was answered: publish that.
    Publish {
        /// Its id.
        id: String,
        /// The result, if it is still known.
        result: Option<String>,
    },
    /// It was never begun, or may be begun again.
    Again,
    /// It was begun and must not be begun again.
    Interrupted(Begun),
}

/// Decides that. `mark` is asked of Redis only if the ledger knows nothing.
///
/// Where a SIGKILL finds a task, and what the next lane makes of it:
///
/// | the lane died | ledger | Redis | fate |
/// |---|---|---|---|
/// | before the command | nothing | in flight | again |
/// | after starting a read without a rate, before taking that down | nothing | in flight | again; that attempt is not counted |
/// | in the command, it may run again | begun | in flight | again, until it was begun [`ATTEMPTS`] times; then interrupted |
/// | in the command, it must not run twice | begun | in flight | interrupted |
/// | with its result, it may run again, not yet answered | begun | in flight | as in the command |
/// | with its result, it may run again, answered | begun | the result | that one is taken over, see [`take_over`] |
/// | with its result, it must not run twice | the result | in flight | publish |
/// | answered, the journal's record not yet written | the result, open | the result | said, and published once more: nothing changes |
///
/// The second line is why [`ATTEMPTS`] is not a strict bound for reads without a rate: the ledger is written while the command
/// starts, some tenths of a millisecond. Nothing depends on how often they run.
pub(super) fn fate(known: Known, mark: Option<&Mark>, us: &str) -> Fate {
    let begun = |begun: Begun| {
        if begun.again && begun.attempts < ATTEMPTS { Fate::Again } else { Fate::Interrupted(begun) }
    };
    match known {
        Known::Finished { id, result } => Fate::Publish { id, result },
        Known::Begun(known) => begun(known),
        Known::Never => match mark {
            // Of our own marks the ledger knows better: it takes back what was not run after all.
            Some(mark) if mark.owner != us => begun(mark.clone().begun()),
            Some(_) | None => Fate::Again,
        },
    }
}

/// Puts everything in order before the first claim: publishes what is not published, and settles what is in flight and not
/// being run by this process.
pub(super) async fn recover(shared: &Rc<Shared>, desk: &Desk) -> Result<(), Trouble> {
    let held: Vec<_> = desk.in_flight().await?.into_iter().map(|raw| (hash_of(&raw), raw)).collect();
    if !shared.recovered.get() {
        take_over(shared, desk).await?;
    }
    loop {
        let open = shared.ledger.unpublished()?;
        if open.is_empty() {
            break;
        }
        for (hash, id, result) in open {
            // Until the first time through they are all of a lane before this one, which may have died between writing a
            // result into its ledger and the journal. Said twice is better than never: prove tells the two apart.
            if !shared.recovered.get()
                && let Ok(result) = serde_json::from_str::<TaskResult>(&result)
            {
                shared.says.task_again(&result);
            }
            let raw = held.iter().find(|(held, _)| *held == hash).map_or(&[][..], |(_, raw)| raw);
            desk.finish(Piece { raw, hash: &hash }, &id, Some(&result), None).await?;
            // Closed at once, or this would never end while the journal does not follow.
            shared.ledger.published(&hash)?;
            shared.passed();
        }
    }
    shared.recovered.set(true);
    // Newest first: each is put in front of those before it.
    for (hash, raw) in &held {
        shared.passed();
        if !shared.runs(hash) {
            settle(shared, desk, Piece { raw, hash }).await?;
        }
    }
    Ok(())
}

/// A lane before this one may have died between answering a task that may run again and taking that down here: then Redis has
/// the answer, nothing is in flight, and the journal may have no record. The answer is taken into the ledger as if it had been
/// taken down then; it is said with all that are open. Otherwise the same bytes given once more would be run once more.
async fn take_over(shared: &Rc<Shared>, desk: &Desk) -> Result<(), Trouble> {
    for (hash, id, action) in shared.ledger.unanswered()? {
        shared.passed();
        let Some(json) = desk.result(&id).await? else { continue };
        // Whoever can write to Redis can write anything there: not what is another's.
        let Ok(result) = serde_json::from_slice::<TaskResult>(&json) else { continue };
        let ours = result.id == id
            && result.action.as_deref() == Some(&*action)
            && result.node == *shared.node()
            && result.lane == shared.lane();
        if ours {
            let begun = Begun { id, action, issued_ms: 0, again: true, attempts: 0 };
            shared.ledger.finish(&hash, &begun, &shared.json(&result))?;
        }
    }
    Ok(())
}

async fn settle(shared: &Rc<Shared>, desk: &Desk, piece: Piece<'_>) -> Result<(), Trouble> {
    let known = shared.ledger.known(piece.hash)?;
    let mark = match &known {
        Known::Never => desk.mark(piece.hash).await?.map(|mark| read(&mark, piece.hash)),
        Known::Begun(_) | Known::Finished { .. } => None,
    };
    match fate(known, mark.as_ref(), &shared.owner.id) {
        Fate::Publish { id, result } => {
            let result = result.unwrap_or_else(|| forgotten(shared, &id));
            desk.finish(piece, &id, Some(&result), None).await?;
            shared.published(piece.hash)?;
        }
        Fate::Again => {
            if let Some(mark) = mark.filter(|mark| mark.owner != shared.owner.id) {
                // Its attempts count here as well.
                shared.ledger.begin(piece.hash, &mark.begun(), shared.now_ms())?;
            }
            desk.put_back(piece).await?;
        }
        Fate::Interrupted(begun) => interrupted(shared, desk, piece, &begun).await?,
    }
    Ok(())
}

/// The answer to a task whose own is so old that the ledger no longer has it. If Redis still does, that one stays.
pub(super) fn forgotten(shared: &Rc<Shared>, id: &str) -> String {
    let why = "it was answered before, and that answer is no longer kept here; it is not run again";
    shared.json(&TaskResult {
        refusal: Some(Refusal::new(RefusalCode::Replayed, why)),
        ..shared.result(id.to_owned(), None, Status::Refused)
    })
}

/// A mark that cannot be read says that the task was begun and nothing else: then it must not be run.
fn read(mark: &[u8], hash: &str) -> Mark {
    serde_json::from_slice(mark).unwrap_or_else(|_| Mark {
        owner: String::new(),
        place: String::new(),
        id: format!("sha256:{hash}"),
        action: "?".to_owned(),
        issued_ms: 0,
        again: false,
        attempts: 1,
        at: String::new(),
    })
}

/// Answers a task that was begun, never finished and must not run again.
pub(super) async fn interrupted(
    shared: &Rc<Shared>,
    desk: &Desk,
    piece: Piece<'_>,
    begun: &Begun,
) -> Result<(), Trouble> {
    let note = if begun.again {
        format!("it was begun {} times and its lane died each time; it is not tried again", begun.attempts)
    } else {
        "the lane died while it ran; what it had done by then is not known, and it is not run twice"
            .to_owned()
    };
    let dead = begun.again.then(|| shared.dead(piece, "interrupted", &note));
    let result = TaskResult {
        note: Some(note),
        ..shared.result(begun.id.clone(), Some(begun.action.clone()), Status::Interrupted)
    };
    let json = shared.json(&result);
    shared.ledger.finish(piece.hash, begun, &json)?;
    shared.says.task(&result);
    desk.finish(piece, &begun.id, Some(&json), dead.as_deref()).await?;
    shared.published(piece.hash)?;
    shared.count(&result);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begun(again: bool, attempts: u32) -> Begun {
        Begun { id: "1".to_owned(), action: "a".to_owned(), issued_ms: 0, again, attempts }
    }

    fn mark(owner: &str, again: bool, attempts: u32) -> Mark {
        Mark {
            owner: owner.to_owned(),
            place: String::new(),
            id: "1".to_owned(),
            action: "a".to_owned(),
            issued_ms: 0,
            again,
            attempts,
            at: String::new(),
        }
    }

    #[test]
    fn what_must_not_run_twice_is_not_put_back() {
        assert_eq!(fate(Known::Begun(begun(false, 1)), None, "us"), Fate::Interrupted(begun(false, 1)));
        assert_eq!(fate(Known::Begun(begun(true, 2)), None, "us"), Fate::Again);
        assert_eq!(fate(Known::Begun(begun(true, 3)), None, "us"), Fate::Interrupted(begun(true, 3)));
        assert_eq!(fate(Known::Never, None, "us"), Fate::Again);
        let finished = Known::Finished { id: "1".to_owned(), result: None };
        assert_eq!(fate(finished, None, "us"), Fate::Publish { id: "1".to_owned(), result: None });
    }

    #[test]
    fn a_foreign_mark_counts_and_our_own_does_not_outweigh_the_ledger() {
        assert_eq!(
            fate(Known::Never, Some(&mark("they", false, 1)), "us"),
            Fate::Interrupted(begun(false, 1))
        );
        assert_eq!(fate(Known::Never, Some(&mark("they", true, 1)), "us"), Fate::Again);
        assert_eq!(fate(Known::Never, Some(&mark("us", false, 1)), "us"), Fate::Again);
        let unreadable = read(b"\xff{", "h");
        assert!(matches!(fate(Known::Never, Some(&unreadable), "us"), Fate::Interrupted(b) if !b.again));
    }
}
