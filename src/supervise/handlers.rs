//! Whether a process can take a signal: one that has no handler for it is ended by it.

use std::fs;
use std::path::Path;

/// SIGCONT: by default a process goes on, and is not ended.
const CONT: i32 = 18;

/// Why a signal must not be sent to this process: it would end it, it would be ignored, or what it would do cannot be seen.
///
/// # Errors
/// The reason, after "was not sent: ".
pub(crate) fn takes(pid: u32, signal: i32, name: &str) -> Result<(), String> {
    takes_in(Path::new("/proc"), pid, signal, name)
}

fn takes_in(proc: &Path, pid: u32, signal: i32, name: &str) -> Result<(), String> {
    if signal == CONT {
        return Ok(());
    }
    if pid == 0 {
        return Err("the unit has no main process".to_owned());
    }
    let dir = proc.join(pid.to_string());
    let read = |path: &Path| {
        fs::read_to_string(path).map_err(|error| {
            format!("whether process {pid} has a handler for it cannot be seen: {}: {error}", path.display())
        })
    };
    let status = read(&dir.join("status"))?;
    let unseen = || {
        format!("whether process {pid} has a handler for it cannot be seen: its status has no signal sets")
    };
    let of = |status: &str, set: &str| has(status, set, signal).ok_or_else(unseen);
    if of(&status, "SigCgt")? {
        return Ok(());
    }
    let program = field(&status, "Name").unwrap_or("?");
    if of(&status, "SigIgn")? {
        return Err(format!(
            "the main process {pid} ({}) ignores {name}",
            crate::vocabulary::printable(program)
        ));
    }
    // One that every thread blocks waits until somebody takes it, as with signalfd(2) or sigwait(3).
    let tasks = fs::read_dir(dir.join("task"))
        .map_err(|error| format!("the threads of process {pid} cannot be seen: {error}"))?;
    for task in tasks {
        let task = task.map_err(|error| format!("the threads of process {pid} cannot be seen: {error}"))?;
        if !of(&read(&task.path().join("status"))?, "SigBlk")? {
            return Err(format!(
                "the main process {pid} ({}) has no handler for {name} and would be ended by it; give it a handler, or take another \
                 nudge",
                crate::vocabulary::printable(program)
            ));
        }
    }
    Ok(())
}

fn field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
}

/// Whether a set of signals, a mask in hex, has this one.
fn has(status: &str, set: &str, signal: i32) -> Option<bool> {
    let mask = u64::from_str_radix(field(status, set)?, 16).ok()?;
    Some(mask >> u32::try_from(signal - 1).ok()? & 1 == 1)
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader};
    use std::process::{Command, Stdio};

    use super::*;

    const USR1: i32 = 10;

    /// What is said of a shell that has done this and is ready.
    fn shell(line: &str) -> Result<(), String> {
        let mut child = Command::new("/bin/sh")
            .args(["-c", &format!("{line}; echo ready; read x")])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut ready = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut ready).unwrap();
        let said = takes(child.id(), USR1, "SIGUSR1");
        child.kill().unwrap();
        child.wait().unwrap();
        said
    }

    #[test]
    fn only_a_process_with_a_handler_gets_the_signal() {
        assert_eq!(shell("trap : USR1"), Ok(()));
        assert!(shell(":").unwrap_err().contains("no handler for SIGUSR1 and would be ended"));
        assert!(shell("trap '' USR1").unwrap_err().contains("ignores SIGUSR1"));
        assert_eq!(takes(1, CONT, "SIGCONT"), Ok(()));
    }

    #[test]
    fn what_cannot_be_seen_is_not_sent() {
        assert!(takes(0, USR1, "SIGUSR1").is_err());
        assert!(takes(u32::MAX, USR1, "SIGUSR1").unwrap_err().contains("cannot be seen"));
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("7/task/7")).unwrap();
        let status = |caught: &str, blocked: &[&str]| {
            let write = |path: &str, blk: &str| {
                fs::create_dir_all(dir.path().join(path)).unwrap();
                let text = format!("Name:\tx\nSigBlk:\t{blk}\nSigIgn:\t0\nSigCgt:\t{caught}\n");
                fs::write(dir.path().join(path).join("status"), text).unwrap();
            };
            write("7", blocked[0]);
            for (n, blk) in blocked.iter().enumerate() {
                write(&format!("7/task/{}", 7 + n), blk);
            }
            takes_in(dir.path(), 7, USR1, "SIGUSR1")
        };
        assert_eq!(status("200", &["0"]), Ok(()));
        assert!(status("0", &["0"]).is_err());
        assert_eq!(status("0", &["200", "200"]), Ok(()), "it waits for it by signalfd");
        assert!(status("0", &["200", "0"]).is_err(), "one thread would be hit");
        assert!(status("odd", &["0"]).is_err());
    }
}
