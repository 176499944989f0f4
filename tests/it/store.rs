//! The evidence on disks that fill up, turn read-only or lose power in the middle of it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)] // as in queue.rs

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use keyholder::journal::{Event, Priority, Record};
use keyholder::store::{self, Evidence, StoreError};
use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_secs(60);
const CHILD: &str = "KEYHOLDER_TEST_CHILD";

fn start(dir: &Path) -> Evidence {
    store::start(dir, &"mars".parse().unwrap())
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

/// Everything is on disk; the journal, which a test machine need not have, is left out.
fn flushed(evidence: &Evidence) -> bool {
    match block_on(evidence.store.flush(Duration::from_secs(20))) {
        Ok(()) | Err(StoreError::Journal(_)) => true,
        Err(StoreError::Late | StoreError::Degraded(_)) => false,
    }
}

fn degraded(evidence: &Evidence) -> String {
    let all = evidence.store.degraded();
    all.into_iter().filter(|text| !text.contains("journald")).collect::<Vec<_>>().concat()
}

fn record(evidence: &Evidence, text: impl Into<String>) {
    evidence.recorder.record(Record::local(Event::Acted, Priority::Notice, "mars/write", text));
}

fn save(evidence: &Evidence, json: impl Into<String>) {
    evidence.store.save_worker(&"write".parse().unwrap(), json.into());
}

fn wait_for(what: &str, mut ok: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !ok() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::yield_now();
    }
}

fn myself(test: &str) -> Vec<String> {
    let exe = std::env::current_exe().unwrap().to_str().unwrap().to_owned();
    [&exe, "--exact", test, "--nocapture"].map(str::to_owned).to_vec()
}

/// Runs the test once more in a mount namespace of its own, where a directory to mount on is returned: its mounts end
/// with it, also when it fails or is killed. Needs root, which the supervisor is.
fn in_own_mounts(test: &str) -> Option<PathBuf> {
    if let Some(dir) = std::env::var_os(CHILD) {
        return Some(dir.into());
    }
    let dir = TempDir::new().unwrap();
    let status = Command::new("unshare")
        .args(["--mount", "--propagation", "private", "--"])
        .args(myself(test))
        .env(CHILD, dir.path())
        .status()
        .unwrap();
    assert!(status.success(), "failed, see above (these tests mount file systems and need root)");
    None
}

fn mount(options: &str, at: &Path) {
    let status =
        Command::new("mount").args(["-t", "tmpfs", "-o", options, "tmpfs"]).arg(at).status().unwrap();
    assert!(status.success(), "mount -o {options}");
}

fn fill(dir: &Path) {
    let mut file = fs::File::create(dir.join("filler")).unwrap();
    for size in [65536, 4096, 1] {
        while file.write_all(&vec![0; size]).is_ok() {}
    }
}

#[test]
fn a_full_disk_is_said_survived_and_left_behind() {
    let Some(dir) = in_own_mounts("store::a_full_disk_is_said_survived_and_left_behind") else { return };
    mount("size=2m,mode=700", &dir);
    let evidence = start(&dir);
    record(&evidence, "before");
    save(&evidence, "1");
    assert!(flushed(&evidence) && degraded(&evidence).is_empty(), "{}", degraded(&evidence));

    fill(&dir);
    let mut n = 0;
    wait_for("the disk is noticed to be full", || {
        n += 1;
        record(&evidence, format!("{n} {}", "x".repeat(500)));
        save(&evidence, n.to_string());
        !flushed(&evidence)
    });
    let said = degraded(&evidence);
    assert!(said.contains("is full") && said.contains("make room") && said.contains("df "), "{said}");
    // A full disk still gives what it has, and memory the rest.
    let lines = block_on(evidence.store.audit(1000)).unwrap();
    assert_eq!(lines[0].text, "before");
    assert!(lines.iter().any(|line| line.text.starts_with(&format!("{n} "))), "the newest is there");
    for more in 0..5000 {
        record(&evidence, format!("more {more}"));
        save(&evidence, format!("more {more}"));
    }
    let began = Instant::now();
    record(&evidence, "still quick");
    assert!(began.elapsed() < Duration::from_secs(20));

    fs::remove_file(dir.join("filler")).unwrap();
    wait_for("it recovers by itself", || degraded(&evidence).is_empty());
    assert!(flushed(&evidence));
    let lines = block_on(evidence.store.audit(1000)).unwrap();
    assert!(lines.iter().any(|line| line.text.contains("written again")), "it says so");
    assert!(lines.iter().any(|line| line.text.contains("records are lost")), "and what is missing");
    drop(evidence);

    wait_for("the file is closed", || store::read_audit(&dir, 1).is_ok());
    let again = start(&dir);
    assert_eq!(again.loaded.workers[&"write".parse().unwrap()].json, "more 4999");
}

#[test]
fn a_disk_that_is_full_from_the_start_gives_an_empty_beginning() {
    let Some(dir) = in_own_mounts("store::a_disk_that_is_full_from_the_start_gives_an_empty_beginning")
    else {
        return;
    };
    // As small as the file and its log fit into with every table.
    mount("size=128k,mode=700", &dir);
    fill(&dir);
    let evidence = start(&dir);
    assert!(evidence.loaded.workers.is_empty());
    save(&evidence, "1");
    wait_for("degraded", || degraded(&evidence).contains("is full"));
    assert!(!flushed(&evidence));
    fs::remove_file(dir.join("filler")).unwrap();
    wait_for("whole", || flushed(&evidence) && degraded(&evidence).is_empty());
}

