//! What can be wrong with the database, in sentences for the person who has to repair it.

use std::io;
use std::path::{Path, PathBuf};

use rusqlite::ErrorCode;

/// Why the database cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum Trouble {
    #[error("the disk of {} is full; make room (`df {}`)", .0.display(), .0.display())]
    Full(PathBuf),
    #[error("{} cannot be written; is it on a read-only file system, or missing in ReadWritePaths= or StateDirectory=?", .0.display())]
    ReadOnly(PathBuf),
    #[error("another process has {} open; is a second supervisor running (`fuser {}`)?", .0.display(), .0.display())]
    Locked(PathBuf),
    #[error("{} fails to read or write ({detail}); look at the disk (`dmesg`)", path.display())]
    Io { path: PathBuf, detail: String },
    #[error("{} was written by a newer keyholder (schema {found}, this one knows {ours}); upgrade keyholder here or move the file away", path.display())]
    Newer { path: PathBuf, found: i64, ours: i64 },
    #[error("{} is damaged ({detail})", path.display())]
    Damaged { path: PathBuf, detail: String },
    #[error("the state directory {} cannot be used ({source}); it must be a directory of root's", path.display())]
    Directory { path: PathBuf, source: io::Error },
    #[error("{} has moved or was removed while it was in use", .0.display())]
    Moved(PathBuf),
}

impl Trouble {
    /// What an error of SQLite about the file at `path` means.
    pub(super) fn of(path: &Path, error: &rusqlite::Error) -> Self {
        let path = path.to_owned();
        let detail = error.to_string();
        let Some(code) = error.sqlite_error_code() else {
            // A column of a type that we never write, a row that is not there.
            return Self::Damaged { path, detail };
        };
        if code == ErrorCode::DiskFull {
            Self::Full(path)
        } else if matches!(code, ErrorCode::ReadOnly | ErrorCode::PermissionDenied) {
            Self::ReadOnly(path)
        } else if matches!(code, ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) {
            Self::Locked(path)
        } else if matches!(
            code,
            // `Unknown` is "SQL logic error": a table or column of ours is not there under our own schema number.
            ErrorCode::DatabaseCorrupt
                | ErrorCode::NotADatabase
                | ErrorCode::Unknown
                | ErrorCode::ConstraintViolation
                | ErrorCode::TypeMismatch
        ) {
            Self::Damaged { path, detail }
        } else {
            Self::Io { path, detail }
        }
    }
}
