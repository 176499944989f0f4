//! Why the ledger cannot be used.

use std::path::PathBuf;

/// The ledger cannot be used. Without it the lane takes no task.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// The directory or the file cannot be made.
    #[error("{} cannot be made or opened; does it belong to the lane's user?", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// SQLite failed.
    #[error("the lane's ledger {} cannot be used; is the disk full, or the file damaged?", path.display())]
    Sqlite {
        /// The file.
        path: PathBuf,
        /// Why.
        source: rusqlite::Error,
    },
    /// A newer version wrote it.
    #[error("the lane's ledger {} was written by a newer keyholder ({found})", path.display())]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: i64,
    },
    /// No name could be given to a new ledger.
    #[error("the kernel's random source does not answer")]
    Random,
}
