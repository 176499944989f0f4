//! Follows one watched peer: keeps a connection to it, passes its news on, and says within three seconds when it has
//! fallen silent and what that means.
//!
//! A connection attempt is also the knock: PID 1 over there holds the listening socket and starts a dead supervisor.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ring::rand::{SecureRandom, SystemRandom};
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::bounds::Known;
use super::client::{self, ConnectError, Endpoint, Events, Link, LinkError, connect};
use super::identity::Identity;
use super::socket::PACKET;
use super::wire::{Hello, NodeReport, NodeState, Request, ServerFrame, Verb, Verdict, WorkerReport};
use crate::vocabulary::{Allowance, BootNonce, NodeName, ReqId, WorkerName};

/// How long one attempt to connect may take, hello included. A supervisor that the knock starts answers well within.
const ATTEMPT: Duration = Duration::from_secs(2);
/// A peer sends something each second; after this long without a word it is gone. Two keepalives and a half, so that
/// one lost packet does not count, and still under the three seconds that a watcher has.
const SILENCE: Duration = Duration::from_millis(2500);
/// After this long without a word it is asked whether its host still takes connections, so that a supervisor that hangs is not
/// taken for a host that is down: two keepalives have been missed, and the answer is there before [`SILENCE`] is over.
const DOUBT: Duration = Duration::from_millis(2100);
/// A wait that ended so much too late says that this process did not run. What was said meanwhile has not been read yet, and is
/// within as much again.
const OVERSLEPT: Duration = Duration::from_millis(250);
/// How long a request waits for a connection. A supervisor that gave up by itself is back after two seconds, and whoever
/// asks about a host that is down wants to know soon.
const CONNECTED: Duration = Duration::from_secs(5);
/// How long a reject by the peer's firewall proves that its host is up.
const REJECTED_COUNTS: Duration = Duration::from_secs(15);
/// The first and the longest pause between attempts, before jitter.
const PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(1));
/// A connection that held this long is worth a new one at once; one that ended sooner waits, or two sides that disagree
/// would keep each other busy.
const WORTH: Duration = Duration::from_secs(1);
/// How many worker reports are taken from one peer at once, and how many a second after that. A node with 1,000 workers that
/// reports all of them each second is within it; what comes faster waits on the connection, and in the end loses it.
const REPORTS: u32 = 4096;
/// See [`REPORTS`].
const REPORTS_A_SECOND: u32 = 1024;

/// Something about a watched peer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerEvent {
    /// The peer.
    pub node: NodeName,
    /// What happened.
    pub what: PeerNews,
}

/// What happened to a watched peer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PeerNews {
    /// It answers: its version, its present run, its fleet file. If it grants us to watch, a snapshot follows at once.
    Connected(Hello),
    /// Everything that we may see of it.
    Snapshot(NodeReport),
    /// One worker of it changed.
    Change(WorkerReport),
    /// So many entries of its last report were dropped: the fleet file in force has no such worker or node.
    Dropped(usize),
    /// It shuts down or reboots; its silence from here on is no failure.
    Leaving,
    /// It cannot be followed. Said again only when state or reason change.
    Lost {
        /// [`NodeState::SupervisorDead`], [`NodeState::Unreachable`], or [`NodeState::Unknown`] if it answers and the two
        /// sides do not trust or understand each other.
        state: NodeState,
        /// Why, in a sentence.
        why: String,
    },
}

/// Follows a peer until dropped (all clones), and asks it for things. Cheap to clone.
#[derive(Debug, Clone)]
pub struct PeerHandle {
    node: NodeName,
    link: watch::Receiver<Option<Link>>,
    wanted: Arc<Notify>,
    looked: Arc<Looked>,
    _follower: Arc<Follower>,
}

/// When the peer was heard from last, or looked for in vain.
#[derive(Debug)]
struct Looked {
    since: Instant,
    ms: AtomicU64,
}

