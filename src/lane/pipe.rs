//! Where tasks come from: connecting, becoming the owner, putting in order what was left, and claiming one after the other.

use std::rc::Rc;

use super::recover::recover;
use super::serve::serve;
use super::shared::{DEAF, Shared, Taking, Trouble, hash_of};
use crate::queue::{Claimer, Owned, Piece, QueueError};
use crate::vocabulary::human;

/// How long a full server is left alone when it had nothing to claim.
const FULL: std::time::Duration = std::time::Duration::from_secs(1);

/// How often a deaf lane comes round.
const DEAF_PASS: std::time::Duration = std::time::Duration::from_secs(1);

/// Runs until the lane leaves.
pub(super) async fn pipe(shared: Rc<Shared>) {
    while !shared.leaving.get() || shared.busy() > 0 {
        shared.rebuild.set(false);
        let ended = session(&shared).await;
        shared.connection.borrow_mut().take();
        shared.waiting.set(None);
        shared.passed();
        if let Err(trouble) = ended {
            shared.enter(state_of(&trouble), Taking::Nothing, format!("taking no tasks: {trouble}"));
            let wait = shared.backoff.borrow_mut().wait();
            shared.wait(wait).await;
        }
    }
    shared.changed.notify_one();
}

/// From connecting to the first failure, or to the wish for another connection.
async fn session(shared: &Rc<Shared>) -> Result<(), Trouble> {
    shared.trouble.borrow_mut().take();
    let (connection, mut claimer) = shared.server.connect(shared.how).await?;
    shared.passed();
    let owned = connection.own(&shared.owner).await?;
    if let Owned::ByAnother(place) = owned {
        shared.lost_queue.set(true);
        return Err(Trouble::Owned { queue: shared.queue.clone(), place });
    }
    let again = shared.has_queue(&owned);
    // Before anything is put in order: what a ghost takes meanwhile would be overlooked.
    let ghosts = connection.kill_ghosts().await?;
    recover(shared, &connection).await?;
    *shared.connection.borrow_mut() = Some(connection);
    let mut and = if ghosts > 0 {
        format!(", after ending {ghosts} dead connections of its own")
    } else {
        String::new()
    };
    if let Some(again) = again {
        and.push_str("; ");
        and.push_str(again);
    }
    let at = shared.server.shown();
    shared.enter("serving", Taking::Tasks, format!("serving {} at {at}{and}", shared.queue));
    if !shared.ready.replace(true) {
        shared.notifier.borrow_mut().ready();
    }
    shared.show();
    serve_all(shared, &mut claimer).await
}

async fn serve_all(shared: &Rc<Shared>, claimer: &mut Claimer) -> Result<(), Trouble> {
    loop {
        shared.passed();
        if let Some(trouble) = shared.trouble.borrow_mut().take() {
            return Err(trouble);
        }
        if shared.leaving.get() {
            // Running tasks still need the connection to be answered.
            if shared.busy() == 0 {
                if let Some(connection) = shared.connection() {
                    connection.disown(&shared.owner).await?;
                }
                return Ok(());
            }
            shared.poke.notified().await;
            continue;
        }
        if shared.rebuild.get() {
            return Ok(());
        }
        if shared.is_deaf() {
            play_deaf(shared).await;
            continue;
        }
        // A slot first: what is claimed is begun at once.
        let permit = tokio::select! {
            permit = shared.slots.clone().acquire_owned() => permit,
            () = shared.poke.notified() => continue,
        };
        // No more slots are given when the lane leaves.
        let Ok(permit) = permit else { continue };
        let Some(raw) = claim(shared, claimer).await? else {
            shared.backoff.borrow_mut().reset();
            shared.waiting.set(Some(0));
            if shared.busy() == 0 {
                shared.ledger.tidy()?;
            }
            continue;
        };
        let hash = hash_of(&raw);
        if shared.leaving.get() || shared.rebuild.get() || shared.is_deaf() {
            if let Some(connection) = shared.connection() {
                connection.put_back(Piece { raw: &raw, hash: &hash }).await?;
            }
            continue;
        }
        // The same bytes once more while they are being worked on: one answer serves both.
        if !shared.take(&hash) {
            continue;
        }
        tokio::task::spawn_local(serve(shared.clone(), raw, hash, permit));
    }
}

/// One pass of a lane that rehearses to be cut off from its queue: it is well in every respect, and takes nothing.
async fn play_deaf(shared: &Rc<Shared>) {
    let text = format!(
        "deaf, for a rehearsal: taking no tasks from {} until SIGHUP, at most for {}",
        shared.queue,
        human(DEAF)
    );
    shared.enter("deaf", Taking::Nothing, text);
    // Nobody claims, so nobody knows whether something waits: it is asked.
    shared.waiting.set(None);
    shared.wait_or_poke(DEAF_PASS).await;
}

async fn claim(shared: &Rc<Shared>, claimer: &mut Claimer) -> Result<Option<Vec<u8>>, Trouble> {
    match claimer.claim().await {
        Err(full @ QueueError::Full { .. }) => {
            shared.enter("full", Taking::TasksStill, format!("working off {}, but {full}", shared.queue));
            let claimed = claimer.claim_when_full().await?;
            if claimed.is_none() {
                shared.wait(FULL).await;
            }
            Ok(claimed)
        }
        Ok(claimed) => {
            if !shared.leaving.get() && shared.await_clock.get() == 0 {
                shared.enter("serving", Taking::Tasks, format!("serving {} again", shared.queue));
            }
            Ok(claimed)
        }
        Err(error) => Err(error.into()),
    }
}

/// States that are told apart: each is said once when it is entered.
fn state_of(trouble: &Trouble) -> &'static str {
    match trouble {
        Trouble::Queue(
            QueueError::Late { .. }
            | QueueError::Unreachable { .. }
            | QueueError::NoMaster { .. }
            | QueueError::TlsFile { .. }
            | QueueError::ClientCertificate { .. }
            | QueueError::Url { .. },
        ) => "away",
        Trouble::Queue(QueueError::Refused { .. }) => "refused",
        Trouble::Queue(QueueError::Excess { .. }) => "excess",
        Trouble::Queue(QueueError::Denied { .. }) => "denied",
        Trouble::Queue(QueueError::Full { .. }) => "full",
        Trouble::Queue(QueueError::ReadOnly { .. }) => "read-only",
        Trouble::Queue(QueueError::Loading { .. }) => "loading",
        Trouble::Ledger(_) => "ledger",
        Trouble::Owned { .. } => "owned",
        Trouble::Lost => "lost",
        Trouble::File { .. } => "file",
    }
}
