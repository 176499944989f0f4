//! A connection that is up: requests of many askers over it, each verdict to its own asker, and the news aside.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use super::super::channel::Channel;
use super::super::codec::{WireError, decode_server, encode, no_request};
use super::super::wire::{
    ClientFrame, Hello, MAX_REPLY, MAX_REQUEST, Refusal, RefusalCode, Request, ServerFrame, Verb, Verdict,
};
use crate::vocabulary::{IdError, NodeName, ReqId, WorkerName};

/// How many requests may wait to be written.
const ASKS: usize = 16;
/// How many pieces of news may wait for whoever follows. A node with 1,000 workers that all change at once fits. Whoever
/// is slower than that loses the connection, and with the next one gets the whole state again.
const NEWS: usize = 1024;
/// How many bytes of frames may wait for whoever follows, unless it is a single frame: what a peer can have this host keep.
const NEWS_BYTES: usize = MAX_REPLY;

/// Why a request has no verdict.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LinkError {
    /// It never left this host, so nothing was done.
    #[error("the request could not be sent: {0}")]
    NotSent(String),
    /// It left, and the connection ended before the answer.
    #[error("the connection ended before the answer ({0}); whether it was carried out is unknown")]
    Lost(String),
    /// It left, and no answer came in time.
    #[error("no answer within {} ms; whether it was carried out is unknown", .0.as_millis())]
    NoAnswer(Duration),
}

impl LinkError {
    /// The same as a refusal, to be passed on to whoever asked.
    pub fn refusal(&self) -> Refusal {
        let code = match self {
            Self::NotSent(_) => RefusalCode::Unreachable,
            Self::Lost(_) | Self::NoAnswer(_) => RefusalCode::NoAnswer,
        };
        Refusal::new(code, self.to_string())
    }
}

impl From<IdError> for LinkError {
    fn from(error: IdError) -> Self {
        Self::NotSent(error.to_string())
    }
}

struct PendingRequest {
    req_id: ReqId,
    bytes: Vec<u8>,
    answer: oneshot::Sender<Result<Verdict, LinkError>>,
}

/// The requesting end of a connection. Clones share it; it closes when all of them and the [`Events`] are gone.
#[derive(Debug, Clone)]
pub struct Link {
    asks: mpsc::Sender<PendingRequest>,
    server: Arc<Hello>,
    ended: Arc<OnceLock<String>>,
}

/// The news of a connection: snapshots, changes, keepalives. Whoever does not want them drops this.
#[derive(Debug)]
pub struct Events {
    news: mpsc::Receiver<(ServerFrame, usize)>,
    /// How many bytes of frames wait.
    waiting: Arc<AtomicUsize>,
    ended: Arc<OnceLock<String>>,
}

impl Events {
    /// The next piece, or `None` once the connection has ended. Cancel safe.
    pub async fn next(&mut self) -> Option<ServerFrame> {
        let (frame, size) = self.news.recv().await?;
        self.waiting.fetch_sub(size, Ordering::Relaxed);
        Some(frame)
    }

    /// Why the connection has ended.
    pub fn why(&self) -> String {
        why(&self.ended)
    }
}

impl Link {
    /// The other side's hello: who it is, its version, its present run.
    pub fn server(&self) -> &Hello {
        &self.server
    }

    /// Whether the connection has ended.
    pub fn is_closed(&self) -> bool {
        self.asks.is_closed()
    }

    /// Asks for something and waits for the verdict.
    ///
    /// # Errors
    /// [`LinkError`]; it says whether the request may have been carried out.
    pub async fn request(
        &self,
        target: &NodeName,
        worker: Option<&WorkerName>,
        verb: Verb,
        because: &str,
        deadline: Duration,
    ) -> Result<Verdict, LinkError> {
        let request = Request {
            boot_nonce: self.server.boot_nonce,
            req_id: ReqId::random()?,
            target_node: target.clone(),
            worker: worker.cloned(),
            verb,
            because: because.to_owned(),
        };
        self.send(&request, deadline).await
    }

    /// Sends a request as it is: with this id, for this run of the supervisor.
    ///
    /// # Errors
    /// As [`Self::request`].
    pub async fn send(&self, request: &Request, deadline: Duration) -> Result<Verdict, LinkError> {
        let frame = ClientFrame::Request(request.clone());
        let bytes = encode(&frame, MAX_REQUEST).map_err(|error| LinkError::NotSent(error.to_string()))?;
        let (answer, verdict) = oneshot::channel();
        let ask = PendingRequest { req_id: request.req_id, bytes, answer };
        let exchange = async {
            if self.asks.send(ask).await.is_err() {
                return Err(LinkError::NotSent(why(&self.ended)));
            }
            verdict.await.unwrap_or_else(|_| Err(LinkError::NotSent(why(&self.ended))))
        };
        timeout(deadline, exchange).await.unwrap_or(Err(LinkError::NoAnswer(deadline)))
    }
}

