//! Nodes that do not answer at all: what else could be the cause, what the other watchers see of them, and when the `power`
//! command is run for that.

use std::time::Duration;

use super::core::{Core, Done};
use super::neighbours::Neighbour;
use crate::fleet::{Fleet, Right};
use crate::judge::{Blackout, BlackoutCause, Found, Power, Probe, Word, causes, power};
use crate::peer::client::Endpoint;
use crate::peer::reach::probe::probe;
use crate::peer::wire::{NodeExplanation, NodeState, Outcome, Sighting, Verb, Verdict};
use crate::vocabulary::{Moment, NodeName, human};

/// How long after a `power` command the next one may follow: a host needs its time to boot, and what did not help once is
/// not hammered.
const POWER_AGAIN: Duration = Duration::from_secs(600);
/// How often it is found out again what else could be the cause of a silence.
const PROBE_AGAIN: Duration = Duration::from_secs(3);
/// For how many silent nodes at the same time: each takes some sockets.
const PROBES: usize = 8;
/// How often the other watchers of a silent node are asked how they see it: before their last word is too old to count.
const ASK_AGAIN: Duration = Duration::from_secs(5);
/// How long they may take to answer.
const ANSWER: Duration = Duration::from_secs(4);

/// Whether a watcher that sees a node so has reached its host.
pub(super) fn reached(state: NodeState) -> bool {
    match state {
        NodeState::Up | NodeState::Starting | NodeState::Leaving | NodeState::SupervisorDead => true,
        NodeState::Unreachable | NodeState::CutOff | NodeState::Unknown => false,
    }
}

/// Whether somebody else is to be asked about a node that is seen so.
fn silent(state: NodeState) -> bool {
    match state {
        NodeState::Unreachable | NodeState::CutOff | NodeState::SupervisorDead => true,
        NodeState::Up | NodeState::Starting | NodeState::Leaving | NodeState::Unknown => false,
    }
}

fn word(state: NodeState) -> Word {
    match state {
        NodeState::Up | NodeState::Starting | NodeState::Leaving | NodeState::SupervisorDead => Word::Reaches,
        NodeState::Unknown => Word::NotYet,
        NodeState::Unreachable | NodeState::CutOff => Word::DoesNot,
    }
}

/// Whether one node is heard about another: only if it watches that one by the fleet file of this node.
fn is_heard(fleet: &Fleet, other: &NodeName, about: &NodeName) -> bool {
    other != about && fleet.nodes.get(about).is_some_and(|node| node.watched_by.contains(other))
}

impl Core {
    /// How the other watchers of a node see it, by the fleet file of this node, and how old their word is. Nobody else is heard
    /// about it, and no word that is too old.
    pub(super) fn others_see(&self, node: &NodeName, now: Moment) -> Vec<(NodeName, NodeState, Duration)> {
        self.neighbours
            .iter()
            .filter(|(other, neighbour)| {
                is_heard(&self.fleet, other, node) && neighbour.state() == NodeState::Up
            })
            .filter_map(|(other, neighbour)| {
                let (state, age) = neighbour.sees(node, now)?;
                Some((other.clone(), state, age))
            })
            .collect()
    }

    /// The same in words, for people; empty if there is nobody to ask.
    pub(super) fn others_in_words(&self, node: &NodeName, now: Moment) -> String {
        let told: Vec<String> = self
            .others_see(node, now)
            .into_iter()
            .map(|(other, state, _)| format!("{other} sees it {}", state.name()))
            .collect();
        told.join(", ")
    }

    /// What this host cannot call because of a fault of its own.
    pub(super) fn cut_off(&self) -> Option<String> {
        let cut: Vec<&NodeName> = self
            .neighbours
            .iter()
            .filter(|(_, neighbour)| neighbour.state() == NodeState::CutOff)
            .map(|(node, _)| node)
            .collect();
        let first = cut.first()?;
        let why = self.neighbours.get(first).map_or("", Neighbour::why);
        let names: Vec<&str> = cut.iter().map(|node| node.as_str()).collect();
        Some(format!("network: this host is cut off from {}: {why}", names.join(", ")))
    }

