use std::io::Write;

use super::*;
use crate::judge::{ActiveState, LoadState, StopCause};

/// `systemctl show` of systemd 252 for a killed unit, one that does not exist, and the shutdown target.
const KILLED: &str = "Restart=no\nRuntimeMaxUSec=1s\nRemainAfterExit=no\nResult=signal\n\
    ExecMainExitTimestampMonotonic=1266589914\nExecMainCode=2\nExecMainStatus=9\nId=w.service\nLoadState=loaded\n\
    ActiveState=failed\nSubState=failed\nInactiveExitTimestampMonotonic=1265564707\n\
    ActiveEnterTimestampMonotonic=1265564707\nActiveExitTimestampMonotonic=1266590048\nJob=\nRefuseManualStart=no\n\
    InvocationID=71a24a211927409982373fd25097f134\n";
const ABSENT: &str = "Restart=no\nRuntimeMaxUSec=infinity\nRemainAfterExit=no\nResult=success\n\
    ExecMainExitTimestampMonotonic=0\nExecMainCode=0\nExecMainStatus=0\nId=nope.service\nLoadState=not-found\n\
    ActiveState=inactive\nSubState=dead\nInactiveExitTimestampMonotonic=0\nActiveEnterTimestampMonotonic=0\n\
    ActiveExitTimestampMonotonic=0\nJob=\nRefuseManualStart=no\nInvocationID=\n";
const TARGET: &str = "Id=shutdown.target\nLoadState=loaded\nActiveState=inactive\nSubState=dead\nJob=\n\
    RefuseManualStart=yes\nInvocationID=\n";

fn units(names: &[&str]) -> Vec<UnitName> {
    names.iter().map(|name| name.parse().unwrap()).collect()
}

#[test]
fn what_systemctl_shows_is_read_as_what_the_bus_tells() {
    let text = format!("{KILLED}\n{ABSENT}\n{TARGET}");
    let shown = parse(&text, units(&["w.service", "nope.service"])).unwrap();
    let [Shown::Unit(_, killed), Shown::Unit(_, absent)] = shown.as_slice() else { panic!("{shown:?}") };
    let killed = killed.snapshot();
    assert_eq!((killed.load, killed.active), (LoadState::Loaded, ActiveState::Failed));
    assert_eq!((killed.stop, killed.exit.as_deref()), (StopCause::ByItself, Some("signal 9 (KILL)")));
    assert_eq!(killed.invocation.unwrap().to_string(), "71a24a211927409982373fd25097f134");
    assert!(!killed.job && !killed.restarts_itself && !killed.refuse_manual_start);
    let absent = absent.snapshot();
    assert_eq!((absent.load, absent.stop, absent.invocation), (LoadState::NotFound, StopCause::Never, None));
}

#[test]
fn an_answer_that_does_not_fit_the_question_is_no_answer() {
    for text in [
        String::new(),
        KILLED.to_owned(),
        format!("{KILLED}\n{KILLED}\n{TARGET}"),
        format!("{KILLED}\nId=x\n"),
        "Failed to connect".to_owned(),
    ] {
        assert_eq!(parse(&text, units(&["w.service"])), None, "{text}");
    }
}

#[test]
fn a_queued_shutdown_is_seen() {
    let text = format!("{KILLED}\n{}", TARGET.replace("Job=", "Job=812"));
    let shown = parse(&text, units(&["w.service"])).unwrap();
    assert_eq!(shown.last(), Some(&Shown::Stopping));
    assert_eq!(Raw::from_show(&KILLED.replace("Job=", "Job=7")).job, 7);
}

/// A stand-in for systemctl. The script is written by a child: a file that this process has open for writing while
/// another test forks could not be executed.
pub(in crate::systemd) fn fake(dir: &Path, script: &str) -> PathBuf {
    let path = dir.join("systemctl");
    let mut child = std::process::Command::new("/bin/sh")
        .args(["-c", "cat > \"$0\" && chmod 755 \"$0\""])
        .arg(&path)
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    write!(child.stdin.take().unwrap(), "#!/bin/sh\ncd {}\n{script}", dir.display()).unwrap();
    assert!(child.wait().unwrap().success());
    path
}