impl Default for Looked {
    fn default() -> Self {
        Self { since: Instant::now(), ms: AtomicU64::new(0) }
    }
}

impl Looked {
    fn now(&self) {
        let ms = u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.ms.store(ms, Ordering::Relaxed);
    }
}

#[derive(Debug)]
struct Follower(AbortHandle);

impl Drop for Follower {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Starts to follow a peer. After a reload that changed its address or keys, or our own hello, drop the handle and call
/// this again. Needs a tokio runtime.
pub fn follow(
    to: Endpoint,
    known: Known,
    identity: Identity,
    hello: Hello,
    events: mpsc::Sender<PeerEvent>,
) -> PeerHandle {
    let (live, link) = watch::channel(None);
    let wanted = Arc::new(Notify::new());
    let node = to.node.clone();
    let looked = Arc::<Looked>::default();
    let task = Following {
        to,
        known,
        identity,
        hello,
        events,
        live,
        wanted: Arc::clone(&wanted),
        looked: Arc::clone(&looked),
        rejected: None,
        told: None,
        pace: Pace::new(),
    };
    let follower = Arc::new(Follower(tokio::spawn(task.run()).abort_handle()));
    PeerHandle { node, link, wanted, looked, _follower: follower }
}

impl PeerHandle {
    /// A handle that follows nobody, for tests of what is kept beside it.
    #[cfg(test)]
    pub(crate) fn idle() -> Self {
        let follower = Arc::new(Follower(tokio::spawn(async {}).abort_handle()));
        let (_, link) = watch::channel(None);
        Self {
            node: "mars".parse().unwrap(),
            link,
            wanted: Arc::default(),
            looked: Arc::default(),
            _follower: follower,
        }
    }

    /// The peer.
    pub fn node(&self) -> &NodeName {
        &self.node
    }

    /// How long ago it was heard from, or looked for in vain.
    pub fn looked_ago(&self) -> Duration {
        let ms = Duration::from_millis(self.looked.ms.load(Ordering::Relaxed));
        self.looked.since.elapsed().saturating_sub(ms)
    }

    /// Asks the peer for something, over the connection that there is or as soon as there is one. If the connection
    /// breaks meanwhile the request is sent again, provided that it cannot act twice: the peer remembers its id, or has
    /// started again and the request changes nothing, or nothing that `expect` does not guard.
    ///
    /// # Errors
    /// [`LinkError`], within `deadline`; [`LinkError::refusal`] makes a verdict of it.
    pub async fn request(
        &self,
        worker: Option<&WorkerName>,
        verb: Verb,
        because: &str,
        deadline: Duration,
    ) -> Result<Verdict, LinkError> {
        let by = Instant::now() + deadline;
        let req_id = ReqId::random()?;
        let repeatable = match &verb {
            Verb::Relaunch(order) => order.expect.is_some(),
            Verb::Nudge(order) | Verb::Repipe(order) => order.expect.is_some(),
            // One that was interrupted may have broken something already.
            Verb::Drill(_) => false,
            Verb::Hold { .. } | Verb::Release {} => true,
            Verb::Status {}
            | Verb::Explain {}
            | Verb::Audit { .. }
            | Verb::Fleet {}
            | Verb::Prove { .. }
            | Verb::Watch {}
            | Verb::Events {} => true,
            // Never sent to a peer.
            Verb::Power { .. } | Verb::Requeue(_) | Verb::Drop(_) => false,
        };
        let mut sent: Option<(BootNonce, LinkError)> = None;
        loop {
            let connected_by = by.min(Instant::now() + CONNECTED);
            let link = match (timeout_at(connected_by, self.live()).await, &sent) {
                (Ok(Some(link)), _) => link,
                (Ok(None) | Err(_), Some((_, error))) => return Err(error.clone()),
                (Ok(None) | Err(_), None) => {
                    return Err(LinkError::NotSent(format!("there is no connection to {}", self.node)));
                }
            };
            let boot_nonce = link.server().boot_nonce;
            if let Some((before, error)) = &sent
                && *before != boot_nonce
                && !repeatable
            {
                return Err(error.clone());
            }
            let request = Request {
                boot_nonce,
                req_id,
                target_node: self.node.clone(),
                worker: worker.cloned(),
                verb: verb.clone(),
                because: because.to_owned(),
            };
            match link.send(&request, by.saturating_duration_since(Instant::now())).await {
                Ok(verdict) => return Ok(verdict),
                Err(LinkError::NotSent(_)) if link.is_closed() => {}
                Err(error @ LinkError::Lost(_)) => sent = Some((boot_nonce, error)),
                Err(LinkError::NoAnswer(_)) => return Err(LinkError::NoAnswer(deadline)),
                Err(error @ LinkError::NotSent(_)) => return Err(error),
            }
        }
    }

