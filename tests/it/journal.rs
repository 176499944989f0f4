//! The journal as journald's own protocol sees it: a socket in the place of journald's, in a mount namespace of the
//! test's own.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)] // as in queue.rs

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use keyholder::journal::{Event, Priority, ReadError, Record};
use keyholder::store::{self, Evidence};
use keyholder::vocabulary::Pin;
use tempfile::TempDir;

const CHILD: &str = "KEYHOLDER_TEST_CHILD";
const SOCKET: &str = "/run/systemd/journal/socket";
const PATIENCE: Duration = Duration::from_secs(30);

/// Runs the test once more in a mount namespace of its own, where `/run/systemd` is empty and `true` is returned.
fn without_journald(test: &str) -> bool {
    if std::env::var_os(CHILD).is_none() {
        let status = Command::new("unshare")
            .args(["--mount", "--propagation", "private", "--"])
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", test, "--nocapture"])
            .env(CHILD, "1")
            .status()
            .unwrap();
        assert!(status.success(), "failed, see above (this test mounts file systems and needs root)");
        return false;
    }
    std::fs::create_dir_all("/run/systemd").unwrap();
    let mounted = Command::new("mount").args(["-t", "tmpfs", "tmpfs", "/run/systemd"]).status().unwrap();
    assert!(mounted.success());
    std::fs::create_dir("/run/systemd/journal").unwrap();
    true
}

fn start(dir: &Path) -> Evidence {
    store::start(dir, &"mars".parse().unwrap())
}

fn record(evidence: &Evidence, text: &str) {
    evidence.recorder.record(Record::local(Event::Acted, Priority::Notice, "", text));
}

