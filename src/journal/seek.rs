//! Fetching from the journal what a proof needs: `journalctl` as a child with a fixed argv, so much and no longer.

use std::path::Path;
use std::time::Duration;

use tokio::io::AsyncReadExt as _;
use tokio::time::{Instant, sleep, timeout_at};

use super::event::TRANSITION;
use super::prove::{self, Around, Proof, READ_UNIT, Rec, WRITE_UNIT};
use super::read::{JOURNALCTL, ReadError, start};
use crate::vocabulary::{Mode, TaskId};

/// How long all questions together may take.
const DEADLINE: Duration = Duration::from_secs(8);
/// How much is read of one answer, in bytes: some two thousand records. A lane says about five a minute of itself at most.
const MAX_OUTPUT: usize = 2 << 20;
/// The longest line; longer ones count as records that could not be read.
const MAX_LINE: usize = 64 << 10;

/// How many records that name a task are read in search of those of strangers.
const STRANGERS: usize = 50;

/// How often a record is looked for that is not there, and how long after another.
const LOOKS: u32 = 4;
const AGAIN: Duration = Duration::from_millis(100);

/// What was read, oldest first, and whether that is all there is.
struct Read {
    records: Vec<Rec>,
    whole: bool,
}

/// Searches this node's journal for who ran a task, and decides.
///
/// # Errors
/// `journalctl` cannot be run, fails, or takes more than 8 s.
///
/// # Cancel safety
/// Dropping the future kills the child.
pub async fn prove(task: &TaskId, expected: Option<Mode>) -> Result<Proof, ReadError> {
    let until = Instant::now() + DEADLINE;
    let search = async {
        let claims = claims(task).await?;
        let Some(boot) = prove::boot_of(&claims.records).map(|boot| format!("_BOOT_ID={boot}")) else {
            return Ok(prove::prove(task, expected, &claims.records, &Around::default(), claims.whole));
        };
        let lanes = |field: &str| [WRITE_UNIT, READ_UNIT].map(|unit| format!("{field}={unit}"));
        let of_lanes =
            [vec![boot.clone(), format!("MESSAGE_ID={TRANSITION}")], lanes("_SYSTEMD_UNIT").into()].concat();
        let of_systemd = [vec![boot.clone(), "_PID=1".to_owned()], lanes("UNIT").into()].concat();
        let of_journald = vec![boot.clone(), "_TRANSPORT=driver".to_owned()];
        let around = ask(&question([of_lanes, of_systemd, of_journald]), usize::MAX).await?;
        let first = ask(&question([vec![boot]]), 1).await?.records.into_iter().next();
        let whole = claims.whole && around.whole;
        Ok(prove::prove(task, expected, &claims.records, &Around { records: around.records, first }, whole))
    };
    timeout_at(until, search).await.unwrap_or(Err(ReadError::Late))
}

/// Everything that names the task: all that was written in a lane's unit, by journald's own word, and the first of what anybody
/// else has written. Of strangers nothing is missed that matters, so that they can neither hide a lane's record behind their own
/// nor make what was read less than all. A lane hands its record to a thread and does not wait for it, so a result can be seen a
/// moment before its record: if there is none yet it is looked for again.
async fn claims(task: &TaskId) -> Result<Read, ReadError> {
    let mut left = LOOKS;
    loop {
        // Evidence that journald has not written yet is none; it answers when everything until now is.
        ask(&["--sync".to_owned()], usize::MAX).await?;
        let named = format!("KEYHOLDER_TASK_ID={task}");
        let by = [WRITE_UNIT, READ_UNIT].map(|unit| vec![named.clone(), format!("_SYSTEMD_UNIT={unit}")]);
        let mut claims = ask(&question(by), usize::MAX).await?;
        left -= 1;
        if left == 0 || prove::boot_of(&claims.records).is_some() {
            let strangers = ask(&question([vec![named]]), STRANGERS).await?.records;
            claims.records.extend(strangers.into_iter().filter(prove::is_strangers));
            return Ok(claims);
        }
        sleep(AGAIN).await;
    }
}

/// A record matches if it has all fields of one of the groups (of a field given twice, either).
fn question<const N: usize>(groups: [Vec<String>; N]) -> Vec<String> {
    let mut argv = ["--no-pager", "--quiet", "--all", "--output=json"].map(str::to_owned).to_vec();
    argv.push(format!("--output-fields={}", prove::FIELDS.join(",")));
    for (n, group) in groups.into_iter().enumerate() {
        if n > 0 {
            argv.push("+".to_owned());
        }
        argv.extend(group);
    }
    argv
}

async fn ask(argv: &[String], at_most: usize) -> Result<Read, ReadError> {
    let mut child = start(Path::new(JOURNALCTL), argv)?;
    let mut read = Read { records: Vec::new(), whole: true };
    let Some(mut stdout) = child.stdout.take() else { return Ok(read) };
    let (mut line, mut chunk, mut total) = (Vec::new(), [0; 4096], 0);
    loop {
        let n = stdout.read(&mut chunk).await.map_err(ReadError::Run)?;
        for &byte in chunk.iter().take(n) {
            if byte == b'\n' {
                read.records.push(Rec::read(&line));
                line.clear();
                if read.records.len() >= at_most {
                    return Ok(read);
                }
            } else if line.len() <= MAX_LINE {
                // A line that is too long is cut, and so is no JSON any more.
                line.push(byte);
            }
        }
        total += n;
        if n == 0 {
            break;
        }
        if total > MAX_OUTPUT {
            read.whole = false;
            return Ok(read);
        }
    }
    let status = child.wait().await.map_err(ReadError::Run)?;
    // It also fails if nothing was found, and then says nothing.
    if status.success() || (read.records.is_empty() && status.code() == Some(1)) {
        Ok(read)
    } else {
        Err(ReadError::Failed(status))
    }
}
