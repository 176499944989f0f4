//! One connection to the system bus, from its matches to its end.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::num::{NonZeroU32, NonZeroUsize};
use std::time::Duration;

use futures_util::StreamExt;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until, timeout};
use zbus::message::Type;
use zbus::{Connection, Message, MessageStream, connection};

use super::act::Act;
use super::hub::{Hub, SHUTDOWN};
use super::message::{self, BUS, MANAGER, PROPERTIES};
use super::order::{Next, RelaunchJob};
use super::raw::Raw;
use super::{Ask, Facts, HostState, RelaunchReply};
use crate::vocabulary::UnitName;

mod acts;
mod heard;

/// How long PID 1 and the bus may take for any answer …
const ANSWER: Duration = Duration::from_secs(5);
/// … and while PID 1 reloads: generators are cut off after 90 s, by systemd's default.
const RELOADING: Duration = Duration::from_secs(100);
/// How often everything is compared with what PID 1 says, in case a signal was missed.
const SAFETY_POLL: Duration = Duration::from_secs(10);
/// How many units are read at once. The bus allows 128 unanswered calls per connection.
const WINDOW: usize = 16;
/// How many units are pinned in PID 1's memory at most. For each of them PID 1 adds a match rule of its own to the bus, and
/// the bus allows a connection 512; PID 1 answers the 513th by leaving the bus, for everybody (measured on 252). The rest
/// is for others. A unit that is not pinned is known just as well while somebody watches; see [`Raw::forgotten`].
const PINNED: usize = 256;
/// How long PID 1 may be away from the bus before the bus counts as lost. A re-executed PID 1 is back within 50 ms.
const ABSENCE: Duration = Duration::from_secs(1);
/// Messages that zbus keeps for us between two turns of the loop.
const QUEUE: NonZeroUsize = NonZeroUsize::MIN.saturating_add(31);

/// Why a session ended.
pub(super) enum End {
    /// The connection is of no more use.
    Lost(String),
    /// PID 1 has a new name on the bus (it was re-executed): everything is to be built again, and nothing is wrong.
    Renewed,
    /// Nobody listens any more.
    Closed,
}

/// Why the loop woke.
enum Turn {
    Sent,
    Closed,
    Asked(Ask),
    Units { open: bool },
    Heard(Option<zbus::Result<Message>>),
    Due,
}

/// What an answer is for.
enum Call {
    /// Without a success the connection is useless.
    Setup,
    Owner,
    Subscribe,
    SystemState,
    Door,
    List(Vec<UnitName>),
    Read(UnitName),
    /// A look at a unit that a watched one hangs together with.
    Other(UnitName, String),
    Restart(u64),
    Act(u64),
    /// A look at the unit of an act.
    ActRead(u64),
    Watchdog(oneshot::Sender<Result<u64, String>>),
    Host(oneshot::Sender<Result<HostState, String>>),
    Facts(oneshot::Sender<Result<Facts, String>>),
}

/// The state of one connection.
pub(super) struct Session {
    connection: Connection,
    stream: MessageStream,
    /// PID 1's unique name. Any user may send us a signal directly, past every match rule: only this sender counts.
    owner: String,
    out: Vec<Message>,
    calls: HashMap<NonZeroU32, Call>,
    sent: VecDeque<(Instant, NonZeroU32)>,
    /// Units to be read, those being read, and those to be read again after that.
    to_read: VecDeque<UnitName>,
    reading: BTreeSet<UnitName>,
    /// How many other units are being read.
    others: usize,
    again: BTreeSet<UnitName>,
    /// Units that PID 1 was asked to keep in its memory.
    pinned: BTreeSet<UnitName>,
    orders: Vec<(u64, RelaunchJob)>,
    acts: Vec<(u64, Act)>,
    /// For orders and acts alike.
    next_order: u64,
    reloading: bool,
    /// Until when PID 1 may come back to the bus, if it has left it.
    absent: Option<Instant>,
    safety_poll: Instant,
}

