//! What lies on this host: the key, the journal, the bus, and what earlier work has left behind.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nix::unistd::Uid;

use super::child;
use super::finding::Finding;
use super::rights::{self, As};
use super::show::DEADLINE;
use crate::config::trust;

/// The key file: there, root's, and nobody else's to read.
pub(super) fn key_file(dir: &Path) -> Finding {
    let file = dir.join("key.pem");
    let shown = file.display();
    match fs::symlink_metadata(&file) {
        Ok(meta) if !meta.is_file() => Finding::fail("key", format!("{shown} is no regular file")),
        Ok(meta) if meta.uid() != 0 => Finding::fail("key", format!("{shown} belongs to uid {}", meta.uid()))
            .way_out(format!("chown root: {shown}")),
        Ok(meta) if meta.mode() & 0o077 != 0 => {
            Finding::fail("key", format!("{shown} has mode {:04o}: others may read it", meta.mode() & 0o7777))
                .way_out(format!("chmod 0600 {shown}; if others are on this host, replace the key"))
        }
        Ok(meta) => Finding::ok("key", format!("{shown} is there, mode {:04o}", meta.mode() & 0o7777)),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            Finding::fail("key", format!("{shown} does not exist: no peer can know this node"))
                .way_out("keyholder key generate")
        }
        Err(error) => Finding::fail("key", format!("{shown}: {error}")),
    }
}

/// A journal that survives a reboot; evidence that does not is lost with the crash that it is about.
pub(super) fn journal(dir: &Path) -> Finding {
    if dir.is_dir() {
        Finding::ok("journal", format!("{} is there, so it survives a reboot", dir.display()))
    } else {
        Finding::warn("journal", format!("there is no {}: the journal is lost at each reboot", dir.display()))
            .way_out(format!("mkdir -p {} && systemctl restart systemd-journald", dir.display()))
    }
}

/// Whether anybody is told of alerts. That nobody is, is no fault: it may be that the journal is watched.
/// `user` tells as whom it is run.
pub(super) fn alert_hook(hook: &Path, user: impl FnOnce() -> As) -> Finding {
    let shown = hook.display();
    if fs::symlink_metadata(hook).is_err_and(|error| error.kind() == ErrorKind::NotFound) {
        let text = format!(
            "there is no hook {shown}: alerts are in the audit and the journal, and nobody is called"
        );
        return Finding::ok("alert", text);
    }
    match trust::program(hook, Uid::from_raw(0)) {
        Ok(()) => rights::hook(hook, &user()),
        Err(why) => Finding::fail("alert", format!("{shown} is not run: {}", why.message)).way_out(why.help),
    }
}

/// Whether PID 1 answers on the system bus.
pub(super) fn bus() -> Finding {
    let ping = [
        "--system",
        "--timeout=3",
        "call",
        "org.freedesktop.systemd1",
        "/org/freedesktop/systemd1",
        "org.freedesktop.DBus.Peer",
        "Ping",
    ];
    match child::output("/usr/bin/busctl", &ping, DEADLINE) {
        Ok(_) => Finding::ok("bus", "PID 1 answers on the system bus"),
        Err(error) => Finding::fail(
            "bus",
            format!("PID 1 does not answer on the system bus: {error}; relaunches fall back to systemctl"),
        )
        .way_out("systemctl status dbus.service dbus.socket"),
    }
}

/// What an interrupted installation or a key change that was not finished has left.
pub(super) fn leftovers(dirs: &[&Path]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let entries = dirs.iter().filter_map(|dir| fs::read_dir(dir).ok()).flatten().filter_map(Result::ok);
    for path in entries.map(|entry| entry.path()) {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let shown = path.display();
        if name == "key.next.pem" {
            findings.push(
                Finding::warn("leftover", format!("{shown}: a new key waits to be switched to"))
                    .way_out("keyholder key switch, once every peer accepts it"),
            );
        } else if name == "key.old.pem" {
            findings.push(
                Finding::warn("leftover", format!("{shown}: the key before the last switch is still here"))
                    .way_out(format!("take its pin out of the fleet file everywhere, then rm {shown}")),
            );
        } else if [".new", ".tmp", ".dpkg-new", ".dpkg-dist", ".rpmnew"].iter().any(|end| name.ends_with(end))
        {
            findings.push(
                Finding::warn(
                    "leftover",
                    format!("{shown}: something was interrupted, or waits to be merged"),
                )
                .way_out(format!("look at it, then rm {shown}")),
            );
        }
    }
    findings.sort_by(|a, b| a.text.cmp(&b.text));
    findings
}
