//! After every connecting: what Redis calls in flight, against what the lane's own ledger knows.

use std::rc::Rc;

use serde::{Deserialize, Serialize};

use super::admit::{Admitted, Refused};
use super::ledger::{Begun, Known};
use super::refusal::{Refusal, RefusalCode};
use super::result::{Status, TaskResult};
use super::serve::{judge, refuse};
use super::shared::{Shared, Trouble, hash_of};
use super::task::{MAX_TASK, canary};
use crate::queue::{Connection, Oversize, Piece, SHA1};
use crate::vocabulary::printable;

/// How often a task that may be run again is begun before it is given up.
pub(super) const ATTEMPTS: u32 = 3;

/// How many pages of the in-flight list are settled before the first claim: a lane has some tasks in flight, whoever writes to
/// Redis may put there what he likes.
const MAX_PAGES: usize = 100;
/// After how many elements a sweep ends.
const FULL_SWEEP: usize = 100;
/// How many tasks are named of those whose results were published late.
const NAMED: usize = 3;

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

/// How often another lane began the task, by its mark: the only thing that a mark is believed for, because whoever can write to
/// Redis can write marks. Identity, action and date of a task come from its own verified bytes.
fn attempts(mark: &[u8], us: &str) -> u32 {
    match serde_json::from_slice::<Mark>(mark) {
        // Of our own marks the ledger knows better: it takes back what was not run after all.
        Ok(mark) if mark.owner == us => 0,
        Ok(mark) => mark.attempts.min(ATTEMPTS),
        // It says that the task was begun and nothing else.
        Err(_) => 1,
    }
}

/// What is to become of a task that is in flight and that nobody runs.
#[derive(Debug, Clone, PartialEq)]
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
    /// Another lane began it, and it may be begun again: those attempts count here as well.
    AgainAfter(Begun),
    /// It was begun here and must not be begun again.
    Interrupted(Begun),
    /// Another lane began it, and it must not be begun again.
    InterruptedElsewhere(Begun),
    /// Nothing in it can be believed, whatever its mark says.
    Refused(Refused),
}

/// Decides that. Only if the ledger knows nothing, `elsewhere` counts, how often another lane began it; if that is not 0,
/// `verdict` is what a fresh claim of the same bytes comes to, signature included.
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
pub(super) fn fate(known: Known, elsewhere: u32, verdict: Option<Result<Admitted, Refused>>) -> Fate {
    match (known, verdict) {
        (Known::Finished { id, result }, _) => Fate::Publish { id, result },
        (Known::Begun(begun), _) if begun.again && begun.attempts < ATTEMPTS => Fate::Again,
        (Known::Begun(begun), _) => Fate::Interrupted(begun),
        // The queue's other end is where it is read and judged.
        (Known::Never, None) => Fate::Again,
        (Known::Never, Some(Ok(Admitted { task, issued_ms, again, .. }))) => {
            let begun = Begun { id: task.id, action: task.action, issued_ms, again, attempts: elsewhere };
            if again && elsewhere < ATTEMPTS {
                Fate::AgainAfter(begun)
            } else {
                Fate::InterruptedElsewhere(begun)
            }
        }
        // The other lane may have begun it before its time was over or its catalog changed: "not run" would not be true.
        (Known::Never, Some(Err(Refused { id: Some(id), action, issued_ms, .. }))) => {
            let action = action.unwrap_or_default();
            Fate::InterruptedElsewhere(Begun { id, action, issued_ms, again: false, attempts: elsewhere })
        }
        (Known::Never, Some(Err(refused @ Refused { id: None, .. }))) => Fate::Refused(refused),
    }
}

/// Puts everything in order before the first claim: publishes what is not published, and settles what is in flight and not
/// being run by this process.
pub(super) async fn recover(shared: &Rc<Shared>, connection: &Connection) -> Result<(), Trouble> {
    shared.store_again()?;
    let (mut held, mut more) = held(shared, connection).await?;
    if !shared.recovered.get() {
        take_over(shared, connection).await?;
    }
    let mut late = (0, Vec::new());
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
                shared.journal.task_again(&result);
            }
            let raw = held.iter().find(|(held, _)| *held == hash).map_or(&[][..], |(_, raw)| raw);
            connection.finish(Piece { raw, hash: &hash }, &id, Some(&result), None).await?;
            // Closed at once, or this would never end while the journal does not follow.
            shared.ledger.published(&hash)?;
            late.0 += 1;
            if late.1.len() < NAMED {
                late.1.push(id);
            }
            shared.passed();
        }
    }
    if late.0 > 0 {
        shared.journal.transition(false, published_late(late.0, &late.1));
    }
    shared.recovered.set(true);
    for _ in 0..MAX_PAGES {
        let mut settled = false;
        // Newest first: each is put in front of those before it.
        for (hash, raw) in &held {
            shared.passed();
            if !shared.runs(hash) {
                settle(shared, connection, Piece { raw, hash }).await?;
                settled = true;
            }
        }
        if !more || !settled {
            break;
        }
        (held, more) = self::held(shared, connection).await?;
    }
    Ok(())
}

