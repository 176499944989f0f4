use super::*;

fn task(id: &str, again: bool) -> Begun {
    Begun { id: id.to_owned(), action: "a".to_owned(), issued_ms: 1000, again, attempts: 1 }
}

#[test]
fn it_knows_what_was_begun_and_what_was_finished_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let id = {
        let ledger = Ledger::open(dir.path()).unwrap();
        assert_eq!(ledger.known("h1").unwrap(), Known::Never);
        ledger.begin("h1", &task("1", false), 5).unwrap();
        ledger.begin("h2", &task("2", true), 5).unwrap();
        ledger.finish("h2", &task("2", true), "{}").unwrap();
        ledger.finish("h3", &task("3", true), "refused").unwrap();
        ledger.published("h3").unwrap();
        ledger.begin("h4", &task("4", false), 5).unwrap();
        ledger.not_begun("h4").unwrap();
        ledger.id().to_owned()
    };
    let ledger = Ledger::open(dir.path()).unwrap();
    assert_eq!(ledger.id(), id);
    assert_eq!(ledger.known("h1").unwrap(), Known::Begun(task("1", false)));
    assert_eq!(
        ledger.known("h2").unwrap(),
        Known::Finished { id: "2".to_owned(), result: Some("{}".to_owned()) }
    );
    assert_eq!(ledger.unpublished().unwrap(), [("h2".to_owned(), "2".to_owned(), "{}".to_owned())]);
    assert_eq!(ledger.known("h4").unwrap(), Known::Never);
    assert!(ledger.used_by_another("1", "other").unwrap());
    assert!(!ledger.used_by_another("1", "h1").unwrap());
}

#[test]
fn the_first_result_stays() {
    let dir = tempfile::tempdir().unwrap();
    let ledger = Ledger::open(dir.path()).unwrap();
    ledger.begin("h", &task("1", false), 5).unwrap();
    ledger.finish("h", &task("1", false), "first").unwrap();
    ledger.finish("h", &task("1", false), "second").unwrap();
    ledger.not_begun("h").unwrap();
    assert!(matches!(ledger.known("h").unwrap(), Known::Finished { result: Some(r), .. } if r == "first"));
}

#[test]
fn runs_are_counted_and_refusals_are_not() {
    let dir = tempfile::tempdir().unwrap();
    let ledger = Ledger::open(dir.path()).unwrap();
    for n in 0..3 {
        ledger.begin(&format!("h{n}"), &task(&n.to_string(), true), 100 * n).unwrap();
    }
    ledger.finish("r", &task("r", true), "refused").unwrap();
    assert_eq!(ledger.begun_between("a", "h", 0, i64::MAX).unwrap(), 2);
    assert_eq!(ledger.begun_between("a", "h", -1, i64::MAX).unwrap(), 3);
    assert_eq!(ledger.begun_between("b", "h", -1, i64::MAX).unwrap(), 0);
    // A second attempt is no second run.
    ledger.begin("h0", &Begun { attempts: 2, ..task("0", true) }, 900).unwrap();
    assert_eq!(ledger.begun_between("a", "h", -1, i64::MAX).unwrap(), 3);
}

#[test]
fn what_is_forgotten_cannot_be_replayed_and_what_is_open_is_not_forgotten() {
    let dir = tempfile::tempdir().unwrap();
    let ledger = Ledger::open(dir.path()).unwrap();
    assert_eq!(ledger.forgotten_ms(), i64::MIN);
    for n in 0..20 {
        let hash = format!("h{n}");
        let task = Begun { issued_ms: n, ..task(&n.to_string(), n % 2 == 0) };
        ledger.begin(&hash, &task, n).unwrap();
        if n != 3 {
            ledger.finish(&hash, &task, "{}").unwrap();
            ledger.published(&hash).unwrap();
        }
    }
    for n in 0..20 {
        ledger.finish(&format!("r{n}"), &task("r", true), "refused").unwrap();
        ledger.published(&format!("r{n}")).unwrap();
    }
    ledger.trim(10, 5).unwrap();
    assert_eq!(ledger.forgotten_ms(), 9);
    assert_eq!(ledger.known("h8").unwrap(), Known::Never);
    assert!(matches!(ledger.known("h3").unwrap(), Known::Begun(_)));
    assert!(matches!(ledger.known("h10").unwrap(), Known::Finished { .. }));
    assert_eq!(ledger.known("r14").unwrap(), Known::Never);
    assert!(matches!(ledger.known("r15").unwrap(), Known::Finished { .. }));
}

#[test]
fn what_was_answered_first_is_taken_down_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let ledger = Ledger::open(dir.path()).unwrap();
    ledger.begin("h", &task("1", true), 5).unwrap();
    ledger.answered("h", "first").unwrap();
    ledger.answered("h", "second").unwrap();
    ledger.finish("h", &task("1", true), "third").unwrap();
    assert!(ledger.unpublished().unwrap().is_empty());
    ledger.tidy().unwrap();
    let finished = Known::Finished { id: "1".to_owned(), result: Some("first".to_owned()) };
    assert_eq!(ledger.known("h").unwrap(), finished);
}

