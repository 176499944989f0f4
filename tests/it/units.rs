//! The shipped units: systemd understands them, the binary understands their command lines, and what facts and incidents
//! taught us to demand of them is there. (What they do on a real node is a lab scenario.)

// clippy.toml lets tests do this, but not their helpers.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use keyholder::vocabulary::{LaneStatus, Mode};

const INSTALLED: &str = "/usr/local/bin/keyholder";
const SUPERVISOR: &str = "/usr/local/libexec/keyholder-supervisor";

fn units() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("units")
}

/// `Section.Key` -> its values in order, an empty assignment included.
type Unit = BTreeMap<String, Vec<String>>;

/// Reads a unit strictly: what is no comment, section or assignment is an error, as is an assignment outside a section.
fn parse(text: &str) -> Result<Unit, String> {
    let mut section = None;
    let mut unit = Unit::new();
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with(['#', ';'])) {
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            section = Some(name.to_owned());
        } else {
            let (key, value) = line.split_once('=').ok_or_else(|| format!("no assignment: {line:?}"))?;
            let section = section.as_ref().ok_or_else(|| format!("outside a section: {line:?}"))?;
            unit.entry(format!("{section}.{}", key.trim())).or_default().push(value.trim().to_owned());
        }
    }
    Ok(unit)
}

fn read(name: &str) -> Unit {
    parse(&fs::read_to_string(units().join(name)).unwrap()).unwrap_or_else(|why| panic!("{name}: {why}"))
}

