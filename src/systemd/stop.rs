//! How a unit came to be down, read from systemd's own timestamps: so it also holds when nobody was watching.

use nix::sys::signal::Signal;

use super::raw::Raw;
use crate::judge::StopCause;

/// `CLD_EXITED` of `waitid(2)`, as ExecMainCode has it: the process called exit.
pub(super) const EXITED: i32 = 1;
/// `CLD_KILLED`: a signal ended it.
const KILLED: i32 = 2;
/// `CLD_DUMPED`: a signal ended it and left a core.
const DUMPED: i32 = 3;
/// The signal with which systemd stops a service.
const SIGTERM: i32 = 15;

/// The rule, checked against systemd 252 in the lab (`stop/tests.rs` holds the values it gave):
///
/// - A unit that is up has no stop to explain, and one that never left `inactive` in this boot never ran.
/// - Some results can only come from the service itself or from systemd's watch over it.
/// - A main process that ended while the unit was active ended by itself: systemd notes the exit before it leaves
///   `active`. If the unit had left `active` before (or the main process was long gone, as in a oneshot with
///   RemainAfterExit), somebody ordered the stop.
/// - A run that never became active failed to start, unless it was stopped while starting. That is seen in the end of its
///   start job, which a stop cancels: the properties do not tell a process that failed from one that systemd stopped.
///
/// Where it cannot be told (a forking service whose main process systemd does not know), the stop counts as ordered:
/// rather late than against an operator.
pub(super) fn cause(raw: &Raw) -> StopCause {
    let starting = raw.active == "activating" && !raw.sub.starts_with("auto-restart");
    if raw.up() || raw.active == "maintenance" || starting || raw.inactive_exit == 0 {
        return StopCause::Never;
    }
    let became_active = raw.active_enter >= raw.inactive_exit;
    if raw.called_off && !became_active {
        return StopCause::Ordered;
    }
    match raw.result.as_str() {
        "watchdog" | "oom-kill" | "protocol" | "resources" | "start-limit-hit" | "exec-condition" => {
            return StopCause::ByItself;
        }
        _ => {}
    }
    let by_itself = if became_active { ended_while_active(raw) } else { failed_to_start(raw) };
    if by_itself || raw.sub.starts_with("auto-restart") { StopCause::ByItself } else { StopCause::Ordered }
}

fn ended_while_active(raw: &Raw) -> bool {
    if (raw.active_enter..=raw.active_exit).contains(&raw.main_exit) {
        // With RemainAfterExit a clean end is not the end of the unit: that came later, and not from within.
        return !(raw.remain_after_exit && clean(raw));
    }
    // RuntimeMaxSec= ends a service from systemd's side, but nobody ordered it.
    let limited = !matches!(raw.runtime_max, 0 | u64::MAX);
    raw.result == "timeout" && limited && raw.active_exit.saturating_sub(raw.active_enter) >= raw.runtime_max
}

fn failed_to_start(raw: &Raw) -> bool {
    if raw.active != "inactive" || raw.result != "success" {
        // A start that was stopped ends in `inactive` with "success". `inactive` with another result is left behind
        // by a stop in the wait for an automatic restart, and that wait counts as leaving `inactive`.
        return raw.active != "inactive";
    }
    // A oneshot that did its work goes from activating to inactive by itself; one that was stopped while starting died
    // of systemd's SIGTERM, or its main process never ran.
    raw.main_exit >= raw.inactive_exit && (raw.main_code, raw.main_status) != (KILLED, SIGTERM)
}

fn clean(raw: &Raw) -> bool {
    (raw.main_code, raw.main_status) == (EXITED, 0)
}

/// Whether it ended by itself in a way after which its unit file wants no restart.
pub(super) fn agreed(raw: &Raw) -> bool {
    let (statuses, signals) = &raw.prevents;
    raw.main_exit != 0
        && match raw.main_code {
            EXITED => statuses.contains(&raw.main_status),
            KILLED | DUMPED => signals.contains(&raw.main_status),
            _ => false,
        }
}

/// Whether a unit that ended by itself ended well. `Result` alone does not tell: a reset of a failure makes a success of it.
pub(super) fn well(raw: &Raw) -> bool {
    let (statuses, signals) = &raw.successes;
    let status = raw.main_status;
    let process = match raw.main_code {
        EXITED => status == 0 || statuses.contains(&status),
        // What systemd takes for a clean end: systemd.service(5), SuccessExitStatus=.
        KILLED => [1, 2, 13, SIGTERM].contains(&status) || signals.contains(&status),
        DUMPED => signals.contains(&status),
        _ => raw.main_exit == 0,
    };
    process && raw.active == "inactive" && raw.result == "success"
}

/// How the main process ended, in words.
pub(super) fn exit(raw: &Raw) -> Option<String> {
    if raw.main_exit == 0 {
        return None;
    }
    let status = raw.main_status;
    match raw.main_code {
        // systemd's own codes for a process that it could not even start: systemd.exec(5), "Process Exit Codes".
        EXITED if status == 203 => Some("exit code 203 (the command could not be executed)".to_owned()),
        EXITED if (200..=245).contains(&status) => {
            Some(format!("exit code {status} (systemd could not set up the process)"))
        }
        EXITED => Some(format!("exit code {status}")),
        KILLED => Some(signal(status)),
        DUMPED => Some(format!("{}, core dumped", signal(status))),
        _ => None,
    }
}

fn signal(number: i32) -> String {
    Signal::try_from(number).map_or_else(
        |_| format!("signal {number}"),
        |signal| format!("signal {number} ({})", signal.as_str().trim_start_matches("SIG")),
    )
}

#[cfg(test)]
mod tests;