fn wait_for(what: &str, mut ok: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !ok() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

type Fields = BTreeMap<String, Vec<String>>;

/// One entry of the native protocol (systemd.io/JOURNAL_NATIVE_PROTOCOL): `NAME=value\n`, or `NAME\n`, a length of
/// eight bytes, little endian, and that many bytes.
fn parse(mut entry: &[u8]) -> Fields {
    let mut fields = Fields::new();
    while let Some(end) = entry.iter().position(|&byte| byte == b'\n') {
        let (line, rest) = (std::str::from_utf8(&entry[..end]).unwrap(), &entry[end + 1..]);
        let (name, value, rest) = match line.split_once('=') {
            Some((name, value)) => (name, value.to_owned(), rest),
            None => {
                let length = usize::try_from(u64::from_le_bytes(rest[..8].try_into().unwrap())).unwrap();
                let value = String::from_utf8(rest[8..8 + length].to_vec()).unwrap();
                (line, value, &rest[8 + length + 1..])
            }
        };
        fields.entry(name.to_owned()).or_default().push(value);
        entry = rest;
    }
    fields
}

/// The next entry; the empty datagrams are tracing-journald asking whether somebody is there.
fn next(journald: &UnixDatagram) -> Fields {
    let mut buffer = vec![0; 1 << 18];
    loop {
        match journald.recv(&mut buffer) {
            Ok(0) => {}
            Ok(read) => return parse(&buffer[..read]),
            // A signal ends a read that has a deadline.
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => panic!("no entry in time: {error}"),
        }
    }
}

fn listen() -> UnixDatagram {
    let journald = UnixDatagram::bind(SOCKET).unwrap();
    journald.set_read_timeout(Some(PATIENCE)).unwrap();
    journald
}

#[test]
fn an_entry_has_the_documented_fields_once_each_and_no_empty_ones() {
    if !without_journald("journal::an_entry_has_the_documented_fields_once_each_and_no_empty_ones") {
        return;
    }
    let journald = listen();
    let dir = TempDir::new().unwrap();
    let evidence = start(dir.path());
    evidence.recorder.record(Record {
        by: "ai-core".to_owned(),
        pin: Some(Pin::of_spki(b"")),
        req_id: Some("0123456789abcdef0123456789abcdef".parse().unwrap()),
        verb: Some("relaunch"),
        ..Record::local(Event::Ordered, Priority::Notice, "mars/write", "because of\n\x1b[2Jthis")
    });
    let fields = next(&journald);
    assert!(fields.values().all(|values| values.len() == 1), "{fields:?}");
    let get = |name: &str| fields.get(name).map(|values| values[0].as_str());
    for (name, value) in [
        ("MESSAGE", "because of\\n\\x1b[2Jthis"),
        ("MESSAGE_ID", Event::Ordered.message_id()),
        ("PRIORITY", "5"),
        ("SYSLOG_IDENTIFIER", "keyholder"),
        ("KEYHOLDER_EVENT", "ordered"),
        ("KEYHOLDER_NODE", "mars"),
        ("KEYHOLDER_BY", "ai-core"),
        ("KEYHOLDER_SUBJECT", "mars/write"),
        ("KEYHOLDER_VERB", "relaunch"),
        ("KEYHOLDER_REQ_ID", "0123456789abcdef0123456789abcdef"),
        ("KEYHOLDER_PIN", &Pin::of_spki(b"").to_string()),
        ("KEYHOLDER_SEQ", "1"),
    ] {
        assert_eq!(get(name), Some(value), "{name} in {fields:?}");
    }

    for (priority, number) in
        [(Priority::Error, "3"), (Priority::Warning, "4"), (Priority::Notice, "5"), (Priority::Info, "6")]
    {
        evidence.recorder.record(Record::local(Event::Peer, priority, "", "x"));
        let fields = next(&journald);
        assert_eq!(fields["PRIORITY"], [number]);
        for absent in ["KEYHOLDER_SUBJECT", "KEYHOLDER_VERB", "KEYHOLDER_REQ_ID", "KEYHOLDER_PIN"] {
            assert!(!fields.contains_key(absent), "{fields:?}");
        }
    }
    assert_eq!(evidence.store.degraded(), [""; 0]);
}

#[test]
fn no_other_thread_ever_speaks_to_journald() {
    if !without_journald("journal::no_other_thread_ever_speaks_to_journald") {
        return;
    }
    let journald = listen();
    let dir = TempDir::new().unwrap();
    let evidence = start(dir.path());
    record(&evidence, "first");
    assert_eq!(next(&journald)["MESSAGE"], ["first"]);
    // From this thread nothing, whatever its target and level.
    tracing::error!(target: "keyholder", "not this way");
    tracing::error!("nor this");
    record(&evidence, "second");
    assert_eq!(next(&journald)["MESSAGE"], ["second"]);
}

#[test]
fn a_journald_that_stops_comes_back_or_never_was_is_lived_with() {
    if !without_journald("journal::a_journald_that_stops_comes_back_or_never_was_is_lived_with") {
        return;
    }
    // Never was.
    let dir = TempDir::new().unwrap();
    let evidence = start(dir.path());
    record(&evidence, "waits");
    wait_for("degraded", || evidence.store.degraded().concat().contains("/run/systemd/journal/socket"));

    // Comes up: what waited arrives, after a word on why it is late.
    let journald = listen();
    assert!(next(&journald)["MESSAGE"][0].contains("journald is back"));
    assert_eq!(next(&journald)["MESSAGE"], ["waits"]);

    // Stops reading, as when it is frozen: nobody here waits, and it is said after five seconds.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let began = Instant::now();
    for _ in 0..10 {
        for n in 0..400 {
            record(&evidence, &format!("flood {n}"));
        }
        // The audit has taken them all, so that it is the journal's queue that overflows.
        runtime.block_on(evidence.store.audit(1)).unwrap();
    }
    assert_eq!(evidence.recorder.dropped(), 0);
    // It stays so: nobody who waited for it would ever come here.
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    wait_for("degraded", || evidence.store.degraded().concat().contains("it has taken nothing for"));
    assert!(began.elapsed() > Duration::from_secs(5), "not at once: journald restarts on every update");
    record(&evidence, "in the audit all the same");
    let lines = runtime.block_on(evidence.store.audit(1000)).unwrap();
    assert!(lines.iter().any(|line| line.text == "in the audit all the same"));
    assert!(lines.iter().any(|line| line.event == "degraded" && line.text.contains("journald")), "{lines:?}");

    // Reads again: the rest of the queue, then how much is missing.
    wait_for("the loss is told", || next(&journald)["MESSAGE"][0].contains("records are missing here"));
    wait_for("whole", || evidence.store.degraded().is_empty());

    // Is gone for good.
    drop(journald);
    record(&evidence, "to nobody");
    wait_for("degraded", || evidence.store.degraded().concat().contains("refused"));
}

/// A lane that has no server and says so, started as `sh` is told, with this file as its standard error.
struct Lane(std::process::Child);

impl Lane {
    fn start(dir: &Path, stderr: &Path, start: &str) -> Self {
        let catalog = dir.join("catalog_mars.yaml");
        let action = "  true: { mode: read, argv: [/bin/true] }";
        std::fs::write(&catalog, format!("version: 1\nnode: mars\nactions:\n{action}\n")).unwrap();
        let lane = Command::new("/bin/sh")
            .args(["-c", start, "sh", env!("CARGO_BIN_EXE_keyholder"), "lane", "--mode", "write", "--node"])
            .args(["mars", "--insecure-unsigned-write", "--catalog"])
            .arg(catalog)
            .arg("--state-dir")
            .arg(dir.join("state"))
            .env("KEYHOLDER_REDIS", "redis://127.0.0.1:1")
            .env_remove("NOTIFY_SOCKET")
            .env_remove("JOURNAL_STREAM")
            .env_remove("SYSTEMD_EXEC_PID")
            .stderr(std::fs::File::create(stderr).unwrap())
            .spawn();
        Self(lane.unwrap())
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_lane_speaks_to_the_journal_where_systemd_has_led_it_there_and_to_its_standard_error_elsewhere() {
    const TEST: &str = "journal::a_lane_speaks_to_the_journal_where_systemd_has_led_it_there_and_to_its_standard_error_elsewhere";
    if !without_journald(TEST) {
        return;
    }
    let (journald, dir) = (listen(), TempDir::new().unwrap());
    let stderr = dir.path().join("stderr");
    let said = || std::fs::read_to_string(&stderr).unwrap();

    // By hand, on a host with a journald; a shell of a desktop inherits where its own terminal's words went.
    for start in ["exec \"$@\"", "JOURNAL_STREAM=1:2 SYSTEMD_EXEC_PID=1 exec \"$@\""] {
        let _lane = Lane::start(dir.path(), &stderr, start);
        wait_for(start, || said().contains("taking no tasks"));
    }
    journald.set_nonblocking(true).unwrap();
    let mut entry = [0; 4096];
    while let Ok(read) = journald.recv(&mut entry) {
        assert_eq!(read, 0, "{}", String::from_utf8_lossy(&entry[..read]));
    }
    journald.set_nonblocking(false).unwrap();

    // As a unit; and as one whose standard error goes elsewhere, which must cost no evidence.
    let as_unit = "export JOURNAL_STREAM=$(stat -Lc %d:%i /dev/stderr); exec \"$@\"";
    for start in [as_unit, "SYSTEMD_EXEC_PID=$$ exec \"$@\""] {
        let _lane = Lane::start(dir.path(), &stderr, start);
        let fields = next(&journald);
        assert!(fields["MESSAGE"][0].contains("taking no tasks"), "{start}: {fields:?}");
        assert_eq!(
            (&fields["KEYHOLDER_LANE"][..], &fields["KEYHOLDER_NODE"][..]),
            (&["write".into()][..], &["mars".into()][..])
        );
        assert_eq!(said(), "", "{start}");
    }
}

/// A journald of the test's own; it needs no systemd above it.
struct Journald(std::process::Child);

impl Journald {
    fn start() -> Self {
        std::fs::create_dir_all("/run/log").unwrap();
        let mounted = Command::new("mount").args(["-t", "tmpfs", "tmpfs", "/run/log"]).status().unwrap();
        assert!(mounted.success());
        std::fs::create_dir("/run/log/journal").unwrap();
        let journald = Command::new("/lib/systemd/systemd-journald").spawn();
        let journald = Self(journald.expect("systemd-journald is missing: apt-get install -y systemd"));
        wait_for("journald is up", || tracing_journald::layer().is_ok());
        journald
    }

    fn signal(&self, signal: nix::sys::signal::Signal) {
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(self.0.id().try_into().unwrap()), signal).unwrap();
    }
}

impl Drop for Journald {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn journalctl(args: &[&str]) -> String {
    assert!(Command::new("journalctl").arg("--sync").status().unwrap().success());
    let read = Command::new("journalctl").args(["--no-pager", "--quiet"]).args(args).output().unwrap();
    String::from_utf8(read.stdout).unwrap()
}

#[test]
fn a_real_journald_keeps_what_is_written_and_gives_back_a_units_last_lines() {
    const TEST: &str = "journal::a_real_journald_keeps_what_is_written_and_gives_back_a_units_last_lines";
    if !without_journald(TEST) {
        return;
    }
    let journald = Journald::start();
    let dir = TempDir::new().unwrap();
    let evidence = start(dir.path());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for n in 0..200 {
        record(&evidence, &format!("entry {n}"));
    }
    runtime.block_on(evidence.store.flush(PATIENCE)).unwrap();
    let id = format!("MESSAGE_ID={}", Event::Acted.message_id());
    let read = journalctl(&["--output=cat", &id, "KEYHOLDER_EVENT=acted", "KEYHOLDER_NODE=mars"]);
    assert_eq!(read.lines().collect::<Vec<_>>(), (0..200).map(|n| format!("entry {n}")).collect::<Vec<_>>());
    assert_eq!(journalctl(&["--output=cat", "KEYHOLDER_SEQ=200"]), "entry 199\n");

    // Frozen and thawed: nothing was lost that the queue and the socket could hold.
    journald.signal(nix::sys::signal::Signal::SIGSTOP);
    for n in 0..400 {
        record(&evidence, &format!("meanwhile {n}"));
    }
    journald.signal(nix::sys::signal::Signal::SIGCONT);
    runtime.block_on(evidence.store.flush(PATIENCE)).unwrap();
    let read = journalctl(&["--output=cat", &id]);
    assert_eq!(read.lines().filter(|line| line.starts_with("meanwhile")).count(), 400);

    // What PID 1 and a unit say of one run. The message is no text, and has two lines.
    let run = "0123456789abcdef0123456789abcdef";
    let socket = UnixDatagram::unbound().unwrap();
    let say = |message: &[u8]| {
        let mut entry = format!("INVOCATION_ID={run}\nMESSAGE\n").into_bytes();
        entry.extend(u64::try_from(message.len()).unwrap().to_le_bytes());
        entry.extend([message, b"\n"].concat());
        socket.send_to(&entry, SOCKET).unwrap();
    };
    say(b"earlier");
    say(b"\xff\x1b[31mred\nsecond line");
    say(b"Main process exited, code=killed, status=9/KILL");
    journalctl(&[]);
    let unit = "x.service".parse().unwrap();
    // A machine that stalls may need more time than a reply to an order leaves.
    let last_lines = |run: Option<&str>, n| {
        let until = Instant::now() + PATIENCE;
        loop {
            let run = run.map(|run| run.parse().unwrap());
            match runtime.block_on(keyholder::journal::last_lines(&unit, run, n)) {
                Err(ReadError::Late) if Instant::now() < until => {}
                lines => return lines.unwrap(),
            }
        }
    };
    let lines = |run: &str, n| last_lines(Some(run), n);
    assert_eq!(
        lines(run, 3),
        ["\\xff\\x1b[31mred", "second line", "Main process exited, code=killed, status=9/KILL"]
    );
    assert_eq!(lines("00000000000000000000000000000000", 3), [""; 0]);
    assert_eq!(last_lines(None, 3), [""; 0]);
}
