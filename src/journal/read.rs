//! What a unit said last, read by running `journalctl`: the libraries that read the journal in process are LGPL with a
//! C build, GPL-3 or young.

use std::collections::VecDeque;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::{Child, Command};
use tokio::time::timeout;

use crate::vocabulary::{InvocationId, UnitName, clipped, printable_bytes};

pub(super) const JOURNALCTL: &str = "/usr/bin/journalctl";
/// How long `journalctl` may take; on an idle host it needs some 20 ms, with many rotated files ten times that.
pub(super) const DEADLINE: Duration = Duration::from_secs(2);
/// How long journald may take to write down what it has; then the lines are those that are there.
pub(super) const SYNC: Duration = Duration::from_secs(1);
/// The longest line that is returned, in characters.
const MAX_LINE: usize = 200;
/// How many bytes of a line are kept while it is read: [`MAX_LINE`] characters of four bytes each.
const KEPT: usize = 4 * MAX_LINE;
/// How much output is read, in bytes. Reading is work for the supervisor's only thread: this much costs it about 1 ms.
const MAX_OUTPUT: usize = 1 << 20;

/// The journal could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// It could not be run or its output not read.
    #[error("{JOURNALCTL} could not be run to read the journal; is systemd installed?")]
    Run(#[source] std::io::Error),
    /// It gave up.
    #[error("{JOURNALCTL} failed ({0}); run `journalctl -n 20` as root to see why")]
    Failed(std::process::ExitStatus),
    /// It did not come to an end.
    #[error(
        "{JOURNALCTL} did not answer within {DEADLINE:?}; `journalctl --disk-usage` shows whether the journal is too large"
    )]
    Late,
}

/// A unit's last `n` lines, newest last: of one run of it if `invocation` is given (what PID 1 said about that run
/// included), else of all runs. Each line is made fit for a terminal and is at most 200 characters long.
///
/// # Errors
/// When `journalctl` is not there, fails or takes more than 2 s, and one more for what is not written yet. No lines is not an
/// error.
///
/// # Cancel safety
/// Dropping the future kills the child.
pub async fn last_lines(
    unit: &UnitName,
    invocation: Option<InvocationId>,
    n: u8,
) -> Result<Vec<String>, ReadError> {
    // What it said just before it died, which is what is looked for, may be on its way. Whatever comes of this, the lines that
    // are there are better than none.
    let _ = run(Path::new(JOURNALCTL), &["--sync".to_owned()], 1, SYNC).await;
    run(Path::new(JOURNALCTL), &argv(unit, invocation, n), usize::from(n), DEADLINE).await
}

/// Whether the journal outlives a reboot, going by what journald itself goes by with its default `Storage=auto`.
pub fn persistent() -> bool {
    Path::new("/var/log/journal").is_dir()
}

fn argv(unit: &UnitName, invocation: Option<InvocationId>, n: u8) -> Vec<String> {
    let mut argv = ["--no-pager", "--quiet", "--output=cat"].map(str::to_owned).to_vec();
    argv.push(format!("--lines={n}"));
    match invocation {
        // The unit's own lines carry the first field, what PID 1 says about it the second.
        Some(id) => {
            argv.extend([
                format!("_SYSTEMD_INVOCATION_ID={id}"),
                "+".to_owned(),
                format!("INVOCATION_ID={id}"),
            ]);
        }
        None => argv.push(format!("--unit={unit}")),
    }
    argv
}

/// Starts a reader of the journal: a fixed program without our environment, which ends when nobody waits for it.
pub(super) fn start(program: &Path, argv: &[String]) -> Result<Child, ReadError> {
    Command::new(program)
        .args(argv)
        .env_clear()
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .map_err(ReadError::Run)
}

pub(super) async fn run(
    program: &Path,
    argv: &[String],
    n: usize,
    deadline: Duration,
) -> Result<Vec<String>, ReadError> {
    let mut child = start(program, argv)?;
    let Some(stdout) = child.stdout.take() else { return Ok(Vec::new()) };
    let read = async {
        let (lines, whole) = tail(stdout, n).await?;
        if whole {
            let status = child.wait().await.map_err(ReadError::Run)?;
            if !status.success() {
                return Err(ReadError::Failed(status));
            }
        }
        Ok(lines)
    };
    timeout(deadline, read).await.unwrap_or(Err(ReadError::Late))
}

/// The last `n` lines of the output, and whether they are: past [`MAX_OUTPUT`] the rest is left unread, and said so.
async fn tail(mut from: impl AsyncRead + Unpin, n: usize) -> Result<(Vec<String>, bool), ReadError> {
    let mut lines = VecDeque::with_capacity(n);
    let mut keep = |line: &[u8]| {
        if lines.len() >= n {
            lines.pop_front();
        }
        if n > 0 {
            lines.push_back(clipped(&printable_bytes(line), MAX_LINE).into_owned());
        }
    };
    let (mut line, mut chunk, mut total) = (Vec::new(), [0; 4096], 0);
    loop {
        let read = from.read(&mut chunk).await.map_err(ReadError::Run)?;
        for &byte in chunk.iter().take(read) {
            if byte == b'\n' {
                keep(&line);
                line.clear();
            } else if line.len() <= KEPT {
                line.push(byte);
            }
        }
        total += read;
        let whole = read == 0;
        if whole && !line.is_empty() {
            keep(&line);
        } else if total > MAX_OUTPUT {
            keep(b"(there is more: the rest of the output was not read)");
        }
        if whole || total > MAX_OUTPUT {
            return Ok((lines.into(), whole));
        }
    }
}

#[cfg(test)]
mod tests;
