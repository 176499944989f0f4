//! The loop: it waits for the next thing to happen, hands it to the owner of the state, and waits for nobody.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch::Sender as Published;
use tokio::sync::{mpsc, oneshot};
use tokio::task::{JoinError, JoinHandle};
use tokio::time::{Instant, sleep_until, timeout};

use super::alarm;
use super::assignments::Assignments;
use super::core::{Core, Done, Handles};
use super::kernel;
use super::lanes::{self, LaneNews};
use super::own_host::OwnHost;
use super::publisher::Publisher;
use super::setup::{Setup, SuperviseError};
use super::worker::Worker;
use crate::detect::{self, Vital};
use crate::fleet::Fleet;
use crate::journal::{Event as Kind, Priority, Record, take_warnings};
use crate::judge::{Host, WorkerState};
use crate::notify::Notifier;
use crate::peer::bounds::Known;
use crate::peer::client::Endpoint;
use crate::peer::identity::Identity;
use crate::peer::inbox::{Inbox, InboxMessage};
use crate::peer::listener::{self, DoorError};
use crate::peer::watch::{self, PeerEvent, PeerHandle};
use crate::peer::wire::Hello;
use crate::store::{self, SavedState};
use crate::systemd::{self, BusState, HostState, SystemdEvent};
use crate::vocabulary::{BootNonce, Moment, NodeName, with_causes};

/// How many events of each kind may wait for the loop. It takes them in microseconds; a full channel holds the sender.
const INBOX: usize = 256;
/// How long requests wait after the start for the first look at every worker; it takes some milliseconds unless PID 1 hangs.
const FIRST_LOOKS: Duration = Duration::from_secs(2);
/// How long a clean stop waits for systemd's answer whether the whole host stops.
const SHUTDOWN_WORD: Duration = Duration::from_secs(2);
/// The same if systemd cannot be asked.
const UNASKED_WORD: Duration = Duration::from_millis(200);
/// How long a clean stop may take to say goodbye and to write the evidence down.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Everything that can wake the loop.
struct Sources {
    systemd: mpsc::Receiver<SystemdEvent>,
    orders: mpsc::Receiver<InboxMessage>,
    peers: mpsc::Receiver<PeerEvent>,
    vitals: mpsc::Receiver<Vec<Vital>>,
    done: mpsc::Receiver<Done>,
    lanes: mpsc::Receiver<LaneNews>,
    reload: Signal,
    terminate: Signal,
    interrupt: Signal,
    door: JoinHandle<Result<(), DoorError>>,
}

/// Why the loop woke.
enum Woke {
    Systemd(SystemdEvent),
    InboxMessage(InboxMessage),
    Peer(PeerEvent),
    Vitals(Vec<Vital>),
    Done(Done),
    Lane(LaneNews),
    Reload,
    Stop,
    /// PID 1 reads again what it is told.
    Pid1,
    DoorClosed(Result<Result<(), DoorError>, JoinError>),
    Time,
}

impl Sources {
    /// Waits for the next event, at most for `time`. Each branch is cancel-safe: `recv` takes nothing before it is ready.
    /// Requests wait unless `requests` is set.
    async fn next(&mut self, time: Duration, requests: bool) -> Woke {
        tokio::select! {
            // What systemd saw comes first: every decision should rest on the newest look.
            biased;
            Some(event) = self.systemd.recv() => Woke::Systemd(event),
            Some(done) = self.done.recv() => Woke::Done(done),
            Some(order) = self.orders.recv(), if requests => Woke::InboxMessage(order),
            Some(event) = self.peers.recv() => Woke::Peer(event),
            Some(vitals) = self.vitals.recv() => Woke::Vitals(vitals),
            Some(news) = self.lanes.recv() => Woke::Lane(news),
            _ = self.terminate.recv() => Woke::Stop,
            _ = self.interrupt.recv() => Woke::Stop,
            _ = self.reload.recv() => Woke::Reload,
            end = &mut self.door => Woke::DoorClosed(end),
            () = tokio::time::sleep(time) => Woke::Time,
        }
    }
}

/// What follows peers: everything that a new watch needs.
struct Follow {
    me: NodeName,
    nonce: BootNonce,
    identity: Identity,
    events: mpsc::Sender<PeerEvent>,
}

