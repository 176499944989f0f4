//! The task: a session on the bus while there is one, `systemctl` while there is none.

use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, sleep_until};

use super::session::{End, Session};
use super::systemctl::{self, Looked, Shown};
use super::table::Table;
use super::{ActError, Ask, BusState, HostState, RelaunchReply, SystemdEvent};
use crate::vocabulary::UnitName;

/// The target whose job means that the host goes down.
pub(super) const SHUTDOWN: &str = "shutdown.target";
/// The wait before the first new attempt to reach the bus; it doubles …
const FIRST_RETRY: Duration = Duration::from_millis(50);
/// … up to this.
const LAST_RETRY: Duration = Duration::from_secs(1);
/// How often `systemctl` is asked while the bus is gone.
const FALLBACK_POLL: Duration = Duration::from_secs(1);

/// Where PID 1 is to be found.
#[derive(Debug, Clone)]
pub(super) struct Endpoints {
    /// The system bus. Fixed and not from the environment, which is none of a root process's business.
    pub(super) bus: String,
    /// The program that reaches PID 1 without the bus.
    pub(super) systemctl: PathBuf,
}

impl Default for Endpoints {
    fn default() -> Self {
        Self {
            bus: "unix:path=/run/dbus/system_bus_socket".to_owned(),
            systemctl: "/usr/bin/systemctl".into(),
        }
    }
}

/// What the task owns, with or without a session.
pub(super) struct Hub {
    place: Endpoints,
    pub(super) units: watch::Receiver<Vec<UnitName>>,
    /// False once nobody can change the list any more.
    pub(super) units_open: bool,
    pub(super) events: mpsc::Sender<SystemdEvent>,
    pub(super) asks: mpsc::Receiver<Ask>,
    pub(super) table: Table,
    /// Whether there was ever a connection.
    connected: bool,
    /// Whether the present loss has been told.
    lost: bool,
    retry: Duration,
}

/// Why the loop without a bus woke.
enum Turn {
    Sent,
    Closed,
    Opened(Result<Box<Session>, String>),
    Asked(Ask),
    Shown(Result<Vec<Shown>, String>),
    Looked(Result<Vec<Looked>, String>),
    Due,
}

type Doing<T> = Pin<Box<dyn Future<Output = Result<T, String>> + Send>>;

/// Runs until nobody listens to `events` any more.
pub(super) async fn run(
    place: Endpoints,
    units: watch::Receiver<Vec<UnitName>>,
    events: mpsc::Sender<SystemdEvent>,
    asks: mpsc::Receiver<Ask>,
) {
    let mut hub = Hub {
        place,
        units,
        units_open: true,
        events,
        asks,
        table: Table::default(),
        connected: false,
        lost: false,
        retry: Duration::ZERO,
    };
    while let Some(session) = hub.without_bus().await {
        match session.run(&mut hub).await {
            End::Closed => return,
            // Should the new connection fail, that is said then.
            End::Renewed => {}
            End::Lost(why) => hub.lose(why),
        }
    }
}

/// The end of the action under way; never, if there is none.
async fn finish<T>(doing: &mut Option<Doing<T>>) -> Result<T, String> {
    match doing {
        Some(doing) => doing.await,
        None => std::future::pending().await,
    }
}

impl Hub {
    /// PID 1 is heard over the bus.
    pub(super) fn connected(&mut self) {
        self.retry = Duration::ZERO;
        if std::mem::replace(&mut self.lost, false) || !self.connected {
            self.connected = true;
            self.table.tell_bus(BusState::Connected);
        }
    }

    /// Notes what the manager calls its SystemState.
    pub(super) fn system_state(&mut self, state: &str) {
        let state = match state {
            "initializing" | "starting" => HostState::Starting,
            "running" | "degraded" => HostState::Running,
            "maintenance" => {
                tracing::warn!("the host is in rescue or emergency mode");
                HostState::Running
            }
            "stopping" => HostState::Stopping,
            other => {
                tracing::warn!(state = other, "systemd reports a host state that is unknown here");
                return;
            }
        };
        self.table.tell_host(state);
    }

    fn lose(&mut self, why: String) {
        self.retry = (self.retry * 2).clamp(FIRST_RETRY, LAST_RETRY);
        if !self.lost {
            self.lost = true;
            self.table.tell_bus(BusState::Lost(why));
        }
    }

