use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;
use std::time::Instant;

use nix::time::{ClockId, clock_gettime};
use rusqlite::Connection;
use tempfile::TempDir;

use super::*;
use crate::journal::{Event, Mail, Priority, Record};
use crate::peer::wire::{AuditLine, MAX_REPLY};

const PATIENCE: Duration = Duration::from_secs(20);

fn settings(dir: &Path) -> Settings {
    Settings { retry: Duration::from_millis(20), boot_id: "this boot".to_owned(), ..Settings::new(dir) }
}

fn open(settings: Settings) -> Evidence {
    start_with(settings, &"mars".parse().unwrap(), Err(io::ErrorKind::Unsupported.into()))
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

fn flush(evidence: &Evidence) -> Result<(), StoreError> {
    block_on(evidence.store.flush(PATIENCE))
}

fn audit(evidence: &Evidence, last: u32) -> Vec<AuditLine> {
    block_on(evidence.store.audit(last)).unwrap()
}

fn record(evidence: &Evidence, text: impl Into<String>) {
    evidence.recorder.record(Record::local(Event::Acted, Priority::Notice, "mars/write", text));
}

fn save(evidence: &Evidence, worker: &str, json: &str) {
    evidence.store.save_worker(&worker.parse().unwrap(), json.to_owned());
}

/// What is degraded, the journal left out, which none of these tests has.
fn degraded(evidence: &Evidence) -> Vec<String> {
    let mut all = evidence.store.degraded();
    all.retain(|text| !text.contains("thread for the journal"));
    all
}

fn wait_for(what: &str, mut ok: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !ok() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::yield_now();
    }
}

/// Ends a run as a clean stop does: flushed, and the file closed by the thread.
fn close(evidence: Evidence, dir: &Path) {
    flush(&evidence).unwrap();
    drop(evidence);
    wait_for("the thread lets go of the file", || read_audit(dir, 0).is_ok());
}

fn texts(lines: &[AuditLine]) -> Vec<&str> {
    lines.iter().map(|line| line.text.as_str()).collect()
}

#[test]
fn the_newest_state_of_each_worker_comes_back_and_says_from_which_boot() {
    let dir = TempDir::new().unwrap();
    let before = Moment::now();
    let first = open(settings(dir.path()));
    assert_eq!(first.loaded, SavedState::default());
    save(&first, "write", "1");
    save(&first, "read", "a");
    save(&first, "write", "2");
    close(first, dir.path());

    let second = open(settings(dir.path()));
    let write = &second.loaded.workers[&"write".parse().unwrap()];
    assert_eq!((write.json.as_str(), write.same_boot, second.loaded.workers.len()), ("2", true, 2));
    assert!(before <= write.saved_at_moment && write.saved_at_moment <= Moment::now());
    assert!(write.saved_wall_ms > 1_700_000_000_000);
    close(second, dir.path());

    for other in ["another boot", ""] {
        let third = open(Settings { boot_id: other.to_owned(), ..settings(dir.path()) });
        assert!(third.loaded.workers.values().all(|saved| !saved.same_boot), "{other:?}");
        close(third, dir.path());
    }
}

#[test]
fn rehearsals_are_kept_beside_the_workers_also_in_a_file_of_an_earlier_version() {
    let dir = TempDir::new().unwrap();
    let first = open(settings(dir.path()));
    save(&first, "dead", "a worker");
    close(first, dir.path());
    let raw = rusqlite::Connection::open(dir.path().join(FILE)).unwrap();
    raw.execute_batch("DROP TABLE rehearsal; DROP TABLE alert").unwrap();
    drop(raw);

    let second = open(settings(dir.path()));
    assert!(second.loaded.rehearsals.is_empty());
    second.store.save_rehearsal("dead", "a rehearsal".to_owned());
    second.store.save_alerts("open alerts".to_owned());
    close(second, dir.path());
    let third = open(settings(dir.path()));
    assert_eq!(third.loaded.workers[&"dead".parse().unwrap()].json, "a worker");
    assert_eq!(third.loaded.rehearsals["dead"].json, "a rehearsal");
    assert_eq!(third.loaded.rehearsals.len(), 1, "alerts have a table of their own");
    assert_eq!(third.loaded.alerts.map(|saved| saved.json).as_deref(), Some("open alerts"));
}

