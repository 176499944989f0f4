//! `install.sh --demo` is the first command that anybody runs: it tells all of it, in time, and leaves nothing behind,
//! also if it is interrupted.

use std::io::{BufRead, BufReader, Read as _};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Instant;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use crate::harness::{alone, binary, repo};

/// The demo with the binary under test, in a process group of its own as at a prompt, and interruptible as there: what runs in the
/// background of a script is not, and passes that on.
fn demo() -> Child {
    let mut command = Command::new("env");
    command.arg("--default-signal=INT,TERM").arg(repo("install.sh"));
    command.args(["--demo", "--binary"]).arg(binary()).process_group(0);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().expect("install.sh runs")
}

/// Where a demo has its nodes.
fn nodes_of(demo: &Child) -> PathBuf {
    format!("/run/keyholder-demo.{}", demo.id()).into()
}

/// Reads until a line contains `what`.
fn read_until(lines: &mut BufReader<ChildStdout>, what: &str) -> String {
    let mut told = String::new();
    while !told.contains(what) {
        assert_ne!(lines.read_line(&mut told).unwrap(), 0, "it ended before '{what}':\n{told}");
    }
    told
}

#[test]
fn the_demo_tells_every_scene_to_its_end_and_leaves_nothing_behind() {
    let _alone = alone();
    let start = Instant::now();
    let demo = demo();
    let nodes = nodes_of(&demo);
    let output = demo.wait_with_output().unwrap();
    let (told, errors) =
        (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert!(output.status.success(), "{}\n{told}\n{errors}", output.status);
    println!("it took {:?}", start.elapsed());
    // Seven falls, each repaired under a new invocation; a loop that was woken, and a rehearsal; one stranger who got nothing;
    // and what became of the lanes' tasks.
    for (what, times) in [
        ("=> running again ", 7),
        ("=> invocation ", 7),
        ("=> the supervisor answers ", 1),
        ("no hold was declared for this stop; next repair in ", 2),
        ("Start request repeated too quickly", 1),
        ("=> its loop goes on ", 1),
        ("it was woken, not restarted", 1),
        ("rehearsal of dead with mars/looper passed", 1),
        ("=> the way back was walked", 1),
        ("keyholder.socket: Incoming traffic", 1),
        ("is not among the pins", 1),
        ("=> not one byte was answered", 1),
        ("proved: the read lane ran it, once; the write lane was there and has nothing of it", 2),
        ("demo.backup for ", 1),
        ("mars demo.backup: interrupted: the lane died while it ran", 1),
        ("mars demo.note: ok", 1),
        ("unknown_action 'queue.length_mars_peer' on mars", 1),
        ("=> ai-core read 3 waiting tasks without mars", 1),
    ] {
        assert_eq!(told.matches(what).count(), times, "{what}:\n{told}");
    }
    let table: Vec<&str> = told.lines().skip_while(|line| !line.contains("what fell")).collect();
    for row in [
        "web, killed",
        "agent, killed",
        "agent, stopped",
        "crawler, ",
        "mars's supervisor",
        "web, killed with it",
        "looper, its loop hangs",
        "mars's write lane, killed in a write",
        "mars's write lane, stopped",
    ] {
        assert!(table.iter().any(|line| line.trim_start().starts_with(row)), "{row}:\n{told}");
    }
    assert!(!told.contains('\x1b'), "colour into a pipe");
    assert!(!nodes.exists(), "{} is still there", nodes.display());
}

#[test]
fn a_demo_that_is_interrupted_in_the_middle_takes_its_nodes_with_it() {
    let mut demo = demo();
    let nodes = nodes_of(&demo);
    let mut lines = BufReader::new(demo.stdout.take().unwrap());
    read_until(&mut lines, "ai-core sees");
    assert!(nodes.exists());
    killpg(Pid::from_raw(i32::try_from(demo.id()).unwrap()), Signal::SIGINT).unwrap();
    let mut rest = String::new();
    lines.read_to_string(&mut rest).unwrap();
    assert_eq!(demo.wait().unwrap().code(), Some(130), "{rest}");
    assert!(!nodes.exists(), "{} is still there:\n{rest}", nodes.display());
}
