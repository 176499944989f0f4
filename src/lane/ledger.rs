//! What this lane has begun and finished: its own book, because Redis may forget what it has acknowledged (a failover,
//! a disk, FLUSHALL), and a task that changes something must never run twice.
//!
//! One SQLite file. Every change is one transaction, so a SIGKILL leaves the one before or the one after. What must also
//! survive a power cut is written through to the disk (`durable`), the rest with the next checkpoint.

mod birth;
mod error;

use std::cell::Cell;
use std::fs;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension as _, params};

use super::admit::MAX_AHEAD;
use super::seal::Seals;
use birth::Birth;
pub(super) use birth::Origin;
pub use error::LedgerError;

/// How many tasks are remembered. A task that was issued before the newest forgotten one is refused as expired, so that
/// forgetting never makes a replay possible; with less than a task a second that is more than a day.
const REMEMBERED: u32 = 100_000;
/// How many refused tasks are remembered, so that a flood of them does not push out what was run.
const REMEMBERED_REFUSED: u32 = 10_000;
/// How many results are kept in full, to be published again if Redis has lost them. At most some 400 KB each (control characters take six bytes in JSON).
const FULL: u32 = 50;
/// After how many answers surplus results are thrown away, and after how many surplus tasks are forgotten: rarely, because the
/// one walks over a hundred, the other over a hundred thousand of them, and the next task waits meanwhile.
const THIN_EVERY: u32 = 50;
const FORGET_EVERY: u32 = 2_000;

/// A checkpoint waits for the disk. It comes when the lane is idle, see [`Ledger::tidy`], or after 8 MB.
const PRAGMAS: &str = "
    PRAGMA journal_mode = WAL;
    PRAGMA synchronous = NORMAL;
    PRAGMA mmap_size = 0;
    PRAGMA cache_size = -256;
    PRAGMA wal_autocheckpoint = 2048;
    PRAGMA journal_size_limit = 1048576;
";

/// For the bounds; ledgers made before have none of them.
const INDEXES: &str = "
    CREATE INDEX IF NOT EXISTS task_full ON task (seq) WHERE result IS NOT NULL;
    CREATE INDEX IF NOT EXISTS task_refused ON task (seq) WHERE begun_ms IS NULL;
";

const CREATE: &str = "
    BEGIN IMMEDIATE;
    CREATE TABLE lane (
        id TEXT NOT NULL, forgotten_ms INTEGER NOT NULL, born_ms INTEGER, file_ns INTEGER
    ) STRICT;
    CREATE TABLE task (
        seq INTEGER PRIMARY KEY AUTOINCREMENT, hash TEXT NOT NULL UNIQUE, id TEXT NOT NULL, action TEXT NOT NULL,
        issued_ms INTEGER NOT NULL, begun_ms INTEGER, again INTEGER NOT NULL, attempts INTEGER NOT NULL,
        result TEXT, published INTEGER NOT NULL
    ) STRICT;
    CREATE INDEX task_id ON task (id);
    CREATE INDEX task_rate ON task (action, begun_ms);
    CREATE INDEX task_open ON task (seq) WHERE NOT published;
    PRAGMA user_version = 1;
    COMMIT;
";

/// What the ledger knows of a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Known {
    /// Nothing: it was never begun here.
    Never,
    /// It was begun and never finished.
    Begun(Begun),
    /// It was answered.
    Finished {
        /// Its id.
        id: String,
        /// The result as it was published; none if it is too long ago.
        result: Option<String>,
    },
}

/// A task at the moment it is begun.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Begun {
    /// Its id.
    pub(super) id: String,
    /// Its action.
    pub(super) action: String,
    /// When it was issued, ms since 1970.
    pub(super) issued_ms: i64,
    /// Whether it may be run again after a lane died in it.
    pub(super) again: bool,
    /// How often it was begun, this time included.
    pub(super) attempts: u32,
}

/// The open ledger.
#[derive(Debug)]
pub(super) struct Ledger {
    conn: Connection,
    path: PathBuf,
    id: String,
    seals: Seals,
    origin: Origin,
    /// From when on it knows all that was run, ms since 1970.
    born_ms: Cell<i64>,
    /// Whether commits wait for the disk at present.
    full: Cell<bool>,
    forgotten_ms: Cell<i64>,
    /// Answers since the last look at the bounds.
    changes: Cell<u32>,
    /// Whether there were any since the last [`tidy`](Self::tidy).
    untidy: Cell<bool>,
}

