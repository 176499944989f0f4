//! This node as a whole, for peers, for people and for `systemctl status`.

use std::collections::BTreeMap;

use super::core::Core;
use super::neighbours::Neighbour;
use super::worker::Worker;
use crate::journal::{Event as Kind, Priority, Record};
use crate::judge::{Health, Host, Phase, Wait};
use crate::peer::wire::{NodeReport, NodeState, Sighting};
use crate::vocabulary::{Moment, NodeName};

impl Core {
    /// What of our own is broken, one sentence each.
    pub(super) fn degraded(&self) -> Vec<String> {
        let bus = self
            .host
            .bus_trouble()
            .map(|why| format!("system bus: {why}; workers are followed and restarted through systemctl"));
        let dropped = self.handles.recorder.dropped();
        let lost = (dropped > 0).then(|| format!("evidence: {dropped} records were dropped since the start"));
        let braked = self.braked();
        let common = (braked > 0).then(|| {
            format!(
                "{braked} workers make no progress at once, so the cause is a common one: nothing is restarted until that is fixed"
            )
        });
        let (pid1, door) = (self.host.pid1_trouble(), self.host.door_trouble());
        [pid1, bus, door, self.host.reload_refused(), self.cut_off(), lost, self.blind(), common]
            .into_iter()
            .flatten()
            .chain(self.handles.store.degraded())
            .collect()
    }

    /// How many workers are left alone because most of this node's make no progress.
    pub(super) fn braked(&self) -> usize {
        let braked = |worker: &Worker| matches!(worker.state.phase, Phase::Waiting { why: Wait::Brake, .. });
        self.workers.values().filter(|worker| braked(worker)).count()
    }

    /// One cause that keeps the progress of several workers from being seen, such as Redis.
    fn blind(&self) -> Option<String> {
        let mut causes = BTreeMap::<&str, usize>::new();
        for worker in self.workers.values() {
            if let Health::Blind(why) = &worker.health {
                *causes.entry(why).or_default() += 1;
            }
        }
        let (why, count) = causes.into_iter().max_by_key(|(_, count)| *count)?;
        (count > 1).then(|| {
            format!(
                "{why}: whether {count} workers make progress cannot be seen, and nothing is done about it"
            )
        })
    }

    /// How this node sees the ones that it watches.
    fn sees(&self) -> Vec<Sighting> {
        let sight = |(node, neighbour): (&NodeName, &Neighbour)| Sighting {
            node: node.clone(),
            // Who is cut off knows nothing of the other side.
            state: if neighbour.state() == NodeState::CutOff {
                NodeState::Unknown
            } else {
                neighbour.state()
            },
            ago_ms: u64::try_from(neighbour.handle.looked_ago().as_millis()).unwrap_or(u64::MAX),
        };
        self.neighbours.iter().map(sight).collect()
    }

    /// This node as a whole.
    pub(super) fn node_report(&self, now: Moment) -> NodeReport {
        let state = match self.host.state() {
            Host::Starting => NodeState::Starting,
            Host::Running => NodeState::Up,
            Host::Stopping => NodeState::Leaving,
        };
        let why = match self.host.state() {
            Host::Starting => "the host boots",
            Host::Running => "its supervisor answers",
            Host::Stopping => "the host shuts down",
        };
        NodeReport {
            node: self.me.clone(),
            state,
            why: why.to_owned(),
            version: Some(env!("CARGO_PKG_VERSION").to_owned()),
            fleet_hash: Some(self.fleet.hash),
            degraded: self.degraded(),
            sees: self.sees(),
            rehearsed: self.drills.nodes.iter().map(|(node, kept)| kept.report(Some(node), now)).collect(),
            workers: self.workers.iter().map(|(name, worker)| worker.report(&self.me, name, now)).collect(),
        }
    }

    /// One line for `systemctl status`.
    pub(super) fn status_line(&self, now: Moment) -> String {
        let mut counts = BTreeMap::<&'static str, usize>::new();
        for worker in self.workers.values() {
            *counts.entry(worker.class(now).name()).or_default() += 1;
        }
        let workers: Vec<String> = counts.iter().map(|(class, count)| format!("{count} {class}")).collect();
        let silent: Vec<&str> = self
            .neighbours
            .iter()
            .filter(|(_, neighbour)| neighbour.state() != NodeState::Up)
            .map(|(name, _)| name.as_str())
            .collect();
        let mut line =
            format!("workers: {}", if workers.is_empty() { "none".to_owned() } else { workers.join(", ") });
        if !silent.is_empty() {
            line.push_str(&format!("; not up: {}", silent.join(", ")));
        }
        if !self.degraded().is_empty() {
            line.push_str("; degraded, see keyholder status");
        }
        line
    }

    /// Takes down what somebody should know about the fleet file in force.
    pub(super) fn warn_of_fleet(&self, warnings: Vec<String>) {
        for warning in warnings {
            self.handles.recorder.record(Record::local(
                Kind::Supervisor,
                Priority::Warning,
                "fleet.yaml",
                warning,
            ));
        }
    }

    /// A clean stop. If the host goes, too, its watchers were told when systemd queued the shutdown.
    pub(super) fn goodbye(&self) {
        self.handles.recorder.record(Record::local(
            Kind::Supervisor,
            Priority::Notice,
            self.me.as_str(),
            "the supervisor stops; its workers run on",
        ));
    }
}
