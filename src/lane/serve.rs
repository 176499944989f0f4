//! One task, from its bytes to its result.

use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::process::Stdio;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use tokio::sync::OwnedSemaphorePermit;
use tokio::task::yield_now;
use tokio::time::timeout;

use super::admit::{Admitted, Past, Refused, admit};
use super::clock::out_of_date;
use super::guard::RunLock;
use super::ledger::{Begun, Known, LedgerError};
use super::own::{Waiter, waits_for_us};
use super::recover::{ATTEMPTS, HERE, Mark, forgotten, interrupted};
use super::refusal::RefusalCode;
use super::result::{Ran, Status, TaskResult};
use super::run::{CommandSpec, GRACE, UnkilledChild, run};
use super::shared::{Shared, Taking, Trouble};
use super::task::{Task, canary};
use crate::catalog::Mode;
use crate::queue::{CANARY, Connection, How, Piece};
use crate::vocabulary::{InFlight, Moment, human, printable};

/// Runs with dates further ahead than this are those of a clock that was wrong. It is more than any clock is set by on purpose.
const AHEAD_MS: i64 = 24 * 3_600 * 1_000;
/// How often a command that could not be ended is killed again, and this lane looks whether it is to leave.
const LOOK: Duration = Duration::from_secs(1);

/// After how long a run that may be repeated is marked in Redis. The mark is for people, and who is done sooner is not seen
/// by them; it would cost the server more than the answer does.
const MARK_AFTER: Duration = Duration::from_millis(20);

/// What came of running a command, and the command itself if it could not be ended; or why it was not started.
type Run = io::Result<(Ran, Option<UnkilledChild>)>;

/// Serves a task that was claimed and is in hand. The slot is free again when it is answered.
pub(super) async fn serve(shared: Rc<Shared>, raw: Vec<u8>, hash: String, permit: OwnedSemaphorePermit) {
    let served = loop {
        let served = one(&shared, Piece { raw: &raw, hash: &hash }).await;
        // A copy that came meanwhile may have been claimed after the answer had cleared away all that were there. Now the
        // ledger answers it.
        if served.is_err() || !shared.copied(&hash) {
            break served;
        }
    };
    shared.release(&hash);
    match served {
        Ok(()) => shared.backoff.borrow_mut().reset(),
        Err(trouble) => shared.fail(trouble),
    }
    drop(permit);
    shared.poke.notify_one();
    shared.changed.notify_one();
}

async fn one(shared: &Rc<Shared>, piece: Piece<'_>) -> Result<(), Trouble> {
    // Without a connection it stays in flight, and whoever connects next puts it in order.
    let Some(connection) = shared.connection() else { return Ok(()) };
    if let Some(id) = canary(piece.raw) {
        return answer_canary(shared, &connection, piece, id).await;
    }
    let before = match shared.known(piece.hash)? {
        Known::Finished { id, result } => {
            let result = result.unwrap_or_else(|| forgotten(shared, &id));
            connection.finish(piece, &id, Some(&result), None).await?;
            return Ok(shared.published(piece.hash)?);
        }
        Known::Begun(begun) if begun.again && begun.attempts < ATTEMPTS => Some(begun),
        Known::Begun(begun) => return interrupted(shared, &connection, piece, &begun, HERE).await,
        Known::Never => None,
    };
    let mut verdict = judge(shared, piece)?;
    if let Err(refused) = &verdict
        && refused.refusal.code == RefusalCode::Expired
        && out_of_date(refused.issued_ms, shared.now_ms())
    {
        // Left in flight, it is judged by the next lane.
        if !shared.await_clock().await {
            return Ok(());
        }
        verdict = judge(shared, piece)?;
    }
    match (verdict, before) {
        (Ok(admitted), before) => {
            let attempts = before.map_or(1, |begun| begun.attempts + 1);
            execute(shared, &connection, piece, &admitted, attempts).await
        }
        // It was begun once, so "not run" would not be true.
        (Err(_), Some(begun)) => interrupted(shared, &connection, piece, &begun, HERE).await,
        (Err(refused), None) => refuse(shared, &connection, piece, refused).await,
    }
}