    /// The run of the peer's supervisor that there is a connection to.
    pub fn run(&self) -> Option<BootNonce> {
        let link = self.link.borrow();
        link.as_ref().filter(|link| !link.is_closed()).map(|link| link.server().boot_nonce)
    }

    /// Waits until the connection to this run of the peer's supervisor has ended.
    pub async fn gone(&self, run: BootNonce) {
        let ended = |link: &Option<Link>| link.as_ref().is_none_or(|link| link.server().boot_nonce != run);
        // If nobody follows it any more it is gone, too.
        let _ = self.link.clone().wait_for(ended).await;
    }

    /// Waits for a connection to another run of the peer's supervisor than `before`. `None` if nobody follows it any more.
    pub async fn another_run(&self, before: BootNonce) -> Option<BootNonce> {
        self.wanted.notify_one();
        let another = |link: &Option<Link>| {
            link.as_ref().is_some_and(|link| !link.is_closed() && link.server().boot_nonce != before)
        };
        let mut link = self.link.clone();
        let link = link.wait_for(another).await.ok()?;
        link.as_ref().map(|link| link.server().boot_nonce)
    }

    /// A connection that is up; asks for one if there is none. `None` if the follower has ended.
    async fn live(&self) -> Option<Link> {
        let up = |link: &Option<Link>| link.as_ref().is_some_and(|link| !link.is_closed());
        if !up(&self.link.borrow()) {
            self.wanted.notify_one();
        }
        let mut link = self.link.clone();
        link.wait_for(up).await.ok()?.clone()
    }
}

struct Following {
    to: Endpoint,
    /// What it can report about.
    known: Known,
    identity: Identity,
    hello: Hello,
    events: mpsc::Sender<PeerEvent>,
    live: watch::Sender<Option<Link>>,
    wanted: Arc<Notify>,
    looked: Arc<Looked>,
    /// When the peer's firewall last rejected a call, and its words.
    rejected: Option<(Instant, String)>,
    /// What was told of its being lost, since it was last there.
    told: Option<(NodeState, String)>,
    pace: Pace,
}

/// How many worker reports may be taken, and since when that is counted.
#[derive(Debug)]
struct Pace {
    reports: Allowance,
    since: Instant,
}

impl Pace {
    fn new() -> Self {
        Self {
            reports: Allowance::new(REPORTS, Duration::from_secs(1) / REPORTS_A_SECOND),
            since: Instant::now(),
        }
    }