    /// Tries to reach the bus until it succeeds, and meanwhile observes by `systemctl`. `None` when nobody listens.
    async fn without_bus(&mut self) -> Option<Session> {
        let mut opening = self.open();
        let mut polling: Option<Doing<Vec<Shown>>> = None;
        let mut looking: Option<Doing<Vec<Looked>>> = None;
        let mut poll_at = Instant::now();
        loop {
            if self.lost && polling.is_none() && Instant::now() >= poll_at {
                let units = self.watched();
                poll_at = Instant::now() + FALLBACK_POLL;
                // Once the host is up, only its end is of interest, and that is seen with the units.
                let boots = matches!(self.table.host(), None | Some(HostState::Starting));
                polling = Some(Box::pin(systemctl::show(self.place.systemctl.clone(), units, boots)));
            }
            if self.lost && looking.is_none() {
                let wanted: Vec<_> = std::iter::from_fn(|| self.table.next_to_look()).collect();
                if !wanted.is_empty() {
                    looking = Some(Box::pin(systemctl::others(self.place.systemctl.clone(), wanted)));
                }
            }
            // Each branch is cancel safe: the long actions are kept across turns.
            let turn = tokio::select! {
                biased;
                permit = self.events.reserve(), if self.table.has_news() => match permit {
                    Ok(permit) => {
                        if let Some(event) = self.table.next_news() { permit.send(event); }
                        Turn::Sent
                    }
                    Err(_) => Turn::Closed,
                },
                () = self.events.closed() => Turn::Closed,
                opened = &mut opening => Turn::Opened(opened),
                Some(ask) = self.asks.recv() => Turn::Asked(ask),
                shown = finish(&mut polling) => Turn::Shown(shown),
                looked = finish(&mut looking) => Turn::Looked(looked),
                () = sleep_until(poll_at), if self.lost && polling.is_none() => Turn::Due,
            };
            match turn {
                Turn::Sent | Turn::Due => {}
                Turn::Closed => return None,
                Turn::Opened(Ok(session)) => return Some(*session),
                Turn::Opened(Err(why)) => {
                    self.lose(why);
                    opening = self.open();
                }
                Turn::Asked(Ask::Look(unit)) => {
                    self.table.ask(&unit);
                    poll_at = Instant::now();
                }
                Turn::Asked(Ask::Relaunch { unit, reply, .. }) => {
                    // Whoever asked may have given up.
                    let _ = reply.send(self.break_glass_reply(&unit));
                }
                // None of these is worth a second way: what they are for waits until the bus is back.
                Turn::Asked(Ask::Act(wish)) => {
                    wish.refuse(ActError::Bus("the system bus is gone".to_owned()));
                }
                Turn::Asked(Ask::Watchdog { reply, .. }) => {
                    let _ = reply.send(Err("the system bus is gone".to_owned()));
                }
                Turn::Asked(Ask::Host { reply }) => {
                    let _ = reply.send(Err("the system bus is gone".to_owned()));
                }
                Turn::Asked(Ask::Facts { reply, .. }) => {
                    let _ = reply.send(Err("the system bus is gone".to_owned()));
                }
                Turn::Shown(shown) => {
                    polling = None;
                    self.shown(shown);
                }
                Turn::Looked(looked) => {
                    looking = None;
                    for (unit, other, raw) in looked.into_iter().flatten() {
                        self.table.looked(&unit, other, raw);
                    }
                }
            }
        }
    }

    fn open(&self) -> Doing<Box<Session>> {
        let (bus, wait) = (self.place.bus.clone(), self.retry);
        Box::pin(async move {
            sleep(wait).await;
            Session::open(bus).await.map(Box::new)
        })
    }

    fn watched(&mut self) -> Vec<UnitName> {
        let units = self.units.borrow_and_update().clone();
        self.table.watch(&units);
        units
    }

    /// The answer to an order while the bus is gone: whoever asked takes the other way.
    fn break_glass_reply(&mut self, unit: &UnitName) -> RelaunchReply {
        self.watched();
        if !self.table.watches(unit) {
            return super::not_watched();
        }
        let before = self.table.raw(unit).and_then(|raw| raw.invocation);
        RelaunchReply::Gone { why: "the system bus is gone".to_owned(), before }
    }

    fn shown(&mut self, shown: Result<Vec<Shown>, String>) {
        match shown {
            Ok(shown) => {
                for one in shown {
                    match one {
                        Shown::Unit(unit, raw) => self.table.replace(&unit, *raw),
                        Shown::Stopping => self.table.tell_host(HostState::Stopping),
                        Shown::Host(state) => self.system_state(&state),
                    }
                }
            }
            Err(why) => {
                for unit in self.table.units() {
                    self.table.failed(&unit, &why);
                }
            }
        }
    }
}
