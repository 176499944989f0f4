//! The lane's word about itself, in a file for whoever looks after it: written by the lane's own loop and not by the
//! thread that writes to the journal, because that one stands still with journald, and the lane does not.

use std::fs::{self, File, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use nix::fcntl::OFlag;
use tokio::time::{sleep, timeout};

use super::shared::Shared;
use crate::vocabulary::{
    LANE_STATUS_EVERY, LANE_STATUS_TASKS, LANE_TEXT_MAX, LaneStatus, Moment, clipped, printable,
};

/// How long what happens is gathered before it is written: a trivial task is over before then, and nothing of this is in
/// its way.
const GATHER: Duration = Duration::from_millis(100);
/// How often the server is asked how many tasks wait, while some run.
const ASK: Duration = Duration::from_secs(1);

/// Keeps the file up to date, for as long as the lane runs.
pub(super) async fn keep(shared: Rc<Shared>, dir: PathBuf) {
    let mut said = false;
    loop {
        sleep(GATHER).await;
        ask(&shared).await;
        let written = write(&dir, &shared.status());
        if let Err(error) = written
            && !std::mem::replace(&mut said, true)
        {
            shared.journal.transition(
                true,
                format!("{}: {error}; the supervisor does not see this lane", dir.display()),
            );
        }
        let at_most = if shared.busy() == 0 { LANE_STATUS_EVERY } else { ASK };
        // Whatever there is or is not to say: who reads it must see that this process still moves.
        let _ = timeout(at_most, shared.news.notified()).await;
    }
}

/// Asks how many tasks wait. Not while nothing runs: a claim that waits says that none do.
async fn ask(shared: &Rc<Shared>) {
    let idle = shared.busy() == 0 && shared.waiting.get() == Some(0);
    if idle || shared.asked.get().is_some_and(|at| at.elapsed() < ASK) {
        return;
    }
    let Some(connection) = shared.connection() else { return };
    shared.asked.set(Some(std::time::Instant::now()));
    // What the server does not say is not known; that it is gone, the pipe finds out for itself.
    let waiting = connection.waiting().await.ok();
    shared.waiting.set(waiting);
}

impl Shared {
    fn status(&self) -> LaneStatus {
        let in_hand = self.in_hand.borrow();
        let mut in_flight: Vec<_> = in_hand.values().filter_map(|task| task.begun.clone()).collect();
        in_flight.sort_by_key(|task| task.since);
        let running = in_flight.len().try_into().unwrap_or(u64::MAX);
        in_flight.truncate(LANE_STATUS_TASKS);
        let connected = self.connection.borrow().is_some();
        LaneStatus {
            lane: self.lane(),
            node: self.node().clone(),
            pid: std::process::id(),
            invocation: self.invocation.as_deref().and_then(|id| id.parse().ok()),
            connected,
            no_tasks: self.no_tasks().map(|why| clipped(&printable(&why), LANE_TEXT_MAX).into_owned()),
            queue: self.queue.clone(),
            waiting: self.waiting.get().filter(|_| connected),
            running,
            in_flight,
            done: self.done.get(),
            last: self.last.borrow().clone(),
            passes: self.passes.get(),
            pass_at: self.pass_at.get(),
            at: Moment::now(),
        }
    }
}

/// In one step, so that a reader sees the one before or this one. Whoever may look may read it: the supervisor is uid 0
/// without the right to read what is not for it.
fn write(dir: &Path, status: &LaneStatus) -> io::Result<()> {
    let json = serde_json::to_vec(status)?;
    let draft = dir.join(".status.json.new");
    let mut file = File::options()
        .write(true)
        .create(true)
        .truncate(true)
        .custom_flags(OFlag::O_NOFOLLOW.bits())
        .open(&draft)?;
    file.set_permissions(Permissions::from_mode(0o644))?;
    file.write_all(&json)?;
    fs::rename(draft, dir.join(LaneStatus::FILE))
}