#[test]
fn directory_and_file_are_for_root_alone() {
    let dir = TempDir::new().unwrap();
    let state = dir.path().join("deep/state");
    fs::create_dir_all(&state).unwrap();
    fs::set_permissions(&state, fs::Permissions::from_mode(0o755)).unwrap();
    let evidence = open(settings(&state));
    record(&evidence, "x");
    flush(&evidence).unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&state), 0o700);
    for file in fs::read_dir(&state).unwrap() {
        assert_eq!(mode(&file.unwrap().path()) & 0o077, 0);
    }
}

#[test]
fn states_coalesce_and_wake_the_thread_once() {
    let (to, from) = sync_channel(16);
    let shared = Arc::new(Shared::new(Err(io::ErrorKind::Unsupported.into())));
    let store = StoreHandle::new(to, shared.clone());
    for n in 0..10_000 {
        store.save_worker(&format!("w{}", n % 3).parse().unwrap(), n.to_string());
    }
    let waiting: Vec<_> = shared.take_saves().into_values().map(|waiting| waiting.json).collect();
    assert_eq!(waiting, ["9999", "9997", "9998"]);
    assert_eq!(from.try_iter().count(), 1);

    store.save_worker(&"large".parse().unwrap(), "x".repeat(64 * 1024 + 1));
    for n in 0..5000 {
        store.save_worker(&format!("w{n}").parse().unwrap(), String::new());
    }
    assert_eq!(shared.take_saves().len(), 4096);
    assert!(store.degraded().concat().contains("905 worker states"), "{:?}", store.degraded());
}

#[test]
fn recording_costs_next_to_nothing_while_the_thread_stands_still() {
    let (to, from) = sync_channel::<Mail>(1024);
    let recorder = Recorder::evidence(to, Stamper::default(), Arc::default());
    let records: Vec<_> =
        (0..100_000).map(|_| Record::local(Event::Peer, Priority::Info, "mars", "a sentence")).collect();
    // The time that this thread has had a processor for: how busy the machine is otherwise does not count.
    let cpu = || Duration::from(clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).unwrap());
    let began = cpu();
    for record in records {
        recorder.record(record);
    }
    let each = (cpu() - began) / 100_000;
    println!("{each:?} per record");
    // Some 60 ns in a release build; the limit leaves room for a debug build.
    assert!(each < Duration::from_micros(20), "{each:?}");
    assert_eq!((recorder.dropped(), from.try_iter().count()), (100_000 - 1024, 1024));
}

#[test]
fn the_audit_keeps_every_field_in_order_over_restarts() {
    let dir = TempDir::new().unwrap();
    for run in 0..3 {
        let evidence = open(settings(dir.path()));
        for n in 0..300 {
            record(&evidence, format!("{run}:{n}"));
        }
        close(evidence, dir.path());
    }
    let evidence = open(settings(dir.path()));
    evidence.recorder.record(Record {
        by: "ai-core".to_owned(),
        pin: Some(crate::vocabulary::Pin::of_spki(b"")),
        req_id: Some("0123456789abcdef0123456789abcdef".parse().unwrap()),
        verb: Some("relaunch"),
        ..Record::local(Event::Ordered, Priority::Warning, "mars/write", "last\u{202e}\n")
    });
    let lines = audit(&evidence, 1000);
    assert_eq!(lines.iter().map(|line| line.seq).collect::<Vec<_>>(), (1..=901).collect::<Vec<_>>());
    assert_eq!(texts(&lines)[..2], ["0:0", "0:1"]);
    assert_eq!(
        lines[900],
        AuditLine {
            seq: 901,
            at: lines[900].at.clone(),
            event: "ordered".to_owned(),
            by: "ai-core".to_owned(),
            subject: "mars/write".to_owned(),
            text: "last\u{202e}\n".to_owned(),
            priority: 4,
        }
    );
    assert!(lines[900].at.starts_with("20") && lines[900].at.ends_with('Z'), "{}", lines[900].at);
    assert_eq!(texts(&audit(&evidence, 2)), ["2:299", "last\u{202e}\n"]);

    close(evidence, dir.path());
    let conn = Connection::open(dir.path().join(FILE)).unwrap();
    let row: (u8, String, String, String) = conn
        .query_row("SELECT priority, pin, req_id, verb FROM audit WHERE seq = 901", [], |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))
        })
        .unwrap();
    assert_eq!((row.0, row.1.len(), row.2.len(), row.3.as_str()), (4, 71, 32, "relaunch"));
}

