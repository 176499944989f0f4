//! What the detectors of a worker can never see as things are set, and a nudge that would end it: said before it is needed.

use std::path::Path;

use super::finding::Finding;
use super::show::UnitProperties;
use crate::detect::unfit;
use crate::fleet::Worker;
use crate::supervise::handlers;
use crate::systemd::stray;
use crate::vocabulary::{DeliveryGap, Heartbeat, Nudge, NudgeSignal, Repipe, Stuck};

/// What is asked of a worker's unit for this.
pub(super) const PROPERTIES: &str = "MainPID,StandardOutput,StandardError,LogNamespace,WatchdogUSec";

/// What is not as its `stuck` and `delivery_gap` need it, `subject` being `node/worker`.
pub(super) fn look(subject: &str, worker: &Worker, shown: &UnitProperties) -> Vec<Finding> {
    let unit = worker.unit.as_str();
    let heartbeat = worker.stuck.as_ref().and_then(|stuck| heartbeat(unit, &stuck.heartbeat, shown));
    let heartbeat = heartbeat.map(|why| {
        Finding::fail(
            "heartbeat",
            format!("{subject}: {why}: it stays unknown, and a worker that hangs is not found"),
        )
        .way_out("change that, or take another heartbeat (`stuck.heartbeat` in fleet.yaml)")
    });
    let signal = signal(worker.stuck.as_ref(), worker.delivery_gap.as_ref());
    let nudge =
        signal.zip(shown.get("MainPID").parse().ok().filter(|pid| *pid != 0)).and_then(|(signal, pid)| {
            let why = handlers::takes(pid, signal.number(), signal.name()).err()?;
            Some(
                Finding::warn("nudge", format!("{subject}: {} would not be sent: {why}", signal.name()))
                    .way_out("until then it is relaunched without"),
            )
        });
    heartbeat.into_iter().chain(nudge).collect()
}

fn heartbeat(unit: &str, heartbeat: &Heartbeat, shown: &UnitProperties) -> Option<String> {
    match heartbeat {
        Heartbeat::Journal if !shown.get("LogNamespace").is_empty() => Some(format!(
            "the journal heartbeat of {unit} is in another journal (LogNamespace={})",
            shown.get("LogNamespace")
        )),
        Heartbeat::Journal => stray(shown.get("StandardOutput"), shown.get("StandardError"))
            .map(|why| format!("the journal heartbeat of {unit} may never be seen: {why}")),
        Heartbeat::Watchdog => matches!(shown.get("WatchdogUSec"), "0" | "infinity" | "")
            .then(|| format!("{unit} has no WatchdogSec=, so there is no ping to be seen")),
        Heartbeat::File(path) => unfit(path),
        Heartbeat::Command(command) => {
            let program = Path::new(command.argv.first()?);
            let meta = program.metadata();
            let runs = meta.is_ok_and(|meta| {
                meta.is_file() && std::os::unix::fs::PermissionsExt::mode(&meta.permissions()) & 0o111 != 0
            });
            (!runs).then(|| format!("{} is no program that can be executed", program.display()))
        }
        Heartbeat::Redis(_) | Heartbeat::Lane(_) => None,
    }
}

fn signal(stuck: Option<&Stuck>, gap: Option<&DeliveryGap>) -> Option<NudgeSignal> {
    match (stuck.and_then(|stuck| stuck.nudge.as_ref()), gap.and_then(|gap| gap.repipe.as_ref())) {
        (Some(Nudge::Signal(signal)), _) => Some(*signal),
        (_, Some(Repipe::Hangup)) => Some(NudgeSignal::Hup),
        (Some(Nudge::Reload | Nudge::Command(_)) | None, Some(Repipe::Restart(_)) | None) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::show::parse;
    use super::*;

    fn said(heartbeat_: &Heartbeat, shown: &str) -> Option<String> {
        heartbeat("agent.service", heartbeat_, parse(shown).first().unwrap())
    }

    #[test]
    fn what_can_never_be_seen_is_said_beforehand() {
        let journal = "StandardOutput=journal\nStandardError=inherit\nLogNamespace=\n";
        assert_eq!(said(&Heartbeat::Journal, journal), None);
        let file = "StandardOutput=append:/var/log/x\nStandardError=append:/var/log/x\nLogNamespace=\n";
        assert!(said(&Heartbeat::Journal, file).unwrap().contains("append:/var/log/x"));
        assert!(
            said(&Heartbeat::Journal, "StandardOutput=journal\nLogNamespace=apart\n")
                .unwrap()
                .contains("apart")
        );
        assert!(said(&Heartbeat::Watchdog, "WatchdogUSec=0\n").is_some());
        assert!(said(&Heartbeat::Watchdog, "WatchdogUSec=infinity\n").is_some());
        assert_eq!(said(&Heartbeat::Watchdog, "WatchdogUSec=30s\n"), None);
        assert!(said(&Heartbeat::File("/nonexistent/beat".into()), "Id=x\n").unwrap().contains("missing"));
        let command = |program: &str| {
            Heartbeat::Command(crate::vocabulary::Command {
                argv: vec![program.to_owned()],
                user: "nobody".to_owned(),
                timeout: std::time::Duration::from_secs(1),
            })
        };
        assert_eq!(said(&command("/bin/sh"), "Id=x\n"), None);
        assert!(
            said(&command("/etc/passwd"), "Id=x\n").is_some()
                && said(&command("/no/such"), "Id=x\n").is_some()
        );
    }
}