/// What is said of so many results that were published only now, at the next chance after their tasks had ended.
fn published_late(count: usize, first: &[String]) -> String {
    let more = if count > first.len() { ", …" } else { "" };
    format!("published late: the results of {count} tasks that had ended before ({}{more})", first.join(", "))
}

/// What is in flight, newest first, by the hash of its bytes, as much as is read in one go, and whether there is more. What is
/// too long to be read is answered first.
async fn held(
    shared: &Rc<Shared>,
    connection: &Connection,
) -> Result<(Vec<(String, Vec<u8>)>, bool), Trouble> {
    sweep(shared, connection).await?;
    let (raw, more) = connection.in_flight().await?;
    Ok((raw.into_iter().map(|raw| (hash_of(&raw), raw)).collect(), more))
}

/// Answers what is too long to be a task. The server does it: nothing of it is loaded here.
async fn sweep(shared: &Rc<Shared>, connection: &Connection) -> Result<(), Trouble> {
    let refused = |sha1: &str, bytes: &str| {
        let why = format!("{bytes} bytes are too many, at most {MAX_TASK}");
        let refusal = Some(Refusal::new(RefusalCode::Malformed, why));
        TaskResult { refusal, ..shared.result(format!("{SHA1}{sha1}"), None, Status::Refused) }
    };
    let blank = refused("@SHA1@", "@BYTES@");
    let dead = shared.dead_unread(blank.refusal.as_ref().map_or("", |refusal| &refusal.text));
    for _ in 0..MAX_PAGES {
        let found = connection.sweep(&shared.json(&blank), &dead).await?;
        for Oversize { sha1, bytes } in &found {
            let result = refused(&printable(sha1), &printable(bytes));
            shared.journal.task(&result);
            shared.count(&result);
        }
        shared.passed();
        if found.len() < FULL_SWEEP {
            break;
        }
    }
    Ok(())
}

/// A lane before this one may have died between answering a task that may run again and taking that down here: then Redis has
/// the answer, nothing is in flight, and the journal may have no record. The answer is taken into the ledger as if it had been
/// taken down then; it is said with all that are open. Otherwise the same bytes given once more would be run once more.
async fn take_over(shared: &Rc<Shared>, connection: &Connection) -> Result<(), Trouble> {
    for (hash, id, action) in shared.ledger.unanswered()? {
        shared.passed();
        let Some((json, seal)) = connection.sealed(&id).await? else { continue };
        // Whoever can write to Redis can write any answer there. Only what this ledger sealed for these bytes is believed.
        if !shared.ledger.seals().is_of(&hash, &json, &seal) {
            continue;
        }
        let begun = Begun { id, action, issued_ms: 0, again: true, attempts: 0 };
        if let Ok(json) = String::from_utf8(json) {
            shared.ledger.finish(&hash, &begun, &json)?;
        }
    }
    Ok(())
}

