//! Alerts and their ends: who is called, when, and what the record says.

use std::time::Duration;

use super::core::{Core, Done};
use super::evidence::{causes, journal_of};
use super::own_host::bus_lost;
use super::worker::Worker;
use crate::journal::{Event as Kind, Priority, Record};
use crate::judge::{ALERT_SETTLE, Alert, Alerts, Health, Idle, Phase};
use crate::peer::wire::NodeState;
use crate::store::SavedWorker;
use crate::vocabulary::{Moment, NodeName, WorkerName, human};

/// How long a new supervisor leaves open what an earlier one has told: by then it has looked at everything.
const FIRST_LOOKS: Duration = Duration::from_secs(15);
/// How long a supervisor of a neighbour may be dead before somebody is called: it is being knocked at.
const KNOCKED: Duration = Duration::from_secs(30);

/// What of our own may be in trouble, as the key of its episode: the node's name and this.
const BUS: &str = "system bus";
const PID1: &str = "PID 1";
const NETWORK: &str = "network";
const DOOR: &str = "door";
const DISK: &str = "state";
const FLEET: &str = "fleet.yaml";
const BRAKE: &str = "workers";

/// The node or worker that the key of an episode begins with.
fn subject(about: &str) -> &str {
    about.split(' ').next().unwrap_or(about)
}

impl Worker {
    /// How its trouble is over, if it is. What cannot be seen ends nothing.
    fn over(&self, now: Moment) -> Option<String> {
        if let Some(hold) = self.state.held(now) {
            return Some(format!("on hold by {}: {}", hold.by, hold.why));
        }
        if self.state.phase != Phase::Watching || self.loops_now(now) {
            return None;
        }
        match &self.health {
            Health::Healthy => Some("well again".to_owned()),
            // An agreed exit is what people were called for.
            Health::Idle(Idle::Agreed(_)) => None,
            Health::Idle(idle) => Some(idle.to_string()),
            Health::Blind(_)
            | Health::Stuck(_)
            | Health::DeliveryGap(_)
            | Health::InTransition(_)
            | Health::Dead(_)
            | Health::Unknown(_) => None,
        }
    }
}

impl Core {
    /// Has people told of trouble with a worker. Nobody is called for what was done on purpose, or for what nothing depends on.
    pub(super) fn raise(&mut self, about: &str, alert: Alert, wait: Duration, now: Moment) {
        self.alerts.raise(about, alert, wait, now);
        // What waits outlasts this supervisor, too.
        self.save_alerts();
        self.tell_due(now);
    }

    /// The trouble with a worker is over if what was last seen of it says so.
    pub(super) fn look_for_end(&mut self, name: &WorkerName, now: Moment) {
        // Every look comes by here, and mostly there is no trouble.
        if self.alerts.none_open() {
            return;
        }
        let about = self.target(name);
        if !self.alerts.is_open(&about) {
            return;
        }
        if let Some(how) = self.workers.get(name).and_then(|worker| worker.over(now)) {
            self.end(&about, &how, now);
        }
    }

    /// The trouble with something is over.
    pub(super) fn end(&mut self, about: &str, how: &str, now: Moment) {
        if !self.alerts.is_open(about) {
            return;
        }
        if let Some(lasted) = self.alerts.end(about, how, now) {
            self.tell_end(about, how, lasted);
        }
        self.save_alerts();
    }

    fn tell_end(&self, about: &str, how: &str, lasted: Duration) {
        let subject = subject(about);
        let text = format!("{about}: {how} after {}: the alert is over", human(lasted));
        self.handles.recorder.record(Record::local(Kind::AlertEnded, Priority::Notice, subject, text));
    }

    /// Tells what is due. For a worker the unit's last journal lines go with it, which are read in a task of its own.
    fn tell_due(&mut self, now: Moment) {
        let due = self.alerts.due(now);
        if due.is_empty() {
            return;
        }
        for (about, alert) in due {
            let worker = self.workers.iter().find(|(name, _)| self.target(name) == about);
            let Some((_, worker)) = worker else {
                self.alert_told(&about, &alert, now);
                continue;
            };
            let (unit, why, done) = (worker.spec.unit.clone(), worker.why(), self.handles.done.clone());
            tokio::spawn(async move {
                let text = format!("{}; {}", alert.text, causes(&why, &journal_of(&unit).await));
                // The loop's inbox closes only with the loop itself.
                let _ = done.send(Done::Alert { about, alert: Alert { text, ..alert } }).await;
            });
        }
        self.save_alerts();
    }

