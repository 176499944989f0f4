//! Running one command: bounded in time and memory, whatever it does.

use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::pin::pin;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep_until};

use super::output::Kept;
use super::result::Ran;

/// How long a command that was told to end (SIGTERM) may take before it is killed.
pub(super) const GRACE: Duration = Duration::from_secs(5);
/// How long is waited for the end of the output once the command itself has ended: something that it left behind may
/// hold the pipe for ever.
const DRAIN: Duration = Duration::from_millis(300);
/// What the environment is: nothing of ours, and no locale that would change what tools print.
const ENVIRONMENT: [(&str, &str); 2] =
    [("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"), ("LANG", "C.UTF-8")];

/// What to run and for how long.
pub(super) struct CommandSpec<'a> {
    /// Program (an absolute path) and arguments.
    pub(super) argv: &'a [String],
    /// How long it may run.
    pub(super) timeout: Duration,
    /// How long it may take to end after that.
    pub(super) grace: Duration,
    /// What it gets as standard input: nothing to read.
    pub(super) stdin: Stdio,
    /// Hears that it is over its time and was told to end.
    pub(super) late: &'a dyn Fn(),
}

/// Where a run is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Within its time.
    Running,
    /// Asked to end.
    Terminating,
    /// Killed. What runs with other rights (`sudo`) is not ours to kill, and nobody can be killed inside the kernel; after one
    /// more grace the answer does not wait for it any longer.
    Killing,
    /// It has ended; the rest of its output is read.
    Draining,
    /// What held the pipe was killed.
    Clearing,
}

/// Runs a command in a process group of its own and waits for its end, or until two graces after its time is over. Then what
/// has not ended comes back as well: its run can be answered, and nothing may be run beside it before it has.
///
/// # Errors
/// It could not be started.
pub(super) async fn run(order: CommandSpec<'_>) -> io::Result<(Ran, Option<UnkilledChild>)> {
    let (program, args) = order.argv.split_first().ok_or(io::ErrorKind::InvalidInput)?;
    let began = Instant::now();
    let mut child = Command::new(program)
        .args(args)
        .env_clear()
        .envs(ENVIRONMENT)
        .stdin(order.stdin)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true)
        .spawn()?;
    let group = child.id().and_then(|id| i32::try_from(id).ok()).map(Pid::from_raw);
    let (mut stdout, mut stderr) = (Kept::default(), Kept::default());
    let (mut status, mut timed_out, mut left_behind, mut ended) = (None::<ExitStatus>, false, false, began);
    let mut beyond = false;
    {
        let (out, err) = (child.stdout.take(), child.stderr.take());
        let mut reading = pin!(async { tokio::join!(read(out, &mut stdout), read(err, &mut stderr)) });
        let mut read_all = false;
        let mut phase = Phase::Running;
        let mut until = began + order.timeout;
        while status.is_none() || !read_all {
            tokio::select! {
                exit = child.wait(), if status.is_none() => {
                    status = Some(exit?);
                    ended = Instant::now();
                    phase = Phase::Draining;
                    until = ended + DRAIN;
                }
                _ = &mut reading, if !read_all => read_all = true,
                () = sleep_until(until) => match phase {
                    Phase::Running => {
                        timed_out = true;
                        (order.late)();
                        signal(group, Signal::SIGTERM);
                        (phase, until) = (Phase::Terminating, until + order.grace);
                    }
                    Phase::Terminating => {
                        signal(group, Signal::SIGKILL);
                        (phase, until) = (Phase::Killing, Instant::now() + order.grace);
                    }
                    Phase::Killing => {
                        (beyond, ended) = (true, Instant::now());
                        break;
                    }
                    Phase::Draining => {
                        left_behind = signal(group, Signal::SIGKILL);
                        (phase, until) = (Phase::Clearing, until + DRAIN);
                    }
                    // It has left the group as well. Closing the pipe is all that is left to do.
                    Phase::Clearing => { left_behind = true; break }
                },
            }
        }
    }
    // Whoever closed the pipe and stayed.
    left_behind |= !beyond && signal(group, Signal::SIGKILL);
    // sudo itself can be killed, what it runs as root cannot: that goes on without it.
    beyond |= timed_out && !gone(group, DRAIN).await;
    let ran = Ran {
        exit_code: status.and_then(|status| status.code()),
        signal: status.and_then(|status| status.signal()),
        timed_out,
        left_behind,
        beyond,
        took_ms: (ended - began).as_millis().try_into().unwrap_or(u64::MAX),
        stdout: stdout.into_output(),
        stderr: stderr.into_output(),
    };
    Ok((ran, beyond.then_some(UnkilledChild { child, group })))
}

/// A command that has not ended although it was told to.
#[derive(Debug)]
pub(super) struct UnkilledChild {
    child: Child,
    group: Option<Pid>,
}

impl UnkilledChild {
    /// Waits for its end at most so long, after another attempt to kill it. True if it and all that it has started have ended.
    ///
    /// # Cancel safety
    /// Safe.
    pub(super) async fn ends(&mut self, within: Duration) -> bool {
        signal(self.group, Signal::SIGKILL);
        tokio::time::timeout(within, async {
            // What is not waited for stays in the group as what is left of it.
            let _ = self.child.wait().await;
            while !gone(self.group, within).await {}
        })
        .await
        .is_ok()
    }
}

/// Whether nothing of the group is left that is not ours to kill, looked for at most so long. What is ours was killed; where
/// nobody collects the dead (PID 1 of some containers) it is still counted as there, and is not waited for.
async fn gone(group: Option<Pid>, within: Duration) -> bool {
    const LOOK: Duration = Duration::from_millis(20);
    let until = Instant::now() + within;
    while group.is_some_and(|group| !matches!(killpg(group, None), Err(Errno::ESRCH))) {
        if Instant::now() >= until {
            return group.is_some_and(|group| !matches!(killpg(group, None), Err(Errno::EPERM)));
        }
        tokio::time::sleep(LOOK).await;
    }
    true
}

/// Signals the whole group. True if there was one left.
fn signal(group: Option<Pid>, signal: Signal) -> bool {
    // EPERM: there are some, and none of them is ours.
    group.is_some_and(|group| matches!(killpg(group, signal), Ok(()) | Err(Errno::EPERM)))
}

/// Reads to the end. An error ends it too: there is nothing to be done about a pipe that cannot be read.
async fn read(from: Option<impl AsyncRead + Unpin>, into: &mut Kept) {
    let Some(mut from) = from else { return };
    let mut chunk = vec![0; 16 * 1024];
    while let Ok(1..) =
        from.read(&mut chunk).await.inspect(|read| into.push(chunk.get(..*read).unwrap_or_default()))
    {}
}

#[cfg(test)]
mod tests;