    /// Waits until so many reports may be taken.
    async fn take(&mut self, reports: usize) {
        let reports = u32::try_from(reports).unwrap_or(REPORTS).clamp(1, REPORTS);
        let wait = self.reports.use_up(reports, self.since.elapsed());
        // A timer of no length still takes until the runtime's next millisecond.
        if !wait.is_zero() {
            sleep(wait).await;
        }
    }
}

impl Following {
    /// Ends when nobody takes the news any more.
    async fn run(mut self) {
        let mut pause = PAUSE.0;
        loop {
            let tried = connect(&self.to, &self.identity, self.hello.clone(), ATTEMPT).await;
            self.looked.now();
            let up = match tried {
                Ok((link, events)) => self.listen(link, events).await,
                Err(error) => {
                    let (state, why) = self.with_memory(&error);
                    self.lost(state, why).await.map(|()| Duration::ZERO)
                }
            };
            let Ok(up) = up else { return };
            if up >= WORTH {
                pause = PAUSE.0;
                continue;
            }
            // Somebody who wants something now does not wait for the end of a pause.
            let _ = timeout(jittered(pause), self.wanted.notified()).await;
            pause = (pause * 2).min(PAUSE.1);
        }
    }

    /// What a failed call means. A host limits how often it rejects; what it leaves unanswered meanwhile is no silence.
    fn with_memory(&mut self, error: &ConnectError) -> (NodeState, String) {
        let (state, why) = (error.state(), explain(error));
        if let ConnectError::Rejected { .. } = error {
            self.rejected = Some((Instant::now(), why.clone()));
        }
        match &self.rejected {
            Some((at, rejected)) if state == NodeState::Unreachable && at.elapsed() < REJECTED_COUNTS => {
                (NodeState::SupervisorDead, rejected.clone())
            }
            Some(_) | None => (state, why),
        }
    }

    /// Passes the news on until the connection ends; says how long it lasted. That it ended is not told yet: the next
    /// attempt, which follows at once, shows whether the supervisor merely started again.
    async fn listen(&mut self, link: Link, mut events: Events) -> Result<Duration, Unheard> {
        let since = Instant::now();
        self.tell(PeerNews::Connected(link.server().clone())).await?;
        self.told = None;
        self.rejected = None;
        // A wish from before the connection came is fulfilled by it.
        let _ = timeout(Duration::ZERO, self.wanted.notified()).await;
        self.live.send_replace(Some(link));
        let mut heard = false;
        let end = self.pass_on(&mut events, &mut heard).await;
        self.live.send_replace(None);
        match end? {
            Heard::Ended => {}
            // Its supervisor has just answered a handshake and the hello, so it is there; the next thing it says is larger.
            Heard::Nothing { state: NodeState::SupervisorDead, .. } if !heard => {
                self.lost(NodeState::Unknown, only_small(&self.to)).await?;
            }
            Heard::Nothing { state, why } => {
                let silent = format!("nothing was heard from it for {} ms", SILENCE.as_millis());
                let why = match (state, why) {
                    (NodeState::CutOff, Some(why)) => format!("{silent}; {why}"),
                    (_, Some(_) | None) => silent,
                };
                self.lost(state, why).await?;
            }
            Heard::AnotherNode(why) => self.lost(NodeState::Unknown, why).await?,
        }
        Ok(since.elapsed())
    }

    async fn pass_on(&mut self, events: &mut Events, heard: &mut bool) -> Result<Heard, Unheard> {
        loop {
            let frame = match self.hear(events).await {
                Ok(Some(frame)) => frame,
                Ok(None) => return Ok(Heard::Ended),
                Err((state, why)) => return Ok(Heard::Nothing { state, why }),
            };
            *heard = true;
            let node = &self.to.node;
            match frame {
                ServerFrame::Keepalive => {}
                ServerFrame::Leaving => self.tell(PeerNews::Leaving).await?,
                ServerFrame::Snapshot(mut report) => {
                    self.pace.take(report.workers.len()).await;
                    if report.node != *node || report.workers.iter().any(|worker| worker.node != *node) {
                        return Ok(Heard::AnotherNode(format!("{node} reports about {}", report.node)));
                    }
                    let dropped = self.known.screen(&mut report);
                    self.tell(PeerNews::Snapshot(report)).await?;
                    self.tell_dropped(dropped).await?;
                }
                ServerFrame::Change(mut report) => {
                    self.pace.take(1).await;
                    if report.node != *node {
                        return Ok(Heard::AnotherNode(format!("{node} reports about {}", report.node)));
                    }
                    if self.known.screen_worker(&mut report) {
                        self.tell(PeerNews::Change(report)).await?;
                    } else {
                        self.tell_dropped(1).await?;
                    }
                }
                // The link never passes these on.
                ServerFrame::Hello(_)
                | ServerFrame::Reply(_)
                | ServerFrame::Event(_)
                | ServerFrame::Missed { .. } => {}
            }
        }
    }