    /// All that people want to know of an alert is known.
    pub(super) fn alert_told(&mut self, about: &str, alert: &Alert, now: Moment) {
        let priority = if alert.urgent { Priority::Error } else { Priority::Warning };
        let subject = subject(about);
        self.handles.recorder.record(Record::local(Kind::Alert, priority, subject, alert.text.clone()));
        if let Some((how, lasted)) = self.alerts.told(about, &alert.cause, now) {
            self.tell_end(about, &how, lasted);
        }
        self.save_alerts();
    }

    fn save_alerts(&mut self) {
        match serde_json::to_string(&self.alerts) {
            Ok(json) => self.handles.store.save_alerts(json),
            Err(error) => tracing::error!(%error, "the open alerts cannot be saved"),
        }
    }

    /// Takes over what an earlier run of the supervisor has told.
    pub(super) fn take_over_alerts(&mut self, saved: &SavedWorker, now: Moment) {
        match serde_json::from_str::<Alerts>(&saved.json) {
            Ok(alerts) => self.alerts = alerts.taken_over(saved.same_boot, now),
            Err(error) => {
                let text = format!("the open alerts of an earlier run cannot be read: {error}");
                let record = Record::local(Kind::Degraded, Priority::Warning, self.me.as_str(), text);
                self.handles.recorder.record(record);
            }
        }
    }

    /// What has become of a neighbour that somebody was called for.
    pub(super) fn look_at_neighbour(&mut self, node: &NodeName, now: Moment) {
        let Some(neighbour) = self.neighbours.get(node) else { return };
        let (state, why) = (neighbour.state(), neighbour.why().to_owned());
        let alert = |cause: NodeState, text| Alert { cause: cause.name().to_owned(), text, urgent: true };
        match state {
            NodeState::Unreachable => {
                let text = format!(
                    "{node} cannot be reached: its host is down or cut off, which look the same from here. If it stays so, someone must go there ({why})"
                );
                self.raise(node.as_str(), alert(state, text), ALERT_SETTLE, now);
            }
            NodeState::SupervisorDead => {
                let text = format!("the supervisor of {node} stays dead though it is knocked at: {why}");
                self.raise(node.as_str(), alert(state, text), KNOCKED, now);
            }
            NodeState::Up | NodeState::Starting => self.end(node.as_str(), "it answers again", now),
            // That is this host's own trouble, which people are told of as such.
            NodeState::CutOff => {
                self.end(node.as_str(), "how it is cannot be seen: this host is cut off", now)
            }
            NodeState::Leaving => self.end(node.as_str(), "it said that it leaves", now),
            NodeState::Unknown => {}
        }
    }

    /// What of our own is in trouble, or no longer; and what is due.
    pub(super) fn look_at_troubles(&mut self, now: Moment) -> Option<Moment> {
        let network = self.cut_off();
        let disk = self.handles.store.degraded().into_iter().next();
        let braked = self.braked();
        let brake = (braked > 0).then(|| {
            format!("{braked} workers of this node make no progress at once, so the cause is a common one and nothing is restarted")
        });
        for (what, trouble, wait) in [
            (PID1, self.host.pid1_trouble(), Duration::ZERO),
            (BUS, self.host.bus_trouble().map(bus_lost), ALERT_SETTLE),
            (NETWORK, network, Duration::ZERO),
            (DOOR, self.host.door_trouble(), Duration::ZERO),
            (DISK, disk, ALERT_SETTLE),
            (FLEET, self.host.reload_refused(), Duration::ZERO),
            (BRAKE, brake, Duration::ZERO),
        ] {
            if trouble.is_none() && self.alerts.none_open() {
                continue;
            }
            let about = format!("{} {what}", self.me);
            match trouble {
                Some(text) => {
                    let alert = Alert { cause: what.to_owned(), text, urgent: true };
                    self.alerts.raise(&about, alert, wait, now);
                }
                // A bus that is silent because PID 1 hangs is no trouble of its own, and is not back either.
                None if what == BUS && self.host.is_without_bus() => {}
                None if self.alerts.is_open(&about) && now.since(self.started) >= FIRST_LOOKS => {
                    self.end(&about, "whole again", now);
                }
                None => {}
            }
        }
        self.tell_due(now);
        self.alerts.wake()
    }

    /// Ends what nobody looks at any more, after the fleet file has changed.
    pub(super) fn forget_troubles(&mut self, now: Moment) {
        let own = format!("{} ", self.me);
        let known = |about: &str| {
            let subject = subject(about);
            about.starts_with(&own)
                || self.workers.keys().any(|name| self.target(name) == subject)
                || self.fleet.watched_by(&self.me).any(|(node, _)| node.as_str() == subject)
        };
        let gone: Vec<String> = self.alerts.open().filter(|about| !known(about)).map(str::to_owned).collect();
        for about in gone {
            self.end(&about, "no longer in fleet.yaml", now);
        }
    }
}
