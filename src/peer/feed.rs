//! A session's share of what the supervisor learns: first the state, then every change, without a gap.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::broadcast::{self, error::RecvError};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until};

use super::inbox::{Subscription, Update};
use super::wire::ServerFrame;
use crate::journal::{EventLine, Recorder};

/// How long a session waits before it asks again, if the supervisor's inbox was full or the session could not keep up.
const AGAIN: Duration = Duration::from_millis(100);

/// Where a session stands with its subscription.
#[derive(Debug, Default)]
pub(super) enum Feed {
    /// It follows nothing.
    #[default]
    Off,
    /// It is to subscribe at this time.
    Due(Instant),
    /// It has asked and not yet been answered.
    Asked(oneshot::Receiver<Subscription>),
    /// It follows.
    Live(broadcast::Receiver<Arc<Update>>),
}

/// What a feed wants its session to do.
#[derive(Debug)]
pub(super) enum News {
    /// Put a subscription on the inbox.
    Subscribe,
    /// Send the state, then follow.
    Begin(Subscription),
    /// Send a change.
    Changed(Arc<Update>),
    /// Nothing; ask again later ([`Feed::again`]): the session was too slow, or the supervisor too busy.
    Missed,
}

impl Feed {
    /// Subscribe now.
    pub(super) fn now() -> Self {
        Self::Due(Instant::now())
    }

    /// Subscribe in a moment.
    pub(super) fn again() -> Self {
        Self::Due(Instant::now() + AGAIN)
    }

    /// Whether the session follows, or is about to.
    pub(super) fn is_on(&self) -> bool {
        match self {
            Self::Off => false,
            Self::Due(_) | Self::Asked(_) | Self::Live(_) => true,
        }
    }

    /// The next thing to do; never, if it is off. Cancel safe.
    pub(super) async fn next(&mut self) -> News {
        match self {
            Self::Off => pending().await,
            Self::Due(at) => {
                sleep_until(*at).await;
                News::Subscribe
            }
            Self::Asked(answer) => answer.await.map_or(News::Missed, News::Begin),
            Self::Live(changes) => match changes.recv().await {
                Ok(update) => News::Changed(update),
                Err(RecvError::Lagged(_) | RecvError::Closed) => News::Missed,
            },
        }
    }
}

/// What a session tells of the records of this node: all of them, or that some were lost.
#[derive(Debug, Default)]
pub(super) enum Records {
    /// Nothing.
    #[default]
    Off,
    /// Each one as it happens.
    Follows(broadcast::Receiver<Arc<EventLine>>),
}

impl Records {
    /// From here on, each one.
    pub(super) fn listen(recorder: &Recorder) -> Self {
        Self::Follows(recorder.events())
    }

    /// Whether the session tells them.
    pub(super) fn are_told(&self) -> bool {
        matches!(self, Self::Follows(_))
    }

    /// The next frame to send; never, if there is none. Cancel safe.
    pub(super) async fn next(&mut self) -> ServerFrame {
        let Self::Follows(records) = self else { return pending().await };
        match records.recv().await {
            Ok(line) => ServerFrame::Event(EventLine::clone(&line)),
            Err(RecvError::Lagged(count)) => ServerFrame::Missed { count },
            // The last recorder is gone, and so is the supervisor in a moment.
            Err(RecvError::Closed) => pending().await,
        }
    }
}
