//! The `power` command of a node that does not answer: run by itself, or by hand.

use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use super::blackouts::reached;
use super::core::{Core, Done};
use super::gentle::in_words;
use super::refusals::refused;
use crate::fleet::Right;
use crate::journal::{Event as Kind, Priority, Record};
use crate::judge::Alert;
use crate::peer::inbox::Asker;
use crate::peer::wire::{NodeState, Outcome, RefusalCode, Request, Verdict};
use crate::systemd::CommandExit;
use crate::vocabulary::{Moment, NodeName, human};

impl Core {
    /// Where an order to switch `node` itself belongs.
    fn on_a_watcher(&self, node: &NodeName) -> String {
        let watchers = self.fleet.nodes.get(node).map(|node| node.watched_by.iter()).into_iter().flatten();
        let watchers: Vec<&str> = watchers.map(NodeName::as_str).collect();
        format!("this is {node}: run it on one of its watchers ({})", watchers.join(", "))
    }

    /// Runs the node's `power` command on this host; [`Done::Power`] follows.
    pub(super) fn power(
        &mut self,
        node: &NodeName,
        why: &str,
        reply: Option<oneshot::Sender<Verdict>>,
        now: Moment,
    ) {
        let Some(settings) = self.fleet.nodes.get(node).and_then(|node| node.power.clone()) else { return };
        if let Some(neighbour) = self.neighbours.get_mut(node) {
            neighbour.powered = Some(now);
        }
        let program = settings.command.argv.first().map(String::as_str).unwrap_or_default();
        let text = format!("power: running {program} here for {node}: {why}");
        self.handles.recorder.record(Record::local(Kind::Acting, Priority::Notice, node.as_str(), text));
        let (systemd, done, node) = (self.handles.systemd.clone(), self.handles.done.clone(), node.clone());
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
        &mut self,
        node: &NodeName,
        how: Result<String, String>,
        reply: Option<oneshot::Sender<Verdict>>,
        took: Duration,
        now: Moment,
    ) {
        let (done, how) = match how {
            Ok(how) => (true, how),
            Err(how) => (false, how),
        };
        let text = format!("power: the command for {node} {how}, after {}", human(took));
        if done {
            self.handles.recorder.record(Record::local(Kind::Acted, Priority::Notice, node.as_str(), text));
        } else {
            let alert = Alert { cause: "power".to_owned(), text, urgent: true };
            self.raise(node.as_str(), alert, Duration::ZERO, now);
        }
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
                    self.others_see(&node, now)
                        .into_iter()
                        .filter(|(_, state, _)| reached(*state))
                        .map(|(other, state, _)| format!("{other} sees it {}", state.name())),
                )
                .collect();
            (!force && !reached.is_empty()).then(|| {
                let text = format!(
                    "{node} is not known to be down ({}): if it is to be switched all the same, --force",
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
                self.handles.recorder.record(Record { by: asker.to_string(), ..record });
                let _ = reply.send(refused(code, text));
            }
            None => self.power(&node, &format!("{asker}: {}", request.because), Some(reply), now),
        }
    }
}