impl Ledger {
    /// Opens the file `ledger.db` in `dir`, making either if it is not there.
    ///
    /// # Errors
    /// [`LedgerError`]. A damaged file is not replaced: it would forget what must not run twice.
    pub(super) fn open(dir: &Path) -> Result<Self, LedgerError> {
        let path = dir.join("ledger.db");
        let file = |source| LedgerError::File { path: path.clone(), source };
        fs::DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(file)?;
        fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .map_err(file)?;
        let wrong = |source| LedgerError::Sqlite { path: path.clone(), source };
        let conn = Connection::open(&path).map_err(wrong)?;
        conn.busy_timeout(Duration::from_secs(1)).map_err(wrong)?;
        // The log's index on the heap instead of in a mapping, where a failing disk is a SIGBUS.
        conn.execute_batch("PRAGMA locking_mode = EXCLUSIVE").map_err(wrong)?;
        let found: i64 = conn.query_row("PRAGMA user_version", [], |row| row.get(0)).map_err(wrong)?;
        if found > 1 {
            return Err(LedgerError::Newer { path, found });
        }
        conn.execute_batch(PRAGMAS).map_err(wrong)?;
        if found == 0 {
            conn.execute_batch(CREATE).map_err(wrong)?;
        }
        conn.execute_batch(INDEXES).map_err(wrong)?;
        let Birth { id, forgotten_ms, born_ms, origin } = birth::of(&conn, &path)?;
        Ok(Self {
            conn,
            path,
            seals: Seals::of(&id),
            origin,
            born_ms: Cell::new(born_ms),
            id,
            full: Cell::new(false),
            forgotten_ms: Cell::new(forgotten_ms),
            changes: Cell::new(0),
            untidy: Cell::new(false),
        })
    }

    /// A random name that this ledger was given once.
    pub(super) fn id(&self) -> &str {
        &self.id
    }

    /// What this ledger's lane seals its answers with.
    pub(super) fn seals(&self) -> &Seals {
        &self.seals
    }

    fn wrong(&self, source: rusqlite::Error) -> LedgerError {
        LedgerError::Sqlite { path: self.path.clone(), source }
    }

    fn durable(&self, yes: bool) -> rusqlite::Result<()> {
        if self.full.replace(yes) != yes {
            self.conn.execute_batch(if yes {
                "PRAGMA synchronous = FULL"
            } else {
                "PRAGMA synchronous = NORMAL"
            })?;
        }
        Ok(())
    }

    /// What is known of the task with these bytes (their SHA-256 in hex).
    ///
    /// # Errors
    /// As all here: [`LedgerError::Sqlite`].
    pub(super) fn known(&self, hash: &str) -> Result<Known, LedgerError> {
        let look = || {
            self.conn
                .prepare_cached(
                    "SELECT id, action, issued_ms, again, attempts, result, published FROM task WHERE hash = ?1",
                )?
                .query_row([hash], |row| {
                    let (result, published): (Option<String>, bool) = (row.get(5)?, row.get(6)?);
                    Ok(if result.is_some() || published {
                        Known::Finished { id: row.get(0)?, result }
                    } else {
                        Known::Begun(Begun {
                            id: row.get(0)?,
                            action: row.get(1)?,
                            issued_ms: row.get(2)?,
                            again: row.get(3)?,
                            attempts: row.get(4)?,
                        })
                    })
                })
                .optional()
        };
        Ok(look().map_err(|error| self.wrong(error))?.unwrap_or(Known::Never))
    }

    /// Whether a task with other bytes had this id.
    ///
    /// # Errors
    /// As [`known`](Self::known).
    pub(super) fn used_by_another(&self, id: &str, hash: &str) -> Result<bool, LedgerError> {
        self.conn
            .prepare_cached("SELECT EXISTS (SELECT 1 FROM task WHERE id = ?1 AND hash <> ?2)")
            .and_then(|mut query| query.query_row([id, hash], |row| row.get(0)))
            .map_err(|error| self.wrong(error))
    }

    /// How many other tasks of this action were begun after `since_ms`, and no later than `until_ms`. One whose time is a little in
    /// the future counts: the clock was put back, and that must not give an action away. One from far ahead is that of a clock that
    /// was wrong, and would block its action until then.
    ///
    /// # Errors
    /// As [`known`](Self::known).
    pub(super) fn begun_between(
        &self,
        action: &str,
        hash: &str,
        since_ms: i64,
        until_ms: i64,
    ) -> Result<u32, LedgerError> {
        self.conn
            .prepare_cached("SELECT count(*) FROM task WHERE action = ?1 AND begun_ms > ?2 AND begun_ms <= ?3 AND hash <> ?4")
            .and_then(|mut query| query.query_row(params![action, since_ms, until_ms, hash], |row| row.get(0)))
            .map_err(|error| self.wrong(error))
    }

