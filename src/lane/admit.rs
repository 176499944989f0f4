//! Whether a task is run: pure, and every way out is a typed refusal.

use std::time::Duration;

use super::approval::ApproverKeys;
use super::refusal::{Refusal, RefusalCode};
use super::sign::{Context, TaskKeys};
use super::task::{Presented, Task, Word, read};
use crate::catalog::{Action, Catalog, Mode};
use crate::vocabulary::{ActionName, clipped, human, printable};

/// How old a task may be. What waited longer than a day was asked for in a different world; ask again.
pub const MAX_AGE: Duration = Duration::from_secs(24 * 3600);
/// How far a task's clock may be ahead of ours.
pub const MAX_AHEAD: Duration = Duration::from_secs(300);

/// What a lane goes by.
#[derive(Debug, Clone)]
pub struct Rules {
    /// What this node may be asked to do.
    pub catalog: Catalog,
    /// The lane's mode: `read` refuses what changes something.
    pub lane: Mode,
    /// Who may sign.
    pub keys: TaskKeys,
    /// Who may approve what the catalog wants approved.
    pub approvers: ApproverKeys,
    /// Whether a task must be signed.
    pub signed_only: bool,
}

/// What the lane's past says about one task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Past {
    /// Whether another task had its id.
    pub id_used: bool,
    /// How often its action was begun within the time of its rate.
    pub runs: u32,
    /// Since when this lane's ledger knows all that was run, ms since 1970.
    pub born_ms: i64,
    /// Up to which moment of issue tasks may have been forgotten, ms since 1970.
    pub forgotten_ms: i64,
}

/// A task that is to be run.
#[derive(Debug, Clone, PartialEq)]
pub struct Admitted {
    /// The task.
    pub task: Task,
    /// When it was issued, ms since 1970.
    pub issued_ms: i64,
    /// The command.
    pub argv: Vec<String>,
    /// How long it may run.
    pub timeout: Duration,
    /// Whether it may be run again after a lane died in it.
    pub again: bool,
    /// Whether nothing depends on how often it is run: it changes nothing and has no rate.
    pub free: bool,
}

/// A task that is not run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// Its id, if it is used up by this refusal ([`RefusalCode::consumes_id`]).
    pub id: Option<String>,
    /// What it asked for, if that can be read; made printable and cut.
    pub action: Option<String>,
    /// When it was issued, ms since 1970; 0 if that cannot be read.
    pub issued_ms: i64,
    /// Why.
    pub refusal: Refusal,
}

/// Decides about one task. `past` is asked for once action and rate are known.
///
/// # Errors
/// Only those of `past`; a refusal is an answer.
pub fn admit<E>(
    raw: &[u8],
    rules: &Rules,
    now_ms: i64,
    past: impl FnOnce(&Task, &Action) -> Result<Past, E>,
) -> Result<Result<Admitted, Refused>, E> {
    let context = Context { node: &rules.catalog.node, lane: rules.lane };
    let (task, issued_ms, word) = match read(raw, &rules.keys, &context) {
        Ok(read) => read,
        Err(refusal) => return Ok(Err(Refused { id: None, action: None, issued_ms: 0, refusal })),
    };
    let refused = |task: Task, refusal: Refusal| Refused {
        id: refusal.code.consumes_id().then_some(task.id),
        action: Some(clipped(&printable(&task.action), 80).into_owned()),
        issued_ms,
        refusal,
    };
    let action = match lookup(&task, issued_ms, &word, rules, now_ms) {
        Ok(action) => action,
        Err(refusal) => return Ok(Err(refused(task, refusal))),
    };
    let past = past(&task, action)?;
    Ok(match settle(&task, issued_ms, action, &past) {
        Ok(argv) => Ok(Admitted {
            task,
            issued_ms,
            argv,
            timeout: action.timeout,
            again: again(action),
            free: free(action),
        }),
        Err(refusal) => Err(refused(task, refusal)),
    })
}

/// Nothing depends on how often it is run.
fn free(action: &Action) -> bool {
    action.mode == Mode::Read && action.rate.is_none()
}

/// Reading twice changes nothing either.
fn again(action: &Action) -> bool {
    action.idempotent || action.mode == Mode::Read
}

