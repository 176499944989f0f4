//! Who may declare a hold, and who may end what was declared. What root on the node has declared, and a quarantine, which the
//! node itself has declared, only root there ends; a peer may end what peers have declared.

use super::state::{Hold, WorkerState};
use crate::vocabulary::Moment;

/// Why a peer may not do it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OfRoot {
    /// Root on the node holds the worker.
    Hold(Hold),
    /// The node has it in quarantine.
    Quarantine,
}

/// What a release ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Releases {
    /// The hold and the quarantine, as far as there are any.
    All,
    /// The hold only: the worker stays in quarantine.
    Hold,
}

/// Whether a hold may be declared, which takes the place of the one before.
///
/// # Errors
/// [`OfRoot::Hold`]: a shorter one would end it.
pub fn may_hold(state: &WorkerState, by_peer: bool, now: Moment) -> Result<(), OfRoot> {
    match state.held(now) {
        Some(hold) if by_peer && !hold.by_peer => Err(OfRoot::Hold(hold.clone())),
        Some(_) | None => Ok(()),
    }
}

/// What a release may end.
///
/// # Errors
/// [`OfRoot`]: there is nothing that this asker may end.
pub fn may_release(state: &WorkerState, by_peer: bool, now: Moment) -> Result<Releases, OfRoot> {
    if !by_peer {
        return Ok(Releases::All);
    }
    may_hold(state, by_peer, now)?;
    match (state.quarantined(), state.held(now)) {
        (false, _) => Ok(Releases::All),
        (true, Some(_)) => Ok(Releases::Hold),
        (true, None) => Err(OfRoot::Quarantine),
    }
}

#[cfg(test)]
mod tests {
    use super::super::state::{Episode, Phase};
    use super::*;
    use crate::vocabulary::InvocationId;

    const NOW: Moment = Moment::from_millis(100_000);

    fn held(by: &str, by_peer: bool) -> WorkerState {
        let until = Moment::from_millis(200_000);
        let hold = Hold { until, why: "deploy".to_owned(), by: by.to_owned(), by_peer };
        WorkerState { hold: Some(hold), ..WorkerState::default() }
    }

    #[test]
    fn a_peer_ends_what_peers_have_declared_and_nothing_else() {
        let (roots, peers) = (held("root", false), held("venus", true));
        assert!(matches!(may_release(&roots, true, NOW), Err(OfRoot::Hold(_))));
        assert!(matches!(may_hold(&roots, true, NOW), Err(OfRoot::Hold(_))), "a shorter one would end it");
        assert_eq!(may_release(&peers, true, NOW), Ok(Releases::All));
        assert_eq!(may_hold(&peers, true, NOW), Ok(()));
        let over = Moment::from_millis(200_000);
        assert_eq!(may_hold(&roots, true, over), Ok(()), "it is over");
        for state in [&roots, &peers] {
            assert_eq!(may_release(state, false, NOW), Ok(Releases::All));
            assert_eq!(may_hold(state, false, NOW), Ok(()));
        }
    }

    #[test]
    fn a_quarantine_is_ended_by_root_on_the_node() {
        let episode = Episode { failures: 3, quarantined: true, ails: None };
        let invocation = InvocationId::from_bytes([1; 16]);
        for phase in [
            Phase::Quarantined { retry: NOW, failures: 0 },
            Phase::Settling { until: NOW, sign_by: None, invocation, episode },
        ] {
            let state = WorkerState { phase: phase.clone(), ..WorkerState::default() };
            assert_eq!(may_release(&state, true, NOW), Err(OfRoot::Quarantine), "{state:?}");
            assert_eq!(may_release(&state, false, NOW), Ok(Releases::All));
            let held = WorkerState { phase, ..held("venus", true) };
            assert_eq!(may_release(&held, true, NOW), Ok(Releases::Hold));
        }
    }

    #[test]
    fn a_hold_from_before_this_was_written_down_is_roots() {
        let json = r#"{"until":200000,"why":"deploy","by":"ai-core"}"#;
        let hold: Hold = serde_json::from_str(json).unwrap();
        assert!(!hold.by_peer);
        assert_eq!(serde_json::to_string(&hold).unwrap(), json);
    }
}
