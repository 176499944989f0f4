use super::*;
use crate::lane::result::{Status, Text};

fn sh(script: &str) -> [String; 3] {
    ["/bin/sh", "-c", script].map(str::to_owned)
}

/// Less than what the commands here leave behind takes.
const HANGS: Duration = Duration::from_secs(50);

async fn with(argv: &[String], timeout: Duration, grace: Duration) -> Ran {
    let ran = run(CommandSpec { argv, timeout, grace, stdin: Stdio::null(), late: &|| () });
    let (ran, beyond) = tokio::time::timeout(HANGS, ran).await.expect("it hangs").expect("it does not start");
    assert!(beyond.is_none() && !ran.beyond, "everything here is ours to kill");
    ran
}

async fn quick(script: &str) -> Ran {
    // So long a killed process may take to be gone on a busy machine.
    with(&sh(script), Duration::from_secs(10), Duration::from_secs(1)).await
}

/// A command that says `ready` and does not end before it is told to. One that was told before it could say so, on a machine
/// that stalls, is run again and left more time.
async fn told_to_end(script: &str, grace: Duration) -> Ran {
    let mut timeout = Duration::from_millis(200);
    loop {
        let ran = with(&sh(script), timeout, grace).await;
        if matches!(&ran.stdout.head, Text::Text(said) if said.starts_with("ready\n")) {
            return ran;
        }
        timeout *= 2;
        assert!(timeout < HANGS, "{ran:?}");
    }
}

#[tokio::test]
async fn it_says_how_it_ended_and_what_was_written() {
    let ran = quick("printf out; printf err >&2; exit 3").await;
    assert_eq!((ran.exit_code, ran.signal, ran.status()), (Some(3), None, Status::Failed));
    assert_eq!(ran.stdout.head, Text::Text("out".to_owned()));
    assert_eq!(ran.stderr.head, Text::Text("err".to_owned()));
    assert!(!ran.left_behind && !ran.timed_out);

    let ran = quick("kill -KILL $$").await;
    assert_eq!((ran.exit_code, ran.signal, ran.status()), (None, Some(9), Status::Killed));

    let missing = ["/no/such/program".to_owned()];
    let order =
        CommandSpec { argv: &missing, timeout: GRACE, grace: GRACE, stdin: Stdio::null(), late: &|| () };
    assert!(run(order).await.is_err());
}

#[tokio::test]
async fn nothing_of_ours_is_handed_on() {
    let ran = quick("env; cat").await;
    let Text::Text(text) = ran.stdout.head else { panic!() };
    assert!(!text.contains("CARGO") && !text.contains("HOME="), "{text}");
}

#[tokio::test]
async fn a_command_that_ignores_its_end_is_killed() {
    let ran = told_to_end("trap '' TERM; echo ready; while :; do :; done", Duration::from_secs(1)).await;
    assert!(ran.timed_out && ran.signal == Some(9) && ran.status() == Status::TimedOut, "{ran:?}");

    let polite = "trap 'echo bye; exit 0' TERM; echo ready; sleep 60 & wait";
    let ran = told_to_end(polite, Duration::from_secs(20)).await;
    assert!(ran.timed_out && ran.exit_code == Some(0) && ran.status() == Status::TimedOut, "{ran:?}");
    assert_eq!(ran.stdout.head, Text::Text("ready\nbye\n".to_owned()));
}

#[tokio::test]
async fn what_a_command_leaves_behind_neither_delays_nor_survives() {
    let ran = quick("sleep 60 & echo $!").await;
    assert!(ran.left_behind && ran.exit_code == Some(0), "{ran:?}");
    let Text::Text(pid) = &ran.stdout.head else { panic!() };
    gone(pid).await;

    // It closed the pipe.
    let ran = quick("sleep 60 >/dev/null 2>&1 & echo $!").await;
    assert!(ran.left_behind, "{ran:?}");

    // It left the group.
    let ran = quick("setsid sleep 60 & echo $!").await;
    assert!(ran.left_behind, "{ran:?}");
    let Text::Text(pid) = &ran.stdout.head else { panic!() };
    nix::sys::signal::kill(Pid::from_raw(pid.trim().parse().unwrap()), Signal::SIGKILL).unwrap();
}

async fn gone(pid: &str) {
    let stat = format!("/proc/{}/stat", pid.trim());
    let until = Instant::now() + HANGS;
    while std::fs::read_to_string(&stat).is_ok_and(|stat| !stat.contains(") Z ")) {
        assert!(Instant::now() < until, "{stat} is still there");
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_hundred_megabytes_are_counted_and_not_kept() {
    let ran = quick("head -c 100000000 /dev/zero; printf end").await;
    assert_eq!(ran.exit_code, Some(0));
    assert_eq!(ran.stdout.omitted, 100_000_003 - 64 * 1024);
    let Text::Text(tail) = ran.stdout.tail else { panic!() };
    assert!(tail.ends_with("\0end"));
}