    /// What is known of a node that is out of reach.
    fn blackout(&self, node: &NodeName, for_: Duration, now: Moment) -> Option<Blackout> {
        let known = self.fleet.nodes.get(node)?;
        let before: Vec<&NodeName> = known
            .watched_by
            .iter()
            .filter(|other| **other < self.me && self.fleet.allows_node(other, node, Right::Power))
            .collect();
        let answers = |other: &&&NodeName| {
            self.neighbours.get(**other).is_some_and(|other| other.state() == NodeState::Up)
        };
        let able = u32::try_from(before.iter().filter(answers).count()).unwrap_or(u32::MAX);
        let rank = u32::try_from(before.len()).unwrap_or(u32::MAX);
        let others = self.others_see(node, now).into_iter().map(|(other, state, age)| {
            let text = format!("{other} sees it {}, {} ago", state.name(), human(age));
            (other.to_string(), word(state), text)
        });
        let rest = || self.neighbours.iter().filter(|(other, _)| *other != node);
        let reached: Vec<String> = rest()
            .filter(|(_, neighbour)| {
                matches!(neighbour.state(), NodeState::Up | NodeState::Starting | NodeState::SupervisorDead)
            })
            .map(|(other, _)| other.to_string())
            .collect();
        Some(Blackout {
            for_,
            probe: self.neighbours.get(node)?.probed(now).cloned(),
            others: others.collect(),
            reached,
            watched: rest().count(),
            rank,
            able,
        })
    }

    /// Whether this node may run the `power` command of another one.
    fn may_power(&self, node: &NodeName) -> bool {
        self.fleet.nodes.get(node).is_some_and(|known| known.power.is_some())
            && self.fleet.allows_node(&self.me, node, Right::Power)
    }

    /// Switches on what has been unreachable for long enough, if the fleet file says how and that this node may, and if nothing
    /// else explains the silence. Returns when to look again.
    pub(super) fn blackouts(&mut self, now: Moment) -> Option<Moment> {
        let mut wake = self.ask_the_others(now);
        let mut sooner = |at: Moment| wake = Some(wake.map_or(at, |earlier: Moment| earlier.min(at)));
        let dark: Vec<NodeName> = self
            .neighbours
            .iter()
            .filter(|(_, neighbour)| neighbour.state() == NodeState::Unreachable)
            .map(|(node, _)| node.clone())
            .collect();
        for node in dark {
            if !self.may_power(&node) {
                continue;
            }
            sooner(self.look_around(&node, now));
            let reached_by_others = self.others_see(&node, now).iter().any(|(_, state, _)| reached(*state));
            let Some(neighbour) = self.neighbours.get_mut(&node) else { continue };
            let (for_, last) = (neighbour.unreached_for(reached_by_others, now), neighbour.powered);
            let Some(blackout) = self.blackout(&node, for_, now) else { continue };
            let Some(after) = self.fleet.nodes.get(&node).and_then(|node| Some(node.power.as_ref()?.after))
            else {
                continue;
            };
            let due = match power(&blackout, after) {
                Power::Now => now,
                Power::In(wait) => now + wait,
                // Whatever changes that wakes the loop.
                Power::No(_) => continue,
            };
            let due = last.map_or(due, |last| due.max(last + POWER_AGAIN));
            if due > now {
                sooner(due);
            } else {
                let excluded: Vec<String> = causes(&blackout)
                    .into_iter()
                    .filter(|cause| cause.found == Found::Excluded)
                    .map(|cause| format!("not that {} ({})", cause.what, cause.how))
                    .collect();
                let why = format!("unreachable for {}; {}", human(for_), excluded.join("; "));
                self.power(&node, &why, None, now);
            }
        }
        wake
    }

