use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt as _;

use super::finding::{exit, report};
use super::rights::{As, in_the_way};
use super::show::parse;
use super::*;
use crate::cli::exit::Exit;
use crate::cli::screen::Paint;
use crate::peer::wire::{Hello, NodeReport, NodeState};
use crate::vocabulary::{BootNonce, FleetHash};

const SOCKET: &str = "LoadState=loaded\nActiveState=active\nSubState=running\nResult=success\n\
    Listen=192.0.2.10:7433 (Stream)\nListen=/run/keyholder/keyholder.sock (Stream)\n";
const STATUS: &str = "Name:\tkeyholder\nUid:\t0\t0\t0\t0\nCapInh:\t0000000000000000\nCapPrm:\t0000000000000000\n\
    CapEff:\t0000000000000000\nCapBnd:\t0000000000000000\nCapAmb:\t0000000000000000\nNoNewPrivs:\t1\nSeccomp:\t2\n";
const WORKER: &str = "Type=simple\nRestart=always\nLoadState=loaded\nActiveState=active\nSubState=running\n\
    UnitFileState=enabled\nStartLimitIntervalUSec=10s\nStartLimitBurst=5\nRefuseManualStart=no\nNeedDaemonReload=no\n";

fn one(text: &str) -> show::UnitProperties {
    parse(text).remove(0)
}

fn levels(findings: &[Finding]) -> Vec<Level> {
    findings.iter().map(|finding| finding.level).collect()
}

#[test]
fn units_are_told_apart_and_repeated_properties_kept() {
    let shown = parse(&format!("{SOCKET}\n{WORKER}\n"));
    assert_eq!(shown.len(), 2);
    assert_eq!(shown[0].all("Listen").count(), 2);
    assert_eq!(shown[1].get("Restart"), "always");
    assert_eq!(shown[1].get("NoSuchProperty"), "");
}

#[test]
fn a_missing_alert_hook_is_said_and_one_that_would_not_be_run_is_a_failure() {
    let dir = tempfile::tempdir().unwrap();
    let hook = dir.path().join("alert");
    let alert_hook = |hook: &Path| host::alert_hook(hook, || As::User(BTreeSet::new()));
    let none = alert_hook(&hook);
    assert_eq!(none.level, Level::Ok);
    assert!(none.text.contains("nobody is called"), "{none:?}");
    fs::write(&hook, "#!/bin/sh\n").unwrap();
    let broken = alert_hook(&hook);
    assert_eq!((broken.level, broken.way_out.is_some()), (Level::Fail, true));
}

#[test]
fn a_hook_must_be_one_that_a_user_without_rights_can_execute() {
    let dir = tempfile::tempdir().unwrap();
    let (inner, hook) = (dir.path().join("etc"), dir.path().join("etc/alert"));
    fs::create_dir(&inner).unwrap();
    fs::write(&hook, "#!/bin/sh\n").unwrap();
    let chmod = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    chmod(dir.path(), 0o755);
    let (nobody, own_gid) = (As::User(BTreeSet::new()), nix::unistd::getegid().as_raw());
    let member = As::User([own_gid].into());
    for (mode, by_nobody, by_member) in [
        (0o755, true, true),
        (0o700, false, false),
        (0o711, false, false),
        (0o750, false, true),
        (0o705, true, false),
    ] {
        chmod(&hook, mode);
        assert_eq!(in_the_way(&hook, &nobody).is_none(), by_nobody, "{mode:o}");
        assert_eq!(in_the_way(&hook, &member).is_none(), by_member, "{mode:o}");
        assert_eq!(in_the_way(&hook, &As::Root), None);
    }
    chmod(&hook, 0o755);
    chmod(&inner, 0o700);
    assert_eq!(in_the_way(&hook, &nobody), Some(inner.canonicalize().unwrap()));
    chmod(&inner, 0o755);
    fs::write(&hook, "\x7fELF").unwrap();
    chmod(&hook, 0o711);
    assert_eq!(in_the_way(&hook, &nobody), None, "only a script is read");
}

#[test]
fn the_door_must_be_where_the_fleet_file_says() {
    let address = "192.0.2.10:7433".parse().ok();
    let found = |text: &str, address| levels(&units::sockets(&one(text), address));
    assert_eq!(found(SOCKET, address), [Level::Ok, Level::Ok]);
    assert_eq!(found(SOCKET, "192.0.2.11:7433".parse().ok()), [Level::Ok, Level::Fail]);
    assert_eq!(found(SOCKET, None), [Level::Ok, Level::Warn]);
    let wildcard = SOCKET.replace("192.0.2.10:7433", "[::]:7433");
    assert_eq!(found(&wildcard, "[::]:7433".parse().ok()), [Level::Ok, Level::Warn]);
    let no_door = SOCKET.replace("Listen=192.0.2.10:7433 (Stream)\n", "");
    assert_eq!(found(&no_door, address), [Level::Ok, Level::Fail]);
    let dead = SOCKET.replace("ActiveState=active", "ActiveState=failed");
    assert_eq!(found(&dead, address), [Level::Fail, Level::Ok]);
    assert_eq!(found("LoadState=not-found\n", address), [Level::Fail]);
}

