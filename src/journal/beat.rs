//! The last line of a unit as a sign of its life, and what shows whether the journal could have had a later one.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::Path;
use std::time::Duration;

use tokio::io::AsyncReadExt as _;
use tokio::time::timeout;

use super::read::{DEADLINE, JOURNALCTL, ReadError, SYNC, run, start};
use crate::vocabulary::{InvocationId, UnitName};

/// How much is read to count lines, in bytes: two for each.
const MAX_COUNTED: usize = 1 << 20;

/// The last line that a unit's own processes wrote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LastLine {
    /// Stands for its place in the journal.
    pub mark: u64,
    /// When journald got it: microseconds of `CLOCK_MONOTONIC` of the boot in which that was.
    pub at: u64,
    /// The same on the wall clock, in microseconds since 1970.
    pub wall: u64,
    /// The run that wrote it.
    pub invocation: Option<InvocationId>,
    /// Whether a process handed it to journald or syslog by itself, so that where its standard output leads does not matter.
    pub direct: bool,
}

/// A unit's last line, whatever it says; `None` if there is none. `unit` is the unit's proper name: the journal knows no
/// aliases. What PID 1 says about the unit is no sign of its life and does not count. A line from before a reboot stands still
/// like any other old one, and asking for this boot's only would ask the kernel for its id, which reads as the host's in a
/// sandbox within a container.
///
/// # Errors
/// As [`last_lines`](super::last_lines).
///
/// # Cancel safety
/// Dropping the future kills the child.
pub async fn last_line(unit: &UnitName) -> Result<Option<LastLine>, ReadError> {
    let mut argv = ["--no-pager", "--quiet", "--lines=1", "--output=export"].map(str::to_owned).to_vec();
    // Whatever fields are chosen, the place in the journal and the times are told with them.
    argv.push("--output-fields=_TRANSPORT,_SYSTEMD_INVOCATION_ID".to_owned());
    argv.push(format!("_SYSTEMD_UNIT={unit}"));
    Ok(parse(&run(Path::new(JOURNALCTL), &argv, usize::from(u8::MAX), DEADLINE).await?))
}

fn parse(lines: &[String]) -> Option<LastLine> {
    let field = |name: &str| lines.iter().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
    let number = |name: &str| field(name).and_then(|text| text.parse().ok()).unwrap_or_default();
    let mut hasher = DefaultHasher::new();
    field("__CURSOR")?.hash(&mut hasher);
    Some(LastLine {
        mark: hasher.finish(),
        at: number("__MONOTONIC_TIMESTAMP"),
        wall: number("__REALTIME_TIMESTAMP"),
        invocation: field("_SYSTEMD_INVOCATION_ID").and_then(|id| id.parse().ok()),
        direct: matches!(field("_TRANSPORT"), Some("syslog" | "journal")),
    })
}

/// Has journald write down all that it has been given; an error says that it does not answer, and then nothing that is read
/// from the journal shows what was written lately.
///
/// # Errors
/// `journalctl` cannot be run, or journald does not answer it within a second.
///
/// # Cancel safety
/// Dropping the future kills the child.
pub async fn sync() -> Result<(), ReadError> {
    run(Path::new(JOURNALCTL), &["--sync".to_owned()], 1, SYNC).await.map(drop)
}

/// How many lines a unit wrote since `wall` (microseconds since 1970), as far as a MiB of answer shows.
///
/// # Errors
/// As [`last_line`].
///
/// # Cancel safety
/// Dropping the future kills the child.
pub async fn count_since(unit: &UnitName, wall: u64, most: u64) -> Result<u64, ReadError> {
    let mut argv =
        ["--no-pager", "--quiet", "--output=cat", "--output-fields=PRIORITY"].map(str::to_owned).to_vec();
    argv.push(format!("--lines={most}"));
    argv.push(format!("--since=@{}.{:06}", wall / 1_000_000, wall % 1_000_000));
    argv.push(format!("_SYSTEMD_UNIT={unit}"));
    let mut child = start(Path::new(JOURNALCTL), &argv)?;
    let Some(mut stdout) = child.stdout.take() else { return Ok(0) };
    let count = async {
        let (mut lines, mut total, mut chunk) = (0, 0, [0; 4096]);
        loop {
            let read = stdout.read(&mut chunk).await.map_err(ReadError::Run)?;
            total += read;
            lines += chunk.iter().take(read).filter(|byte| **byte == b'\n').count() as u64;
            if read == 0 || total > MAX_COUNTED {
                return Ok(lines);
            }
        }
    };
    timeout(DEADLINE.max(Duration::from_secs(2)), count).await.unwrap_or(Err(ReadError::Late))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_by_its_fields_and_none_is_none() {
        let lines = [
            "__CURSOR=s=1;i=2;b=3;m=4;t=5;x=6",
            "__REALTIME_TIMESTAMP=1700000000000000",
            "__MONOTONIC_TIMESTAMP=4200000",
            "_BOOT_ID=0123456789abcdef0123456789abcdef",
            "_TRANSPORT=stdout",
            "_SYSTEMD_INVOCATION_ID=0123456789abcdef0123456789abcdef",
            "",
        ]
        .map(str::to_owned);
        let line = parse(&lines).unwrap();
        assert_eq!((line.at, line.wall, line.direct), (4_200_000, 1_700_000_000_000_000, false));
        assert!(line.invocation.is_some());
        assert_ne!(parse(&["__CURSOR=other".to_owned()]).unwrap().mark, line.mark);
        assert_eq!(parse(&[]), None);
    }
}