    /// Finds out in a task of its own what else could be the cause of a silence; [`Done::Probed`] follows. Returns when to do so
    /// again.
    fn look_around(&mut self, node: &NodeName, now: Moment) -> Moment {
        let busy = self.neighbours.values().filter(|neighbour| neighbour.probing).count();
        let witness = self.fleet.nodes.get(node).and_then(|node| node.power.as_ref()?.witness);
        let to = Endpoint::of(&self.fleet, &self.me, node);
        let later = now + PROBE_AGAIN;
        let (Some(neighbour), Some(to)) = (self.neighbours.get_mut(node), to) else { return later };
        let due = neighbour.probe.as_ref().map_or(now, |(at, _)| *at + PROBE_AGAIN);
        if neighbour.probing || busy >= PROBES {
            return later;
        }
        if due > now {
            return due;
        }
        neighbour.probing = true;
        let (done, node) = (self.handles.done.clone(), node.clone());
        tokio::spawn(async move {
            let probe = Box::new(probe(to, witness).await);
            let _ = done.send(Done::Probed { node, probe }).await;
        });
        later
    }

    /// It was found out.
    pub(super) fn probed(&mut self, node: &NodeName, probe: Probe, now: Moment) {
        let Some(neighbour) = self.neighbours.get_mut(node) else { return };
        neighbour.probing = false;
        let before = neighbour.probe.replace((now, probe)).map(|(_, probe)| probe.node);
        if before.as_ref() != self.neighbours.get(node).and_then(|known| Some(&known.probe.as_ref()?.1.node))
        {
            self.publish_silent(now);
        }
    }

    /// Asks the other watchers of each silent node how they see it, if their last word grows old; [`Done::Sees`] follows.
    fn ask_the_others(&mut self, now: Moment) -> Option<Moment> {
        let mut wake = None::<Moment>;
        let mut ask: Vec<NodeName> = Vec::new();
        for (node, neighbour) in &self.neighbours {
            if !silent(neighbour.state()) {
                continue;
            }
            let watchers =
                self.fleet.nodes.get(node).map(|node| node.watched_by.iter()).into_iter().flatten();
            ask.extend(watchers.filter(|other| *other != node).cloned());
        }
        ask.sort();
        ask.dedup();
        for other in ask {
            let Some(neighbour) = self.neighbours.get_mut(&other) else { continue };
            if neighbour.state() != NodeState::Up {
                continue;
            }
            let due = neighbour.asked.map_or(now, |asked| asked + ASK_AGAIN);
            let next = if due > now { due } else { now + ASK_AGAIN };
            wake = Some(wake.map_or(next, |earlier| earlier.min(next)));
            if due > now {
                continue;
            }
            neighbour.asked = Some(now);
            let (handle, done) = (neighbour.handle.clone(), self.handles.done.clone());
            tokio::spawn(async move {
                let verdict =
                    handle.request(None, Verb::Status {}, "a node that both watch is silent", ANSWER);
                let sees = match verdict.await {
                    Ok(Verdict::Outcome(Outcome::Status(report))) if report.node == other => {
                        Some(report.sees)
                    }
                    Ok(Verdict::Outcome(_) | Verdict::Refused(_)) | Err(_) => None,
                };
                let _ = done.send(Done::Sees { node: other, sees }).await;
            });
        }
        wake
    }

    /// Another watcher has said how it sees the nodes that it watches.
    pub(super) fn says(&mut self, node: &NodeName, sees: Option<Vec<Sighting>>, now: Moment) {
        let (Some(neighbour), Some(sees)) = (self.neighbours.get_mut(node), sees) else { return };
        neighbour.says(sees, now);
    }

