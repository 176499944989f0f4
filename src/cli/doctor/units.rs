//! Our own units and those of the workers, as PID 1 has them. The judging is pure: what `systemctl show` and `/proc`
//! said goes in, findings come out.

use std::net::SocketAddr;

use super::finding::Finding;
use super::show::UnitProperties;
use crate::supervise::OPEN_THE_DOOR;

/// What is asked of `keyholder.socket`.
pub(super) const SOCKET_PROPERTIES: &str = "LoadState,ActiveState,SubState,Result,Listen";
/// What is asked of `keyholder.service`.
pub(super) const SERVICE_PROPERTIES: &str = "LoadState,ActiveState,SubState,MainPID,NeedDaemonReload";
/// What is asked of a worker's unit.
pub(super) const WORKER_PROPERTIES: &str = "LoadState,ActiveState,SubState,UnitFileState,Restart,Type,\
    StartLimitBurst,StartLimitIntervalUSec,RefuseManualStart,NeedDaemonReload";

/// The sockets that PID 1 holds for us. `address` is this node's own, if the fleet file could tell.
pub(super) fn sockets(shown: &UnitProperties, address: Option<SocketAddr>) -> Vec<Finding> {
    let mut findings = Vec::new();
    let (load, active, sub) = (shown.get("LoadState"), shown.get("ActiveState"), shown.get("SubState"));
    if load != "loaded" {
        return vec![
            Finding::fail("socket", format!("keyholder.socket is {load}")).way_out("run install.sh"),
        ];
    }
    findings.push(if active == "active" {
        Finding::ok("socket", format!("keyholder.socket is {active} ({sub}): PID 1 holds the door"))
    } else {
        Finding::fail(
            "socket",
            format!(
                "keyholder.socket is {active} ({sub}, {}): a dead supervisor stays dead",
                shown.get("Result")
            ),
        )
        .way_out(OPEN_THE_DOOR)
    });
    // `Listen=192.0.2.10:7433 (Stream)`
    let streams: Vec<&str> =
        shown.all("Listen").filter_map(|listen| listen.strip_suffix(" (Stream)")).collect();
    let doors: Vec<SocketAddr> = streams.iter().filter_map(|stream| stream.parse().ok()).collect();
    if !streams.iter().any(|stream| stream.starts_with('/')) {
        findings.push(Finding::fail("socket", "keyholder.socket has no local socket for the command line"));
    }
    let wanted = address.map_or_else(|| "this node's own address".to_owned(), |address| address.to_string());
    let drop_in = format!(
        "ListenStream={wanted} in /etc/systemd/system/keyholder.socket.d/address.conf, then systemctl daemon-reload && \
         systemctl stop keyholder.socket && systemctl restart keyholder.service"
    );
    match (doors.as_slice(), address) {
        ([], _) => findings
            .push(Finding::fail("door", "it listens on no address, so no peer can knock").way_out(drop_in)),
        (doors, Some(address)) if !doors.contains(&address) => findings.push(
            Finding::fail("door", format!("it listens on {}, the fleet file says {address}", list(doors)))
                .way_out(drop_in),
        ),
        (doors, _) if doors.iter().any(|door| door.ip().is_unspecified()) => findings.push(
            Finding::warn("door", format!("it listens on every address ({})", list(doors))).way_out(drop_in),
        ),
        (doors, Some(_)) => findings.push(Finding::ok("door", format!("it listens on {}", list(doors)))),
        (doors, None) => findings.push(Finding::warn(
            "door",
            format!("it listens on {}; the fleet file could not say whether that is right", list(doors)),
        )),
    }
    findings
}

