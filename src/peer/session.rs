//! One authenticated connection from hello to end: requests in, verdicts and changes out.
//!
//! One task owns the connection. It waits for whatever comes first, handles that to the end, and waits again; each write
//! has a deadline, so a client that does not read holds up nobody but itself, and not for long.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use tokio::sync::oneshot;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout, timeout_at};

use super::admit::{admit, may_see, may_watch};
use super::channel::Channel;
use super::codec::{WireError, decode_client, encode, no_request, req_id_in};
use super::feed::{Feed, News, Records};
use super::gate::{ConnectionPermit, Eviction, Reason};
use super::inbox::{Asker, Inbox, InboxMessage, Subscription, Update, View};
use super::orders::Orders;
use super::refusals::Refusals;
use super::replay::{ReplayCheck, Replays};
use super::wire::{
    ClientFrame, Hello, MAX_REPLY, NodeReport, NodeState, Outcome, Refusal, RefusalCode, Reply, Request,
    ServerFrame, Verb, Verdict,
};
use crate::fleet::Fleet;
use crate::journal::{Event, Priority, Record};
use crate::vocabulary::ReqId;

/// A peer hears something at least this often.
pub(super) const KEEPALIVE: Duration = Duration::from_secs(1);
/// How many requests one connection may have under way.
const UNDER_WAY: usize = 8;
/// How long the supervisor may take for an order before the asker is told that nobody knows. Ten times the default
/// start timeout: this only ends what the supervisor has forgotten.
const ORDER_DEADLINE: Duration = Duration::from_secs(900);

/// How long the last words may take when the supervisor ends.
const LAST_WORDS: Duration = Duration::from_millis(300);
/// What the audit trail says of a connection that had to make room.
pub(super) const CROWDED: &str = "there were too many connections of its kind, and a newer one came";

/// What all sessions share.
#[derive(Debug, Clone)]
pub(super) struct Room {
    pub(super) inbox: Inbox,
    pub(super) refusals: Refusals,
    pub(super) replays: Replays,
    pub(super) orders: Orders,
}

/// Why a session ends.
enum End {
    /// The other side went away, or the connection did.
    Gone,
    /// The last word is a refusal.
    Refused(ReqId, Refusal),
    /// It is cut without a word, and this is why.
    Cut(String),
    /// The supervisor ends.
    Closing,
}

impl From<Reason> for End {
    fn from(reason: Reason) -> Self {
        match reason {
            Reason::Crowded => Self::Cut(CROWDED.to_owned()),
            Reason::Closing => Self::Closing,
        }
    }
}

impl From<WireError> for End {
    fn from(error: WireError) -> Self {
        match (&error, error.code()) {
            (_, Some(code)) => Self::Refused(no_request(), Refusal::new(code, error.to_string())),
            (WireError::TooSlow | WireError::NotTaken, None) => Self::Cut(error.to_string()),
            (_, None) => Self::Gone,
        }
    }
}

pub(super) struct Session {
    room: Room,
    channel: Channel,
    asker: Asker,
    fleet: watch::Receiver<Arc<Fleet>>,
    under_way: FuturesUnordered<BoxFuture<'static, (ReqId, Verdict)>>,
    feed: Feed,
    records: Records,
    spoke: Instant,
}

impl Session {
    pub(super) fn new(room: Room, channel: Channel, asker: Asker) -> Self {
        let fleet = room.inbox.fleet.clone();
        let under_way = FuturesUnordered::new();
        let (feed, records) = (Feed::Off, Records::Off);
        Self { room, channel, asker, fleet, under_way, feed, records, spoke: Instant::now() }
    }

    /// Speaks until the connection ends. The hello must have come by `hello_by`. Keeps the seat until then.
    pub(super) async fn run(mut self, seat: ConnectionPermit, mut told: Eviction, hello_by: Instant) {
        let end = match self.greet(&mut told, hello_by).await {
            Err(end) => end,
            Ok(()) => loop {
                if let Err(end) = self.pass(&mut told).await {
                    break end;
                }
            },
        };
        match end {
            End::Gone => {}
            // Whatever comes of it, this is the end.
            End::Closing => drop(timeout(LAST_WORDS, self.last_words()).await),
            End::Cut(why) => self.tell(self.record(Event::Refused, format!("its connection was cut: {why}"))),
            End::Refused(req_id, refusal) => {
                self.tell(self.record(Event::Refused, refusal.text.clone()));
                if self.answer(req_id, Verdict::Refused(refusal)).await.is_ok() {
                    self.channel.close().await;
                }
            }
        }
        drop(seat);
    }

