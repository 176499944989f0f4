//! The lane itself: its start, its signals, its line to systemd, its end.

use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tokio::task::{LocalSet, spawn_local};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};

use super::admit::Rules;
use super::guard::{RunLock, alone, rights};
use super::guard_error::GuardError;
use super::journal_writer::JournalWriter;
use super::ledger::{Ledger, LedgerError, Origin};
use super::own::is_waited_for;
use super::pipe::pipe;
use super::shared::{Parts, Shared, Taking, Trouble, hash_of};
use super::status::keep;
use crate::queue::{How, OWNED_FOR, Owned, Owner, QueueError, QueueName, Server};

/// How long the pipe may make no step before the watchdog is no longer pinged: connecting, claiming and waiting each end
/// sooner by their own deadlines.
const STUCK: Duration = Duration::from_secs(20);
/// How often the state of a command that a dead lane left running is looked at.
const LOOK: Duration = Duration::from_millis(20);
/// How often is looked whether that command waits for this lane.
const WAITER_LOOK: Duration = Duration::from_millis(500);

/// How a lane reads its rules again; says why not, in one sentence.
pub type Reload = Box<dyn Fn() -> Result<Rules, String>>;

/// What a lane is started with.
pub struct Setup {
    /// Catalog, mode and keys.
    pub rules: Rules,
    /// Where they come from when it is told to read them again.
    pub reload: Reload,
    /// The queue it serves.
    pub queue: QueueName,
    /// Where that is: `redis://`, `rediss://` or `redis-sentinel://`.
    pub redis: String,
    /// How tasks are taken.
    pub how: How,
    /// How many tasks run at a time; the write lane takes one, whatever this says.
    pub slots: usize,
    /// Where its ledger is.
    pub state_dir: PathBuf,
    /// Where it says how it is, for the supervisor; nowhere if none.
    pub runtime_dir: Option<PathBuf>,
}

