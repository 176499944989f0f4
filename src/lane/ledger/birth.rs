//! How a ledger came to be in its place, and since when it knows all that was run.

use std::fs;
use std::path::Path;
use std::time::UNIX_EPOCH;

use ring::rand::{SecureRandom as _, SystemRandom};
use rusqlite::{Connection, OptionalExtension as _, params};

use super::error::LedgerError;
use crate::vocabulary::InvocationId;

/// Ledgers made before have no birth: they are as old as can be.
const BIRTH: &str = "
    BEGIN IMMEDIATE;
    ALTER TABLE lane ADD COLUMN born_ms INTEGER;
    ALTER TABLE lane ADD COLUMN file_ns INTEGER;
    COMMIT;
";

/// How a ledger came to be in its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Origin {
    /// It was there.
    Kept,
    /// There was none: a new installation, or it was lost.
    New,
    /// Its file was made after it was written into last: it is a copy, and what was written after copying is missing.
    Copied,
}

/// What the ledger says of itself.
pub(super) struct Birth {
    pub(super) id: String,
    pub(super) forgotten_ms: i64,
    /// ms since 1970.
    pub(super) born_ms: i64,
    pub(super) origin: Origin,
}

/// Reads it, or writes it down for a new ledger. A copy begins where it was put into its place.
///
/// # Errors
/// [`LedgerError`].
pub(super) fn of(conn: &Connection, path: &Path) -> Result<Birth, LedgerError> {
    let mut bytes = [0; 16];
    SystemRandom::new().fill(&mut bytes).map_err(|_| LedgerError::Random)?;
    let id = InvocationId::from_bytes(bytes).to_string();
    read(conn, made_ns(path), id).map_err(|source| LedgerError::Sqlite { path: path.to_owned(), source })
}

fn read(conn: &Connection, file_ns: Option<i64>, id: String) -> rusqlite::Result<Birth> {
    let known = "SELECT EXISTS (SELECT 1 FROM pragma_table_info('lane') WHERE name = 'born_ms')";
    if !conn.query_row(known, [], |row| row.get(0))? {
        conn.execute_batch(BIRTH)?;
    }
    let now_ms = jiff::Timestamp::now().as_millisecond();
    let lane = conn.query_row("SELECT id, forgotten_ms, born_ms, file_ns FROM lane", [], |row| {
        let born_ms = row.get::<_, Option<i64>>(2)?.unwrap_or(i64::MIN);
        let birth = Birth { id: row.get(0)?, forgotten_ms: row.get(1)?, born_ms, origin: Origin::Kept };
        Ok((birth, row.get::<_, Option<i64>>(3)?))
    });
    if let Some((mut birth, noted)) = lane.optional()? {
        if noted.zip(file_ns).is_some_and(|(noted, made)| noted != made) {
            (birth.born_ms, birth.origin) = (now_ms, Origin::Copied);
        }
        // Nothing is written that need not be: the disk may be full.
        if birth.origin == Origin::Copied || noted.is_none() && file_ns.is_some() {
            conn.execute(
                "UPDATE lane SET born_ms = nullif(?1, ?2), file_ns = ?3",
                params![birth.born_ms, i64::MIN, file_ns],
            )?;
        }
        return Ok(birth);
    }
    conn.execute(
        "INSERT INTO lane (id, forgotten_ms, born_ms, file_ns) VALUES (?1, ?2, ?3, ?4)",
        params![id, i64::MIN, now_ms, file_ns],
    )?;
    Ok(Birth { id, forgotten_ms: i64::MIN, born_ms: now_ms, origin: Origin::New })
}

/// When the file was made, ns since 1970, where the file system knows. SQLite never makes it again; whoever puts a copy in its
/// place does.
fn made_ns(path: &Path) -> Option<i64> {
    let made = fs::metadata(path).ok()?.created().ok()?;
    made.duration_since(UNIX_EPOCH).ok()?.as_nanos().try_into().ok()
}
