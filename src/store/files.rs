//! The database as a file among files.

use std::fs::{self, DirBuilder, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use super::FILE;
use super::trouble::Trouble;

/// How many damaged files are kept; the newest one always is.
const ASIDE: u32 = 9;

/// Which file is at the path, if any.
pub(super) fn file_id(path: &Path) -> Option<(u64, u64)> {
    fs::metadata(path).ok().map(|meta| (meta.dev(), meta.ino()))
}

/// Makes directory and file with modes that keep everybody else out.
pub(super) fn prepare(dir: &Path, path: &Path) -> Result<(), Trouble> {
    let wrong = |source: io::Error| {
        if source.kind() == io::ErrorKind::StorageFull {
            Trouble::Full(dir.to_owned())
        } else if source.kind() == io::ErrorKind::ReadOnlyFilesystem {
            Trouble::ReadOnly(dir.to_owned())
        } else {
            Trouble::Directory { path: dir.to_owned(), source }
        }
    };
    DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(wrong)?;
    let mode = fs::metadata(dir).map_err(wrong)?.permissions().mode();
    if mode & 0o077 != 0 {
        fs::set_permissions(dir, Permissions::from_mode(0o700)).map_err(wrong)?;
    }
    OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path).map_err(wrong)?;
    Ok(())
}

/// Renames a damaged database and its log to the first free `state.db.corrupt-<n>`.
pub(super) fn set_aside(dir: &Path) -> io::Result<PathBuf> {
    let name = |n| dir.join(format!("{FILE}.corrupt-{n}"));
    let to = (1..ASIDE).map(name).find(|to| !to.exists()).unwrap_or_else(|| name(ASIDE));
    fs::rename(dir.join(FILE), &to)?;
    let log = dir.join(format!("{FILE}-wal"));
    let mut to_log = to.clone().into_os_string();
    to_log.push("-wal");
    match fs::rename(log, to_log) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(to),
    }
}