/// The lane cannot start.
#[derive(Debug, thiserror::Error)]
pub enum LaneError {
    /// It must not run as it is.
    #[error(transparent)]
    Guard(#[from] GuardError),
    /// Its ledger cannot be used.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// The address of the queue is none.
    #[error(transparent)]
    Queue(#[from] QueueError),
    /// The kernel refuses something that every lane needs.
    #[error("{what} failed")]
    System {
        /// What.
        what: &'static str,
        /// Why.
        source: std::io::Error,
    },
}

fn system(what: &'static str) -> impl Fn(std::io::Error) -> LaneError {
    move |source| LaneError::System { what, source }
}

/// Runs a lane until SIGTERM or SIGINT; then it finishes the running tasks and leaves.
///
/// # Errors
/// [`LaneError`], before the first task is taken. What goes wrong later is waited out.
pub fn work(setup: Setup) -> Result<(), LaneError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(system("starting the runtime"))?;
    LocalSet::new().block_on(&runtime, start(setup))
}

async fn start(setup: Setup) -> Result<(), LaneError> {
    let Setup { rules, reload, queue, redis, how, slots, state_dir, runtime_dir } = setup;
    rights(rules.lane, &rules.catalog).await?;
    let server = Server::new(&redis, &queue)?;
    // The ledger makes the directory, and is itself locked by SQLite; the lock says whose it is.
    std::fs::create_dir_all(&state_dir).map_err(system("making the state directory"))?;
    let _alone = alone(&state_dir)?;
    let ledger = Ledger::open(&state_dir)?;
    let owner = owner(&ledger);
    let origin = ledger.origin();
    let slots = match rules.lane {
        crate::catalog::Mode::Read => slots.max(1),
        crate::catalog::Mode::Write => 1,
    };
    let journal = JournalWriter::start(rules.lane, rules.catalog.node.as_str(), queue.as_str())
        .map_err(system("starting a thread"))?;
    let queue = queue.to_string();
    let parts = Parts { rules, server, queue, how, slots, state_dir, ledger, owner, journal };
    let shared = Rc::new(Shared::new(parts));
    const REFUSED: &str = "tasks that were issued before now are refused and must be asked for again, and rates count from now on";
    match origin {
        Origin::Kept => {}
        Origin::New => shared.journal.reply(false, format!("the ledger is new: {REFUSED}")),
        Origin::Copied => {
            shared.journal.reply(true, format!("the ledger is a copy, restored from somewhere: {REFUSED}"));
        }
    }
    if let Some(dir) = runtime_dir {
        spawn_local(keep(shared.clone(), dir));
    }
    run(shared, reload.into()).await
}

async fn run(shared: Rc<Shared>, reload: Rc<dyn Fn() -> Result<Rules, String>>) -> Result<(), LaneError> {
    let signals = |kind| signal(kind).map_err(system("catching signals"));
    let mut term = signals(SignalKind::terminate())?;
    let mut int = signals(SignalKind::interrupt())?;
    let mut hup = signals(SignalKind::hangup())?;
    let mut usr1 = signals(SignalKind::user_defined1())?;
    let mut usr2 = signals(SignalKind::user_defined2())?;
    let mut renew = interval(OWNED_FOR / 3);
    renew.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut pipe = Some(spawn_local(begin(shared.clone())));
    loop {
        let (at_most, hears_again) = {
            let notifier = shared.notifier.borrow();
            (notifier.at_most() / 4, notifier.hears_again())
        };
        tokio::select! {
            () = hears_again => {}
            _ = term.recv() => leave(&shared),
            _ = int.recv() => leave(&shared),
            _ = hup.recv() => {
                shared.hear();
                spawn_local(read_rules_again(shared.clone(), reload.clone()));
            }
            _ = usr1.recv() => shared.wake(),
            _ = usr2.recv() => {
                shared.deafen();
                shared.wake();
            }
            _ = renew.tick() => {
                if let Some(connection) = shared.connection() {
                    let shared = shared.clone();
                    spawn_local(async move {
                        match connection.renew(&shared.owner).await {
                            Ok(Owned::ByAnother(place)) => {
                                let queue = shared.queue.clone();
                                shared.lost_queue.set(true);
                                shared.fail(Trouble::Owned { queue, place });
                            }
                            Ok(owned) => {
                                if let Some(again) = shared.has_queue(&owned) {
                                    shared.journal.transition(true, format!("{}: {again}", shared.queue));
                                }
                            }
                            Err(error) => shared.fail(error.into()),
                        }
                    });
                }
            }
            () = shared.changed.notified() => {}
            () = sleep(at_most) => {}
        }
        shared.journal.catch_up();
        if let Err(error) = shared.settle_said() {
            shared.fail(error.into());
        }
        if shared.stuck_for() < STUCK {
            shared.notifier.borrow_mut().passed();
        }
        if pipe.as_ref().is_some_and(tokio::task::JoinHandle::is_finished) {
            pipe = None;
        }
        if shared.leaving.get() && pipe.is_none() && shared.busy() == 0 {
            break;
        }
    }
    shared.journal.flush(Duration::from_secs(1));
    // If it fails, the next lane says once more what is said.
    let _ = shared.settle_said();
    Ok(())
}

/// The first task is taken only when nothing runs any more that a lane before this one began.
async fn begin(shared: Rc<Shared>) {
    let since = Instant::now();
    let mut looked = None;
    while !shared.leaving.get() {
        match RunLock::is_held(&shared.state_dir) {
            Ok(false) => break,
            Ok(true) => {
                shared.enter(
                    "orphan",
                    Taking::Nothing,
                    "taking no tasks: a command that the last lane began is still running; it is waited for, because two \
                     must not run at a time"
                        .to_owned(),
                );
                if looked.is_none_or(|at: Instant| at.elapsed() > WAITER_LOOK) && !shared.ready.get() {
                    looked = Some(Instant::now());
                    if is_waited_for() {
                        shared.ready.set(true);
                        shared.notifier.borrow_mut().ready();
                    }
                }
            }
            Err(error) => {
                shared.enter("file", Taking::Nothing, format!("taking no tasks: run.lock: {error}"))
            }
        }
        shared.passed();
        // Soon at first, because most commands are short.
        sleep(if since.elapsed() < Duration::from_secs(10) { LOOK } else { Duration::from_secs(1) }).await;
    }
    pipe(shared).await;
}

/// SIGHUP: the rules are read again, and the pipe is built again in any case. Rules that cannot be used change nothing but
/// what the lane says of itself; what runs goes on by those it was begun with.
async fn read_rules_again(shared: Rc<Shared>, reload: Rc<dyn Fn() -> Result<Rules, String>>) {
    let read = match reload() {
        Ok(rules) if rules.lane != shared.lane() || rules.catalog.node != *shared.node() => {
            Err("it is another node's or another lane's now; restart the lane for that".to_owned())
        }
        Ok(rules) => {
            rights(rules.lane, &rules.catalog).await.map(|()| rules).map_err(|error| error.to_string())
        }
        Err(why) => Err(why),
    };
    match read {
        Ok(rules) => {
            let said = format!(
                "catalog read again: {} actions, {}",
                rules.catalog.actions.len(),
                rules.catalog.hash
            );
            shared.adopt(Ok(rules));
            shared.journal.reply(false, said);
        }
        Err(why) => {
            shared
                .journal
                .reply(true, format!("the new catalog is refused, the old one stays in force: {why}"));
            shared.adopt(Err(why));
        }
    }
    shared.rebuild.set(true);
    shared.wake();
}

fn leave(shared: &Rc<Shared>) {
    if shared.leaving.replace(true) {
        return;
    }
    shared.notifier.borrow_mut().stopping();
    let running = shared.busy();
    let text = match running {
        0 => "leaving".to_owned(),
        n => format!("leaving when {n} running tasks are finished"),
    };
    shared.enter("leaving", Taking::Tasks, text);
    shared.slots.close();
    shared.wake();
}

/// Who this lane is to other lanes: this run of this host's kernel, this machine, this ledger. A copied disk has another
/// boot, a container another machine id.
fn owner(ledger: &Ledger) -> Owner {
    let read = |path| std::fs::read_to_string(Path::new(path)).unwrap_or_default();
    let facts = [read("/etc/machine-id"), read("/proc/sys/kernel/random/boot_id"), ledger.id().to_owned()];
    let host = nix::unistd::gethostname().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let place = format!("host {}, process {}", crate::vocabulary::printable(&host), std::process::id());
    Owner { id: hash_of(facts.join("\n").as_bytes()), place }
}