/// Reads, verifies and judges a task by its bytes and by what this lane's ledger remembers.
pub(super) fn judge(shared: &Shared, piece: Piece<'_>) -> Result<Result<Admitted, Refused>, LedgerError> {
    let now = shared.now_ms();
    admit::<LedgerError>(piece.raw, &shared.rules(), now, |task, action| {
        let since = |per: Duration| now.saturating_sub(per.as_millis().try_into().unwrap_or(i64::MAX));
        let runs = match action.rate {
            Some(rate) => {
                let until = now.saturating_add(AHEAD_MS);
                let ahead = shared.ledger.begun_between(&task.action, piece.hash, until, i64::MAX)?;
                if ahead > 0 {
                    shared.journal.reply(
                        true,
                        format!(
                            "{ahead} runs of {} bear dates more than a day ahead of this host's clock; they are not counted against \
                             its rate: was the clock wrong then, or is it now? (timedatectl)",
                            task.action
                        ),
                    );
                }
                shared.ledger.begun_between(&task.action, piece.hash, since(rate.per), until)?
            }
            None => 0,
        };
        Ok(Past {
            id_used: shared.ledger.used_by_another(&task.id, piece.hash)?,
            runs,
            forgotten_ms: shared.ledger.forgotten_ms(),
            born_ms: shared.ledger.born_ms(now)?,
        })
    })
}

/// Nothing is run, so nothing has to be remembered, and nobody has to be asked. That it came through is the answer.
async fn answer_canary(
    shared: &Rc<Shared>,
    connection: &Connection,
    piece: Piece<'_>,
    id: String,
) -> Result<(), Trouble> {
    let result = shared.result(id, Some(CANARY.to_owned()), Status::Ok);
    shared.journal.task(&result);
    connection.answer_canary(piece, &result.id, &shared.json(&result)).await?;
    Ok(())
}

/// Answers a task that is not run. Its id gets an entry in the ledger only if it is that of whom the task is from.
pub(super) async fn refuse(
    shared: &Rc<Shared>,
    connection: &Connection,
    piece: Piece<'_>,
    refused: Refused,
) -> Result<(), Trouble> {
    let Refused { id, action, issued_ms, refusal } = refused;
    let code = refusal.code;
    let dead = code.is_dead().then(|| shared.dead(piece, code.name(), &refusal.text));
    let own_id = id.is_some();
    let id = id.unwrap_or_else(|| format!("sha256:{}", piece.hash));
    let result =
        TaskResult { refusal: Some(refusal), ..shared.result(id.clone(), action.clone(), Status::Refused) };
    let json = shared.json(&result);
    if own_id {
        let begun =
            Begun { id: id.clone(), action: action.unwrap_or_default(), issued_ms, again: true, attempts: 0 };
        shared.ledger.finish(piece.hash, &begun, &json)?;
    }
    shared.journal.task(&result);
    connection.finish(piece, &id, Some(&json), dead.as_deref()).await?;
    shared.published(piece.hash)?;
    shared.count(&result);
    Ok(())
}

