//! What was answered to whom, so that the same request never acts twice.
//!
//! A peer whose connection broke sends its request again under the same id. It gets the verdict of the first copy, also
//! when that is still under way. The boot nonce covers what came before this run.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::oneshot;

use super::inbox::Asker;
use super::wire::Verdict;
use crate::vocabulary::{NodeName, ReqId};

/// How many requests are remembered per asker. At most 4 x 8 of them are under way (connections x requests each), so
/// this also covers what was answered during the last relaunches. A verdict takes well under a kilobyte unless it is a
/// failure with its log lines.
const REMEMBERED: usize = 128;

#[derive(Debug)]
enum Remembered {
    UnderWay(Vec<oneshot::Sender<Verdict>>),
    Done(Box<Verdict>),
}

/// What is to be done with a request.
#[derive(Debug)]
pub(super) enum ReplayCheck {
    /// It is new: carry it out, then say [`Replays::finish`]. Its verdict arrives here as well.
    Act(oneshot::Receiver<Verdict>),
    /// It is a copy of one that is under way or done: its verdict arrives here.
    Wait(oneshot::Receiver<Verdict>),
}

#[derive(Debug, Default)]
struct Memory {
    entries: HashMap<ReqId, Remembered>,
    order: VecDeque<ReqId>,
}

/// The memory of all askers. The key is the peer's node; `None` stands for this host's own users.
#[derive(Debug, Clone, Default)]
pub(super) struct Replays(Arc<Mutex<HashMap<Option<NodeName>, Memory>>>);

impl Replays {
    /// Takes a request down before it is carried out.
    pub(super) fn begin(&self, asker: &Asker, req_id: ReqId) -> ReplayCheck {
        let (sender, receiver) = oneshot::channel();
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let memory = all.entry(key(asker)).or_default();
        match memory.entries.get_mut(&req_id) {
            Some(Remembered::UnderWay(waiting)) => {
                waiting.retain(|w| !w.is_closed());
                waiting.push(sender);
                return ReplayCheck::Wait(receiver);
            }
            Some(Remembered::Done(verdict)) => {
                // The receiver is in our hands, so it cannot be closed.
                let _ = sender.send((**verdict).clone());
                return ReplayCheck::Wait(receiver);
            }
            None => {}
        }
        memory.entries.insert(req_id, Remembered::UnderWay(vec![sender]));
        memory.order.push_back(req_id);
        while memory.order.len() > REMEMBERED {
            let Some(oldest) = memory.order.pop_front() else { break };
            match memory.entries.get(&oldest) {
                // Still under way: it has to stay, so the next oldest goes.
                Some(Remembered::UnderWay(_)) if memory.order.len() < 2 * REMEMBERED => {
                    memory.order.push_back(oldest);
                    if memory.entries.values().all(|e| matches!(e, Remembered::UnderWay(_))) {
                        break;
                    }
                }
                Some(_) | None => {
                    memory.entries.remove(&oldest);
                }
            }
        }
        ReplayCheck::Act(receiver)
    }

    /// Takes the verdict down and hands it to everybody who waits for it.
    pub(super) fn finish(&self, asker: &Asker, req_id: ReqId, verdict: &Verdict) {
        let waiting = {
            let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(memory) = all.get_mut(&key(asker)) else { return };
            let Some(entry) = memory.entries.get_mut(&req_id) else { return };
            match std::mem::replace(entry, Remembered::Done(Box::new(verdict.clone()))) {
                Remembered::UnderWay(waiting) => waiting,
                Remembered::Done(_) => return,
            }
        };
        for one in waiting {
            // Whoever has hung up meanwhile asks again if it matters.
            let _ = one.send(verdict.clone());
        }
    }

    /// Forgets a request that never reached the supervisor, so that it may be tried again.
    pub(super) fn forget(&self, asker: &Asker, req_id: ReqId) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(memory) = all.get_mut(&key(asker)) {
            memory.entries.remove(&req_id);
            memory.order.retain(|id| *id != req_id);
        }
    }
}

fn key(asker: &Asker) -> Option<NodeName> {
    match asker {
        Asker::Peer { node, .. } => Some(node.clone()),
        Asker::Local { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peer::wire::{Outcome, Refusal, RefusalCode};
    use crate::vocabulary::Pin;

    fn asker(name: &str) -> Asker {
        Asker::Peer { node: name.parse().unwrap(), pin: Pin::of_spki(b"") }
    }

    fn id(n: u32) -> ReqId {
        let mut bytes = [0; 16];
        bytes[..4].copy_from_slice(&n.to_be_bytes());
        ReqId::from_bytes(bytes)
    }

    fn verdict(n: u64) -> Verdict {
        Verdict::Outcome(Outcome::Held { for_ms: n })
    }

    #[test]
    fn a_copy_waits_for_the_first_ones_verdict_and_a_late_copy_gets_it_at_once() {
        let (replays, mars) = (Replays::default(), asker("mars"));
        let ReplayCheck::Act(mut first) = replays.begin(&mars, id(1)) else { panic!("new") };
        let ReplayCheck::Wait(mut copy) = replays.begin(&mars, id(1)) else { panic!("a copy acts") };
        assert!(copy.try_recv().is_err());
        replays.finish(&mars, id(1), &verdict(9));
        assert_eq!((first.try_recv().unwrap(), copy.try_recv().unwrap()), (verdict(9), verdict(9)));
        let ReplayCheck::Wait(mut late) = replays.begin(&mars, id(1)) else { panic!("a late copy acts") };
        assert_eq!(late.try_recv().unwrap(), verdict(9));
    }

    #[test]
    fn two_peers_may_use_the_same_id() {
        let replays = Replays::default();
        for name in ["mars", "ai-core"] {
            assert!(matches!(replays.begin(&asker(name), id(1)), ReplayCheck::Act(_)));
        }
        assert!(matches!(replays.begin(&Asker::Local { uid: 0 }, id(1)), ReplayCheck::Act(_)));
    }

    #[test]
    fn memory_is_bounded_and_what_is_under_way_is_never_forgotten() {
        let (replays, mars) = (Replays::default(), asker("mars"));
        let _first = replays.begin(&mars, id(0));
        let done = Verdict::Refused(Refusal::new(RefusalCode::Busy, "busy"));
        for n in 1..10_000 {
            assert!(matches!(replays.begin(&mars, id(n)), ReplayCheck::Act(_)));
            replays.finish(&mars, id(n), &done);
        }
        assert!(matches!(replays.begin(&mars, id(0)), ReplayCheck::Wait(_)));
        assert!(matches!(replays.begin(&mars, id(9_990)), ReplayCheck::Wait(_)));
        assert!(replays.0.lock().unwrap().values().all(|m| m.entries.len() <= REMEMBERED + 1));
    }

    #[test]
    fn what_never_reached_the_supervisor_may_be_tried_again() {
        let (replays, mars) = (Replays::default(), asker("mars"));
        let _ = replays.begin(&mars, id(1));
        replays.forget(&mars, id(1));
        assert!(matches!(replays.begin(&mars, id(1)), ReplayCheck::Act(_)));
    }
}