#[test]
fn the_audit_is_bounded_and_keeps_the_newest() {
    let dir = TempDir::new().unwrap();
    let evidence = open(Settings { rows: 500, ..settings(dir.path()) });
    for n in 0..4200 {
        record(&evidence, n.to_string());
        if n % 500 == 0 {
            flush(&evidence).unwrap();
        }
    }
    close(evidence, dir.path());
    let conn = Connection::open(dir.path().join(FILE)).unwrap();
    let (rows, newest): (u32, String) = conn
        .query_row("SELECT count(*), (SELECT text FROM audit ORDER BY seq DESC) FROM audit", [], |row| {
            Ok((row.get(0)?, row.get(1)?))
        })
        .unwrap();
    assert!((500..500 + 1000).contains(&rows), "{rows}");
    assert_eq!(newest, "4199");
}

#[test]
fn what_comes_from_outside_never_pushes_out_what_was_done_here() {
    let dir = TempDir::new().unwrap();
    let evidence = open(Settings { rows: 500, ..settings(dir.path()) });
    let tell = |event, by: &str, n: usize| {
        let record = Record::local(event, Priority::Notice, "mars/write", n.to_string());
        evidence.recorder.record(Record { by: by.to_owned(), ..record });
        if n.is_multiple_of(100) {
            flush(&evidence).unwrap();
        }
    };
    for n in 0..50 {
        tell(Event::Acted, "local", n);
        tell(Event::Alert, "local", n);
        tell(Event::Ordered, "root", n);
        tell(Event::Supervisor, "local", n);
    }
    for n in 0..3000 {
        tell(Event::Refused, "192.0.2.77", n);
        tell(Event::Observed, "local", n);
        tell(Event::Peer, "local", n);
        tell(Event::Ordered, "ai-core", n);
    }
    close(evidence, dir.path());
    let conn = Connection::open(dir.path().join(FILE)).unwrap();
    let count = |which: &str| -> u32 {
        let query = format!("SELECT count(*) FROM audit WHERE {which}");
        conn.query_row(&query, [], |row| row.get(0)).unwrap()
    };
    assert_eq!(count("event IN ('acted', 'alert', 'supervisor') OR \"by\" = 'root'"), 200);
    assert!(count("true") < 500 + 1000, "{}", count("true"));
    let newest = |event: &str| -> String {
        let query = format!("SELECT text FROM audit WHERE event = '{event}' ORDER BY seq DESC LIMIT 1");
        conn.query_row(&query, [], |row| row.get(0)).unwrap()
    };
    assert_eq!(["refused", "observed", "peer", "ordered"].map(newest), ["2999"; 4]);
}

#[test]
fn one_answer_fits_into_one_frame() {
    let dir = TempDir::new().unwrap();
    let evidence = open(settings(dir.path()));
    for n in 0..1000 {
        // Each of these characters needs six bytes in JSON.
        record(&evidence, format!("{n} {}", "\x01".repeat(1900)));
        if n % 100 == 0 {
            flush(&evidence).unwrap();
        }
    }
    let lines = audit(&evidence, u32::MAX);
    assert!(lines.last().unwrap().text.starts_with("999 "));
    let bytes = serde_json::to_vec(&lines).unwrap().len();
    assert!((MAX_REPLY / 2..MAX_REPLY).contains(&bytes), "{bytes}");
}

#[test]
fn what_is_lost_leaves_a_gap_and_is_told() {
    let dir = TempDir::new().unwrap();
    let state = dir.path().join("state");
    fs::write(&state, "in the way").unwrap();
    let evidence = open(Settings { pending: 10, ..settings(&state) });
    wait_for("degraded", || !degraded(&evidence).is_empty());
    let said = degraded(&evidence).concat();
    assert!(said.contains("state directory") && said.contains("cannot be used"), "{said}");
    for n in 0..30 {
        record(&evidence, n.to_string());
    }
    save(&evidence, "write", "{}");
    assert!(matches!(flush(&evidence), Err(StoreError::Degraded(_))));
    // What is in memory can be read all the same.
    assert_eq!(texts(&audit(&evidence, 100)), (20..30).map(|n| n.to_string()).collect::<Vec<_>>());

    fs::remove_file(&state).unwrap();
    wait_for("whole again", || degraded(&evidence).is_empty());
    let lines = audit(&evidence, 100);
    let said = texts(&lines);
    assert_eq!(said[..10], (20..30).map(|n| n.to_string()).collect::<Vec<_>>());
    assert!(said[10].contains("written again") && said[10].contains("cannot be used"), "{said:?}");
    assert!(said[11].contains("21 records are lost"), "{said:?}");
    // The first number was the complaint about the directory itself.
    assert_eq!(lines.iter().map(|line| line.seq).collect::<Vec<_>>(), (22..=33).collect::<Vec<_>>());
    close(evidence, &state);
    assert_eq!(open(settings(&state)).loaded.workers.len(), 1);
}