    /// The next frame, or `None` at the end of the connection.
    ///
    /// # Errors
    /// It was silent for too long; what its host says when it is called.
    async fn hear(&self, events: &mut Events) -> Result<Option<ServerFrame>, (NodeState, Option<String>)> {
        let mut doubt = Instant::now() + DOUBT;
        loop {
            if let Ok(frame) = timeout_at(doubt, events.next()).await {
                self.looked.now();
                return Ok(frame);
            }
            if let Some(later) = overslept(doubt) {
                doubt = later;
                continue;
            }
            let by = doubt + (SILENCE - DOUBT);
            let mut host = None;
            // It has looked for reasons on this host before the time is over.
            let asked = client::host(&self.to, by - Duration::from_millis(50));
            tokio::pin!(asked);
            let heard = timeout_at(by, async {
                loop {
                    tokio::select! {
                        frame = events.next() => return frame,
                        answers = &mut asked, if host.is_none() => host = Some(answers),
                    }
                }
            });
            if let Ok(frame) = heard.await {
                return Ok(frame);
            }
            match overslept(by) {
                Some(later) => doubt = later,
                None => return Err(host.unwrap_or((NodeState::Unreachable, None))),
            }
        }
    }

    async fn lost(&mut self, state: NodeState, why: String) -> Result<(), Unheard> {
        let news = Some((state, why.clone()));
        if self.told != news {
            self.told = news;
            self.tell(PeerNews::Lost { state, why }).await?;
        }
        Ok(())
    }

    async fn tell_dropped(&self, dropped: usize) -> Result<(), Unheard> {
        if dropped > 0 { self.tell(PeerNews::Dropped(dropped)).await } else { Ok(()) }
    }

    async fn tell(&self, what: PeerNews) -> Result<(), Unheard> {
        let event = PeerEvent { node: self.to.node.clone(), what };
        self.events.send(event).await.map_err(|_| Unheard)
    }
}

/// Until when to listen once more, if a wait until `due` has ended much later than that.
fn overslept(due: Instant) -> Option<Instant> {
    let now = Instant::now();
    (now > due + OVERSLEPT).then(|| now + OVERSLEPT)
}

/// What it means that a peer answers the handshake and says nothing afterwards.
fn only_small(to: &Endpoint) -> String {
    let address = to.address.ip();
    format!(
        "its supervisor answers the handshake, and nothing larger arrives: packets of about {PACKET} bytes are lost on the way, so the MTU of some link is smaller than the hosts believe; compare `ping -M do -s 500 {address}` with `ping -M do -s {} {address}`, and `ip link`",
        PACKET - 28
    )
}

/// How following one connection ended.
enum Heard {
    Ended,
    /// Not a word for too long; what its host says when it is called.
    Nothing {
        state: NodeState,
        why: Option<String>,
    },
    AnotherNode(String),
}

/// Nobody takes the news any more.
struct Unheard;

fn explain(error: &ConnectError) -> String {
    match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

/// Between three quarters and five quarters, so that peers which lost each other do not come back in step.
fn jittered(pause: Duration) -> Duration {
    let mut byte = [128];
    // Without randomness the pause is simply not spread.
    let _ = SystemRandom::new().fill(&mut byte);
    let [spread] = byte;
    pause.mul_f64(0.75 + f64::from(spread) / 512.0)
}
