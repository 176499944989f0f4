//! The way to PID 1 without the bus: `systemctl`, which as root uses PID 1's private socket. Fixed arguments, nothing
//! of our environment, a deadline, and bounded output.

use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::Command;

use super::hub::SHUTDOWN;
use super::raw::{PROPERTIES, Raw};
use super::{NotStartable, Relaunch, RelaunchError};
use crate::vocabulary::{InvocationId, UnitName, bounded};

/// How long a look may take.
const SHOW: Duration = Duration::from_secs(3);
/// How long resetting a failure counter may take.
const RESET: Duration = Duration::from_secs(1);
/// A unit's properties are about 1200 bytes, and what it says of itself may be longer; this many are read per unit.
const PER_UNIT: u64 = 8192;
/// Bytes of an error text that are kept.
const ERROR: u64 = 1024;

/// How many units are looked at in one call because others hang together with them.
const OTHERS: usize = 512;

/// A unit that another one hangs together with, as it was seen: for which, its name, and how it is with it.
pub(super) type Looked = (UnitName, String, Option<Raw>);

/// One thing that `systemctl show` told.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Shown {
    Unit(UnitName, Box<Raw>),
    /// The host goes down.
    Stopping,
    /// The manager's SystemState.
    Host(String),
}

/// Looks at all units, and at whether the host goes down, in one call; with `host` also at the host's state.
pub(super) async fn show(systemctl: PathBuf, units: Vec<UnitName>, host: bool) -> Result<Vec<Shown>, String> {
    let property = format!("--property={PROPERTIES}");
    let mut arguments = vec!["show", &property, "--"];
    arguments.extend(units.iter().map(UnitName::as_str));
    arguments.push(SHUTDOWN);
    let bytes = PER_UNIT * (units.len() as u64 + 1);
    let text = told(&systemctl, &arguments, bytes).await?;
    let mut shown =
        parse(&text, units).ok_or_else(|| "systemctl show told something else than was asked".to_owned())?;
    if host && shown.last() != Some(&Shown::Stopping) {
        let text = told(&systemctl, &["show", "--property=SystemState"], PER_UNIT).await?;
        if let Some(state) = text.trim().strip_prefix("SystemState=") {
            shown.push(Shown::Host(state.to_owned()));
        }
    }
    Ok(shown)
}