    /// What is already known still goes out: verdicts, and above all that this host is leaving.
    async fn last_words(&mut self) -> Result<(), End> {
        while let Some(Some((req_id, verdict))) = self.under_way.next().now_or_never() {
            self.answer(req_id, verdict).await?;
        }
        while let Some(news @ News::Changed(_)) = self.feed.next().now_or_never() {
            self.report(news).await?;
        }
        while let Some(record) = self.records.next().now_or_never() {
            self.send(&record).await?;
        }
        self.channel.end().await;
        Ok(())
    }

    async fn greet(&mut self, told: &mut Eviction, hello_by: Instant) -> Result<(), End> {
        let first = tokio::select! {
            first = timeout_at(hello_by, self.channel.read()) => first,
            reason = told.why() => return Err(reason.into()),
        };
        let first = first.map_err(|_| End::Cut("no hello came in time".to_owned()))??.ok_or(End::Gone)?;
        match decode_client(&first)? {
            ClientFrame::Request(request) => Err(End::Refused(
                request.req_id,
                Refusal::new(
                    RefusalCode::OutOfOrder,
                    "a connection begins with a hello, this one began with a request",
                ),
            )),
            ClientFrame::Hello(hello) => {
                self.check_name(&hello)?;
                let ours = Hello {
                    node: self.room.inbox.me.clone(),
                    version: env!("CARGO_PKG_VERSION").to_owned(),
                    boot_nonce: self.room.inbox.nonce,
                    fleet_hash: self.fleet.borrow_and_update().hash,
                };
                self.send(&ServerFrame::Hello(ours)).await?;
                self.follow_if_granted().await
            }
        }
    }

    /// The key says who it is; a body that says otherwise is refused, not believed.
    fn check_name(&self, hello: &Hello) -> Result<(), End> {
        match &self.asker {
            Asker::Peer { node, .. } if hello.node != *node => Err(End::Refused(
                no_request(),
                Refusal::new(
                    RefusalCode::WrongNode,
                    format!(
                        "the key is {node}'s and the hello says {}: correct /etc/keyholder/node there",
                        hello.node
                    ),
                ),
            )),
            Asker::Peer { .. } | Asker::Local { .. } => Ok(()),
        }
    }

    /// One round: wait for whatever comes first, handle it to the end.
    async fn pass(&mut self, told: &mut Eviction) -> Result<(), End> {
        let keepalive = self.spoke + KEEPALIVE;
        let follows =
            self.feed.is_on() || self.records.are_told() || matches!(self.asker, Asker::Peer { .. });
        // Every branch is cancel safe: frames gather in the channel, verdicts and changes stay in their queues.
        tokio::select! {
            frame = self.channel.read() => {
                let frame = frame?.ok_or(End::Gone)?;
                self.take(&frame).await
            }
            Some((req_id, verdict)) = self.under_way.next(), if !self.under_way.is_empty() => {
                self.answer(req_id, verdict).await
            }
            news = self.feed.next() => self.report(news).await,
            record = self.records.next() => self.send(&record).await,
            changed = self.fleet.changed() => match changed {
                Ok(()) => self.reloaded().await,
                Err(_) => Err(End::Closing),
            },
            () = sleep_until(keepalive), if follows => self.send(&ServerFrame::Keepalive).await,
            reason = told.why() => Err(reason.into()),
        }
    }

    async fn take(&mut self, frame: &[u8]) -> Result<(), End> {
        match decode_client(frame) {
            Ok(ClientFrame::Request(request)) => self.order(request).await,
            Ok(ClientFrame::Hello(_)) => Err(End::Refused(
                no_request(),
                Refusal::new(RefusalCode::OutOfOrder, "a second hello on the same connection"),
            )),
            // The frame's borders are known, so the connection goes on.
            Err(error) => {
                let refusal = Refusal::new(RefusalCode::Malformed, error.to_string());
                self.tell(self.record(Event::Refused, refusal.text.clone()));
                self.answer(req_id_in(frame), Verdict::Refused(refusal)).await
            }
        }
    }