#[test]
fn the_sandbox_is_believed_from_the_kernel_only() {
    assert_eq!(units::sandbox(STATUS).level, Level::Ok);
    for (is, instead) in [
        ("NoNewPrivs:\t1", "NoNewPrivs:\t0"),
        ("CapEff:\t0000000000000000", "CapEff:\t000001ffffffffff"),
        ("CapBnd:\t0000000000000000", "CapBnd:\t0000000000000001"),
        ("Seccomp:\t2", "Seccomp:\t0"),
        ("CapAmb:\t0000000000000000\n", ""),
    ] {
        assert_eq!(units::sandbox(&STATUS.replace(is, instead)).level, Level::Fail, "{instead}");
    }
    assert_eq!(units::sandbox("").level, Level::Fail);
}

#[test]
fn the_supervisors_unit_gives_its_pid_if_it_runs() {
    let (finding, pid) =
        units::service(&one("LoadState=loaded\nActiveState=active\nSubState=running\nMainPID=42\n"));
    assert_eq!((finding.level, pid), (Level::Ok, Some(42)));
    let (finding, pid) =
        units::service(&one("LoadState=loaded\nActiveState=failed\nSubState=failed\nMainPID=0\n"));
    assert_eq!((finding.level, pid), (Level::Fail, None));
}

#[test]
fn a_workers_unit_must_be_one_that_can_be_started() {
    let found = |text: &str| units::worker("mars/agent", "ai-agent.service", &one(text));
    assert_eq!(levels(&found(WORKER)), [Level::Ok]);
    for (is, instead, level) in [
        ("LoadState=loaded", "LoadState=masked", Level::Fail),
        ("LoadState=loaded", "LoadState=not-found", Level::Fail),
        ("LoadState=loaded", "LoadState=bad-setting", Level::Fail),
        ("RefuseManualStart=no", "RefuseManualStart=yes", Level::Fail),
        ("UnitFileState=enabled", "UnitFileState=disabled", Level::Warn),
        ("NeedDaemonReload=no", "NeedDaemonReload=yes", Level::Warn),
        ("StartLimitBurst=5", "StartLimitBurst=0", Level::Warn),
    ] {
        let findings = found(&WORKER.replace(is, instead));
        assert_eq!(levels(&findings), [level], "{instead}");
        assert!(findings[0].way_out.is_some(), "{instead}");
    }
    let advice = found(&WORKER.replace("Restart=always", "Restart=no"));
    assert_eq!(advice[0].level, Level::Ok);
    assert!(advice[0].text.contains("with Restart=always"), "{}", advice[0].text);
}

#[test]
fn the_supervisors_own_word_is_compared_with_the_file_and_with_ours() {
    let hash = FleetHash::of(b"fleet");
    let server = Hello {
        node: "mars".parse().unwrap(),
        version: "0.1.0".to_owned(),
        boot_nonce: BootNonce::from_bytes([1; 16]),
        fleet_hash: hash,
    };
    assert_eq!(supervisor::hello(&server, "0.1.0", Some(hash)).level, Level::Ok);
    assert_eq!(supervisor::hello(&server, "0.1.0", None).level, Level::Ok);
    assert_eq!(supervisor::hello(&server, "0.1.1", Some(hash)).level, Level::Warn);
    assert_eq!(supervisor::hello(&server, "0.1.0", Some(FleetHash::of(b"x"))).level, Level::Warn);

    let node = |name: &str, state| NodeReport {
        node: name.parse().unwrap(),
        state,
        why: "no answer".to_owned(),
        version: Some("0.1.0".to_owned()),
        fleet_hash: Some(hash),
        degraded: Vec::new(),
        sees: Vec::new(),
        rehearsed: Vec::new(),
        workers: Vec::new(),
    };
    let mut reports =
        [node("mars", NodeState::Up), node("ai-core", NodeState::Up), node("venus", NodeState::Unreachable)];
    assert_eq!(levels(&supervisor::judge(&reports, &server)), [Level::Fail]);
    reports[0].degraded.push("the bus is gone".to_owned());
    reports[1].fleet_hash = Some(FleetHash::of(b"x"));
    assert_eq!(levels(&supervisor::judge(&reports, &server)), [Level::Warn, Level::Fail, Level::Fail]);
}

#[test]
fn a_key_that_others_can_read_is_found() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(host::key_file(dir.path()).level, Level::Fail);
    let file = dir.path().join("key.pem");
    fs::write(&file, "").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
    assert_eq!(host::key_file(dir.path()).level, Level::Fail);
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    if nix::unistd::geteuid().is_root() {
        assert_eq!(host::key_file(dir.path()).level, Level::Ok);
    }
    fs::write(dir.path().join("key.next.pem"), "").unwrap();
    fs::write(dir.path().join("fleet.yaml.new"), "").unwrap();
    assert_eq!(levels(&host::leftovers(&[dir.path()])), [Level::Warn, Level::Warn]);
    assert_eq!(host::journal(dir.path()).level, Level::Ok);
    assert_eq!(host::journal(&dir.path().join("none")).level, Level::Warn);
}

#[test]
fn the_report_counts_and_is_printable() {
    let findings = [
        Finding::ok("fleet", "valid"),
        Finding::warn("journal", "volatile").way_out("mkdir -p /var/log/journal"),
        Finding::fail("supervisor", "\x1b[2Jdead").way_out("start \x1b it"),
    ];
    insta::assert_snapshot!(report(&findings, None, Paint(false)));
    insta::assert_snapshot!("the_report_at_40_columns", report(&findings, Some(40), Paint(false)));
    assert_eq!(exit(&findings), Exit::NotHealthy);
    assert_eq!(exit(&findings[..2]), Exit::Ok);
    insta::assert_snapshot!("doctor_json", screen::json(&findings).unwrap());
}