    /// Up to which moment of issue (ms since 1970) tasks may have been forgotten.
    pub(super) fn forgotten_ms(&self) -> i64 {
        self.forgotten_ms.get()
    }

    /// How it came to be here.
    pub(super) fn origin(&self) -> Origin {
        self.origin
    }

    /// From when on it knows all that was run, ms since 1970. A birth that is further ahead of `now_ms` than any task may be is
    /// that of a clock that was wrong: it counts from now on, or everything would be refused until then.
    ///
    /// # Errors
    /// As [`known`](Self::known).
    pub(super) fn born_ms(&self, now_ms: i64) -> Result<i64, LedgerError> {
        let ahead = MAX_AHEAD.as_millis().try_into().unwrap_or(i64::MAX);
        if self.born_ms.get() > now_ms.saturating_add(ahead) {
            self.conn.execute("UPDATE lane SET born_ms = ?1", [now_ms]).map_err(|error| self.wrong(error))?;
            self.born_ms.set(now_ms);
        }
        Ok(self.born_ms.get())
    }

    /// Takes down that a task is about to be run. Durable before it returns if it must not be run again.
    ///
    /// # Errors
    /// As [`known`](Self::known): then it must not be run.
    pub(super) fn begin(&self, hash: &str, task: &Begun, now_ms: i64) -> Result<(), LedgerError> {
        let write = || {
            self.durable(!task.again)?;
            self.conn
                .prepare_cached(
                    "INSERT INTO task (hash, id, action, issued_ms, begun_ms, again, attempts, result, published)
                     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, NULL, 0)
                     ON CONFLICT (hash) DO UPDATE SET attempts = ?7",
                )?
                .execute(params![
                    hash,
                    task.id,
                    task.action,
                    task.issued_ms,
                    now_ms,
                    task.again,
                    task.attempts
                ])
        };
        write().map(drop).map_err(|error| self.wrong(error))
    }

    /// Takes back that a task was begun: it was not run after all.
    ///
    /// # Errors
    /// As [`known`](Self::known); then the task counts as begun.
    pub(super) fn not_begun(&self, hash: &str) -> Result<(), LedgerError> {
        self.conn
            .execute("DELETE FROM task WHERE hash = ?1 AND result IS NULL AND NOT published", [hash])
            .map(drop)
            .map_err(|error| self.wrong(error))
    }

    /// Takes a task's result down, to be published; whether it was begun or refused. The first result stays.
    ///
    /// # Errors
    /// As [`known`](Self::known).
    pub(super) fn finish(&self, hash: &str, task: &Begun, result: &str) -> Result<(), LedgerError> {
        let write = || {
            self.durable(!task.again)?;
            self.conn
                .prepare_cached(
                    "INSERT INTO task (hash, id, action, issued_ms, begun_ms, again, attempts, result, published)
                     VALUES (?1, ?2, ?3, ?4, NULL, ?5, ?6, ?7, 0)
                     ON CONFLICT (hash) DO UPDATE SET result = ?7 WHERE result IS NULL AND NOT published",
                )?
                .execute(params![
                    hash,
                    task.id,
                    task.action,
                    task.issued_ms,
                    task.again,
                    task.attempts,
                    result
                ])
        };
        write().map(drop).map_err(|error| self.wrong(error))
    }

    /// The task's result is in Redis.
    ///
    /// # Errors
    /// As [`known`](Self::known); then it is published again some time, which is harmless.
    pub(super) fn published(&self, hash: &str) -> Result<(), LedgerError> {
        let write = || {
            self.durable(false)?;
            self.conn.prepare_cached("UPDATE task SET published = 1 WHERE hash = ?1")?.execute([hash])?;
            self.changed()
        };
        write().map_err(|error| self.wrong(error))
    }

    /// The result of a task that was begun, once it is in Redis: [`finish`](Self::finish) and [`published`](Self::published) in
    /// one, for what need not be known here before.
    ///
    /// # Errors
    /// As [`known`](Self::known); then the task counts as begun.
    pub(super) fn answered(&self, hash: &str, result: &str) -> Result<(), LedgerError> {
        let write = || {
            self.durable(false)?;
            self.conn
                .prepare_cached(
                    "UPDATE task SET result = coalesce(result, ?2), published = 1 WHERE hash = ?1 AND NOT published",
                )?
                .execute([hash, result])?;
            self.changed()
        };
        write().map_err(|error| self.wrong(error))
    }

    fn changed(&self) -> rusqlite::Result<()> {
        let changes = self.changes.get() + 1;
        self.changes.set(changes);
        self.untidy.set(true);
        if changes >= FORGET_EVERY {
            self.changes.set(0);
            self.trim(REMEMBERED, REMEMBERED_REFUSED)?;
        } else if changes.is_multiple_of(THIN_EVERY) {
            self.thin()?;
        }
        Ok(())
    }

    /// For when there is nothing else to do: keeps the file small, and brings what was written to its place in it.
    ///
    /// # Errors
    /// As [`known`](Self::known).
    pub(super) fn tidy(&self) -> Result<(), LedgerError> {
        if !self.untidy.replace(false) {
            return Ok(());
        }
        let tidy = || {
            if self.changes.get() >= THIN_EVERY {
                self.changes.set(0);
                self.trim(REMEMBERED, REMEMBERED_REFUSED)?;
            }
            self.conn.execute_batch("PRAGMA wal_checkpoint(PASSIVE)")
        };
        tidy().map_err(|error| self.wrong(error))
    }

    /// Results that may not be in Redis yet, oldest first: hash, id and result. At most 100; ask again after publishing.
    ///
    /// # Errors
    /// As [`known`](Self::known).
    pub(super) fn unpublished(&self) -> Result<Vec<(String, String, String)>, LedgerError> {
        let look = || {
            self.conn
                .prepare_cached(
                    "SELECT hash, id, result FROM task WHERE NOT published AND result IS NOT NULL ORDER BY seq LIMIT 100",
                )?
                .query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?
                .collect::<rusqlite::Result<Vec<_>>>()
        };
        look().map_err(|error| self.wrong(error))
    }

    /// What may run again, was begun and has no result here, newest first: hash, id and action. At most 100, which is more than
    /// a lane has slots.
    ///
    /// # Errors
    /// As [`known`](Self::known).
    pub(super) fn unanswered(&self) -> Result<Vec<(String, String, String)>, LedgerError> {
        let look = || {
            self.conn
                .prepare_cached(
                    "SELECT hash, id, action FROM task WHERE NOT published AND result IS NULL AND again
                     ORDER BY seq DESC LIMIT 100",
                )?
                .query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?
                .collect::<rusqlite::Result<Vec<_>>>()
        };
        look().map_err(|error| self.wrong(error))
    }

    /// Keeps only the newest results in full.
    fn thin(&self) -> rusqlite::Result<()> {
        self.conn
            .prepare_cached(
                "UPDATE task SET result = NULL WHERE published AND result IS NOT NULL AND seq <=
                 (SELECT seq FROM task WHERE result IS NOT NULL ORDER BY seq DESC LIMIT 1 OFFSET ?1)",
            )?
            .execute([FULL])
            .map(drop)
    }

    /// Keeps the file small. What is open and must not run twice is never forgotten.
    fn trim(&self, run: u32, refused: u32) -> rusqlite::Result<()> {
        let all = self.conn.unchecked_transaction()?;
        self.thin()?;
        self.conn.execute(
            "DELETE FROM task WHERE published AND begun_ms IS NULL AND seq <=
             (SELECT seq FROM task WHERE begun_ms IS NULL ORDER BY seq DESC LIMIT 1 OFFSET ?1)",
            [refused],
        )?;
        let last: Option<i64> = self
            .conn
            .query_row(
                "SELECT seq FROM task WHERE begun_ms IS NOT NULL ORDER BY seq DESC LIMIT 1 OFFSET ?1",
                [run],
                |row| row.get(0),
            )
            .optional()?;
        if let Some(last) = last {
            // What a dead lane left open, and Redis has neither in flight nor answered, would stay so for good.
            let surplus = "seq <= ?1 AND begun_ms IS NOT NULL AND (published OR (again AND result IS NULL))";
            // Only what must not run again may not be replayed. A moment too late, should the rest fail, is safe.
            let newest: Option<i64> = self.conn.query_row(
                &format!("SELECT max(issued_ms) FROM task WHERE NOT again AND {surplus}"),
                [last],
                |row| row.get(0),
            )?;
            self.forgotten_ms.set(self.forgotten_ms.get().max(newest.unwrap_or(i64::MIN)));
            self.conn.execute("UPDATE lane SET forgotten_ms = ?1", [self.forgotten_ms.get()])?;
            self.conn.execute(&format!("DELETE FROM task WHERE {surplus}"), [last])?;
        }
        all.commit()
    }
}

#[cfg(test)]
mod tests;