    async fn order(&mut self, request: Request) -> Result<(), End> {
        self.still_accepted()?;
        let req_id = request.req_id;
        let inbox = &self.room.inbox;
        let admitted = if self.under_way.len() >= UNDER_WAY {
            Err(Refusal::new(
                RefusalCode::Busy,
                format!("{UNDER_WAY} requests are under way on this connection: wait for one of them"),
            ))
        } else {
            admit(&inbox.fleet.borrow(), &inbox.me, &inbox.nonce, &self.asker, &request)
        };
        let placed = match admitted {
            Ok(()) if matches!(request.verb, Verb::Watch {}) => {
                self.answer(req_id, Verdict::Outcome(Outcome::Watching)).await?;
                self.feed = Feed::now();
                return Ok(());
            }
            Ok(()) if matches!(request.verb, Verb::Events {}) => {
                // First listen, then say so: what happens in between is told.
                self.records = Records::listen(&self.room.inbox.recorder);
                return self.answer(req_id, Verdict::Outcome(Outcome::Watching)).await;
            }
            Ok(()) => self.place(&request),
            Err(refusal) => Err(refusal),
        };
        match placed {
            Ok(verdict) => {
                self.under_way.push(Box::pin(async move { (req_id, settle(verdict).await) }));
                Ok(())
            }
            Err(refusal) => {
                self.tell(self.about(&request, Event::Refused, refusal.text.clone()));
                self.answer(req_id, Verdict::Refused(refusal)).await
            }
        }
    }

    /// Puts a request on the inbox, an acting one at most once.
    fn place(&self, request: &Request) -> Result<oneshot::Receiver<Verdict>, Refusal> {
        let (reply, verdict) = oneshot::channel();
        let order = InboxMessage::Request { asker: self.asker.clone(), request: request.clone(), reply };
        if !request.verb.acts() {
            self.put(order)?;
            return Ok(verdict);
        }
        let replays = &self.room.replays;
        let ours = match replays.begin(&self.asker, request.req_id) {
            ReplayCheck::Wait(verdict) => return Ok(verdict),
            ReplayCheck::Act(verdict) => verdict,
        };
        if let Asker::Peer { node, .. } = &self.asker
            && let Err(refusal) = self.room.orders.take(node, request)
        {
            replays.forget(&self.asker, request.req_id);
            return Err(refusal);
        }
        let text = format!("{}: {}", request.verb.name(), request.because);
        self.room.inbox.recorder.record(self.about(request, Event::Ordered, text));
        if let Err(refusal) = self.put(order) {
            replays.forget(&self.asker, request.req_id);
            return Err(refusal);
        }
        // The verdict is taken down also if this connection is gone by then.
        let (replays, asker, req_id) = (replays.clone(), self.asker.clone(), request.req_id);
        tokio::spawn(async move { replays.finish(&asker, req_id, &settle(verdict).await) });
        Ok(ours)
    }

    fn put(&self, order: InboxMessage) -> Result<(), Refusal> {
        self.room.inbox.orders.try_send(order).map_err(|_| {
            Refusal::new(
                RefusalCode::Busy,
                format!("the supervisor on {} has too much to do: try again", self.room.inbox.me),
            )
        })
    }

    /// The fleet file was loaded again: keys and grants count at once.
    async fn reloaded(&mut self) -> Result<(), End> {
        self.still_accepted()?;
        self.follow_if_granted().await
    }

    fn still_accepted(&self) -> Result<(), End> {
        match &self.asker {
            Asker::Peer { node, pin } if self.room.inbox.fleet.borrow().node_of(pin) != Some(node) => {
                Err(End::Cut("its key is no longer accepted by fleet.yaml".to_owned()))
            }
            Asker::Peer { .. } | Asker::Local { .. } => Ok(()),
        }
    }

    /// A peer that is a watcher gets the state without asking, and once more whenever its rights may have changed. Any
    /// other peer is told that it sees nothing, so that it does not go on showing what it saw while it was one.
    async fn follow_if_granted(&mut self) -> Result<(), End> {
        let Asker::Peer { node, .. } = &self.asker else { return Ok(()) };
        let me = &self.room.inbox.me;
        let (watches, hash) = {
            let fleet = self.fleet.borrow_and_update();
            (may_watch(&fleet, me, node), fleet.hash)
        };
        if watches {
            self.feed = Feed::now();
            return Ok(());
        }
        let nothing = NodeReport {
            node: me.clone(),
            state: NodeState::Up,
            why: format!("it answers, and its fleet.yaml lets {node} see none of its workers"),
            version: None,
            fleet_hash: Some(hash),
            degraded: Vec::new(),
            sees: Vec::new(),
            rehearsed: Vec::new(),
            workers: Vec::new(),
        };
        self.feed = Feed::Off;
        self.send(&ServerFrame::Snapshot(nothing)).await
    }