fn shipped() -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(units())
        .unwrap()
        .map(|entry| entry.unwrap())
        .filter(|entry| entry.file_type().unwrap().is_file())
        .map(|entry| entry.file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// All that a unit runs, without systemd's prefixes.
fn commands(unit: &Unit) -> impl Iterator<Item = &str> {
    unit.iter()
        .filter(|(key, _)| key.starts_with("Service.Exec"))
        .flat_map(|(_, lines)| lines)
        .map(|line| line.trim_start_matches(['-', '@', ':', '+', '!']))
}

fn demands(name: &str, wanted: &[(&str, &str)]) {
    let unit = read(name);
    let missing: Vec<_> = wanted
        .iter()
        .filter(|(key, value)| !unit.get(*key).is_some_and(|values| values.iter().any(|v| v == value)))
        .collect();
    assert!(missing.is_empty(), "{name} lacks {missing:?}");
}

#[test]
fn every_unit_is_read_strictly() {
    let names = shipped();
    assert!(names.iter().any(|name| name == "keyholder.service"), "{names:?}");
    for name in names {
        assert!(!read(&name).is_empty(), "{name}");
    }
    for broken in ["[Unit]\nDescription", "Description=x"] {
        assert!(parse(broken).is_err(), "{broken:?}");
    }
}

/// The same parser as PID 1's, where it is installed: unknown keys, bad values and missing files are all complaints.
#[test]
fn systemd_itself_has_no_complaint() {
    let dir = tempfile::tempdir().unwrap();
    let stand_in = dir.path().join("keyholder");
    fs::copy("/bin/true", &stand_in).unwrap();
    let mut paths = Vec::new();
    for name in shipped() {
        // The binary is not installed where the tests run, and man pages are generated at installation.
        let text: String = fs::read_to_string(units().join(&name))
            .unwrap()
            .lines()
            .filter(|line| !line.starts_with("Documentation=man:"))
            .map(|line| {
                line.replace(SUPERVISOR, INSTALLED).replace(INSTALLED, stand_in.to_str().unwrap()) + "\n"
            })
            .collect();
        paths.push(dir.path().join(&name));
        fs::write(paths.last().unwrap(), text).unwrap();
    }
    let Ok(verdict) = Command::new("systemd-analyze")
        .arg("verify")
        .args(["--man=no", "--recursive-errors=no"])
        .args(&paths)
        .output()
    else {
        return; // not a systemd host; the strict reader above has looked at them
    };
    let complaints = String::from_utf8_lossy(&verdict.stderr);
    let ours: Vec<_> = complaints.lines().filter(|line| line.contains("keyholder")).collect();
    assert!(ours.is_empty() && verdict.status.success(), "{complaints}");
}

#[test]
fn the_binary_accepts_every_command_line() {
    // Unknown flags are refused, or accepting the known ones would mean nothing.
    assert!(!accepts(env!("CARGO_BIN_EXE_keyholder"), "lane --no-such-flag"));
    assert!(!accepts(env!("CARGO_BIN_EXE_keyholder-supervisor"), "--no-such-flag"));
    let mut seen = 0;
    for name in shipped() {
        for command in commands(&read(&name)) {
            if let Some(args) = command.strip_prefix(SUPERVISOR) {
                assert!(accepts(env!("CARGO_BIN_EXE_keyholder-supervisor"), args), "{name}: {command}");
                seen += 1;
            } else if let Some(args) = command.strip_prefix(INSTALLED) {
                assert!(accepts(env!("CARGO_BIN_EXE_keyholder"), args), "{name}: {command}");
                seen += 1;
            } else {
                let program = command.split(' ').next().unwrap();
                assert!(program.starts_with("/bin/"), "{name}: {command}: not a program that every host has");
            }
        }
    }
    assert!(seen >= 3, "only {seen} command lines of keyholder in units/");
}

/// Whether the command line is understood: `--help` behind it ends the parsing before anything is done, but not before
/// an unknown word is refused.
fn accepts(binary: &str, args: &str) -> bool {
    // An instance of a template is whatever it is for; here a number.
    let args = args.replace("%i", "1");
    Command::new(binary).args(args.split_whitespace()).arg("--help").output().unwrap().status.success()
}

#[test]
fn the_supervisor_comes_back_whatever_happens() {
    demands(
        "keyholder.service",
        &[
            ("Unit.StartLimitIntervalSec", "0"), // no start limit
            ("Service.Type", "notify"),
            ("Service.Restart", "always"),
            ("Service.Sockets", "keyholder.socket"),
            ("Service.ExecStart", SUPERVISOR),
            ("Service.ExecStartPre", "/usr/local/bin/keyholder check -q --no-catalogs"),
            ("Service.ExecReload", "/usr/local/bin/keyholder check -q --no-catalogs"),
            ("Service.TimeoutAbortSec", "3"), // a frozen one would hang for 90 s
            ("Service.OOMPolicy", "continue"),
            ("Service.OOMScoreAdjust", "-900"),
            ("Service.LogRateLimitIntervalSec", "0"), // journald drops silently
        ],
    );
    demands(
        "keyholder.socket",
        &[
            ("Socket.ListenStream", "/run/keyholder/keyholder.sock"),
            ("Socket.SocketMode", "0660"),
            ("Socket.SocketGroup", "keyholder"),
            ("Socket.FreeBind", "yes"),
            ("Socket.TriggerLimitIntervalSec", "0"), // the default leaves the door dead
        ],
    );
}

/// Nobody's stop, restart or failure may take the supervisor along, and its own may take nobody else.
#[test]
fn the_supervisor_is_bound_to_no_other_unit() {
    for name in shipped() {
        for (key, values) in read(&name) {
            let bond =
                ["Requires", "Requisite", "BindsTo", "PartOf", "Upholds", "Conflicts", "PropagatesStopTo"];
            let key = key.strip_prefix("Unit.").unwrap_or_default();
            assert!(!bond.contains(&key), "{name}: {key}={values:?}");
        }
    }
}

/// At most 2.0 on systemd's own scale of exposure, 10 being none at all. Half of what is left is that it is root and uses
/// the network.
#[test]
fn the_supervisor_is_not_exposed() {
    let Ok(verdict) = Command::new("systemd-analyze")
        .args(["security", "--no-pager", "--offline=yes", "--threshold=20"])
        .arg(units().join("keyholder.service"))
        .output()
    else {
        return; // not a systemd host
    };
    assert!(verdict.status.success(), "{}", String::from_utf8_lossy(&verdict.stdout));
}

/// Without these, uid 0 would be more than PID 1's obedience.
#[test]
fn the_supervisor_has_no_capabilities_and_a_full_sandbox() {
    demands(
        "keyholder.service",
        &[
            ("Service.CapabilityBoundingSet", ""),
            ("Service.AmbientCapabilities", ""),
            ("Service.NoNewPrivileges", "yes"),
            ("Service.ProtectSystem", "strict"),
            ("Service.ProtectHome", "yes"),
            ("Service.ProtectProc", "invisible"),
            ("Service.MemoryDenyWriteExecute", "yes"),
            ("Service.RestrictNamespaces", "yes"),
            ("Service.RestrictAddressFamilies", "AF_UNIX AF_INET AF_INET6"),
            ("Service.SystemCallFilter", "@system-service"),
            ("Service.SystemCallErrorNumber", "EPERM"),
            ("Service.StateDirectoryMode", "0700"),
            ("Service.UMask", "0077"),
        ],
    );
    let unit = read("keyholder.service");
    assert!(!unit.contains_key("Service.ProcSubset"), "the store reads the boot id from /proc/sys");
}

/// What both lanes need to be found again by systemd, and not to be started again in vain.
#[test]
fn the_lanes_come_back_and_finish_what_runs() {
    for mode in [Mode::Write, Mode::Read] {
        let (runtime, user) = (format!("keyholder-lane-{mode}"), format!("keyholder-{mode}"));
        assert!(LaneStatus::path(mode).starts_with(format!("/run/{runtime}")));
        demands(
            &format!("keyholder-lane-{mode}.service"),
            &[
                ("Service.RuntimeDirectory", &runtime), // where the supervisor looks for the lane's word
                ("Service.RuntimeDirectoryMode", "0755"), // and it has no right to what is not for it
                ("Service.Type", "notify"),
                ("Service.User", &user),
                ("Service.Restart", "always"),
                ("Service.RestartSec", "0"),
                ("Unit.StartLimitBurst", "10"), // then the supervisor's turn
                ("Service.RestartPreventExitStatus", "5"),
                ("Service.KillMode", "mixed"), // a stop must not reach the running task
                ("Service.TimeoutStartSec", "infinity"), // READY waits for Redis
                ("Service.LogRateLimitIntervalSec", "0"),
                ("Service.StateDirectoryMode", "0700"),
            ],
        );
    }
}

/// The split that the articles are about: who writes can gain rights, who only reads cannot.
#[test]
fn only_the_write_lane_can_gain_rights() {
    demands(
        "keyholder-lane-read.service",
        &[
            ("Service.NoNewPrivileges", "yes"),
            ("Service.CapabilityBoundingSet", ""),
            ("Service.ProtectSystem", "strict"),
            ("Service.SystemCallFilter", "@system-service"),
        ],
    );
    demands("keyholder-lane-write.service", &[("Service.NoNewPrivileges", "no")]);
    // On systemd 252 each of these takes sudo away from a unit that is not root's, and does not show it.
    let implied = [
        "LockPersonality",
        "MemoryDenyWriteExecute",
        "PrivateDevices",
        "ProtectClock",
        "ProtectHostname",
        "ProtectKernelLogs",
        "ProtectKernelModules",
        "ProtectKernelTunables",
        "RestrictAddressFamilies",
        "RestrictNamespaces",
        "RestrictRealtime",
        "RestrictSUIDSGID",
        "SystemCallFilter",
        "SystemCallArchitectures",
        "SystemCallLog",
        "DynamicUser",
    ];
    let unit = read("keyholder-lane-write.service");
    for key in implied {
        assert!(!unit.contains_key(&format!("Service.{key}")), "{key}");
    }
}

/// At most 2.0 and 6.5 on systemd's own scale.
#[test]
fn the_lanes_are_no_more_exposed_than_they_must_be() {
    for (mode, most) in [("read", "20"), ("write", "65")] {
        let Ok(verdict) = Command::new("systemd-analyze")
            .args(["security", "--no-pager", "--offline=yes", &format!("--threshold={most}")])
            .arg(units().join(format!("keyholder-lane-{mode}.service")))
            .output()
        else {
            return; // not a systemd host
        };
        assert!(verdict.status.success(), "{mode}: {}", String::from_utf8_lossy(&verdict.stdout));
    }
}

/// The hook is somebody else's program: it gets the network, and nothing that could be lost.
#[test]
fn the_alert_hook_runs_outside_root_and_not_for_ever() {
    demands(
        "keyholder-alert@.service",
        &[
            ("Unit.ConditionPathExists", "/etc/keyholder/alert"),
            ("Unit.CollectMode", "inactive-or-failed"), // what failed must not gather
            ("Service.ExecStart", "/usr/local/bin/keyholder alert %i"),
            ("Service.DynamicUser", "yes"),
            ("Service.SupplementaryGroups", "keyholder"),
            ("Service.RuntimeMaxSec", "30"),
            ("Service.CapabilityBoundingSet", ""),
            ("Service.NoNewPrivileges", "yes"),
            ("Service.ProtectSystem", "strict"),
            ("Service.SystemCallFilter", "@system-service"),
        ],
    );
    let unit = read("keyholder-alert@.service");
    assert!(!unit.contains_key("Service.User"), "a dynamic user owns nothing");
    assert!(!unit.keys().any(|key| key.starts_with("Install.")), "only the supervisor starts it");
    let Ok(verdict) = Command::new("systemd-analyze")
        .args(["security", "--no-pager", "--offline=yes", "--threshold=20"])
        .arg(units().join("keyholder-alert@.service"))
        .output()
    else {
        return; // not a systemd host
    };
    assert!(verdict.status.success(), "{}", String::from_utf8_lossy(&verdict.stdout));
}

/// A rehearsal breaks something on purpose: it is asked for each night, never of a critical worker, and what was refused is
/// no failure. The one who asks needs nothing but the supervisor's socket.
#[test]
fn the_nightly_rehearsal_is_spread_and_asks_the_supervisor_only() {
    demands(
        "keyholder-drill.timer",
        &[
            ("Timer.RandomizedDelaySec", "3h"),
            ("Timer.Persistent", "no"),
            ("Install.WantedBy", "timers.target"),
        ],
    );
    demands(
        "keyholder-drill.service",
        &[
            ("Service.Type", "oneshot"),
            ("Service.SuccessExitStatus", "5"),
            ("Service.CapabilityBoundingSet", ""),
            ("Service.RestrictAddressFamilies", "AF_UNIX"),
            ("Service.SystemCallFilter", "@system-service"),
        ],
    );
    let unit = read("keyholder-drill.service");
    let command = commands(&unit).next().unwrap();
    assert!(command.contains(" drill --stalest") && !command.contains("--yes"), "{command}");
}