impl Follow {
    fn start(&self, fleet: &Fleet, node: &NodeName) -> Option<PeerHandle> {
        let hello = Hello {
            node: self.me.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            boot_nonce: self.nonce,
            fleet_hash: fleet.hash,
        };
        let to = Endpoint::of(fleet, &self.me, node)?;
        let known = Known::of(fleet, node);
        Some(watch::follow(to, known, self.identity.clone(), hello, self.events.clone()))
    }
}

/// Runs the supervisor until it is told to stop.
pub(super) async fn run(setup: Setup) -> Result<(), SuperviseError> {
    let now = Moment::now();
    let me = setup.node;
    let (fleet, warnings) = load(&setup.fleet, &me)?;
    let identity = Identity::load(&setup.key).map_err(SuperviseError::Identity)?;
    let listeners = kernel::sockets()?;
    if listeners.tcp.is_empty() && listeners.unix.is_empty() {
        return Err(SuperviseError::NoSockets);
    }
    let evidence = store::start(&setup.state_dir, &me);
    take_warnings(evidence.recorder.clone());
    let nonce = BootNonce::random().map_err(SuperviseError::Random)?;

    let (systemd_tx, systemd_rx) = mpsc::channel(INBOX);
    let (orders_tx, orders_rx) = mpsc::channel(INBOX);
    let (peers_tx, peers_rx) = mpsc::channel(INBOX);
    let (done_tx, done_rx) = mpsc::channel(INBOX);
    let (vitals_tx, vitals_rx) = mpsc::channel(INBOX);
    let (fleet_tx, fleet_rx) = tokio::sync::watch::channel(fleet.clone());
    let (assignments, assigned) = Assignments::new(setup.redis);
    let (news_tx, news_rx) = mpsc::channel(INBOX);
    tokio::spawn(lanes::follow(me.clone(), assigned.lanes, news_tx));
    let systemd = systemd::start(assigned.units, systemd_tx);
    detect::start(assigned.plan, systemd.clone(), vitals_tx);
    let mut core = Core {
        me: me.clone(),
        fleet: fleet.clone(),
        workers: Default::default(),
        neighbours: Default::default(),
        host: OwnHost::new(now),
        drills: Default::default(),
        alerts: Default::default(),
        publisher: Publisher::new(now),
        assignments,
        handles: Handles {
            systemd,
            store: evidence.store,
            recorder: evidence.recorder.clone(),
            done: done_tx,
        },
        started: now,
    };
    alarm::start(me.clone(), core.handles.recorder.clone(), core.handles.systemd.clone());
    take_over(&mut core, &fleet, &evidence.loaded, now);
    if let Some(saved) = &evidence.loaded.alerts {
        core.take_over_alerts(saved, now);
    }
    core.adopt(fleet.clone(), now);
    for (key, saved) in &evidence.loaded.rehearsals {
        core.take_over_rehearsal(key, saved, away(saved.saved_wall_ms), now);
    }
    core.watch_units();
    let follow = Follow { me: me.clone(), nonce, identity: identity.clone(), events: peers_tx };
    core.follow_neighbours(|fleet, node| follow.start(fleet, node), now);

    let inbox = Inbox { me, nonce, fleet: fleet_rx, orders: orders_tx, recorder: evidence.recorder };
    let (shut, shutdown) = oneshot::channel::<()>();
    let door = tokio::spawn(async move {
        let shutdown = async {
            let _ = shutdown.await;
        };
        listener::serve(listeners, &identity, inbox, shutdown).await
    });

    let catch = |kind| signal(kind).map_err(SuperviseError::Signals);
    let mut sources = Sources {
        systemd: systemd_rx,
        orders: orders_rx,
        peers: peers_rx,
        vitals: vitals_rx,
        done: done_rx,
        lanes: news_rx,
        reload: catch(SignalKind::hangup())?,
        terminate: catch(SignalKind::terminate())?,
        interrupt: catch(SignalKind::interrupt())?,
        door,
    };
    let text = format!("keyholder {} supervises {} workers", env!("CARGO_PKG_VERSION"), core.workers.len());
    core.handles.recorder.record(Record::local(Kind::Supervisor, Priority::Notice, core.me.as_str(), text));
    core.warn_of_fleet(warnings);
    let mut notifier = Notifier::from_environment();
    notifier.ready();
    let end = supervise(&mut core, &mut sources, &mut notifier, &setup.fleet, &fleet_tx, &follow).await;

    notifier.stopping();
    learn_why(&mut core, &mut sources.systemd).await;
    core.goodbye();
    drop(shut);
    // The watchers are told by the door's last frames; whatever is still open after that is cut.
    if end.is_ok() {
        let _ = timeout(LAST_WORDS, sources.door).await;
    }
    // What did not get to disk in time is in the journal, and the other way round; the stop does not wait for either.
    let _ = core.handles.store.flush(LAST_WORDS).await;
    end
}