#[test]
fn only_the_newest_results_are_kept_in_full_and_what_may_run_again_does_not_stay_open_for_good() {
    let dir = tempfile::tempdir().unwrap();
    let ledger = Ledger::open(dir.path()).unwrap();
    ledger.begin("open", &task("open", true), 0).unwrap();
    ledger.begin("never twice", &task("never twice", false), 0).unwrap();
    for n in 0..i64::from(FORGET_EVERY) {
        let id = n.to_string();
        ledger.begin(&id, &task(&id, true), n).unwrap();
        ledger.answered(&id, "{}").unwrap();
    }
    let full = "SELECT count(*), min(seq) FROM task WHERE result IS NOT NULL";
    let kept = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?));
    let (kept, oldest): (u32, i64) = ledger.conn.query_row(full, [], kept).unwrap();
    assert_eq!((kept, oldest), (FULL, i64::from(FORGET_EVERY - FULL) + 3));
    assert_ne!(ledger.known("open").unwrap(), Known::Never);
    ledger.trim(10, 10).unwrap();
    assert_eq!(ledger.known("open").unwrap(), Known::Never);
    assert!(matches!(ledger.known("never twice").unwrap(), Known::Begun(_)));
}

#[test]
fn a_foreign_or_newer_file_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("ledger.db"), "not a database at all, and long enough".repeat(50))
        .unwrap();
    assert!(matches!(Ledger::open(dir.path()), Err(LedgerError::Sqlite { .. })));
    let dir = tempfile::tempdir().unwrap();
    drop(Ledger::open(dir.path()).unwrap());
    Connection::open(dir.path().join("ledger.db")).unwrap().pragma_update(None, "user_version", 9).unwrap();
    assert!(matches!(Ledger::open(dir.path()), Err(LedgerError::Newer { found: 9, .. })));
}

#[test]
fn a_ledger_knows_since_when_it_is_complete() {
    let dir = tempfile::tempdir().unwrap();
    let before = jiff::Timestamp::now().as_millisecond();
    let now = |ledger: &Ledger| ledger.born_ms(jiff::Timestamp::now().as_millisecond()).unwrap();
    let born = {
        let ledger = Ledger::open(dir.path()).unwrap();
        assert_eq!(ledger.origin(), Origin::New);
        now(&ledger)
    };
    assert!(born >= before);
    let ledger = Ledger::open(dir.path()).unwrap();
    assert_eq!((ledger.origin(), now(&ledger)), (Origin::Kept, born));
    // The clock was years ahead when it was made: it counts from where the clock is known to be, and for good.
    assert_eq!(ledger.born_ms(5_000).unwrap(), 5_000);
    drop(ledger);
    assert_eq!(now(&Ledger::open(dir.path()).unwrap()), 5_000);

    // A copy does not have what was written after copying.
    let (path, copy) = (dir.path().join("ledger.db"), dir.path().join("copy"));
    fs::copy(&path, &copy).unwrap();
    fs::rename(&copy, &path).unwrap();
    let copied = Ledger::open(dir.path()).unwrap();
    assert!(copied.origin() == Origin::Copied && now(&copied) >= born);
    drop(copied);
    assert_eq!(Ledger::open(dir.path()).unwrap().origin(), Origin::Kept);
}

#[test]
fn a_ledger_of_an_older_version_is_as_old_as_can_be() {
    let dir = tempfile::tempdir().unwrap();
    drop(Ledger::open(dir.path()).unwrap());
    let conn = Connection::open(dir.path().join("ledger.db")).unwrap();
    conn.execute_batch("ALTER TABLE lane DROP COLUMN born_ms; ALTER TABLE lane DROP COLUMN file_ns").unwrap();
    drop(conn);
    let ledger = Ledger::open(dir.path()).unwrap();
    assert_eq!((ledger.origin(), ledger.born_ms(5_000).unwrap()), (Origin::Kept, i64::MIN));
}

#[test]
fn a_run_from_far_ahead_is_not_counted_and_one_from_a_little_ahead_is() {
    let dir = tempfile::tempdir().unwrap();
    let ledger = Ledger::open(dir.path()).unwrap();
    const YEARS: i64 = 10 * 365 * 24 * 3_600 * 1_000;
    let (now, hour) = (1_700_000_000_000, 3_600_000);
    for (hash, begun) in [("past", now - hour), ("ahead", now + hour), ("wrong", now + YEARS)] {
        let task =
            Begun { id: hash.to_owned(), action: "a".to_owned(), issued_ms: 0, again: false, attempts: 1 };
        ledger.begin(hash, &task, begun).unwrap();
    }
    assert_eq!(ledger.begun_between("a", "h", now - 2 * hour, now + 24 * hour).unwrap(), 2);
    assert_eq!(ledger.begun_between("a", "h", now + 24 * hour, i64::MAX).unwrap(), 1, "which is said");
}
