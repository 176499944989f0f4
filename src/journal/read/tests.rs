use super::*;

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

/// Stands in for `journalctl`: what it prints and how it ends is the script's.
fn with_script(script: &str, n: usize, deadline: Duration) -> Result<Vec<String>, ReadError> {
    let argv = ["-c", script, "journalctl", "a b"].map(str::to_owned);
    block_on(run(Path::new("/bin/sh"), &argv, n, deadline))
}

#[test]
fn the_arguments_are_fixed_and_name_the_run_by_both_of_its_fields() {
    let unit = "x.service".parse().unwrap();
    let id = "0123456789abcdef0123456789abcdef";
    assert_eq!(
        argv(&unit, Some(id.parse().unwrap()), 5)[3..],
        [
            "--lines=5".to_owned(),
            format!("_SYSTEMD_INVOCATION_ID={id}"),
            "+".into(),
            format!("INVOCATION_ID={id}")
        ]
    );
    assert_eq!(argv(&unit, None, 255)[3..], ["--lines=255", "--unit=x.service"]);
}

#[test]
fn the_last_lines_come_escaped_and_clipped() {
    let script = r#"printf 'one\ntwo\n\033[2Jthree\377\nfour %s\nlast' "$(printf '%0300d' 7)""#;
    let lines = with_script(script, 3, DEADLINE).unwrap();
    assert_eq!(lines[0], "\\x1b[2Jthree\\xff");
    assert_eq!((lines[1].chars().count(), lines[1].ends_with('…')), (MAX_LINE, true));
    assert_eq!((lines[2].as_str(), lines.len()), ("last", 3));
    assert_eq!(with_script("true", 3, DEADLINE).unwrap(), [""; 0]);
    assert_eq!(with_script("echo x", 0, DEADLINE).unwrap(), [""; 0]);
}

#[test]
fn the_child_gets_no_environment_and_no_shell_sees_its_arguments() {
    let lines = with_script(r#"echo "$#:$1:$HOME:$USER:$LANG""#, 9, DEADLINE).unwrap();
    assert_eq!(lines, ["1:a b:::"]);
}

#[test]
fn failure_silence_and_floods_all_end() {
    assert!(matches!(with_script("exit 3", 9, DEADLINE), Err(ReadError::Failed(_))));
    assert!(matches!(block_on(run(Path::new("/nonexistent"), &[], 9, DEADLINE)), Err(ReadError::Run(_))));

    let late = with_script("exec sleep 60", 9, Duration::from_millis(50));
    assert!(matches!(late, Err(ReadError::Late)), "{late:?}");

    let flood =
        with_script("yes 0123456789012345678901234567890123456789", 2, Duration::from_secs(20)).unwrap();
    assert!(flood[1].contains("not read"), "{flood:?}");

    // A line without an end costs no memory either.
    let endless = with_script("head -c 3000000 /dev/zero", 2, Duration::from_secs(20)).unwrap();
    assert_eq!(endless, ["(there is more: the rest of the output was not read)"]);
}

#[test]
fn the_child_is_killed_with_the_future() {
    let dir = tempfile::tempdir().unwrap();
    let pid_file = dir.path().join("pid");
    let script = format!("echo $$ >{}; exec sleep 60", pid_file.display());
    // A machine that stalls may end its time before it has said who it is.
    let mut time = Duration::from_millis(500);
    let pid = loop {
        assert!(matches!(with_script(&script, 9, time), Err(ReadError::Late)));
        match std::fs::read_to_string(&pid_file) {
            Ok(pid) if pid.ends_with('\n') => break pid,
            Ok(_) | Err(_) if time < Duration::from_secs(30) => time *= 2,
            other => panic!("{other:?}"),
        }
    };
    let stat = format!("/proc/{}/stat", pid.trim());
    let deadline = std::time::Instant::now() + Duration::from_secs(20);
    // Killed is enough; whether tokio has reaped it already is not the point.
    while std::fs::read_to_string(&stat).is_ok_and(|stat| !stat.contains(") Z ")) {
        assert!(std::time::Instant::now() < deadline, "still alive");
        std::thread::yield_now();
    }
}