fn list(addresses: &[SocketAddr]) -> String {
    addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// The supervisor's unit. Its pid if it runs.
pub(super) fn service(shown: &UnitProperties) -> (Finding, Option<u32>) {
    let (load, active, sub) = (shown.get("LoadState"), shown.get("ActiveState"), shown.get("SubState"));
    let pid = shown.get("MainPID").parse().ok().filter(|pid| *pid != 0);
    let finding = if load != "loaded" {
        Finding::fail("service", format!("keyholder.service is {load}")).way_out("run install.sh")
    } else if active != "active" {
        Finding::fail("service", format!("keyholder.service is {active} ({sub})"))
            .way_out("journalctl -u keyholder.service -n 20; systemctl start keyholder.service")
    } else if shown.get("NeedDaemonReload") == "yes" {
        Finding::warn("service", "the unit's file has changed since systemd read it")
            .way_out("systemctl daemon-reload && systemctl restart keyholder.service")
    } else {
        Finding::ok("service", format!("keyholder.service is {active} ({sub})"))
    };
    (finding, pid)
}

/// Whether the sandbox is really in effect: what the kernel says of the process, not what the unit asks for.
pub(super) fn sandbox(status: &str) -> Finding {
    let field = |name: &str| {
        status
            .lines()
            .filter_map(|line| line.split_once(':'))
            .find(|(known, _)| *known == name)
            .map(|(_, value)| value.trim())
            .unwrap_or_default()
    };
    let none = |name| !field(name).is_empty() && field(name).bytes().all(|digit| digit == b'0');
    let mut missing = Vec::new();
    if field("NoNewPrivs") != "1" {
        missing.push("NoNewPrivileges".to_owned());
    }
    for set in ["CapEff", "CapPrm", "CapBnd", "CapAmb"] {
        if !none(set) {
            missing.push(format!("empty capabilities ({set} is {})", field(set)));
        }
    }
    if field("Seccomp") != "2" {
        missing.push("the system call filter".to_owned());
    }
    if missing.is_empty() {
        Finding::ok("sandbox", "in effect: no capabilities, no new privileges, system calls filtered")
    } else {
        Finding::fail("sandbox", format!("the running supervisor lacks {}", missing.join(", ")))
            .way_out("compare `systemctl cat keyholder.service` with the unit as shipped, then restart it")
    }
}

/// The unit of a worker, `subject` being `node/worker`.
pub(super) fn worker(subject: &str, unit: &str, shown: &UnitProperties) -> Vec<Finding> {
    let is = |name: &str, value: &str| shown.get(name) == value;
    match shown.get("LoadState") {
        "loaded" => {}
        "masked" => {
            return vec![
                Finding::fail("worker", format!("{subject}: {unit} is masked, so nobody can start it"))
                    .way_out(format!("systemctl unmask {unit}")),
            ];
        }
        "not-found" => {
            return vec![
                Finding::fail("worker", format!("{subject}: there is no {unit} on this host"))
                    .way_out("install the unit, or correct the fleet file"),
            ];
        }
        other => {
            return vec![
                Finding::fail("worker", format!("{subject}: systemd cannot load {unit} ({other})"))
                    .way_out(format!("systemctl status {unit}")),
            ];
        }
    }
    let mut findings = Vec::new();
    if is("RefuseManualStart", "yes") {
        findings.push(
            Finding::fail(
                "worker",
                format!("{subject}: {unit} has RefuseManualStart=yes, so it cannot be relaunched"),
            )
            .way_out("remove that setting"),
        );
    }
    if is("NeedDaemonReload", "yes") {
        findings.push(
            Finding::warn("worker", format!("{subject}: {unit}'s file has changed since systemd read it"))
                .way_out("systemctl daemon-reload"),
        );
    }
    if is("UnitFileState", "disabled") {
        findings.push(
            Finding::warn(
                "worker",
                format!("{subject}: {unit} is not enabled: after a boot it is dead until repaired"),
            )
            .way_out(format!("systemctl enable {unit}")),
        );
    }
    let unlimited = is("StartLimitBurst", "0") || is("StartLimitIntervalUSec", "0");
    if !is("Restart", "no") && unlimited {
        findings.push(
            Finding::warn(
                "worker",
                format!("{subject}: {unit} restarts for ever without a start limit: a crash loop never ends as dead"),
            )
            .way_out("StartLimitIntervalSec=10s and StartLimitBurst=5 in its [Unit]"),
        );
    }
    if findings.is_empty() {
        let advice = match (shown.get("Restart"), shown.get("Type")) {
            ("no", "oneshot") => "",
            ("no", _) => "; with Restart=always systemd itself would be the first to bring it back",
            _ => "",
        };
        findings.push(Finding::ok(
            "worker",
            format!("{subject}: {unit} is {} ({}){advice}", shown.get("ActiveState"), shown.get("SubState")),
        ));
    }
    findings
}