    async fn report(&mut self, news: News) -> Result<(), End> {
        match news {
            News::Subscribe => {
                let (reply, subscription) = oneshot::channel();
                let view = match &self.asker {
                    Asker::Peer { .. } => View::Node,
                    Asker::Local { .. } => View::Fleet,
                };
                let asked = self.put(InboxMessage::Subscribe { view, reply }).is_ok();
                self.feed = if asked { Feed::Asked(subscription) } else { Feed::again() };
                Ok(())
            }
            News::Begin(Subscription { first, changes }) => {
                self.feed = Feed::Live(changes);
                for report in first {
                    if let Some(report) = self.visible(report) {
                        self.send(&ServerFrame::Snapshot(report)).await?;
                    }
                }
                Ok(())
            }
            News::Changed(update) => match &*update {
                Update::Leaving => self.send(&ServerFrame::Leaving).await,
                Update::Node(report) => match self.visible(report.clone()) {
                    Some(report) => self.send(&ServerFrame::Snapshot(report)).await,
                    None => Ok(()),
                },
                Update::Worker(report) => {
                    let seen = match &self.asker {
                        Asker::Local { .. } => true,
                        Asker::Peer { node, .. } => {
                            let me = &self.room.inbox.me;
                            report.node == *me && may_see(&self.fleet.borrow(), me, node, &report.worker)
                        }
                    };
                    if seen { self.send(&ServerFrame::Change(report.clone())).await } else { Ok(()) }
                }
            },
            News::Missed => {
                self.feed = Feed::again();
                Ok(())
            }
        }
    }

    /// What of a report the other side may see: this host's users all of it, a peer what it is granted on this node.
    fn visible(&self, mut report: NodeReport) -> Option<NodeReport> {
        if let Asker::Peer { node, .. } = &self.asker {
            let me = &self.room.inbox.me;
            if report.node != *me {
                return None;
            }
            let fleet = self.fleet.borrow();
            report.workers.retain(|worker| may_see(&fleet, me, node, &worker.worker));
        }
        Some(report)
    }

    fn without_the_invisible(&self, verdict: Verdict) -> Verdict {
        let Verdict::Outcome(Outcome::Status(report)) = verdict else { return verdict };
        match self.visible(report) {
            Some(report) => Verdict::Outcome(Outcome::Status(report)),
            None => Verdict::Refused(Refusal::new(RefusalCode::WrongNode, "that is another node's state")),
        }
    }

    async fn answer(&mut self, req_id: ReqId, verdict: Verdict) -> Result<(), End> {
        let verdict = self.without_the_invisible(verdict);
        let frame = ServerFrame::Reply(Reply { req_id, result: verdict });
        match encode(&frame, MAX_REPLY) {
            Ok(bytes) => self.write(&bytes).await,
            Err(error) => {
                let refusal =
                    Refusal::new(RefusalCode::TooLarge, format!("the answer is {error}: ask for less"));
                self.send(&ServerFrame::Reply(Reply { req_id, result: Verdict::Refused(refusal) })).await
            }
        }
    }

    async fn send(&mut self, frame: &ServerFrame) -> Result<(), End> {
        let bytes = encode(frame, MAX_REPLY)
            .map_err(|error| End::Cut(format!("what it is to be told cannot be sent: {error}")))?;
        self.write(&bytes).await
    }

    async fn write(&mut self, bytes: &[u8]) -> Result<(), End> {
        self.channel.write(bytes).await?;
        self.spoke = Instant::now();
        Ok(())
    }

    fn tell(&self, record: Record) {
        self.room.refusals.tell(record);
    }

    fn record(&self, event: Event, text: String) -> Record {
        let pin = match &self.asker {
            Asker::Peer { pin, .. } => Some(*pin),
            Asker::Local { .. } => None,
        };
        let by = self.asker.to_string();
        Record { by, pin, ..Record::local(event, Priority::Notice, "", text) }
    }

    fn about(&self, request: &Request, event: Event, text: String) -> Record {
        let subject = match &request.worker {
            Some(worker) => format!("{}/{worker}", request.target_node),
            None => request.target_node.to_string(),
        };
        let (req_id, verb) = (Some(request.req_id), Some(request.verb.name()));
        Record { subject, req_id, verb, ..self.record(event, text) }
    }
}

/// The supervisor's verdict, or that there is none. Never an endless wait.
async fn settle(verdict: oneshot::Receiver<Verdict>) -> Verdict {
    match timeout(ORDER_DEADLINE, verdict).await {
        Ok(Ok(verdict)) => verdict,
        Ok(Err(_)) | Err(_) => Verdict::Refused(Refusal::new(
            RefusalCode::NoAnswer,
            "the supervisor took the order and never answered; whether it acted is unknown: see `keyholder audit`",
        )),
    }
}
