//! The file itself: opening, schema, the statements.
//!
//! Write-ahead log with `synchronous=FULL`: a commit is durable after one `fsync`, where a rollback journal needs two
//! or three. `locking_mode=EXCLUSIVE`, because then SQLite keeps the log's index on the heap instead of in a mapped
//! file: a disk that fails under a mapping is a SIGBUS, which kills the supervisor. It also keeps a second supervisor
//! out. No `mmap` for the same reason, and a page cache of 256 KB.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags, Row, params};

use super::files::{file_id, prepare};
use super::handle::Key;
use super::trouble::Trouble;
use super::{FILE, SavedWorker};
use crate::journal::{Stamped, rfc3339};
use crate::peer::wire::{AuditLine, MAX_REPLY};
use crate::vocabulary::Moment;

/// The number of the schema below. A file with a higher one is left alone.
pub(super) const SCHEMA: i64 = 1;
/// How many lines of the audit one answer has at most.
pub(super) const MAX_LINES: u32 = 1000;
/// How many bytes of JSON one answer has at most: it goes into one frame.
const MAX_BYTES: usize = MAX_REPLY - 4096;

const PRAGMAS: &str = "
    PRAGMA journal_mode = WAL;
    PRAGMA synchronous = FULL;
    PRAGMA mmap_size = 0;
    PRAGMA cache_size = -256;
    PRAGMA wal_autocheckpoint = 128;
    PRAGMA journal_size_limit = 1048576;
";