async fn supervise(
    core: &mut Core,
    sources: &mut Sources,
    notifier: &mut Notifier,
    path: &Path,
    fleet_tx: &Published<Arc<Fleet>>,
    follow: &Follow,
) -> Result<(), SuperviseError> {
    // Whether there was anything since the last quiet moment; the start counts.
    let mut busy = true;
    let first_looks_until = Moment::now() + FIRST_LOOKS;
    loop {
        let now = Moment::now();
        let due = core.tick(now);
        // What is not known yet may be in the middle of a restart that the supervisor before this one has ordered.
        let requests = now >= first_looks_until || core.has_looked_at_all();
        let due = if requests {
            due
        } else {
            Some(due.map_or(first_looks_until, |due| due.min(first_looks_until)))
        };
        // Each new text is work for PID 1, which has better things to do while it brings a worker back.
        if !core.is_acting(now) {
            notifier.status(core.status_line(now));
        }
        notifier.passed();
        core.pid1(notifier.deaf_for(), now);
        let sleep = due.map_or(notifier.at_most(), |due| due.since(now).min(notifier.at_most()));
        let woke = tokio::select! {
            woke = sources.next(sleep, requests) => woke,
            () = notifier.hears_again() => Woke::Pid1,
        };
        let before = now;
        let now = Moment::now();
        core.slept(before, sleep, now);
        if let Woke::Time = woke {
            if std::mem::take(&mut busy) {
                kernel::let_go_of_idle_code();
            }
        } else {
            busy = true;
        }
        match woke {
            Woke::Systemd(SystemdEvent::Observed { unit, observation }) => {
                core.observed(&unit, &observation, now)
            }
            Woke::Systemd(SystemdEvent::Host(host)) => core.host(host_of(host), now),
            Woke::Systemd(SystemdEvent::Bus(BusState::Connected)) => core.bus(None, now),
            Woke::Systemd(SystemdEvent::Bus(BusState::Lost(why))) => core.bus(Some(why), now),
            Woke::Systemd(SystemdEvent::Door { shut }) => core.door(shut, now),
            Woke::InboxMessage(order) => core.order(order, now),
            Woke::Peer(event) => core.peer(event, now),
            Woke::Lane(news) => core.lane(news, now),
            Woke::Done(Done::Relaunch { worker, end, log }) => core.relaunched(&worker, *end, log, now),
            Woke::Done(Done::Gentle { worker, remedy, result, took }) => {
                core.gentled(&worker, remedy, result, took, now);
            }
            Woke::Done(Done::Probed { node, probe }) => core.probed(&node, *probe, now),
            Woke::Done(Done::Sees { node, sees }) => core.says(&node, sees, now),
            Woke::Done(Done::Power { node, how, reply, took }) => core.powered(&node, how, reply, took, now),
            Woke::Done(Done::Drill { worker, ended }) => core.drill_done(&worker, *ended, now),
            Woke::Done(Done::DrillNode { node, came, reply }) => {
                core.drilled_neighbour(&node, *came, reply, now);
            }
            Woke::Done(Done::Hindrance { worker, hang, hindrance }) => {
                core.hangs(&worker, hang, hindrance, now);
            }
            Woke::Done(Done::Alert { about, alert }) => core.alert_told(&about, &alert, now),
            Woke::Done(Done::Alive(why)) => core.still_alive(&why),
            Woke::Vitals(vitals) => {
                for vital in vitals {
                    core.read(vital, now);
                }
            }
            Woke::Done(Done::WatcherJob { target, verdict }) => core.errand_done(&target, &verdict, now),
            Woke::Reload => reload(core, path, fleet_tx, follow, now),
            // A rehearsal of this very death: no goodbye, nothing put in order.
            Woke::Stop if core.drills.to_die && core.host.state() != Host::Stopping => kernel::die(),
            Woke::Stop => return Ok(()),
            // A supervisor without its door is deaf; systemd starts one that hears.
            Woke::DoorClosed(Ok(Err(error))) => return Err(SuperviseError::Door(error)),
            Woke::DoorClosed(Ok(Ok(())) | Err(_)) => return Err(SuperviseError::DoorEnded),
            Woke::Time | Woke::Pid1 => {}
        }
    }
}

