//! Signs in files. A file may lie on a network file system whose server is gone: then whoever looks at it hangs for as
//! long as that lasts, and nothing can end it. So it hangs on a thread of its own, costs only its own reading, and is
//! not tried again before the thread is back.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, Metadata};
use std::hash::{DefaultHasher, Hasher as _};
use std::io::{ErrorKind, Read as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

use nix::fcntl::OFlag;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::mounts;
use crate::judge::Reading;
use crate::vocabulary::{LANE_STATUS_MAX, LaneStatus, printable};

/// How long one file may take; it takes microseconds.
const DEADLINE: Duration = Duration::from_secs(1);
/// How many threads may hang at a time.
const HANGING: usize = 4;
/// Bytes of stack; looking at a file takes little.
const STACK: usize = 128 * 1024;

/// A file to be looked at.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Target {
    Beat(PathBuf),
    Lane(PathBuf),
    /// Whether the file system of such a file could take a beat.
    Fit(PathBuf),
}

impl Target {
    fn path(&self) -> &Path {
        match self {
            Self::Beat(path) | Self::Lane(path) | Self::Fit(path) => path,
        }
    }
}

/// The files at which a thread hangs.
#[derive(Debug, Clone, Default)]
pub(super) struct Files {
    hanging: Arc<Mutex<BTreeSet<Target>>>,
    /// What was read last.
    before: Arc<Mutex<BTreeMap<Target, Reading>>>,
}

/// One batch on its thread: how far it is, and what it has read.
#[derive(Debug, Default)]
struct Batch {
    at: AtomicUsize,
    read: Mutex<Vec<Reading>>,
}

impl Files {
    /// Looks at all of them, in their order. Takes at most a second for each that hangs, and no more than four seconds. A file
    /// that has not changed shows something only if its file system could have taken a change.
    pub(super) async fn read(&self, targets: Vec<Target>) -> Vec<Reading> {
        let mut readings = self.read_with(targets.clone(), look).await;
        let still: Vec<usize> = {
            let mut before = locked(&self.before);
            before.retain(|target, _| targets.contains(target));
            let all = targets.iter().zip(&readings).enumerate();
            let still = all.filter_map(|(at, (target, reading))| {
                let same = before.insert(target.clone(), reading.clone()).as_ref() == Some(reading);
                (matches!(reading, Reading::Silent(_)) || (same && matches!(reading, Reading::Mark(_))))
                    .then_some(at)
            });
            still.collect()
        };
        if still.is_empty() {
            return readings;
        }
        let fit = still.iter().filter_map(|at| Some(Target::Fit(targets.get(*at)?.path().to_owned())));
        for (at, fit) in still.iter().zip(self.read_with(fit.collect(), look).await) {
            if let (Reading::Failed(_), Some(reading)) = (&fit, readings.get_mut(*at)) {
                *reading = fit;
            }
        }
        readings
    }

    async fn read_with(&self, targets: Vec<Target>, look: fn(&Target) -> Reading) -> Vec<Reading> {
        let mut readings = Vec::with_capacity(targets.len());
        let mut rest = targets;
        while !rest.is_empty() {
            let known = self.hanging().clone();
            if known.len() >= HANGING {
                readings.extend(rest.iter().map(hangs));
                break;
            }
            let batch = Arc::new(Batch::default());
            let (done, work) = oneshot::channel();
            let (on_thread, todo, hanging) = (batch.clone(), rest.clone(), self.hanging.clone());
            // Not of the runtime's own threads: the runtime waits for those at its end.
            let thread = thread::Builder::new().name("files".to_owned()).stack_size(STACK).spawn(move || {
                on_thread.work(&todo, &known, &hanging, look);
                drop(done);
            });
            if let Err(error) = thread {
                readings.extend(
                    rest.iter().map(|_| Reading::Failed(format!("no thread can be started: {error}"))),
                );
                break;
            }
            let ended = wait(work, &batch).await;
            let mut read = locked(&batch.read);
            if !ended && let Some(target) = rest.get(read.len()) {
                read.push(hangs(target));
                self.hanging().insert(target.clone());
            }
            rest.drain(..read.len());
            readings.extend(read.iter().cloned());
        }
        readings
    }

    fn hanging(&self) -> MutexGuard<'_, BTreeSet<Target>> {
        locked(&self.hanging)
    }
}

