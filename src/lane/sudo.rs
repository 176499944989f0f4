//! Whether `sudo` lets this lane's user run anything without a password, and sudo's own words if it does not.

use std::io;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tokio::io::AsyncReadExt as _;
use tokio::process::Command;
use tokio::time::timeout;

use super::guard_error::GuardError;
use crate::vocabulary::{clipped, printable};

const SUDO: &str = "/usr/bin/sudo";
/// How long `sudo` may think: with a name service that hangs it takes long.
const DEADLINE: Duration = Duration::from_secs(10);
/// All that sudo gets. An empty environment would kill sudo 1.9.16 (SIGSEGV); the locale keeps its words in English.
const ENVIRONMENT: [(&str, &str); 2] =
    [("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"), ("LANG", "C")];
/// How much of sudo's words is read, in bytes.
const MAX_READ: u64 = 4096;
/// How much of sudo's words is shown, in characters.
const MAX_SHOWN: usize = 300;
/// What sudo says of a user for whom sudoers has no line without a password.
const NO_LINES: [&str; 3] = ["a password is required", "may not run sudo", "is not allowed to run sudo"];

/// Asks `sudo -n -l`.
pub(super) async fn allowed() -> Result<(), GuardError> {
    match timeout(DEADLINE, ask(SUDO)).await {
        Ok(Ok((status, said))) => verdict(status, &said),
        Ok(Err(error)) => Err(GuardError::Sudo(format!("{SUDO} cannot be run: {error}"))),
        Err(_) => Err(GuardError::Sudo(format!("no answer within {DEADLINE:?}"))),
    }
}

async fn ask(sudo: &str) -> io::Result<(ExitStatus, Vec<u8>)> {
    let mut child = Command::new(sudo)
        .args(["-n", "-l"])
        .env_clear()
        .envs(ENVIRONMENT)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let mut said = Vec::new();
    if let Some(stderr) = child.stderr.take() {
        stderr.take(MAX_READ).read_to_end(&mut said).await?;
    }
    Ok((child.wait().await?, said))
}

fn verdict(status: ExitStatus, said: &[u8]) -> Result<(), GuardError> {
    if status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(said);
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let words = match lines.as_slice() {
        [] => status.to_string(),
        lines => format!("{status}: {}", clipped(&printable(&lines.join("; ")), MAX_SHOWN)),
    };
    let no_lines = NO_LINES.iter().any(|phrase| text.contains(phrase));
    Err(if no_lines { GuardError::NoSudoLines(words) } else { GuardError::Sudo(words) })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;
    use std::os::unix::process::ExitStatusExt as _;

    use super::*;

    fn refused(raw: i32, said: &str) -> String {
        verdict(ExitStatus::from_raw(raw), said.as_bytes()).unwrap_err().to_string()
    }

    #[test]
    fn only_missing_lines_get_the_advice_to_install_lines() {
        assert!(verdict(ExitStatus::from_raw(0), b"sudo: unable to resolve host mars\n").is_ok());
        let advice = "install the lines of `keyholder catalog sudoers`";
        let none = refused(256, "sudo: unable to resolve host mars\nsudo: a password is required\n");
        assert!(none.contains(advice) && none.contains("mars; sudo: a password is required"), "{none}");
        for said in [
            "sudo: sorry, you must have a tty to run sudo",
            "sudo: Account expired or PAM config lacks an \"account\" section for sudo, contact your system administrator",
            "sudo: /etc/sudoers.d/local:3:7: syntax error",
            "sudo: unable to initialize policy plugin",
        ] {
            let other = refused(256, said);
            assert!(other.contains(said) && !other.contains(advice), "{other}");
            assert!(other.contains("runuser -u keyholder-write -- sudo -n -l"), "{other}");
        }
        let killed = refused(11, "");
        assert!(killed.contains("SIGSEGV") && !killed.contains(advice), "{killed}");
    }

    #[test]
    fn sudos_words_are_printable_and_short() {
        let long = refused(256, &format!("\x1b[2Jsudo: {}\n", "x".repeat(4000)));
        assert!(!long.contains('\x1b') && long.contains("\\x1b[2Jsudo: xxx") && long.len() < 600, "{long}");
    }

    #[tokio::test]
    async fn sudo_gets_a_small_fixed_environment_and_is_read_to_a_limit() {
        let dir = tempfile::tempdir().unwrap();
        let script = dir.path().join("sudo");
        std::fs::write(&script, "#!/bin/sh\nenv >&2\nhead -c 100000 /dev/zero >&2\nexit 7\n").unwrap();
        std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
        let asked = timeout(DEADLINE, async {
            loop {
                match ask(script.to_str().unwrap()).await {
                    // A child that another test starts just now may still hold the script open for writing.
                    Err(error) if error.kind() == io::ErrorKind::ExecutableFileBusy => {
                        tokio::task::yield_now().await
                    }
                    asked => break asked,
                }
            }
        });
        let (status, said) = asked.await.unwrap().unwrap();
        assert!(!status.success());
        let text = String::from_utf8_lossy(&said);
        assert!(text.contains("PATH=/usr/local/sbin:") && text.contains("LANG=C\n"), "{text}");
        assert_eq!(said.len() as u64, MAX_READ);
    }
}