/// On the way down with the host, SIGTERM may overtake systemd's word that the host goes (9 ms were measured, and a busy bus
/// takes longer). The watchers have to hear "leaving", so systemd is asked; an ordinary stop has its answer in a millisecond.
async fn learn_why(core: &mut Core, events: &mut mpsc::Receiver<SystemdEvent>) {
    let systemd = core.handles.systemd.clone();
    let mut asked = std::pin::pin!(systemd.host_state());
    let (mut answered, mut until) = (false, Instant::now() + SHUTDOWN_WORD);
    while core.host.state() != Host::Stopping {
        tokio::select! {
            answer = &mut asked, if !answered => match answer {
                Ok(state) => return core.host(host_of(state), Moment::now()),
                // Without the bus the unasked word may still be on its way.
                Err(_) => (answered, until) = (true, until.min(Instant::now() + UNASKED_WORD)),
            },
            word = events.recv() => match word {
                Some(SystemdEvent::Host(state)) => core.host(host_of(state), Moment::now()),
                Some(SystemdEvent::Observed { .. } | SystemdEvent::Bus(_) | SystemdEvent::Door { .. }) => {}
                None => return,
            },
            () = sleep_until(until) => return,
        }
    }
}

/// Reads the fleet file and makes sure that this node is in it.
fn load(path: &Path, me: &NodeName) -> Result<(Arc<Fleet>, Vec<String>), SuperviseError> {
    let loaded = Fleet::load(path).map_err(SuperviseError::Fleet)?;
    if !loaded.fleet.nodes.contains_key(me) {
        return Err(SuperviseError::NotInFleet { node: me.clone(), path: path.to_owned() });
    }
    Ok((Arc::new(loaded.fleet), loaded.warnings.iter().map(ToString::to_string).collect()))
}

/// SIGHUP: a good new file is adopted as a whole, a broken one changes nothing and is said to be broken.
fn reload(core: &mut Core, path: &Path, fleet_tx: &Published<Arc<Fleet>>, follow: &Follow, now: Moment) {
    match load(path, &core.me) {
        Ok((fleet, warnings)) => {
            core.reloaded(None, now);
            fleet_tx.send_replace(fleet.clone());
            core.adopt(fleet, now);
            core.follow_neighbours(|fleet, node| follow.start(fleet, node), now);
            let text = format!("configuration reloaded: {}", core.fleet.hash);
            core.handles.recorder.record(Record::local(
                Kind::Supervisor,
                Priority::Notice,
                "fleet.yaml",
                text,
            ));
            core.warn_of_fleet(warnings);
        }
        Err(error) => {
            let text =
                format!("reload refused, the old configuration stays in force: {}", with_causes(&error));
            core.handles.recorder.record(Record::local(
                Kind::Degraded,
                Priority::Warning,
                "fleet.yaml",
                text.clone(),
            ));
            core.reloaded(Some(text), now);
        }
    }
}

fn host_of(state: HostState) -> Host {
    match state {
        HostState::Starting => Host::Starting,
        HostState::Running => Host::Running,
        HostState::Stopping => Host::Stopping,
    }
}

/// How long ago the wall clock says something was saved; zero if the clock has gone back. Only the length of a hold
/// over a reboot rests on it.
fn away(saved_wall_ms: i64) -> Duration {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    now.saturating_sub(Duration::from_millis(saved_wall_ms.try_into().unwrap_or(0)))
}

/// Takes over what an earlier run of the supervisor saved of the workers.
fn take_over(core: &mut Core, fleet: &Fleet, loaded: &SavedState, now: Moment) {
    let Some(node) = fleet.nodes.get(&core.me) else { return };
    for (name, saved) in &loaded.workers {
        let Some(spec) = node.workers.get(name) else { continue };
        let state = match serde_json::from_str::<WorkerState>(&saved.json) {
            Ok(state) if saved.same_boot => state.taken_over(),
            Ok(state) => state.after_reboot(saved.saved_at_moment, away(saved.saved_wall_ms), now),
            Err(error) => {
                let text = format!("its saved state cannot be read ({error}); starting afresh");
                core.handles.recorder.record(Record::local(
                    Kind::Degraded,
                    Priority::Warning,
                    core.target(name),
                    text,
                ));
                WorkerState::default()
            }
        };
        core.workers.insert(name.clone(), Box::new(Worker::new(spec.clone(), state, now)));
    }
}