/// A systemctl over one unit whose state is the file `unit`; a restart puts the file `after` in its place.
pub(in crate::systemd) fn fake_with(dir: &Path, before: &str, after: &str, restart: &str) -> PathBuf {
    std::fs::write(dir.join("unit"), before).unwrap();
    std::fs::write(dir.join("after"), after).unwrap();
    std::fs::write(dir.join("target"), format!("\n{TARGET}")).unwrap();
    fake(
        dir,
        &format!(
            "echo \"$*\" >> calls\ncase $1 in\nshow) cat unit target ;;\nrestart) cat after > unit; {restart} ;;\nesac\n"
        ),
    )
}

fn running(run: char) -> String {
    let run = run.to_string().repeat(32);
    KILLED.replace("failed", "active").replace("71a24a211927409982373fd25097f134", &run)
}

fn calls(dir: &Path) -> Vec<String> {
    let calls = std::fs::read_to_string(dir.join("calls")).unwrap_or_default();
    calls.lines().filter(|call| !call.starts_with("show")).map(str::to_owned).collect()
}

async fn break_glass_reply(
    before: &str,
    after: &str,
    restart: &str,
    known: Option<&str>,
) -> (Relaunch, Vec<String>) {
    glass_within(Duration::from_secs(30), before, after, restart, known).await
}

async fn glass_within(
    left: Duration,
    before: &str,
    after: &str,
    restart: &str,
    known: Option<&str>,
) -> (Relaunch, Vec<String>) {
    let dir = tempfile::tempdir().unwrap();
    let systemctl = fake_with(dir.path(), before, after, restart);
    let known = known.map(|run| run.parse().unwrap());
    let unit = "w.service".parse().unwrap();
    let relaunch = relaunch(&systemctl, &unit, known, left, "the bus is gone").await;
    assert!(relaunch.break_glass);
    (relaunch, calls(dir.path()))
}

#[tokio::test]
async fn the_other_way_restarts_by_fixed_arguments_and_believes_only_a_new_run() {
    let (relaunch, calls) = break_glass_reply(KILLED, &running('a'), "", None).await;
    assert_eq!(relaunch.result.unwrap().short(), "aaaaaaaa");
    assert_eq!(relaunch.before.unwrap().short(), "71a24a21");
    assert_eq!(relaunch.job.as_deref(), Some("done"));
    assert_eq!(calls, ["reset-failed -- w.service", "restart -- w.service"]);

    let (relaunch, _) = break_glass_reply(&running('a'), &running('a'), "", None).await;
    assert_eq!(relaunch.result, Err(RelaunchError::NotRunning));
}

#[tokio::test]
async fn an_order_that_the_bus_swallowed_is_not_carried_out_twice() {
    let (relaunch, calls) =
        break_glass_reply(&running('b'), "", "", Some("71a24a211927409982373fd25097f134")).await;
    assert_eq!(relaunch.result.unwrap().short(), "bbbbbbbb");
    assert_eq!(calls, Vec::<String>::new());
}

#[tokio::test]
async fn failures_of_the_other_way_are_told_apart() {
    let (relaunch, calls) = break_glass_reply(ABSENT, "", "", None).await;
    assert_eq!(relaunch.result, Err(NotStartable::NotFound.into()));
    assert_eq!(calls, Vec::<String>::new());

    let job = "echo 'Job for w.service failed because the control process exited.' >&2; exit 1";
    let (relaunch, _) = break_glass_reply(KILLED, KILLED, job, None).await;
    assert_eq!(relaunch.result, Err(RelaunchError::JobFailed { result: "failed".to_owned() }));

    let refused = "printf 'Failed\\033[31m\\nto restart' >&2; exit 1";
    let (relaunch, _) = break_glass_reply(KILLED, KILLED, refused, None).await;
    assert_eq!(relaunch.result, Err(RelaunchError::Refused("Failed\\x1b[31m; to restart".to_owned())));

    let began = Instant::now();
    let (relaunch, _) = glass_within(Duration::from_secs(2), KILLED, KILLED, "exec sleep 60", None).await;
    assert_eq!(relaunch.result, Err(RelaunchError::Timeout));
    assert!(began.elapsed() < Duration::from_secs(40));
}

#[tokio::test]
async fn a_child_that_says_too_much_is_cut_off() {
    let dir = tempfile::tempdir().unwrap();
    let systemctl = fake(dir.path(), "while :; do echo xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx; done\n");
    let began = Instant::now();
    assert!(show(systemctl, units(&["w.service"]), false).await.is_err());
    assert!(began.elapsed() < SHOW + Duration::from_secs(20));
    let gone = show("/nonexistent/systemctl".into(), Vec::new(), false).await.unwrap_err();
    assert!(gone.starts_with("systemctl cannot be run"), "{gone}");
}
