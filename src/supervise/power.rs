//! Nodes that do not answer at all: what the other watchers see of them, and the `power` command.

use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use super::core::{Core, Done};
use super::gentle::in_words;
use super::orders::refused;
use crate::fleet::Right;
use crate::journal::{Event as Kind, Priority, Record};
use crate::judge::{Blackout, power};
use crate::peer::desk::Asker;
use crate::peer::wire::{NodeState, Outcome, RefusalCode, Request, Verdict};
use crate::systemd::CommandExit;
use crate::vocabulary::{Moment, NodeName, human};

/// How long after a `power` command the next one may follow: a host needs its time to boot, and what did not help once is
/// not hammered.
const POWER_AGAIN: Duration = Duration::from_secs(600);

/// Whether a watcher that sees a node so has reached its host.
fn reached(state: NodeState) -> bool {
    match state {
        NodeState::Up | NodeState::Starting | NodeState::Leaving | NodeState::SupervisorDead => true,
        NodeState::Unreachable | NodeState::Unknown => false,
    }
}

impl Core {
    /// How the other watchers of a node that this one watches, too, see it.
    pub(super) fn others_see(&self, node: &NodeName) -> Vec<(NodeName, NodeState)> {
        self.neighbours
            .iter()
            .filter(|(other, neighbour)| *other != node && neighbour.state() == NodeState::Up)
            .filter_map(|(other, neighbour)| Some((other.clone(), neighbour.sees(node)?)))
            .collect()
    }

    /// The same in words, for people; empty if there is nobody to ask.
    pub(super) fn others_in_words(&self, node: &NodeName) -> String {
        let told: Vec<String> = self
            .others_see(node)
            .into_iter()
            .map(|(other, state)| format!("{other} sees it {}", state.name()))
            .collect();
        told.join(", ")
    }

    /// Switches on what has been unreachable for long enough, if the fleet file says how and that this node may. Returns
    /// when to look again.
    pub(super) fn blackouts(&mut self, now: Moment) -> Option<Moment> {
        let mut wake = None::<Moment>;
        let alone = self.neighbours.len() > 1
            && self.neighbours.values().all(|neighbour| neighbour.state() == NodeState::Unreachable);
        let dark: Vec<NodeName> = self
            .neighbours
            .iter()
            .filter(|(_, neighbour)| neighbour.state() == NodeState::Unreachable)
            .map(|(node, _)| node.clone())
            .collect();
        for node in dark {
            let Some(known) = self.fleet.nodes.get(&node) else { continue };
            let Some(settings) = &known.power else { continue };
            if !self.fleet.allows_node(&self.me, &node, Right::Power) {
                continue;
            }
            let before: Vec<&NodeName> = known
                .watched_by
                .iter()
                .filter(|other| **other < self.me && self.fleet.allows_node(other, &node, Right::Power))
                .collect();
            let answers = |other: &&&NodeName| {
                self.neighbours.get(**other).is_some_and(|other| other.state() == NodeState::Up)
            };
            let able = u32::try_from(before.iter().filter(answers).count()).unwrap_or(u32::MAX);
            let rank = u32::try_from(before.len()).unwrap_or(u32::MAX);
            let others = self.others_see(&node);
            let reached_by_others = others.iter().any(|(_, state)| reached(*state));
            let not_looked = others.iter().any(|(_, state)| *state == NodeState::Unknown);
            let Some(neighbour) = self.neighbours.get_mut(&node) else { continue };
            let blackout = Blackout {
                for_: neighbour.unreached_for(reached_by_others, now),
                reached_by_others,
                not_looked,
                alone,
                rank,
                able,
            };
            let Some(wait) = power(blackout, settings.after) else { continue };
            let due = match neighbour.powered {
                Some(last) => (now + wait).max(last + POWER_AGAIN),
                None => now + wait,
            };
            if due > now {
                wake = Some(wake.map_or(due, |earlier| earlier.min(due)));
            } else {
                let why = format!("unreachable for {}", human(blackout.for_));
                self.power(&node, &why, None, now);
            }
        }
        wake
    }

    /// Where an order to switch `node` itself belongs.
    fn on_a_watcher(&self, node: &NodeName) -> String {
        let watchers = self.fleet.nodes.get(node).map(|node| node.watched_by.iter()).into_iter().flatten();
        let watchers: Vec<&str> = watchers.map(NodeName::as_str).collect();
        format!("this is {node}: run it on one of its watchers ({})", watchers.join(", "))
    }