async fn execute(
    shared: &Rc<Shared>,
    connection: &Connection,
    piece: Piece<'_>,
    admitted: &Admitted,
    attempts: u32,
) -> Result<(), Trouble> {
    let Admitted { task, issued_ms, argv, timeout, again, free } = admitted;
    let begun = InFlight {
        id: task.id.clone(),
        action: task.action.clone(),
        since: Moment::now(),
        idempotent: *again,
    };
    shared.runs_now(piece.hash, begun);
    let lock = match shared.lane() {
        Mode::Read => None,
        Mode::Write => Some(RunLock::take(&shared.state_dir).map_err(file("run.lock"))?),
    };
    let stdin = match &lock {
        None => Stdio::null(),
        Some(lock) => lock.stdin().map_err(file("run.lock"))?,
    };
    let begun = Begun {
        id: task.id.clone(),
        action: task.action.clone(),
        issued_ms: *issued_ms,
        again: *again,
        attempts,
    };
    let late = || {
        let text = format!(
            "{} ({}) is over its time of {} and was told to end; nothing else is run before it has",
            task.action,
            task.id,
            human(*timeout)
        );
        shared.enter("late", Taking::TasksStill, text);
    };
    let order = CommandSpec { argv, timeout: *timeout, grace: GRACE, stdin, late: &late };
    let begin = || shared.ledger.begin(piece.hash, &begun, shared.now_ms());
    let mut waiter = pin!(waits_for_us(shared, argv));
    let ran = if *free && attempts == 1 {
        // Taken down while the command starts, before anything else has its turn here.
        let mut running = pin!(run(order));
        let first = poll_fn(|context| Poll::Ready(running.as_mut().poll(context))).await;
        begin()?;
        match first {
            Poll::Ready(ran) => ran,
            Poll::Pending => tokio::select! {
                ran = marked(shared, connection, piece, &begun, running) => ran,
                waiter = &mut waiter => return leave_to(shared, piece, &begun, lock, waiter),
            },
        }
    } else {
        begin()?;
        tokio::select! {
            ran = run_begun(shared, connection, piece, &begun, order) => ran?,
            waiter = &mut waiter => return leave_to(shared, piece, &begun, lock, waiter),
        }
    };
    let (ran, beyond) = match ran {
        Ok((ran, beyond)) => (Ok(ran), beyond),
        Err(error) => (Err(error), None),
    };
    // From here on it may end at any moment, also after us.
    lock.iter().for_each(|lock| lock.stays(beyond.is_some()));
    let blank = |status| shared.result(task.id.clone(), Some(task.action.clone()), status);
    let result = match ran {
        Ok(ran) => {
            let note = ran.beyond.then(|| {
                "it was told to end and has not: it runs with other rights (sudo), or hangs in the kernel. The lane waits \
                 for it before it runs anything else"
                    .to_owned()
            });
            TaskResult { note, ran: Some(ran.clone()), ..blank(ran.status()) }
        }
        Err(error) => {
            let program = argv.first().map(|program| printable(program)).unwrap_or_default();
            let note = format!("{program} could not be started: {error}");
            TaskResult { note: Some(note), ..blank(Status::Failed) }
        }
    };
    shared.count(&result);
    let answered = answer(shared, piece, &begun, &result).await;
    let Some(beyond) = beyond else { return answered };
    if let Err(trouble) = answered {
        shared.fail(trouble);
    }
    if outlive(shared, beyond, task).await {
        lock.iter().for_each(|lock| lock.stays(false));
    }
    Ok(())
}

/// Answers a task that waits for the end of this lane, so that the lane can leave: in the ledger, from where the next lane
/// publishes it once it is there. What of it still runs in this unit PID 1 ends; what PID 1 runs for it goes on, and by the lock
/// that it holds the next lane waits for its end.
fn leave_to(
    shared: &Rc<Shared>,
    piece: Piece<'_>,
    begun: &Begun,
    lock: Option<RunLock>,
    waiter: Waiter,
) -> Result<(), Trouble> {
    lock.iter().for_each(|lock| lock.stays(true));
    let (status, note) = match waiter {
        Waiter::Task => (
            Status::Ok,
            "it ended this lane and waited for that; the lane that was started after it answers".to_owned(),
        ),
        Waiter::Process(command) => (
            Status::Interrupted,
            format!(
                "it ran `{command}`, which waits for the end of the lane that waits for the task: the lane left, and how far \
                 the task came is not known; add --no-block there"
            ),
        ),
    };
    let result = TaskResult {
        note: Some(note),
        ..shared.result(begun.id.clone(), Some(begun.action.clone()), status)
    };
    shared.ledger.finish(piece.hash, begun, &shared.json(&result))?;
    shared.journal.task(&result);
    shared.count(&result);
    Ok(())
}