/// Looks at units that watched ones hang together with, each for one of them; what could not be read is none.
pub(super) async fn others(
    systemctl: PathBuf,
    wanted: Vec<(UnitName, String)>,
) -> Result<Vec<Looked>, String> {
    let property = format!("--property={PROPERTIES}");
    let mut names: Vec<&str> = wanted.iter().map(|(_, other)| other.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    names.truncate(OTHERS);
    let mut arguments = vec!["show", &property, "--"];
    arguments.extend(&names);
    // Without them less is known of those that are down, which is no reason to know nothing.
    let text = told(&systemctl, &arguments, PER_UNIT * names.len() as u64).await.unwrap_or_default();
    let blocks: Vec<Raw> = text.split("\n\n").map(Raw::from_show).collect();
    let read = |other: &String| {
        let at = names.binary_search(&other.as_str()).ok()?;
        blocks.get(at).filter(|raw| blocks.len() == names.len() && raw.complete()).cloned()
    };
    let read: Vec<Option<Raw>> = wanted.iter().map(|(_, other)| read(other)).collect();
    Ok(wanted.into_iter().zip(read).map(|((unit, other), raw)| (unit, other, raw)).collect())
}

async fn told(systemctl: &Path, arguments: &[&str], bytes: u64) -> Result<String, String> {
    let output = run(systemctl, arguments, bytes, SHOW).await?;
    if !output.status.success() {
        return Err(format!("systemctl show failed: {}", output.error));
    }
    Ok(output.text)
}

/// The blocks come in the order of the question, the target last.
fn parse(text: &str, units: Vec<UnitName>) -> Option<Vec<Shown>> {
    let mut blocks = text.split("\n\n").map(Raw::from_show);
    let mut shown = Vec::with_capacity(units.len() + 1);
    for unit in units {
        shown.push(Shown::Unit(unit, Box::new(blocks.next().filter(Raw::complete)?)));
    }
    let target = blocks.next().filter(Raw::complete)?;
    if target.job != 0 || target.up() {
        shown.push(Shown::Stopping);
    }
    blocks.next().is_none().then_some(shown)
}

async fn look(systemctl: &Path, unit: &UnitName) -> Result<Raw, String> {
    let shown = show(systemctl.to_owned(), vec![unit.clone()], false).await?;
    let raw = shown.into_iter().find_map(|one| match one {
        Shown::Unit(_, raw) => Some(*raw),
        Shown::Stopping | Shown::Host(_) => None,
    });
    raw.ok_or_else(|| "systemctl show told nothing of the unit".to_owned())
}

/// Restarts the unit by the fixed argv `systemctl restart -- UNIT`, unless a look shows that the order which the bus
/// swallowed has been carried out after all. Takes at most `left` and eight seconds.
pub(super) async fn relaunch(
    systemctl: &Path,
    unit: &UnitName,
    before: Option<InvocationId>,
    left: Duration,
    why: &str,
) -> Relaunch {
    let mut relaunch = Relaunch {
        result: Err(RelaunchError::Timeout),
        job: None,
        before,
        took: Duration::ZERO,
        break_glass: true,
        snapshot: None,
    };
    let began = Instant::now();
    let first = match look(systemctl, unit).await {
        Ok(raw) => raw,
        Err(error) => {
            relaunch.result = Err(RelaunchError::Bus(format!("{why}, and {error}")));
            return relaunch;
        }
    };
    relaunch.snapshot = Some(first.snapshot());
    if before.is_some()
        && let Some(run) = new_run(&first, before)
    {
        relaunch.result = Ok(run);
        return relaunch;
    }
    relaunch.before = before.or(first.invocation);
    if let Some(error) = not_startable(&first) {
        relaunch.result = Err(error.into());
        return relaunch;
    }
    let left = left.saturating_sub(began.elapsed());
    if left.is_zero() {
        return relaunch;
    }
    // Only a unit that has failed before needs it, and it fails for one that has nothing to reset.
    if let Err(error) = run(systemctl, &["reset-failed", "--", unit.as_str()], 0, RESET).await {
        tracing::debug!(%unit, %error, "reset-failed did not work");
    }
    let restarted = run(systemctl, &["restart", "--", unit.as_str()], 0, left).await;
    let after = look(systemctl, unit).await.ok();
    if let Some(raw) = &after {
        relaunch.snapshot = Some(raw.snapshot());
    }
    relaunch.result = match restarted {
        Err(_) => Err(RelaunchError::Timeout),
        Ok(output) if output.status.success() => {
            relaunch.job = Some("done".to_owned());
            let run = after.as_ref().and_then(|raw| new_run(raw, relaunch.before));
            run.ok_or(RelaunchError::NotRunning)
        }
        // "Job for x.service failed because …"; without a job, nothing was done.
        Ok(output) if output.error.starts_with("Job for ") => {
            relaunch.job = Some("failed".to_owned());
            Err(RelaunchError::JobFailed { result: "failed".to_owned() })
        }
        Ok(output) => Err(RelaunchError::Refused(output.error)),
    };
    relaunch
}

/// Has PID 1 start the unit; its job is not waited for.
pub(super) async fn start(systemctl: &Path, unit: &UnitName, within: Duration) -> Result<(), String> {
    let started = run(systemctl, &["start", "--no-block", "--", unit.as_str()], 0, within).await?;
    if started.status.success() { Ok(()) } else { Err(started.error) }
}

fn new_run(raw: &Raw, before: Option<InvocationId>) -> Option<InvocationId> {
    raw.invocation.filter(|run| raw.up() && before != Some(*run))
}

fn not_startable(raw: &Raw) -> Option<NotStartable> {
    match raw.load.as_str() {
        "not-found" => Some(NotStartable::NotFound),
        "masked" => Some(NotStartable::Masked),
        "bad-setting" | "error" => Some(NotStartable::BadSetting),
        _ if raw.refuse_manual_start => Some(NotStartable::RefusesManualStart),
        _ => None,
    }
}

pub(super) struct Output {
    pub(super) status: ExitStatus,
    pub(super) text: String,
    pub(super) error: String,
}

pub(super) async fn run(
    systemctl: &Path,
    arguments: &[&str],
    bytes: u64,
    within: Duration,
) -> Result<Output, String> {
    let mut child = Command::new(systemctl)
        .args(arguments)
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(if bytes == 0 { Stdio::null() } else { Stdio::piped() })
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| format!("systemctl cannot be run: {error}"))?;
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let all = async {
        // Read together: a child that fills one pipe while we read the other would never end.
        let (text, error, status) = tokio::join!(read(stdout, bytes), read(stderr, ERROR), child.wait());
        status.map(|status| Output { status, text, error: one_line(error.trim()) })
    };
    match tokio::time::timeout(within, all).await {
        Ok(Ok(output)) => Ok(output),
        Ok(Err(error)) => Err(format!("systemctl cannot be waited for: {error}")),
        Err(_) => Err(format!("systemctl did not end within {} s", within.as_secs_f32())),
    }
}

/// At most `bytes` of a child's output. What a pipe's reader does not take makes the child fail or wait, and the
/// deadline ends it.
async fn read(pipe: Option<impl AsyncRead + Unpin>, bytes: u64) -> String {
    let mut buffer = Vec::new();
    if let Some(pipe) = pipe
        && let Err(error) = pipe.take(bytes).read_to_end(&mut buffer).await
    {
        tracing::debug!(%error, "a child's output could not be read");
    }
    String::from_utf8_lossy(&buffer).into_owned()
}

/// Text from outside as it may go into a record or onto a terminal: one line, control characters escaped, bounded.
pub(super) fn one_line(text: &str) -> String {
    bounded(&text.replace('\n', "; "), 400)
}

#[cfg(test)]
pub(super) mod tests;