fn why(ended: &OnceLock<String>) -> String {
    ended.get().cloned().unwrap_or_else(|| "the connection has ended".to_owned())
}

/// Gives a connection that has exchanged hellos to a task of its own.
pub(super) fn start(channel: Channel, server: Hello) -> (Link, Events) {
    let (asks, asked) = mpsc::channel(ASKS);
    let (news, heard) = mpsc::channel(NEWS);
    let ended = Arc::new(OnceLock::new());
    let link = Link { asks, server: Arc::new(server), ended: Arc::clone(&ended) };
    let backlog = Arc::<AtomicUsize>::default();
    let events = Events { news: heard, waiting: Arc::clone(&backlog), ended: Arc::clone(&ended) };
    tokio::spawn(Runner { channel, asked, news, backlog, waiting: HashMap::new(), ended }.run());
    (link, events)
}

struct Runner {
    channel: Channel,
    asked: mpsc::Receiver<PendingRequest>,
    news: mpsc::Sender<(ServerFrame, usize)>,
    /// How many bytes of news wait to be taken.
    backlog: Arc<AtomicUsize>,
    waiting: HashMap<ReqId, oneshot::Sender<Result<Verdict, LinkError>>>,
    ended: Arc<OnceLock<String>>,
}

impl Runner {
    async fn run(mut self) {
        let why = loop {
            match self.pass().await {
                Ok(true) => {}
                Ok(false) => break "nobody uses it any more".to_owned(),
                Err(why) => break why,
            }
        };
        // Set before anybody can notice that it has ended. It is set once only, so this cannot fail.
        let _ = self.ended.set(why.clone());
        for (_, answer) in self.waiting.drain() {
            let _ = answer.send(Err(LinkError::Lost(why.clone())));
        }
        // What is still queued is dropped, and its askers learn that it was not sent.
    }

    /// One round; false when nobody uses the connection any more.
    async fn pass(&mut self) -> Result<bool, String> {
        // Every branch is cancel safe: frames gather in the channel, requests stay in their queue.
        tokio::select! {
            frame = self.channel.read() => {
                let frame = frame.map_err(|error| told(&error))?.ok_or("the other side closed the connection")?;
                let size = frame.len();
                self.take(decode_server(&frame).map_err(|error| error.to_string())?, size)?;
            }
            ask = self.asked.recv(), if !self.asked.is_closed() || !self.asked.is_empty() => match ask {
                Some(ask) => self.ask(ask).await?,
                None => return Ok(!self.news.is_closed()),
            },
            () = self.news.closed(), if self.asked.is_closed() => return Ok(false),
        }
        Ok(true)
    }

    async fn ask(&mut self, ask: PendingRequest) -> Result<(), String> {
        // Who has stopped waiting leaves its place here.
        self.waiting.retain(|_, answer| !answer.is_closed());
        self.waiting.insert(ask.req_id, ask.answer);
        self.channel.write(&ask.bytes).await.map_err(|error| told(&error))
    }

    fn take(&mut self, frame: ServerFrame, size: usize) -> Result<(), String> {
        match frame {
            ServerFrame::Reply(reply) if reply.req_id == no_request() => Err(match reply.result {
                Verdict::Refused(refusal) => refusal.text,
                Verdict::Outcome(_) => "an answer to nothing".to_owned(),
            }),
            ServerFrame::Reply(reply) => {
                if let Some(answer) = self.waiting.remove(&reply.req_id) {
                    // Who has stopped waiting does not miss it.
                    let _ = answer.send(Ok(reply.result));
                }
                Ok(())
            }
            ServerFrame::Hello(_) => Err("a second hello".to_owned()),
            ServerFrame::Event(_) | ServerFrame::Missed { .. } => {
                Err("its records, which are for its own host only".to_owned())
            }
            ServerFrame::Snapshot(_)
            | ServerFrame::Change(_)
            | ServerFrame::Keepalive
            | ServerFrame::Leaving => {
                // Counted before it is sent: whoever takes it subtracts it.
                let before = self.backlog.fetch_add(size, Ordering::Relaxed);
                if before > 0 && before.saturating_add(size) > NEWS_BYTES {
                    return Err(format!("more than {NEWS_BYTES} bytes of news were not taken"));
                }
                match self.news.try_send((frame, size)) {
                    Ok(()) | Err(mpsc::error::TrySendError::Closed(_)) => Ok(()),
                    Err(mpsc::error::TrySendError::Full(_)) => {
                        Err(format!("more than {NEWS} pieces of news were not taken"))
                    }
                }
            }
        }
    }
}

fn told(error: &WireError) -> String {
    match error {
        WireError::Io(source) => format!("{error}: {source}"),
        WireError::Malformed(_)
        | WireError::TooLarge { .. }
        | WireError::TooSlow
        | WireError::NotTaken
        | WireError::Truncated => error.to_string(),
    }
}