#[test]
fn a_queue_that_overflows_is_a_gap_in_the_numbers() {
    let dir = TempDir::new().unwrap();
    close(open(settings(dir.path())), dir.path());
    // While somebody else has the file, the thread waits inside SQLite.
    let other = Connection::open(dir.path().join(FILE)).unwrap();
    other.execute_batch("PRAGMA locking_mode = EXCLUSIVE; BEGIN IMMEDIATE").unwrap();
    let evidence =
        open(Settings { queue: 50, load: Duration::ZERO, boot_id: "x".to_owned(), ..settings(dir.path()) });
    for n in 0..100 {
        record(&evidence, n.to_string());
    }
    assert!(evidence.recorder.dropped() >= 49, "{}", evidence.recorder.dropped());
    wait_for("degraded", || degraded(&evidence).concat().contains("another process"));
    assert!(matches!(read_audit(dir.path(), 1), Err(OfflineError::InUse(_))));
    drop(other);
    wait_for("the loss is told", || audit(&evidence, 1)[0].text.contains("records are lost"));
    let lines = audit(&evidence, 1000);
    assert!(degraded(&evidence).is_empty());
    let gap = lines.windows(2).find(|two| two[1].seq - two[0].seq > 49);
    assert!(gap.is_some(), "{lines:?}");
    assert!(lines.windows(2).all(|two| two[0].seq < two[1].seq));
}

#[test]
fn a_damaged_file_is_set_aside_and_said_loudly() {
    let dir = TempDir::new().unwrap();
    for n in 1..=3 {
        fs::write(dir.path().join(FILE), format!("{n} this is no database {}", "x".repeat(8192))).unwrap();
        let evidence = open(settings(dir.path()));
        assert!(evidence.loaded.workers.is_empty());
        record(&evidence, "life goes on");
        wait_for("a new file", || flush(&evidence).is_ok());
        let aside = dir.path().join(format!("state.db.corrupt-{n}"));
        assert!(fs::read_to_string(&aside).unwrap().starts_with(&n.to_string()));
        let said = degraded(&evidence).concat();
        assert!(said.contains(aside.to_str().unwrap()) && said.contains("lost"), "{said}");
        let lines = audit(&evidence, 100);
        assert!(texts(&lines).contains(&"life goes on"), "{lines:?}");
        assert!(lines.iter().any(|line| line.event == "degraded" && line.text.contains("was damaged")));
        close(evidence, dir.path());
    }
}

/// Overwrites a page of the audit, `last` or the root of its tree; header and schema stay intact.
fn damage(path: &Path, last: bool) {
    let conn = Connection::open(path).unwrap();
    let root: i64 = conn
        .query_row("SELECT rootpage FROM sqlite_schema WHERE name = 'audit'", [], |row| row.get(0))
        .unwrap();
    drop(conn);
    let mut bytes = fs::read(path).unwrap();
    let page = if last { bytes.len() / 4096 - 2 } else { usize::try_from(root - 1).unwrap() };
    bytes[page * 4096..(page + 1) * 4096].fill(0xaa);
    fs::write(path, bytes).unwrap();
}

#[test]
fn damage_that_shows_only_in_writing_costs_nothing_that_is_in_memory() {
    let dir = TempDir::new().unwrap();
    let first = open(settings(dir.path()));
    save(&first, "write", "1");
    close(first, dir.path());
    damage(&dir.path().join(FILE), false);

    let second = open(settings(dir.path()));
    save(&second, "read", "2");
    record(&second, "x");
    wait_for("a new file", || flush(&second).is_ok());
    assert!(dir.path().join("state.db.corrupt-1").exists());
    close(second, dir.path());
    let third = open(settings(dir.path()));
    assert_eq!(third.loaded.workers[&"read".parse().unwrap()].json, "2");
}