/// Runs a task that is in the ledger.
async fn run_begun(
    shared: &Rc<Shared>,
    connection: &Connection,
    piece: Piece<'_>,
    begun: &Begun,
    order: CommandSpec<'_>,
) -> Result<Run, Trouble> {
    if begun.again {
        return Ok(marked(shared, connection, piece, begun, pin!(run(order))).await);
    }
    let mark = mark(shared, begun, jiff::Timestamp::now());
    match connection.begin(&shared.owner, piece, &mark, shared.how == How::Blmove).await {
        Ok(true) => Ok(run(order).await),
        Ok(false) => {
            shared.ledger.not_begun(piece.hash)?;
            Err(Trouble::Lost)
        }
        Err(error) => {
            shared.ledger.not_begun(piece.hash)?;
            Err(error.into())
        }
    }
}

/// Waits for a run that may be repeated, and marks it in Redis if it takes long.
async fn marked(
    shared: &Rc<Shared>,
    connection: &Connection,
    piece: Piece<'_>,
    begun: &Begun,
    mut running: Pin<&mut impl Future<Output = Run>>,
) -> Run {
    let at = jiff::Timestamp::now();
    if let Ok(ran) = timeout(MARK_AFTER, &mut running).await {
        return ran;
    }
    let mark = mark(shared, begun, at);
    let held = shared.how == How::Blmove;
    let (marked, ran) = tokio::join!(connection.begin(&shared.owner, piece, &mark, held), running);
    if let Err(error) = marked {
        shared.fail(error.into());
    }
    ran
}

fn mark(shared: &Shared, begun: &Begun, at: jiff::Timestamp) -> String {
    shared.json(&Mark {
        owner: shared.owner.id.clone(),
        place: shared.owner.place.clone(),
        id: begun.id.clone(),
        action: begun.action.clone(),
        issued_ms: begun.issued_ms,
        again: begun.again,
        attempts: begun.attempts,
        at: format!("{at:.3}"),
    })
}

/// Publishes what came of a run.
async fn answer(
    shared: &Rc<Shared>,
    piece: Piece<'_>,
    begun: &Begun,
    result: &TaskResult,
) -> Result<(), Trouble> {
    let json = shared.json(result);
    // What may run again needs its result in the ledger only in case that it does not reach Redis; whoever waits for it
    // need not wait for the ledger, too.
    let stored = if begun.again { Ok(()) } else { shared.store(piece.hash, begun, result) };
    let Some(connection) = shared.connection() else {
        shared.journal.task(result);
        return Ok(shared.store(piece.hash, begun, result)?);
    };
    let say = async {
        // The answer is under way before the journal's thread competes with it for a processor.
        yield_now().await;
        shared.journal.task(result);
    };
    let seal = begun.again.then(|| shared.ledger.seals().seal(piece.hash, json.as_bytes()));
    let finish = connection.finish_sealed(piece, &begun.id, &json, seal.as_deref());
    let (answered, ()) = tokio::join!(finish, say);
    if let Err(error) = answered {
        shared.store(piece.hash, begun, result)?;
        return Err(error.into());
    }
    // It is in Redis all the same; nothing more is taken before it is in the ledger, too.
    stored?;
    Ok(shared.answered(piece.hash, begun, &json)?)
}

/// Waits for a command that could not be ended, answered as it is: to run something beside it would be worse than to wait. A
/// lane that is told to leave leaves, and whoever comes next finds the command's lock. True if it has ended.
async fn outlive(shared: &Rc<Shared>, mut beyond: UnkilledChild, task: &Task) -> bool {
    let what = format!("{} ({}) is over its time, was killed and still runs", task.action, task.id);
    let (taking, text) = match shared.lane() {
        Mode::Read => (
            Taking::TasksStill,
            format!("{what}; its place among {} is kept until it ends", shared.all_slots),
        ),
        Mode::Write => (Taking::Nothing, format!("taking no tasks: {what}; two must not run at a time")),
    };
    shared.enter("beyond", taking, text);
    while !shared.leaving.get() {
        shared.passed();
        if beyond.ends(LOOK).await {
            return true;
        }
    }
    false
}

fn file(what: &str) -> impl Fn(std::io::Error) -> Trouble + use<> {
    let what = what.to_owned();
    move |source| Trouble::File { what: what.clone(), source }
}