async fn settle(shared: &Rc<Shared>, connection: &Connection, piece: Piece<'_>) -> Result<(), Trouble> {
    let known = shared.known(piece.hash)?;
    let elsewhere = match &known {
        Known::Never if canary(piece.raw).is_none() => {
            connection.mark(piece.hash).await?.map_or(0, |mark| attempts(&mark, &shared.owner.id))
        }
        Known::Never | Known::Begun(_) | Known::Finished { .. } => 0,
    };
    let verdict = if elsewhere > 0 { Some(judge(shared, piece)?) } else { None };
    match fate(known, elsewhere, verdict) {
        Fate::Publish { id, result } => {
            let result = result.unwrap_or_else(|| forgotten(shared, &id));
            connection.finish(piece, &id, Some(&result), None).await?;
            shared.published(piece.hash)?;
        }
        Fate::Again => drop(connection.put_back(piece).await?),
        Fate::AgainAfter(begun) => {
            shared.ledger.begin(piece.hash, &begun, shared.now_ms())?;
            connection.put_back(piece).await?;
        }
        Fate::Interrupted(begun) => interrupted(shared, connection, piece, &begun, HERE).await?,
        Fate::InterruptedElsewhere(begun) => {
            interrupted(shared, connection, piece, &begun, ELSEWHERE).await?
        }
        Fate::Refused(refused) => refuse(shared, connection, piece, refused).await?,
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

/// Why a task that must not run twice is interrupted.
pub(super) const HERE: &str =
    "the lane died while it ran; what it had done by then is not known, and it is not run twice";
const ELSEWHERE: &str = "a mark in Redis says that another lane began it; what that lane has done is not known, and it is not run \
                         twice";

/// Answers a task that was begun, never finished and must not run again.
pub(super) async fn interrupted(
    shared: &Rc<Shared>,
    connection: &Connection,
    piece: Piece<'_>,
    begun: &Begun,
    why: &str,
) -> Result<(), Trouble> {
    let note = if begun.again {
        format!("it was begun {} times and its lane died each time; it is not tried again", begun.attempts)
    } else {
        why.to_owned()
    };
    let dead = begun.again.then(|| shared.dead(piece, "interrupted", &note));
    let result = TaskResult {
        note: Some(note),
        ..shared.result(begun.id.clone(), Some(begun.action.clone()), Status::Interrupted)
    };
    let json = shared.json(&result);
    shared.ledger.finish(piece.hash, begun, &json)?;
    shared.journal.task(&result);
    connection.finish(piece, &begun.id, Some(&json), dead.as_deref()).await?;
    shared.published(piece.hash)?;
    shared.count(&result);
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use super::*;
    use crate::lane::Task;

    fn begun(again: bool, attempts: u32) -> Begun {
        Begun { id: "1".to_owned(), action: "a".to_owned(), issued_ms: 0, again, attempts }
    }

    fn mark(owner: &str, attempts: u32) -> Vec<u8> {
        let (id, action) = ("another".to_owned(), "another".to_owned());
        let (place, at) = (String::new(), String::new());
        let owner = owner.to_owned();
        let mark = Mark { owner, place, id, action, issued_ms: 9, again: true, attempts, at };
        serde_json::to_vec(&mark).unwrap()
    }

    fn admitted(again: bool) -> Admitted {
        let task = Task {
            id: "1".to_owned(),
            action: "a".to_owned(),
            params: BTreeMap::new(),
            by: String::new(),
            issued_at: String::new(),
        };
        let timeout = Duration::from_secs(1);
        Admitted { task, issued_ms: 0, argv: Vec::new(), timeout, again, free: false }
    }

    fn refused(id: Option<&str>) -> Refused {
        let refusal = Refusal::new(RefusalCode::Expired, "x");
        Refused { id: id.map(str::to_owned), action: Some("a".to_owned()), issued_ms: 0, refusal }
    }

    #[test]
    fn what_must_not_run_twice_is_not_put_back() {
        assert_eq!(fate(Known::Begun(begun(false, 1)), 0, None), Fate::Interrupted(begun(false, 1)));
        assert_eq!(fate(Known::Begun(begun(true, 2)), 0, None), Fate::Again);
        assert_eq!(fate(Known::Begun(begun(true, 3)), 0, None), Fate::Interrupted(begun(true, 3)));
        assert_eq!(fate(Known::Never, 0, None), Fate::Again);
        let finished = Known::Finished { id: "1".to_owned(), result: None };
        assert_eq!(fate(finished, 0, None), Fate::Publish { id: "1".to_owned(), result: None });
    }

    #[test]
    fn of_a_mark_nothing_counts_but_how_often_another_lane_began_the_task() {
        assert_eq!(attempts(&mark("they", 1), "us"), 1);
        assert_eq!(attempts(&mark("they", u32::MAX), "us"), ATTEMPTS);
        assert_eq!(attempts(&mark("us", 1), "us"), 0, "the ledger knows better");
        assert_eq!(attempts(b"\xff{", "us"), 1);
        let never = |elsewhere, verdict| fate(Known::Never, elsewhere, Some(verdict));
        // Id, action, and whether it may run again, are those of the task's bytes and of the catalog.
        assert_eq!(never(1, Ok(admitted(false))), Fate::InterruptedElsewhere(begun(false, 1)));
        assert_eq!(never(1, Ok(admitted(true))), Fate::AgainAfter(begun(true, 1)));
        assert_eq!(never(3, Ok(admitted(true))), Fate::InterruptedElsewhere(begun(true, 3)));
        assert_eq!(never(1, Err(refused(Some("1")))), Fate::InterruptedElsewhere(begun(false, 1)));
        assert_eq!(never(1, Err(refused(None))), Fate::Refused(refused(None)));
    }
}
