//! How often a peer may order something. What it is granted it may do, but every order is a line of the audit, and a peer does
//! not decide how long that reaches back.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::wire::{Refusal, RefusalCode, Request, Verb};
use crate::vocabulary::{Allowance, NodeName, human};

/// How many orders of one peer are taken at once, and how soon there may be another: a node with 1,000 workers that leaves all
/// of them to its watchers is within it.
const ORDERS: (u32, Duration) = (1024, Duration::from_secs(1));
/// The same for holds and releases, which nothing else limits.
const HOLDS: (u32, Duration) = (20, Duration::from_secs(10));

#[derive(Debug)]
struct Peer {
    orders: Allowance,
    holds: Allowance,
}

/// What each peer has ordered lately. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct Orders {
    /// By peer: there are not more than the fleet file has.
    peers: Arc<Mutex<HashMap<NodeName, Peer>>>,
    began: Instant,
}

impl Orders {
    pub(super) fn new() -> Self {
        Self { peers: Arc::default(), began: Instant::now() }
    }

    /// Takes an acting request of a peer into account.
    ///
    /// # Errors
    /// It has ordered too much lately.
    pub(super) fn take(&self, peer: &NodeName, request: &Request) -> Result<(), Refusal> {
        let now = self.began.elapsed();
        let mut peers = self.peers.lock().unwrap_or_else(PoisonError::into_inner);
        let of_peer = peers.entry(peer.clone()).or_insert_with(|| Peer {
            orders: Allowance::new(ORDERS.0, ORDERS.1),
            holds: Allowance::new(HOLDS.0, HOLDS.1),
        });
        let allowance = match request.verb {
            Verb::Hold { .. } | Verb::Release {} => &mut of_peer.holds,
            Verb::Status {}
            | Verb::Relaunch(_)
            | Verb::Nudge(_)
            | Verb::Repipe(_)
            | Verb::Power { .. }
            | Verb::Drill(_)
            | Verb::Explain {}
            | Verb::Audit { .. }
            | Verb::Fleet {}
            | Verb::Prove { .. }
            | Verb::Requeue(_)
            | Verb::Drop(_)
            | Verb::Watch {}
            | Verb::Events {} => &mut of_peer.orders,
        };
        if allowance.take(now) {
            return Ok(());
        }
        let wait = human(allowance.wait(now));
        let text = format!(
            "{peer} has ordered too much lately, and the next {} is taken in {wait}: ask again then, or run it on the node itself",
            request.verb.name()
        );
        Err(Refusal::new(RefusalCode::Busy, text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vocabulary::{BootNonce, ReqId};

    fn request(verb: Verb) -> Request {
        Request {
            boot_nonce: BootNonce::from_bytes([1; 16]),
            req_id: ReqId::from_bytes([1; 16]),
            target_node: "mars".parse().unwrap(),
            worker: None,
            verb,
            because: String::new(),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_holds_and_releases_without_end_is_refused_and_others_are_not() {
        let orders = Orders::new();
        let (peer, other) = ("ai-core".parse().unwrap(), "venus".parse().unwrap());
        let hold = request(Verb::Hold { for_ms: 1 });
        let taken = (0..1000).filter(|_| orders.take(&peer, &hold).is_ok()).count();
        assert_eq!(taken, 20);
        assert_eq!(orders.take(&peer, &request(Verb::Release {})).unwrap_err().code, RefusalCode::Busy);
        assert_eq!(orders.take(&peer, &request(Verb::Relaunch(Default::default()))), Ok(()));
        assert_eq!(orders.take(&other, &hold), Ok(()));
        tokio::time::sleep(HOLDS.1).await;
        assert_eq!(orders.take(&peer, &hold), Ok(()));
    }
}