impl Batch {
    /// On the thread: one after the other, until somebody has given this thread up.
    fn work(
        &self,
        targets: &[Target],
        known: &BTreeSet<Target>,
        hanging: &Mutex<BTreeSet<Target>>,
        look: fn(&Target) -> Reading,
    ) {
        for (at, target) in targets.iter().enumerate() {
            self.at.store(at, Ordering::Release);
            // Those that are known to hang are passed over; their own thread says when it is back.
            let reading = if known.contains(target) { hangs(target) } else { look(target) };
            let mut read = locked(&self.read);
            if read.len() > at {
                locked(hanging).remove(target);
                return;
            }
            read.push(reading);
        }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether the batch comes to its end. It may take long as a whole; it has to go on.
async fn wait(mut work: oneshot::Receiver<()>, batch: &Batch) -> bool {
    let (mut before, mut still) = (usize::MAX, 0);
    while still < 4 {
        if timeout(DEADLINE / 4, &mut work).await.is_ok() {
            return true;
        }
        let at = batch.at.load(Ordering::Acquire);
        still = if at == before { still + 1 } else { 1 };
        before = at;
    }
    false
}

fn hangs(target: &Target) -> Reading {
    Reading::Failed(format!(
        "{} cannot be looked at: its file system does not answer",
        target.path().display()
    ))
}

fn look(target: &Target) -> Reading {
    match target {
        // The modification time counts, whatever it is: a clock that steps changes it as well as a beat does.
        Target::Beat(path) => match path.symlink_metadata() {
            Ok(meta) if meta.is_file() => Reading::Mark(mark(&meta)),
            Ok(_) => Reading::Failed(format!("{} is no plain file", path.display())),
            Err(error) => failed(path, &error),
        },
        Target::Lane(path) => lane(path),
        Target::Fit(path) => match mounts::unfit(path) {
            Some(why) => Reading::Failed(why),
            None => Reading::Moving,
        },
    }
}

fn mark(meta: &Metadata) -> u64 {
    hash(&(meta.mtime(), meta.mtime_nsec(), meta.size(), meta.ino()))
}

fn hash(what: &impl std::hash::Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    what.hash(&mut hasher);
    hasher.finish()
}

fn failed(path: &Path, error: &std::io::Error) -> Reading {
    if let Some(own) = private_tmp().iter().find(|own| path.starts_with(own)) {
        // Not to see it says nothing there.
        Reading::Failed(format!(
            "{} cannot be seen: the supervisor has a {} of its own (PrivateTmp=); have the worker touch a file in /run",
            path.display(),
            own.display()
        ))
    } else if error.kind() == ErrorKind::NotFound {
        Reading::Silent(format!("{} is missing", path.display()))
    } else {
        Reading::Failed(format!("{} cannot be looked at: {error}", path.display()))
    }
}

/// Which directories for temporary files are not the host's: systemd mounts `…/systemd-private-ID-UNIT-XXXXXX/tmp` over
/// them.
fn private_tmp() -> &'static [PathBuf] {
    static OWN: OnceLock<Vec<PathBuf>> = OnceLock::new();
    OWN.get_or_init(|| private_in(&std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default()))
}

/// See proc_pid_mountinfo(5): the fourth field is what of its file system is mounted, the fifth where.
fn private_in(mounts: &str) -> Vec<PathBuf> {
    let own = |line: &str| {
        let mut fields = line.split(' ').skip(3);
        let (root, at) = (fields.next()?, fields.next()?);
        (matches!(at, "/tmp" | "/var/tmp") && root.contains("systemd-private-")).then(|| PathBuf::from(at))
    };
    mounts.lines().filter_map(own).collect()
}

/// A lane's passes. While it runs something its loop may rightly stand still, for as long as a write takes; then it
/// counts that its process still writes.
fn lane(path: &Path) -> Reading {
    match bytes(path) {
        Err(error) => failed(path, &error),
        Ok(bytes) => match LaneStatus::read(&bytes) {
            Ok(status) if status.running > 0 => Reading::Mark(hash(&(status.passes, status.at))),
            Ok(status) => Reading::Mark(hash(&status.passes)),
            Err(why) => Reading::Failed(format!("{} is not a lane's: {}", path.display(), printable(&why))),
        },
    }
}

/// Reads a file that somebody with fewer rights made: no link is followed, nothing that could block is waited for, and
/// not more is read than there may be.
fn bytes(path: &Path) -> std::io::Result<Vec<u8>> {
    let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
    let file = File::options().read(true).custom_flags(flags.bits()).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(std::io::Error::other("it is no plain file"));
    }
    let mut bytes = Vec::new();
    file.take(LANE_STATUS_MAX as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests;