const CREATE: &str = r#"
    BEGIN IMMEDIATE;
    CREATE TABLE worker (
        name TEXT PRIMARY KEY, json TEXT NOT NULL,
        boot_id TEXT NOT NULL, moment_ms INTEGER NOT NULL, wall_ms INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE audit (
        seq INTEGER PRIMARY KEY AUTOINCREMENT, at_ms INTEGER NOT NULL,
        event TEXT NOT NULL, priority INTEGER NOT NULL, "by" TEXT NOT NULL,
        pin TEXT, req_id TEXT, verb TEXT, subject TEXT NOT NULL, text TEXT NOT NULL
    ) STRICT;
    PRAGMA user_version = 1;
    COMMIT;
"#;

/// Added after the first version, in a way that an older one does not mind: it passes over a table that it does not know.
const ADD: &str = "
    CREATE TABLE IF NOT EXISTS rehearsal (
        name TEXT PRIMARY KEY, json TEXT NOT NULL,
        boot_id TEXT NOT NULL, moment_ms INTEGER NOT NULL, wall_ms INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS alert (
        name TEXT PRIMARY KEY, json TEXT NOT NULL,
        boot_id TEXT NOT NULL, moment_ms INTEGER NOT NULL, wall_ms INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID;
";

const LAST: &str =
    r#"SELECT seq, at_ms, event, "by", subject, text, priority FROM audit ORDER BY seq DESC LIMIT ?1"#;

/// Rows that say what was refused, seen or heard: whoever is outside decides how many there are.
const OUTSIDE: &str = "event IN ('refused', 'observed', 'peer')";
/// Rows of what peers and users other than root have asked for.
const OF_OTHERS: &str = r#"event = 'ordered' AND "by" NOT IN ('local', 'root')"#;

const SAVE_WORKER: &str =
    "INSERT OR REPLACE INTO worker (name, json, boot_id, moment_ms, wall_ms) VALUES (?1, ?2, ?3, ?4, ?5)";
const SAVE_REHEARSAL: &str =
    "INSERT OR REPLACE INTO rehearsal (name, json, boot_id, moment_ms, wall_ms) VALUES (?1, ?2, ?3, ?4, ?5)";
const SAVE_ALERTS: &str =
    "INSERT OR REPLACE INTO alert (name, json, boot_id, moment_ms, wall_ms) VALUES (?1, ?2, ?3, ?4, ?5)";
/// The one row of that table.
const OPEN_ALERTS: &str = "open";

/// A state on its way to the disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Saved {
    pub(super) json: String,
    pub(super) boot_id: String,
    pub(super) moment: Moment,
    pub(super) wall_ms: i64,
}

impl Saved {
    /// As the reader gets it, who lives in the boot `now`.
    pub(super) fn loaded(&self, now: &str) -> SavedWorker {
        SavedWorker {
            json: self.json.clone(),
            same_boot: !now.is_empty() && self.boot_id == now,
            saved_at_moment: self.moment,
            saved_wall_ms: self.wall_ms,
        }
    }
}

/// The open database.
#[derive(Debug)]
pub(super) struct Db {
    conn: Connection,
    path: PathBuf,
    /// Which file it is, to see when it is no longer the one at `path`.
    file: (u64, u64),
}

impl Db {
    /// Opens the file in `dir`, making either if it is not there.
    pub(super) fn open(dir: &Path) -> Result<Self, Trouble> {
        let path = dir.join(FILE);
        prepare(dir, &path)?;
        let wrong = |error| Trouble::of(&path, &error);
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let conn = Connection::open_with_flags(&path, flags).map_err(wrong)?;
        conn.busy_timeout(Duration::from_secs(1)).map_err(wrong)?;
        // Before anything is read, or the log's index is mapped after all.
        conn.execute_batch("PRAGMA locking_mode = EXCLUSIVE").map_err(wrong)?;
        let found: i64 = conn.query_row("PRAGMA user_version", [], |row| row.get(0)).map_err(wrong)?;
        if found > SCHEMA {
            return Err(Trouble::Newer { path, found, ours: SCHEMA });
        }
        // Only now: setting the journal mode writes into the file.
        conn.execute_batch(PRAGMAS).map_err(wrong)?;
        if conn.is_readonly("main").map_err(wrong)? {
            return Err(Trouble::ReadOnly(path));
        }
        if found == 0 {
            conn.execute_batch(CREATE).map_err(wrong)?;
        }
        conn.execute_batch(ADD).map_err(wrong)?;
        // The file exists, so a missing id means that it was taken away just now.
        let file = file_id(&path).ok_or_else(|| Trouble::Moved(path.clone()))?;
        Ok(Self { conn, path, file })
    }

    /// An error unless the file is still at its path: SQLite would write into a removed file without a word.
    pub(super) fn still_there(&self) -> Result<(), Trouble> {
        if file_id(&self.path) == Some(self.file) { Ok(()) } else { Err(Trouble::Moved(self.path.clone())) }
    }

    fn wrong(&self, error: &rusqlite::Error) -> Trouble {
        Trouble::of(&self.path, error)
    }

    /// The saved states. A row under a name that is none is passed over.
    pub(super) fn kept(&self) -> Result<BTreeMap<Key, Saved>, Trouble> {
        let worker = |name: String| name.parse().ok().map(Key::Worker);
        let mut kept = self.states("SELECT name, json, boot_id, moment_ms, wall_ms FROM worker", worker)?;
        let rehearsal = |name| Some(Key::Rehearsal(name));
        kept.extend(self.states("SELECT name, json, boot_id, moment_ms, wall_ms FROM rehearsal", rehearsal)?);
        let alerts = |name: String| (name == OPEN_ALERTS).then_some(Key::Alerts);
        kept.extend(self.states("SELECT name, json, boot_id, moment_ms, wall_ms FROM alert", alerts)?);
        Ok(kept)
    }

    fn states(
        &self,
        query: &str,
        key: impl Fn(String) -> Option<Key>,
    ) -> Result<BTreeMap<Key, Saved>, Trouble> {
        let read = || {
            let mut query = self.conn.prepare(query)?;
            let rows = query.query_map([], |row| {
                let saved = Saved {
                    json: row.get(1)?,
                    boot_id: row.get(2)?,
                    moment: Moment::from_millis(row.get::<_, i64>(3)?.try_into().unwrap_or_default()),
                    wall_ms: row.get(4)?,
                };
                Ok((row.get::<_, String>(0)?, saved))
            })?;
            let named = |(name, saved): (String, Saved)| Some((key(name)?, saved));
            rows.filter_map(|row| row.map(named).transpose()).collect::<rusqlite::Result<_>>()
        };
        read().map_err(|error| self.wrong(&error))
    }

    /// The highest number in the audit, 0 if it is empty.
    pub(super) fn last_seq(&self) -> Result<i64, Trouble> {
        self.conn
            .query_row("SELECT coalesce(max(seq), 0) FROM audit", [], |row| row.get(0))
            .map_err(|error| self.wrong(&error))
    }

    /// How many rows the audit has. Reads all of it: some 50 ms when it is full.
    pub(super) fn count(&self) -> Result<u64, Trouble> {
        self.conn
            .query_row("SELECT count(*) FROM audit", [], |row| row.get::<_, i64>(0))
            .map(|rows| rows.try_into().unwrap_or_default())
            .map_err(|error| self.wrong(&error))
    }

    /// Removes `n` rows of the audit, the oldest of each kind. What others can have written as often as they like goes first,
    /// down to `share` rows each: it never pushes out what was done here.
    pub(super) fn trim(&self, n: u64, share: u64) -> Result<(), Trouble> {
        let trim = || {
            let mut left = n;
            for outside in [OUTSIDE, OF_OTHERS] {
                let rows: i64 = self.conn.query_row(
                    &format!("SELECT count(*) FROM audit WHERE {outside}"),
                    [],
                    |row| row.get(0),
                )?;
                let surplus = u64::try_from(rows).unwrap_or_default().saturating_sub(share).min(left);
                left -= self.remove_oldest(outside, surplus)?;
            }
            self.remove_oldest("true", left).map(drop)
        };
        trim().map_err(|error| self.wrong(&error))
    }

    fn remove_oldest(&self, which: &str, n: u64) -> rusqlite::Result<u64> {
        let removed = self.conn.execute(
            &format!(
                "DELETE FROM audit WHERE seq IN (SELECT seq FROM audit WHERE {which} ORDER BY seq LIMIT ?1)"
            ),
            [i64::try_from(n).unwrap_or(i64::MAX)],
        )?;
        Ok(u64::try_from(removed).unwrap_or_default())
    }

    /// Writes records (with the number that each gets) and states, all or nothing. Writing the same again
    /// changes nothing: after an error of `fsync` nobody knows whether a commit is on disk.
    pub(super) fn write<'a>(
        &mut self,
        records: impl Iterator<Item = (i64, &'a Stamped)>,
        kept: impl Iterator<Item = (&'a Key, &'a Saved)>,
    ) -> Result<(), Trouble> {
        let path = &self.path;
        let conn = &mut self.conn;
        let write = || {
            let all = conn.transaction()?;
            {
                let mut insert = all.prepare_cached(
                    r#"INSERT OR REPLACE INTO audit (seq, at_ms, event, priority, "by", pin, req_id, verb, subject, text)
                       VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)"#,
                )?;
                for (seq, Stamped { at_ms, record, .. }) in records {
                    insert.execute(params![
                        seq,
                        at_ms,
                        record.event.name(),
                        record.priority.number(),
                        record.by,
                        record.pin.map(|pin| pin.to_string()),
                        record.req_id.map(|id| id.to_string()),
                        record.verb,
                        record.subject,
                        record.text,
                    ])?;
                }
                for (key, saved) in kept {
                    let (name, save) = match key {
                        Key::Worker(name) => (name.as_str(), SAVE_WORKER),
                        Key::Rehearsal(name) => (name.as_str(), SAVE_REHEARSAL),
                        Key::Alerts => (OPEN_ALERTS, SAVE_ALERTS),
                    };
                    let moment = i64::try_from(saved.moment.as_millis()).unwrap_or(i64::MAX);
                    all.prepare_cached(save)?.execute(params![
                        name,
                        saved.json,
                        saved.boot_id,
                        moment,
                        saved.wall_ms
                    ])?;
                }
            }
            all.commit()
        };
        write().map_err(|error| Trouble::of(path, &error))
    }

    /// The newest `n` lines of the audit, oldest first.
    pub(super) fn last(&self, n: u32) -> Result<Vec<AuditLine>, Trouble> {
        last(&self.conn, n).map_err(|error| self.wrong(&error))
    }
}

/// The newest `n` lines of the audit, oldest first; fewer if they would not fit into one frame.
pub(super) fn last(conn: &Connection, n: u32) -> rusqlite::Result<Vec<AuditLine>> {
    let mut query = conn.prepare(LAST)?;
    let rows = query.query_map([n.min(MAX_LINES)], line)?;
    let mut lines = rows.collect::<Result<Vec<_>, _>>()?;
    lines.reverse();
    Ok(lines)
}

fn line(row: &Row<'_>) -> rusqlite::Result<AuditLine> {
    Ok(AuditLine {
        seq: row.get::<_, i64>(0)?.try_into().unwrap_or_default(),
        at: rfc3339(row.get(1)?),
        event: row.get(2)?,
        by: row.get(3)?,
        subject: row.get(4)?,
        text: row.get(5)?,
        priority: row.get(6)?,
    })
}

/// Drops the oldest lines until the rest fits into one answer.
pub(super) fn fit(lines: &mut Vec<AuditLine>, n: u32) {
    let mut bytes = 0;
    let fitting = lines.iter().rev().take(n.min(MAX_LINES) as usize).take_while(|line| {
        bytes += serde_json::to_vec(line).map_or(MAX_BYTES, |json| json.len() + 1);
        bytes <= MAX_BYTES
    });
    let surplus = lines.len() - fitting.count();
    lines.drain(..surplus);
}
