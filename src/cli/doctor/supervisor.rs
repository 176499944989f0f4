//! What the running supervisor says of itself and of the others.

use super::finding::Finding;
use crate::cli::link::{Link, LinkArgs, LinkError, QUESTION_DEADLINE};
use crate::peer::wire::{Class, Hello, NodeReport, NodeState, Outcome, Verb, Verdict};
use crate::vocabulary::FleetHash;

/// Asks it, and judges the answer. `on_disk` is the fleet file's hash, if it is valid.
pub(super) fn ask(link: &LinkArgs, on_disk: Option<FleetHash>) -> Vec<Finding> {
    match link.open() {
        Ok(mut link) => {
            let server = link.server().clone();
            let mut findings = vec![hello(&server, env!("CARGO_PKG_VERSION"), on_disk)];
            match fleet(&mut link) {
                Ok(reports) => findings.extend(judge(&reports, &server)),
                Err(text) => findings.push(Finding::fail("supervisor", text)),
            }
            findings
        }
        Err(error) => vec![Finding::fail("supervisor", error.to_string())],
    }
}

fn fleet(link: &mut Link) -> Result<Vec<NodeReport>, String> {
    let here = link.server().node.clone();
    let answer: Result<Verdict, LinkError> = link.ask(&here, None, Verb::Fleet {}, "", QUESTION_DEADLINE);
    match answer.map_err(|error| error.to_string())? {
        Verdict::Outcome(Outcome::Fleet(reports)) => Ok(reports),
        Verdict::Outcome(_) => Err("unexpected reply to the question for the fleet's state".to_owned()),
        Verdict::Refused(refusal) => Err(refusal.text),
    }
}

/// What its hello tells: another version than ours, another fleet file than the one on disk.
pub(super) fn hello(server: &Hello, version: &str, on_disk: Option<FleetHash>) -> Finding {
    if server.version != version {
        Finding::warn(
            "supervisor",
            format!("it runs keyholder {}, this command is {version}", server.version),
        )
        .way_out("systemctl restart keyholder.service")
    } else if on_disk.is_some_and(|hash| hash != server.fleet_hash) {
        Finding::warn("supervisor", "it runs with an earlier fleet file than the one on disk")
            .way_out("systemctl reload keyholder.service")
    } else {
        Finding::ok("supervisor", format!("it answers as {}, keyholder {}", server.node, server.version))
    }
}

/// The fleet as it sees it.
pub(super) fn judge(reports: &[NodeReport], server: &Hello) -> Vec<Finding> {
    let mut findings = Vec::new();
    for report in reports {
        let node = &report.node;
        for degraded in &report.degraded {
            findings.push(Finding::warn("degraded", format!("{node}: {degraded}")));
        }
        match report.state {
            NodeState::Up => {}
            NodeState::Starting => findings.push(Finding::warn("watch", format!("{node} boots"))),
            NodeState::Leaving => {
                findings.push(Finding::warn("watch", format!("{node} shuts down or reboots")));
            }
            NodeState::SupervisorDead | NodeState::Unreachable | NodeState::CutOff => {
                findings.push(Finding::fail("watch", format!("{node}: {}", report.why)));
            }
            NodeState::Unknown => findings.push(Finding::warn("watch", format!("{node}: {}", report.why))),
        }
        match report.fleet_hash {
            Some(hash) if hash != server.fleet_hash => findings.push(
                Finding::fail("drift", format!("{node} has another fleet file than {}", server.node))
                    .way_out("copy one to the other, then systemctl reload keyholder.service"),
            ),
            Some(_) | None => {}
        }
        match &report.version {
            Some(version) if *version != server.version => findings.push(Finding::warn(
                "drift",
                format!("{node} runs keyholder {version}, {} runs {}", server.node, server.version),
            )),
            Some(_) | None => {}
        }
        for worker in &report.workers {
            let (subject, why) = (format!("{node}/{}", worker.worker), &worker.why);
            match worker.class {
                // Up, and yet something is the matter with it.
                Class::Healthy | Class::Starting if !worker.doing.is_empty() && worker.drill.is_none() => {
                    let text = format!("{subject} is {}: {}", worker.class.name(), worker.doing);
                    findings
                        .push(Finding::warn("health", text).way_out(format!("keyholder explain {subject}")));
                }
                Class::Healthy | Class::Starting | Class::Held => {}
                Class::Dead | Class::Stuck | Class::DeliveryGap => findings.push(
                    Finding::fail("health", format!("{subject} is {}: {why}", worker.class.name()))
                        .way_out(format!("keyholder explain {subject}")),
                ),
                Class::Unknown => {
                    findings.push(Finding::warn("health", format!("{subject} is unknown: {why}")))
                }
            }
        }
    }
    findings
}
