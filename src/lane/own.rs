//! A running task that waits for the end of the lane that runs it: it has restarted the lane, or something that it started has.
//! The lane would wait for the task, and the task for the lane.

use std::path::Path;
use std::time::Duration;
use std::{fs, io};

use tokio::time::sleep;

use super::shared::Shared;
use crate::catalog::{Mode, ends_write_lane};
use crate::vocabulary::{clipped, printable};

/// How often a lane that is told to leave looks whether its task waits for that.
const LOOK: Duration = Duration::from_millis(500);
/// How much of a command line is shown, in characters.
const MAX_SHOWN: usize = 120;
/// What PID 1 calls the units that it makes for `systemd-run`.
const TRANSIENT: &str = "run-";

/// What of a task waits for the end of its lane.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Waiter {
    /// The task itself is that order.
    Task,
    /// A process that the task has started, by its command line.
    Process(String),
}

/// Returns once the lane is told to leave and the task waits for just that.
///
/// # Cancel safety
/// Safe.
pub(super) async fn waits_for_us(shared: &Shared, argv: &[String]) -> Waiter {
    let words = || argv.iter().map(String::as_str);
    loop {
        // Nothing of the read lane can end anything.
        if shared.leaving.get() && shared.lane() == Mode::Write {
            if ends_write_lane(words()) {
                return Waiter::Task;
            }
            let by_pid1 = words().any(|word| word.ends_with("/systemd-run"));
            // What cannot be seen is waited for, as long as systemd lets the lane wait.
            if let Ok(Some(waiter)) = process(Path::new("/proc"), by_pid1) {
                return Waiter::Process(waiter);
            }
        }
        sleep(LOOK).await;
    }
}

/// Whether something that PID 1 runs for a task of the lane before this one waits for this lane to be ready. That lane waits
/// for its end in turn, so it says that it is ready although it takes no tasks yet.
pub(super) fn is_waited_for() -> bool {
    matches!(process(Path::new("/proc"), true), Ok(Some(_)))
}

/// A `systemctl` of the task's that waits for the end of this lane: one in the lane's own control group or, if PID 1 runs
/// something for the task, in one of the units that it makes for that.
fn process(proc: &Path, by_pid1: bool) -> io::Result<Option<String>> {
    let ours = fs::read_to_string(proc.join("self/cgroup"))?;
    for entry in fs::read_dir(proc)? {
        let dir = entry?.path();
        if !dir.file_name().is_some_and(|name| name.as_encoded_bytes().iter().all(u8::is_ascii_digit)) {
            continue;
        }
        // It may have ended meanwhile.
        let Ok(line) = fs::read(dir.join("cmdline")) else { continue };
        let line = String::from_utf8_lossy(&line);
        let words = || line.split('\0').filter(|word| !word.is_empty());
        let is_systemctl = words().next().is_some_and(|word| word.rsplit('/').next() == Some("systemctl"));
        if !is_systemctl || !ends_write_lane(words()) {
            continue;
        }
        let Ok(group) = fs::read_to_string(dir.join("cgroup")) else { continue };
        if group == ours || (by_pid1 && is_transient(&group)) {
            let shown = words().collect::<Vec<_>>().join(" ");
            return Ok(Some(clipped(&printable(&shown), MAX_SHOWN).into_owned()));
        }
    }
    Ok(None)
}

/// Whether a `/proc/PID/cgroup` is of a service that `systemd-run` has made.
fn is_transient(group: &str) -> bool {
    let mut parts =
        group.lines().flat_map(|line| line.rsplit_once(':')).flat_map(|(_, path)| path.split('/'));
    parts.any(|part| part.starts_with(TRANSIENT) && part.ends_with(".service"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(proc: &Path, pid: &str, line: &str, group: &str) {
        fs::create_dir_all(proc.join(pid)).unwrap();
        fs::write(proc.join(pid).join("cmdline"), line.replace(' ', "\0") + "\0").unwrap();
        fs::write(proc.join(pid).join("cgroup"), format!("0::/system.slice/{group}\n")).unwrap();
    }

    #[test]
    fn only_the_tasks_own_systemctl_counts() {
        let dir = tempfile::tempdir().unwrap();
        let proc = dir.path();
        let order = "/usr/bin/systemctl restart keyholder-lane-write.service";
        place(proc, "self", "keyholder lane", "keyholder-lane-write.service");
        place(proc, "7", order, "ssh.service");
        place(
            proc,
            "8",
            "sudo -n systemctl restart keyholder-lane-write.service",
            "keyholder-lane-write.service",
        );
        place(proc, "9", order, "run-u12.service");
        fs::create_dir(proc.join("10")).unwrap();
        assert_eq!(process(proc, false).unwrap(), None, "an operator's, and one of another task");
        assert_eq!(process(proc, true).unwrap().as_deref(), Some(order));
        fs::remove_dir_all(proc.join("9")).unwrap();
        assert_eq!(process(proc, true).unwrap(), None);
        place(proc, "11", order, "keyholder-lane-write.service");
        assert_eq!(process(proc, false).unwrap().as_deref(), Some(order));
    }
}
