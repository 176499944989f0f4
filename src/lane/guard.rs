//! What must be so before a lane takes its first task: it is alone, and its rights are those its mode needs.

use std::cell::Cell;
use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use nix::sys::prctl;

use super::guard_error::GuardError;
use super::sudo;
use crate::catalog::{Arg, Catalog, Mode};

/// Takes the directory for this process alone, for as long as the file lives.
pub(super) fn alone(dir: &Path) -> Result<File, GuardError> {
    let path = dir.join("lane.lock");
    let wrong = |source| GuardError::Lock { path: path.clone(), source };
    let file = File::options().write(true).create(true).truncate(false).open(&path).map_err(wrong)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(GuardError::NotAlone(path)),
        Err(TryLockError::Error(source)) => Err(wrong(source)),
    }
}

/// Whether the rights of this process are those of its lane. A catalog without `sudo` needs none: then a write lane may be
/// as tight as a read lane.
pub(super) async fn rights(lane: Mode, catalog: &Catalog) -> Result<(), GuardError> {
    // It fails on no kernel since 3.5; not to know is not to be safe.
    let cannot_gain = prctl::get_no_new_privs().ok();
    match lane {
        Mode::Read if cannot_gain == Some(true) => Ok(()),
        Mode::Read => Err(GuardError::CanGain),
        Mode::Write if !uses_sudo(catalog) => Ok(()),
        Mode::Write if cannot_gain != Some(false) => Err(GuardError::CannotGain),
        Mode::Write => sudo::allowed().await,
    }
}

fn uses_sudo(catalog: &Catalog) -> bool {
    catalog.actions.values().any(
        |action| matches!(action.argv.first(), Some(Arg::Literal(program)) if program.ends_with("/sudo")),
    )
}

/// A lock that a command of the write lane holds for as long as it or anything it started lives, even if the lane dies:
/// it is its standard input, an empty file, and a lock belongs to all who have the file open. It passes `sudo`, which
/// closes every other descriptor. So the next lane knows whether what the last one began still runs.
#[derive(Debug)]
pub(super) struct RunLock {
    path: PathBuf,
    file: File,
    stays: Cell<bool>,
}

impl RunLock {
    /// A new lock, under a new file: whoever still has the old one is of a run that was answered.
    pub(super) fn take(dir: &Path) -> io::Result<Self> {
        let path = dir.join("run.lock");
        gone(fs::remove_file(&path))?;
        File::options().write(true).create_new(true).open(&path)?;
        let file = File::open(&path)?;
        file.try_lock()?;
        Ok(Self { path, file, stays: Cell::new(false) })
    }

    /// Whether its file is to be there after us, because the command may outlive this process.
    pub(super) fn stays(&self, yes: bool) {
        self.stays.set(yes);
    }

    /// What the command gets as standard input.
    pub(super) fn stdin(&self) -> io::Result<Stdio> {
        self.file.try_clone().map(Stdio::from)
    }

    /// Whether a command of a lane that died still runs.
    pub(super) fn is_held(dir: &Path) -> io::Result<bool> {
        match File::open(dir.join("run.lock")) {
            Ok(file) => match file.try_lock() {
                Ok(()) => Ok(false),
                Err(TryLockError::WouldBlock) => Ok(true),
                Err(TryLockError::Error(error)) => Err(error),
            },
            Err(error) => gone(Err(error)).map(|()| false),
        }
    }
}

impl Drop for RunLock {
    fn drop(&mut self) {
        // If it stays, the next run removes it.
        if !self.stays.get() {
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn gone(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn there_is_one_lane_to_a_directory() {
        let dir = tempfile::tempdir().unwrap();
        let first = alone(dir.path()).unwrap();
        assert!(matches!(alone(dir.path()), Err(GuardError::NotAlone(_))));
        drop(first);
        // A child that another test starts just then has it too, until it is another program.
        let until = std::time::Instant::now() + Duration::from_secs(20);
        while let Err(error) = alone(dir.path()) {
            assert!(std::time::Instant::now() < until, "{error}");
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_command_holds_the_lock_after_its_lane() {
        let dir = tempfile::tempdir().unwrap();
        assert!(!RunLock::is_held(dir.path()).unwrap());
        let lock = RunLock::take(dir.path()).unwrap();
        let mut child =
            std::process::Command::new("/bin/sleep").arg("60").stdin(lock.stdin().unwrap()).spawn().unwrap();
        assert!(RunLock::is_held(dir.path()).unwrap());
        // As a SIGKILL would: nothing is removed, but our descriptors are closed.
        let RunLock { file, .. } = &lock;
        let dup = file.try_clone().unwrap();
        std::mem::forget(lock);
        drop(dup);
        child.kill().unwrap();
        child.wait().unwrap();
        // The forgotten descriptor still holds it; a new run gets a new file.
        assert!(RunLock::is_held(dir.path()).unwrap());
        drop(RunLock::take(dir.path()).unwrap());
        assert!(!RunLock::is_held(dir.path()).unwrap());
    }
}
