//! Whether what this process has to say for itself belongs into the journal or to its standard error.

use std::io;

use nix::sys::stat::fstat;

/// Whether systemd has led this process's words into the journal: because its standard error goes there (`$JOURNAL_STREAM`
/// names the device and inode of that connection), or because it is a unit's own process (`$SYSTEMD_EXEC_PID`, there since
/// systemd 248), whose evidence belongs into the journal also if somebody sends its standard error elsewhere. Both are
/// described in systemd.exec(5), and both are inherited, so each is compared with what this process itself has. Anybody
/// else's words are for whoever started it.
///
/// This is not asked for the supervisor's records: they are evidence whoever started it, and it writes nothing else.
pub(crate) fn leads_to_journal() -> bool {
    let var = |name| std::env::var(name).ok();
    let stderr = fstat(io::stderr()).ok().map(|stat| (stat.st_dev, stat.st_ino));
    is_stream(var("JOURNAL_STREAM").as_deref(), stderr)
        || var("SYSTEMD_EXEC_PID").is_some_and(|pid| pid == std::process::id().to_string())
}

fn is_stream(named: Option<&str>, stderr: Option<(u64, u64)>) -> bool {
    let named = named.and_then(|named| {
        let (device, inode) = named.split_once(':')?;
        Some((device.parse().ok()?, inode.parse().ok()?))
    });
    named.is_some() && named == stderr
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_stream_that_is_ours_is_one() {
        assert!(is_stream(Some("8:4711"), Some((8, 4711))));
        assert!(!is_stream(None, None));
        for named in [None, Some(""), Some("8"), Some("8:"), Some("8:4712"), Some("9:4711"), Some("8:4711:")]
        {
            assert!(!is_stream(named, Some((8, 4711))), "{named:?}");
            assert!(!is_stream(named, None), "{named:?}");
        }
    }
}
