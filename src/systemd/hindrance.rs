//! What keeps systemd from getting on with a unit: the job that is waited for, or the command that does not end.
//! Asked of `systemctl`, rarely and beside the loop.

use std::path::Path;
use std::time::Duration;

use super::systemctl::{self, one_line};
use crate::vocabulary::UnitName;

/// How long each of the two questions may take.
const ASK: Duration = Duration::from_secs(3);
/// How many bytes of an answer are read: a host that boots has some hundred jobs.
const BYTES: u64 = 128 << 10;
/// How many characters of a command or of what a service says are told.
const SHOWN: usize = 120;

const PROPERTIES: &str = "--property=ActiveState,SubState,Job,ControlPID,MainPID,StatusText,ExecCondition,ExecStartPre,\
    ExecStart,ExecStartPost,ExecStop,ExecStopPost";

/// Names the job, process or command that systemd waits for, in words.
pub(super) async fn of(systemctl: &Path, unit: &UnitName) -> String {
    let shown = match ask(systemctl, &["show", PROPERTIES, "--", unit.as_str()]).await {
        Ok(shown) => shown,
        Err(why) => return format!("what it waits for could not be read: {why}"),
    };
    let mut facts = Vec::new();
    if let Some(id) = property(&shown, "Job").filter(|id| !id.is_empty()) {
        let jobs =
            ask(systemctl, &["list-jobs", "--before", "--no-legend", "--no-pager", "--plain", "--full"])
                .await;
        facts.push(match jobs {
            Ok(jobs) => job(&jobs, id),
            Err(why) => format!("job {id}, of which nothing could be read: {why}"),
        });
    }
    facts.extend(process(&shown));
    if let Some(says) = property(&shown, "StatusText").filter(|says| !says.is_empty()) {
        facts.push(format!("it says: {}", clip(says)));
    }
    if facts.is_empty() {
        let state = property(&shown, "SubState").unwrap_or("unknown");
        facts.push(format!("systemd names neither job nor process (state {})", one_line(state)));
    }
    facts.join("; ")
}

async fn ask(systemctl: &Path, arguments: &[&str]) -> Result<String, String> {
    let output = systemctl::run(systemctl, arguments, BYTES, ASK).await?;
    if output.status.success() { Ok(output.text) } else { Err(output.error) }
}

fn property<'a>(shown: &'a str, name: &str) -> Option<&'a str> {
    shown
        .lines()
        .filter_map(|line| line.split_once('='))
        .find(|(key, _)| *key == name)
        .map(|(_, value)| value)
}

/// The job with this id in the list, and what it waits for. The lines that follow a job's own name the jobs in its way.
fn job(jobs: &str, id: &str) -> String {
    let mut lines = jobs.lines().skip_while(|line| line.split_ascii_whitespace().next() != Some(id));
    let Some(own) = lines.next() else { return format!("job {id} has just ended") };
    let mut words = own.split_ascii_whitespace().skip(2);
    let (kind, state) = (words.next().unwrap_or("?"), words.next().unwrap_or("?"));
    let waits: Vec<String> = lines
        .map_while(|line| line.split_once("waiting for "))
        .filter_map(|(_, other)| other.split_once(')'))
        .map(|(other, _)| one_line(&format!("{other})")))
        .take(3)
        .collect();
    let mut text = format!("job {id} ({}, {})", one_line(kind), one_line(state));
    if !waits.is_empty() {
        text.push_str(&format!(" waits for {}", waits.join(" and ")));
    }
    text
}

/// The command under way, or else the main process.
fn process(shown: &str) -> Option<String> {
    let pid = |name| property(shown, name).filter(|pid| *pid != "0");
    let (pid, whose) = match (pid("ControlPID"), pid("MainPID")) {
        (Some(pid), _) => (pid, "process"),
        (None, Some(pid)) => (pid, "main process"),
        (None, None) => return None,
    };
    let mark = format!("; pid={pid} ;");
    let command = shown.lines().find(|line| line.starts_with("Exec") && line.contains(&mark));
    let named = command.and_then(|line| {
        let (setting, rest) = line.split_once('=')?;
        let (_, argv) = rest.split_once("argv[]=")?;
        let (argv, _) = argv.rsplit_once(" ; ignore_errors=")?;
        Some(format!("{setting}= ({})", clip(argv)))
    });
    let what = match property(shown, "ActiveState") {
        Some("deactivating") => "has not ended",
        Some(_) | None if whose == "process" => "has not ended",
        Some(_) | None => "is not ready",
    };
    Some(match named {
        Some(named) => format!("{whose} {} of {named} {what}", one_line(pid)),
        None => format!("{whose} {} {what}", one_line(pid)),
    })
}

fn clip(text: &str) -> String {
    let text = one_line(text);
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As systemd 252 printed it.
    const JOBS: &str = "170 pre.service                                 start running\n\
        72  blocker.service                             start running\n\
        121 waits.service                               start waiting\n\
        └─  \twaiting for job 72 (blocker.service/start) -     -\n\
        219 never.service                               start running\n";
    const PRE: &str = "MainPID=0\nControlPID=60\nStatusText=\n\
        ExecStartPre={ path=/bin/true ; argv[]=/bin/true ; ignore_errors=no ; start_time=[x] ; stop_time=[x] ; pid=58 ; code=exited ; status=0 }\n\
        ExecStartPre={ path=/bin/sleep ; argv[]=/bin/sleep 299 ; ignore_errors=no ; start_time=[x] ; stop_time=[n/a] ; pid=60 ; code=(null) ; status=0/0 }\n\
        ActiveState=activating\nSubState=start-pre\nJob=170\n";

    #[test]
    fn the_job_in_the_way_and_the_command_that_does_not_end_are_named() {
        assert_eq!(job(JOBS, "121"), "job 121 (start, waiting) waits for job 72 (blocker.service/start)");
        assert_eq!(job(JOBS, "219"), "job 219 (start, running)");
        assert_eq!(job(JOBS, "12"), "job 12 has just ended");
        assert_eq!(process(PRE).unwrap(), "process 60 of ExecStartPre= (/bin/sleep 299) has not ended");
        let never = "MainPID=59\nControlPID=0\nActiveState=activating\nExecStart={ path=/bin/sh ; argv[]=/bin/sh -c a; b ; ignore_errors=no ; start_time=[x] ; stop_time=[n/a] ; pid=59 ; code=(null) ; status=0/0 }\n";
        assert_eq!(process(never).unwrap(), "main process 59 of ExecStart= (/bin/sh -c a; b) is not ready");
        assert_eq!(
            process(&never.replace("activating", "deactivating")).unwrap(),
            "main process 59 of ExecStart= (/bin/sh -c a; b) has not ended"
        );
        assert_eq!(process("MainPID=0\nControlPID=0\n"), None);
    }
}