/// What ends a session.
enum Broken {
    Lost(String),
    Renewed,
}

impl From<String> for Broken {
    fn from(why: String) -> Self {
        Self::Lost(why)
    }
}

impl Session {
    /// Connects and says hello.
    pub(super) async fn open(address: String) -> Result<Self, String> {
        let connect =
            connection::Builder::address(address.as_str()).max_queued(QUEUE).method_timeout(ANSWER).build();
        let connection = match timeout(ANSWER, connect).await {
            Ok(Ok(connection)) => connection,
            Ok(Err(error)) => return Err(format!("the system bus does not take us: {error}")),
            Err(_) => return Err("the system bus does not answer".to_owned()),
        };
        Ok(Self {
            stream: MessageStream::from(&connection),
            connection,
            owner: String::new(),
            out: Vec::new(),
            calls: HashMap::new(),
            sent: VecDeque::new(),
            to_read: VecDeque::new(),
            reading: BTreeSet::new(),
            others: 0,
            again: BTreeSet::new(),
            pinned: BTreeSet::new(),
            orders: Vec::new(),
            acts: Vec::new(),
            next_order: 0,
            reloading: false,
            absent: None,
            safety_poll: Instant::now() + SAFETY_POLL,
        })
    }

    /// Serves until the connection is lost.
    pub(super) async fn run(mut self, hub: &mut Hub) -> End {
        let end = match self.serve(hub).await {
            Ok(()) => return End::Closed,
            Err(Broken::Lost(why)) => End::Lost(why),
            Err(Broken::Renewed) => End::Renewed,
        };
        for (_, order) in &mut self.orders {
            order.gone("the connection to systemd was lost during the order");
        }
        for (_, act) in &mut self.acts {
            act.gone("the connection to systemd was lost");
        }
        end
    }

    async fn serve(&mut self, hub: &mut Hub) -> Result<(), Broken> {
        hub.table.forget();
        self.set_up()?;
        loop {
            self.start_reads(hub);
            self.flush().await?;
            let due = self.due();
            // Each branch is cancel safe: `reserve`, `recv`, `changed` and `next` lose nothing when dropped.
            let turn = tokio::select! {
                biased;
                permit = hub.events.reserve(), if hub.table.has_news() => match permit {
                    Ok(permit) => {
                        if let Some(event) = hub.table.next_news() { permit.send(event); }
                        Turn::Sent
                    }
                    Err(_) => Turn::Closed,
                },
                () = hub.events.closed() => Turn::Closed,
                Some(ask) = hub.asks.recv() => Turn::Asked(ask),
                changed = hub.units.changed(), if hub.units_open => Turn::Units { open: changed.is_ok() },
                message = self.stream.next() => Turn::Heard(message),
                () = sleep_until(due) => Turn::Due,
            };
            match turn {
                Turn::Sent => {}
                Turn::Closed => return Ok(()),
                Turn::Asked(ask) => self.ask(hub, ask),
                Turn::Units { open } => {
                    hub.units_open = open;
                    self.watch(hub);
                }
                Turn::Heard(Some(Ok(message))) => self.message(hub, &message)?,
                Turn::Heard(Some(Err(error))) => return Err(broken(&error).into()),
                Turn::Heard(None) => return Err("the system bus closed the connection".to_owned().into()),
                Turn::Due => self.tick(hub)?,
            }
        }
    }

    /// Matches, then the subscription, then the first look: in one go and in this order there is no gap between them.
    fn set_up(&mut self) -> Result<(), String> {
        let matches = message::matches().map_err(|error| format!("a match rule is wrong: {error}"))?;
        for rule in matches {
            self.send(Ok(rule), Some(Call::Setup));
        }
        self.send(message::owner(), Some(Call::Owner));
        self.send(message::subscribe(), Some(Call::Subscribe));
        self.send(message::system_state(), Some(Call::SystemState));
        Ok(())
    }

