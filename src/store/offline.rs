//! Reading the audit while no supervisor runs.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};

use super::FILE;
use super::db::{self, SCHEMA};
use super::trouble::Trouble;
use crate::peer::wire::AuditLine;

/// The audit could not be read from the file.
#[derive(Debug, thiserror::Error)]
pub enum OfflineError {
    /// There is none.
    #[error("there is no audit at {}; has a supervisor ever run on this host?", .0.display())]
    None(PathBuf),
    /// It is in use.
    #[error("{} is in use by a running supervisor, which does not answer on its socket; look at `systemctl status keyholder`, or read the journal (`journalctl -t keyholder`)", .0.display())]
    InUse(PathBuf),
    /// It cannot be read.
    #[error("the audit cannot be read: {0}")]
    Unreadable(String),
}

/// The newest `last` lines of the audit (at most 1,000), oldest first, straight from the file in `dir`. For root, while
/// no supervisor runs; changes nothing in the database.
///
/// # Errors
/// When there is no file, when a supervisor has it open, or when it cannot be read.
pub fn read_audit(dir: &Path, last: u32) -> Result<Vec<AuditLine>, OfflineError> {
    let path = dir.join(FILE);
    if !path.exists() {
        return Err(OfflineError::None(path));
    }
    let read = |uri: &str| -> rusqlite::Result<Result<Vec<AuditLine>, Trouble>> {
        let flags =
            OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_URI;
        let conn = Connection::open_with_flags(uri, flags)?;
        conn.busy_timeout(Duration::from_millis(500))?;
        let found: i64 = conn.query_row("PRAGMA user_version", [], |row| row.get(0))?;
        if found > SCHEMA {
            return Ok(Err(Trouble::Newer { path: path.clone(), found, ours: SCHEMA }));
        }
        db::last(&conn, last).map(Ok)
    };
    let uri = uri(&path);
    let lines = read(&uri).or_else(|error| match Trouble::of(&path, &error) {
        Trouble::Locked(path) => Err(OfflineError::InUse(path)),
        // A read-only file system: the log cannot be taken into account, the rest can be read.
        Trouble::ReadOnly(_) | Trouble::Io { .. } | Trouble::Full(_) => {
            read(&format!("{uri}?immutable=1")).map_err(|error| unreadable(&Trouble::of(&path, &error)))
        }
        trouble @ (Trouble::Newer { .. }
        | Trouble::Damaged { .. }
        | Trouble::Directory { .. }
        | Trouble::Moved(_)) => Err(unreadable(&trouble)),
    })?;
    lines.map_err(|trouble| unreadable(&trouble))
}

fn unreadable(trouble: &Trouble) -> OfflineError {
    OfflineError::Unreadable(trouble.to_string())
}

/// A `file:` URI, with what means something in one escaped.
fn uri(path: &Path) -> String {
    use std::os::unix::ffi::OsStrExt as _;
    let mut uri = String::from("file:");
    for &byte in path.as_os_str().as_bytes() {
        if byte.is_ascii_alphanumeric() || b"/-_.".contains(&byte) {
            uri.push(byte.into());
        } else {
            uri.push_str(&format!("%{byte:02X}"));
        }
    }
    uri
}