    /// How a watched node looks from here, what else could be the cause of its silence, and what is done about it.
    pub(super) fn explain_node(&self, node: &NodeName, now: Moment) -> Option<NodeExplanation> {
        if *node == self.me {
            let report = self.node_report(now);
            let observed = std::iter::once(report.why.clone()).chain(report.degraded.clone()).collect();
            return Some(NodeExplanation { report, observed, decided: Vec::new() });
        }
        let report = self.neighbour_report(node, now)?;
        let neighbour = self.neighbours.get(node)?;
        let mut observed = vec![format!(
            "{} for {}: {}",
            report.state.name(),
            human(now.since(neighbour.since())),
            report.why
        )];
        let mut decided = Vec::new();
        match report.state {
            NodeState::Unreachable => {
                let blackout = self.blackout(node, neighbour.dark_for(now), now)?;
                if self.may_power(node) {
                    observed.extend(causes(&blackout).iter().map(in_words));
                }
                decided.push(self.power_in_words(node, neighbour, &blackout, now));
            }
            NodeState::CutOff => decided
                .push("nothing is done: whoever is cut off does not know how the other side is".to_owned()),
            NodeState::SupervisorDead => {
                decided.push("its host is up, so `power` is not run; its door is knocked at".to_owned());
            }
            NodeState::Leaving => decided.push("it said so: nothing is done for ten minutes".to_owned()),
            NodeState::Up | NodeState::Starting | NodeState::Unknown => {}
        }
        Some(NodeExplanation { report, observed, decided })
    }

    fn power_in_words(
        &self,
        node: &NodeName,
        neighbour: &Neighbour,
        blackout: &Blackout,
        now: Moment,
    ) -> String {
        let Some(settings) = self.fleet.nodes.get(node).and_then(|node| node.power.as_ref()) else {
            return format!("fleet.yaml names no `power` for {node}: someone must go there");
        };
        if !self.may_power(node) {
            return format!("{} has no grant to `power` {node}", self.me);
        }
        let again = neighbour.powered.map(|last| last + POWER_AGAIN).filter(|again| *again > now);
        let pending = causes(blackout).into_iter().find(|cause| cause.found == Found::Pending);
        let pending = pending.map(|cause| cause.what);
        match (power(blackout, settings.after), again) {
            (Power::No(why), _) => {
                format!("`power` is not run by itself: {why}; by hand: keyholder power {node}")
            }
            (Power::Now | Power::In(_), Some(again)) => {
                format!("`power` was run; again in {} at the earliest", human(again.since(now)))
            }
            (Power::Now, None) => "`power` is run now".to_owned(),
            (Power::In(_), None) if pending.is_some() => {
                format!("`power` waits until it is known: {}", pending.unwrap_or_default())
            }
            (Power::In(wait), None) => format!("`power` is run in {} if nothing changes", human(wait)),
        }
    }
}

fn in_words(cause: &BlackoutCause) -> String {
    let found = match cause.found {
        Found::Excluded => "excluded",
        Found::CannotTell => "cannot be told",
        Found::Pending => "not known yet",
        Found::Stands => "not excluded",
    };
    format!("{found}: {} ({})", cause.what, cause.how)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::parse;

    #[test]
    fn only_a_watcher_of_a_node_is_heard_about_it() {
        let node = |name: &str, last: u8, digit: char, more: &str| {
            let pin = digit.to_string().repeat(64);
            format!(
                "  {name}: {{ address: 192.0.2.{last}:7433, pins: [\"sha256:{pin}\"], watched_by: [{more}] }}\n"
            )
        };
        let text = format!(
            "version: 1\nnodes:\n{}{}{}{}grants:\n  - {{ from: ai-core, on: mars, workers: [\"*\"], verbs: [status, relaunch] }}\n",
            node("ai-core", 1, 'a', "mars"),
            node("mars", 2, 'b', "ai-core, venus"),
            node("venus", 3, 'c', "ai-core"),
            node("luna", 4, 'd', "ai-core"),
        );
        let fleet =
            parse("fleet.yaml", text.as_bytes()).unwrap_or_else(|problems| panic!("{problems}")).fleet;
        let heard = |other: &str| is_heard(&fleet, &other.parse().unwrap(), &"mars".parse().unwrap());
        assert!(heard("venus"));
        assert!(!heard("luna"), "its word could veto a `power` for ever, and it sees nothing of mars");
        assert!(!heard("mars"), "nobody is heard about itself");
        assert!(!heard("pluto"));
    }
}