    /// Puts a message into the next write; what to do with its answer, if one is wanted, is noted before it leaves.
    fn send(&mut self, message: zbus::Result<Message>, call: Option<Call>) {
        match message {
            Ok(message) => {
                if let Some(call) = call {
                    let serial = message.primary_header().serial_num();
                    self.calls.insert(serial, call);
                    self.sent.push_back((Instant::now(), serial));
                }
                self.out.push(message);
            }
            // Names are checked where they enter, so that every message can be built.
            Err(error) => tracing::error!(%error, "a message to systemd could not be built"),
        }
    }

    async fn flush(&mut self) -> Result<(), String> {
        if self.out.is_empty() {
            return Ok(());
        }
        let out = std::mem::take(&mut self.out);
        match timeout(ANSWER, self.connection.send_all(&out)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(broken(&error)),
            Err(_) => Err("the system bus takes no more messages".to_owned()),
        }
    }

    fn due(&self) -> Instant {
        let patience = if self.reloading { RELOADING } else { ANSWER };
        let answer = self.sent.front().map(|(sent, _)| *sent + patience);
        let order = self.orders.iter().map(|(_, order)| order.due()).min();
        let act = self.acts.iter().map(|(_, act)| act.due()).min();
        [answer, order, act, self.absent].into_iter().flatten().fold(self.safety_poll, Instant::min)
    }

    fn tick(&mut self, hub: &mut Hub) -> Result<(), String> {
        let now = Instant::now();
        if self.absent.is_some_and(|until| now >= until) {
            return Err("systemd has left the bus".to_owned());
        }
        let patience = if self.reloading { RELOADING } else { ANSWER };
        while let Some((sent, serial)) = self.sent.front() {
            if self.calls.contains_key(serial) {
                if now >= *sent + patience {
                    return Err(format!(
                        "systemd did not answer over the bus within {} s",
                        patience.as_secs()
                    ));
                }
                break;
            }
            self.sent.pop_front();
        }
        if now >= self.safety_poll {
            self.safety_poll = now + SAFETY_POLL;
            self.send(message::system_state(), Some(Call::SystemState));
            // Only here: a door that is shut for a moment, as when everything of ours is stopped, is no news.
            self.send(message::door(), Some(Call::Door));
            let units = hub.table.units();
            if !units.is_empty() {
                self.send(message::list(&units), Some(Call::List(units)));
            }
        }
        let reloading = self.reloading;
        self.each_order(hub, |order, raw| order.tick(now, reloading, raw));
        self.each_act(|_, act| act.tick(now));
        Ok(())
    }

    /// Watches the units that are to be watched now.
    fn watch(&mut self, hub: &mut Hub) {
        let units = hub.units.borrow_and_update().clone();
        let (new, gone) = hub.table.watch(&units);
        for unit in gone {
            if self.pinned.remove(&unit) {
                self.send(message::unpin(&unit), None);
            }
        }
        for unit in new {
            self.pin_and_read(&unit);
        }
    }

    fn pin_and_read(&mut self, unit: &UnitName) {
        if self.pinned.len() < PINNED && self.pinned.insert(unit.clone()) {
            self.send(message::pin(unit), None);
        }
        self.want(unit);
    }

    /// Has the unit read, once more if it is being read at this moment.
    fn want(&mut self, unit: &UnitName) {
        if self.reading.contains(unit) {
            self.again.insert(unit.clone());
        } else if !self.to_read.contains(unit) {
            self.to_read.push_back(unit.clone());
        }
    }

    fn want_all(&mut self, hub: &Hub) {
        for unit in hub.table.units() {
            self.want(&unit);
        }
    }