/// All that needs no past.
fn lookup<'a>(
    task: &Task,
    issued_ms: i64,
    word: &Word,
    rules: &'a Rules,
    now_ms: i64,
) -> Result<&'a Action, Refusal> {
    let node = &rules.catalog.node;
    if rules.signed_only && *word == Word::Unsigned {
        let why = format!(
            "the {} lane of {node} takes only signed tasks; `keyholder run` signs, or set insecure_unsigned_write",
            rules.lane
        );
        return Err(Refusal::new(RefusalCode::Unsigned, why));
    }
    let expired = |why| Err(Refusal::new(RefusalCode::Expired, why));
    let age = now_ms.saturating_sub(issued_ms);
    if age > ms(MAX_AGE) {
        let old = human(Duration::from_millis(age.unsigned_abs()));
        return expired(format!("it was issued {old} ago, at most {} are taken", human(MAX_AGE)));
    }
    if age < -ms(MAX_AHEAD) {
        let ahead = human(Duration::from_millis(age.unsigned_abs()));
        return expired(format!("it was issued {ahead} in the future; look at the clocks"));
    }
    let action = task.action.parse::<ActionName>().ok().and_then(|name| rules.catalog.actions.get(&name));
    let Some(action) = action else {
        let why = format!("'{}' on {node}", clipped(&printable(&task.action), 80));
        return Err(Refusal::new(RefusalCode::UnknownAction, why));
    };
    match (rules.lane, action.mode) {
        (Mode::Read, Mode::Write) => {
            return Err(Refusal::new(
                RefusalCode::ModeMismatch,
                format!("{} changes something and the read lane of {node} only reads", task.action),
            ));
        }
        (Mode::Read, Mode::Read) | (Mode::Write, Mode::Read | Mode::Write) => {}
    }
    if action.approval {
        approved(word, rules, now_ms).map_err(|why| {
            let why = format!("{} on {node} needs a person's approval, and {why}", task.action);
            Refusal::new(RefusalCode::Unapproved, why)
        })?;
    }
    Ok(action)
}

/// Also where nobody has to sign: an approval is for bytes that somebody known has given.
fn approved(word: &Word, rules: &Rules, now_ms: i64) -> Result<(), String> {
    match word {
        Word::Unsigned => Err("this task is not even signed; give it with `keyholder run`".to_owned()),
        Word::Signed(None) => {
            Err("this task carries none; give it with `keyholder run` and an approver's key".to_owned())
        }
        Word::Signed(Some(Presented { approval, digest })) => {
            let now = jiff::Timestamp::from_millisecond(now_ms).map_err(|error| error.to_string())?;
            approval.verify(digest, &rules.approvers, now)
        }
    }
}

/// All that depends on what was before.
fn settle(task: &Task, issued_ms: i64, action: &Action, past: &Past) -> Result<Vec<String>, Refusal> {
    if past.id_used {
        let why = format!("another task had the id {}", task.id);
        return Err(Refusal::new(RefusalCode::Replayed, why));
    }
    // A task whose date was ahead of this clock when it was run, by at most MAX_AHEAD, can pass here once more.
    // A date in whole seconds is that of any moment in its second.
    let latest = if issued_ms % 1000 == 0 { issued_ms.saturating_add(999) } else { issued_ms };
    if !free(action) && latest < past.born_ms {
        let born = jiff::Timestamp::from_millisecond(past.born_ms).unwrap_or_default();
        let why = format!(
            "it was issued before this lane's ledger begins ({born:.0}), so it may have been run already; ask again, with a new \
             task"
        );
        return Err(Refusal::new(RefusalCode::BeforeLedger, why));
    }
    if !again(action) && issued_ms <= past.forgotten_ms {
        let why = "it is older than what this lane remembers, so it may have been run already; ask again";
        return Err(Refusal::new(RefusalCode::Expired, why));
    }
    let argv = action.argv(&task.params).map_err(|why| Refusal::new(RefusalCode::BadParam, why))?;
    match action.rate {
        Some(rate) if past.runs >= rate.at_most => {
            let (runs, secs, most) = (past.runs, rate.per.as_secs(), rate.at_most);
            let why = format!("{}: {runs}+1 in {secs} s > {most}", task.action);
            Err(Refusal::new(RefusalCode::RateLimit, why))
        }
        Some(_) | None => Ok(argv),
    }
}

fn ms(duration: Duration) -> i64 {
    duration.as_millis().try_into().unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
