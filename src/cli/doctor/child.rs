//! Child processes with a fixed program, fixed arguments and a deadline.

use std::io::{self, Read};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use crate::vocabulary::human;

/// How much of what it says is read, in bytes.
const MAX_OUTPUT: u64 = 1 << 20;

/// Why there is no answer from a child.
#[derive(Debug, thiserror::Error)]
pub(super) enum ChildError {
    /// It could not be started.
    #[error("cannot run {program}")]
    Start {
        /// The program.
        program: &'static str,
        /// Why.
        source: io::Error,
    },
    /// It took too long and was killed.
    #[error("{program} did not end within {}", human(*deadline))]
    Slow {
        /// The program.
        program: &'static str,
        /// How long it was given.
        deadline: Duration,
    },
    /// It ended with an error.
    #[error("{program} ended with {status}: {said}")]
    Failed {
        /// The program.
        program: &'static str,
        /// How it ended.
        status: ExitStatus,
        /// What it said, standard error included.
        said: String,
    },
}

/// What `program` prints. Nothing of our environment reaches it.
///
/// # Errors
/// It cannot be started, takes longer than `deadline` or fails.
pub(super) fn output(program: &'static str, args: &[&str], deadline: Duration) -> Result<String, ChildError> {
    let until = Instant::now() + deadline;
    let mut child = Command::new(program)
        .args(args)
        .env_clear()
        .env("LC_ALL", "C.UTF-8")
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|source| ChildError::Start { program, source })?;
    let said = collect(child.stdout.take());
    let complained = collect(child.stderr.take());
    let ended = said
        .recv_timeout(until.saturating_duration_since(Instant::now()))
        .map_err(|_: RecvTimeoutError| ())
        .and_then(|said| wait(&mut child, until).map(|status| (said, status)));
    match ended {
        Ok((said, status)) if status.success() => Ok(said),
        Ok((_, status)) => {
            // What it said last may still be on its way, also when its time is up.
            let left = until.saturating_duration_since(Instant::now()).max(Duration::from_millis(100));
            let said = complained.recv_timeout(left).unwrap_or_default();
            Err(ChildError::Failed { program, status, said: said.trim().replace('\n', "; ") })
        }
        Err(()) => {
            // It may have ended just now; either way it must not be left behind.
            let _ = child.kill();
            let _ = child.wait();
            Err(ChildError::Slow { program, deadline })
        }
    }
}

/// Reads a pipe to its end on a thread of its own, so that a full pipe never stops the child.
fn collect<R: Read + Send + 'static>(pipe: Option<R>) -> mpsc::Receiver<String> {
    let (to, from) = mpsc::channel();
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(pipe) = pipe {
            // What was read before an error is still worth something.
            let _ = pipe.take(MAX_OUTPUT).read_to_end(&mut bytes);
        }
        let _ = to.send(String::from_utf8_lossy(&bytes).into_owned());
    });
    from
}

fn wait(child: &mut Child, until: Instant) -> Result<ExitStatus, ()> {
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Ok(status),
            Ok(None) if Instant::now() < until => thread::sleep(Duration::from_millis(2)),
            Ok(None) | Err(_) => return Err(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(10);

    #[test]
    fn a_child_is_heard_or_its_failure_is() {
        assert_eq!(output("/bin/echo", &["x", "y"], LONG).unwrap(), "x y\n");
        assert!(matches!(output("/nonexistent", &[], LONG), Err(ChildError::Start { .. })));
        let failed = output("/bin/ls", &["/nonexistent"], LONG).unwrap_err().to_string();
        assert!(failed.contains("exit status: 2") && failed.contains("No such file"), "{failed}");
        // Its reason may come after it has ended, and this machine may stall meanwhile.
        let late = ["-c", "(sleep 0.5; echo the reason >&2) >/dev/null & exit 3"];
        let failed = output("/bin/sh", &late, LONG).unwrap_err().to_string();
        assert!(failed.ends_with("exit status: 3: the reason"), "{failed}");
    }

    #[test]
    fn a_child_that_hangs_is_killed_at_its_deadline() {
        let started = Instant::now();
        assert!(matches!(
            output("/bin/sleep", &["60"], Duration::from_millis(50)),
            Err(ChildError::Slow { .. })
        ));
        assert!(started.elapsed() < LONG);
    }
}