#[test]
fn damage_that_shows_only_in_reading_is_set_aside_too() {
    let dir = TempDir::new().unwrap();
    let first = open(settings(dir.path()));
    save(&first, "write", "1");
    for n in 0..400 {
        record(&first, format!("{n} {}", "x".repeat(400)));
    }
    close(first, dir.path());
    damage(&dir.path().join(FILE), true);

    let second = open(settings(dir.path()));
    record(&second, "written all the same");
    flush(&second).unwrap();
    let error = block_on(second.store.audit(1000)).unwrap_err().to_string();
    assert!(error.contains("damaged"), "{error}");
    wait_for("a new file", || flush(&second).is_ok());
    assert!(texts(&audit(&second, 1000)).iter().any(|text| text.contains("was damaged")));
    close(second, dir.path());
    let third = open(settings(dir.path()));
    assert_eq!(third.loaded.workers[&"write".parse().unwrap()].json, "1");
}

#[test]
fn a_file_of_a_newer_version_is_left_alone() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join(FILE);
    Connection::open(&path).unwrap().execute_batch("CREATE TABLE x (y); PRAGMA user_version = 2").unwrap();
    let before = fs::read(&path).unwrap();
    let evidence = open(settings(dir.path()));
    record(&evidence, "x");
    save(&evidence, "write", "1");
    let refused = flush(&evidence).unwrap_err().to_string();
    assert!(refused.contains("newer keyholder (schema 2, this one knows 1)"), "{refused}");
    assert!(refused.contains("upgrade"), "{refused}");
    assert_eq!(degraded(&evidence).len(), 1);
    drop(evidence);
    assert!(
        matches!(read_audit(dir.path(), 1), Err(OfflineError::Unreadable(text)) if text.contains("newer"))
    );
    assert_eq!(fs::read(&path).unwrap(), before);
}

#[test]
fn a_directory_that_is_removed_is_made_again_with_everything_in_it() {
    let dir = TempDir::new().unwrap();
    let state = dir.path().join("state");
    let evidence = open(settings(&state));
    save(&evidence, "write", "1");
    record(&evidence, "before");
    flush(&evidence).unwrap();
    fs::remove_dir_all(&state).unwrap();
    record(&evidence, "after");
    wait_for("written again", || flush(&evidence).is_ok());
    let lines = audit(&evidence, 100);
    assert!(texts(&lines).contains(&"after") && !texts(&lines).contains(&"before"), "{lines:?}");
    assert!(lines.iter().any(|line| line.text.contains("was removed while it was in use")), "{lines:?}");
    close(evidence, &state);
    assert_eq!(open(settings(&state)).loaded.workers[&"write".parse().unwrap()].json, "1");
}

#[test]
fn a_disk_that_hangs_does_not_hold_up_the_start() {
    let dir = TempDir::new().unwrap();
    // Opening a pipe without a reader for writing hangs like a dead network file system.
    let path = dir.path().join(FILE);
    assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
    let began = Instant::now();
    let evidence = open(Settings { load: Duration::from_millis(50), ..settings(dir.path()) });
    assert_eq!(evidence.loaded, SavedState::default());
    for n in 0..5000 {
        record(&evidence, n.to_string());
        save(&evidence, "write", "1");
    }
    // It hangs until the end of this test.
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    assert_eq!(block_on(evidence.store.flush(Duration::from_millis(20))), Err(StoreError::Late));
    assert!(evidence.recorder.dropped() > 3000);
    assert!(evidence.store.shared().inside.longer_than(Duration::from_millis(10)).is_some());
    // Let the thread go.
    drop(fs::File::open(&path).unwrap());
}

#[test]
fn writing_the_same_twice_is_writing_it_once() {
    let dir = TempDir::new().unwrap();
    let mut db = db::Db::open(dir.path()).unwrap();
    let stamped = Stamper::default().stamp(Record::local(Event::Acted, Priority::Info, "", "once"));
    for _ in 0..2 {
        db.write([(7, &stamped)].into_iter(), std::iter::empty()).unwrap();
    }
    assert_eq!((db.count().unwrap(), db.last_seq().unwrap()), (1, 7));
}