    /// Runs the node's `power` command on this host; [`Done::Power`] follows.
    fn power(&mut self, node: &NodeName, why: &str, reply: Option<oneshot::Sender<Verdict>>, now: Moment) {
        let Some(settings) = self.fleet.nodes.get(node).and_then(|node| node.power.clone()) else { return };
        if let Some(neighbour) = self.neighbours.get_mut(node) {
            neighbour.powered = Some(now);
        }
        let program = settings.command.argv.first().map(String::as_str).unwrap_or_default();
        let text = format!("power: running {program} here for {node}: {why}");
        self.recorder.record(Record::local(Kind::Acting, Priority::Notice, node.as_str(), text));
        let (systemd, done, node) = (self.systemd.clone(), self.done.clone(), node.clone());
        tokio::spawn(async move {
            let began = Instant::now();
            let how = match systemd.run(&settings.command, "power").await.exit {
                exit @ CommandExit::Exited(0) => Ok(in_words(&exit)),
                exit @ (CommandExit::Exited(_)
                | CommandExit::Killed(_)
                | CommandExit::TimedOut
                | CommandExit::NotStarted(_)
                | CommandExit::Unseen(_)) => Err(in_words(&exit)),
            };
            let _ = done.send(Done::Power { node, how, reply, took: began.elapsed() }).await;
        });
    }

    /// The `power` command ended. Whether the node comes back is seen by its answering.
    pub(super) fn powered(
        &self,
        node: &NodeName,
        how: Result<String, String>,
        reply: Option<oneshot::Sender<Verdict>>,
        took: Duration,
    ) {
        let (done, kind, priority, how) = match how {
            Ok(how) => (true, Kind::Acted, Priority::Notice, how),
            Err(how) => (false, Kind::Alert, Priority::Error, how),
        };
        let text = format!("power: the command for {node} {how}, after {}", human(took));
        self.recorder.record(Record::local(kind, priority, node.as_str(), text));
        if let Some(reply) = reply {
            let took_us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
            let _ = reply.send(Verdict::Outcome(Outcome::Powered { done, how, took_us }));
        }
    }

    /// Somebody on this host orders it.
    pub(super) fn serve_power(
        &mut self,
        asker: &Asker,
        request: Request,
        force: bool,
        reply: oneshot::Sender<Verdict>,
        now: Moment,
    ) {
        let node = request.target_node;
        let objection = if node == self.me {
            Some((RefusalCode::WrongNode, self.on_a_watcher(&node)))
        } else if !self.fleet.nodes.contains_key(&node) {
            Some((RefusalCode::UnknownNode, self.no_such_node(&node)))
        } else if self.fleet.nodes.get(&node).is_none_or(|known| known.power.is_none()) {
            Some((
                RefusalCode::NotConfigured,
                format!("fleet.yaml names no `power` for {node}: someone must go there"),
            ))
        } else if !self.fleet.allows_node(&self.me, &node, Right::Power) {
            let text = format!(
                "{} may not power {node}: fleet.yaml would need the grant {{ from: {}, on: {node}, workers: [\"*\"], verbs: [power] }}",
                self.me, self.me
            );
            Some((RefusalCode::NoGrant, text))
        } else {
            let reached: Vec<String> = self
                .neighbours
                .get(&node)
                .filter(|neighbour| neighbour.state() != NodeState::Unreachable)
                .map(|neighbour| format!("{} sees it {}", self.me, neighbour.state().name()))
                .into_iter()
                .chain(
                    self.others_see(&node)
                        .into_iter()
                        .filter(|(_, state)| reached(*state))
                        .map(|(other, state)| format!("{other} sees it {}", state.name())),
                )
                .collect();
            (!force && !reached.is_empty()).then(|| {
                let text = format!(
                    "{node} is not out of reach ({}): if it is to be switched all the same, --force",
                    reached.join(", ")
                );
                (RefusalCode::NotNow, text)
            })
        };
        match objection {
            Some((code, text)) => {
                let record = Record::local(
                    Kind::Refused,
                    Priority::Warning,
                    node.as_str(),
                    format!("power refused: {text}"),
                );
                self.recorder.record(Record { by: asker.to_string(), ..record });
                let _ = reply.send(refused(code, text));
            }
            None => self.power(&node, &format!("{asker}: {}", request.because), Some(reply), now),
        }
    }
}