    fn start_reads(&mut self, hub: &mut Hub) {
        while self.others < WINDOW
            && let Some((unit, other)) = hub.table.next_to_look()
        {
            self.others += 1;
            self.send(message::read_other(&other), Some(Call::Other(unit, other)));
        }
        while self.reading.len() < WINDOW
            && let Some(unit) = self.to_read.pop_front()
        {
            if hub.table.watches(&unit) {
                self.send(message::read(&unit), Some(Call::Read(unit.clone())));
                self.reading.insert(unit);
            }
        }
    }

    fn ask(&mut self, hub: &mut Hub, ask: Ask) {
        // The list of units may have been changed just before the question.
        if hub.units.has_changed().unwrap_or(false) {
            self.watch(hub);
        }
        match ask {
            Ask::Look(unit) => {
                hub.table.ask(&unit);
                self.want(&unit);
            }
            Ask::Relaunch { unit, timeout, reply } => self.relaunch(hub, unit, timeout, reply),
            Ask::Act(wish) => self.act(hub, *wish),
            Ask::Watchdog { unit, reply } => {
                self.send(message::watchdog(&unit), Some(Call::Watchdog(reply)));
            }
            Ask::Host { reply } => self.send(message::system_state(), Some(Call::Host(reply))),
            Ask::Facts { unit, reply } => self.send(message::read(&unit), Some(Call::Facts(reply))),
        }
    }

    fn relaunch(
        &mut self,
        hub: &Hub,
        unit: UnitName,
        timeout: Duration,
        reply: oneshot::Sender<RelaunchReply>,
    ) {
        if !hub.table.watches(&unit) {
            let _ = reply.send(super::not_watched());
            return;
        }
        let id = self.next_order;
        self.next_order += 1;
        let raw = hub.table.raw(&unit);
        if raw.is_none() {
            self.send(message::read(&unit), Some(Call::Read(unit.clone())));
        }
        // Of a unit that is down a start is the same, and a unit with RefuseManualStop=yes takes no other order.
        let down = raw.is_some_and(Raw::down);
        let order = if down { message::start(&unit) } else { message::restart(&unit) };
        // Both are written together, not waiting for an answer; that a failure counter cannot be reset (because there is
        // none) does not matter. A unit that systemd restarts itself may be in its start limit, which would refuse the
        // order. Any other one is started first: the reset is only to keep the starts from adding up.
        if raw.is_none_or(Raw::restarts_itself) {
            self.send(message::reset_failed(&unit), None);
            self.send(order, Some(Call::Restart(id)));
        } else {
            self.send(order, Some(Call::Restart(id)));
            self.send(message::reset_failed(&unit), None);
        }
        self.orders.push((id, RelaunchJob::new(unit, raw, timeout, reply)));
    }

    /// Lets every order that `step` concerns take its next step.
    fn each_order(&mut self, hub: &Hub, mut step: impl FnMut(&mut RelaunchJob, Option<&Raw>) -> Next) {
        let mut looks = Vec::new();
        self.orders.retain_mut(|(_, order)| match step(order, hub.table.raw(&order.unit)) {
            Next::Wait => true,
            Next::Look => {
                looks.push(order.unit.clone());
                true
            }
            Next::Finished => false,
        });
        for unit in looks {
            self.want(&unit);
        }
    }

    fn message(&mut self, hub: &mut Hub, message: &Message) -> Result<(), Broken> {
        match message.message_type() {
            Type::MethodReturn | Type::Error => {
                let serial = message.header().reply_serial();
                match serial.and_then(|serial| self.calls.remove(&serial)) {
                    Some(call) => self.answer(hub, call, message).map_err(Broken::Lost),
                    None => Ok(()),
                }
            }
            Type::Signal => self.signal(hub, message),
            Type::MethodCall => Ok(()),
        }
    }
}

fn broken(error: &zbus::Error) -> String {
    format!("the connection to the system bus broke: {error}")
}

fn unreadable(error: &zbus::Error) -> String {
    format!("systemd sent what this version of keyholder cannot read: {error}")
}