#[test]
fn a_disk_that_turns_read_only_is_said_and_survived() {
    let Some(dir) = in_own_mounts("store::a_disk_that_turns_read_only_is_said_and_survived") else { return };
    mount("size=8m,mode=700", &dir);
    let first = start(&dir);
    save(&first, "1");
    record(&first, "kept");
    assert!(flushed(&first));
    drop(first);
    wait_for("the file is closed", || store::read_audit(&dir, 1).is_ok());

    let remount = |options: &str| {
        let status =
            Command::new("mount").args(["-o", &format!("remount,{options}")]).arg(&dir).status().unwrap();
        assert!(status.success());
    };
    remount("ro");
    assert!(store::read_audit(&dir, 9).unwrap().iter().any(|line| line.text == "kept"));
    let second = start(&dir);
    save(&second, "2");
    wait_for("degraded", || degraded(&second).contains("read-only"));
    remount("rw");
    wait_for("whole", || flushed(&second) && degraded(&second).is_empty());
    drop(second);
    wait_for("the file is closed", || store::read_audit(&dir, 1).is_ok());
    assert_eq!(start(&dir).loaded.workers[&"write".parse().unwrap()].json, "2");
}

#[test]
fn a_sigkill_loses_nothing_that_was_acknowledged() {
    const TEST: &str = "store::a_sigkill_loses_nothing_that_was_acknowledged";
    if let Some(dir) = std::env::var_os(CHILD) {
        let evidence = start(Path::new(&dir));
        for n in 0.. {
            record(&evidence, n.to_string());
            save(&evidence, n.to_string());
            if n % 7 == 0 && flushed(&evidence) {
                println!("\nACK {n}");
            }
        }
    }
    let dir = TempDir::new().unwrap();
    let mut lines_before = 0;
    for round in 1..=5 {
        let argv = myself(TEST);
        let mut child = Command::new(&argv[0])
            .args(&argv[1..])
            .env(CHILD, dir.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut acknowledged = 0;
        let mut acks = 0;
        for line in BufReader::new(child.stdout.take().unwrap()).lines() {
            if let Some(n) = line.unwrap().strip_prefix("ACK ") {
                acknowledged = n.parse::<u64>().unwrap();
                acks += 1;
                if acks == 10 * round {
                    child.kill().unwrap();
                }
            }
        }
        child.wait().unwrap();
        assert!(acks >= 10 * round, "the child ended by itself");

        let lines = store::read_audit(dir.path(), 1000).unwrap();
        let last: u64 = lines.last().unwrap().text.parse().unwrap();
        assert!(last >= acknowledged, "{last} < {acknowledged}");
        assert!(lines.windows(2).all(|two| two[0].seq + 1 == two[1].seq), "no hole");
        assert!(lines.len() > lines_before, "the runs follow each other");
        lines_before = lines.len();
        let evidence = start(dir.path());
        let saved: u64 = evidence.loaded.workers[&"write".parse().unwrap()].json.parse().unwrap();
        assert!(saved >= acknowledged && evidence.loaded.workers.values().all(|saved| saved.same_boot));
        assert_eq!(degraded(&evidence), "");
        let maps = fs::read_to_string("/proc/self/maps").unwrap();
        let mine = dir.path().to_str().unwrap();
        assert!(!maps.contains(mine), "a mapping that a bad disk could turn into SIGBUS");
        drop(evidence);
        wait_for("the file is closed", || store::read_audit(dir.path(), 1).is_ok());
    }
}

/// Memory of this process that is its own and not the pages of an unoptimised binary, in KiB.
fn resident() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("RssAnon:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn a_hundred_thousand_records_cost_no_memory() {
    const TEST: &str = "store::a_hundred_thousand_records_cost_no_memory";
    let Some(dir) = std::env::var_os(CHILD) else {
        // A process of its own, since memory is per process.
        let dir = TempDir::new().unwrap();
        let argv = myself(TEST);
        let status = Command::new(&argv[0]).args(&argv[1..]).env(CHILD, dir.path()).status().unwrap();
        assert!(status.success());
        return;
    };
    let before = resident();
    let evidence = start(Path::new(&dir));
    record(&evidence, "first");
    assert!(flushed(&evidence));
    let idle = resident();
    for n in 0..100_000 {
        record(&evidence, format!("record {n} of an ordinary length, as the supervisor writes them"));
        save(&evidence, format!("{n}{}", " ".repeat(300)));
        if n % 400 == 0 {
            assert!(flushed(&evidence));
        }
    }
    assert!(flushed(&evidence));
    assert_eq!(evidence.recorder.dropped(), 0);
    let after = resident();
    println!("resident: {before} KiB before, {idle} KiB idle, {after} KiB after 100,000 records");
    // It may also become less.
    let (threads, records) = (idle.saturating_sub(before), after.saturating_sub(idle));
    assert!(threads < 1500, "the two threads: {threads} KiB");
    assert!(records < 1500, "100,000 records: {records} KiB");
}
