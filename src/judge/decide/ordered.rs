//! What follows from a person's or a peer's word: an order, a hold, a release.

use super::decision::Decision;
use crate::judge::state::{Episode, Hold, Phase, Wait};
use crate::vocabulary::Remedy;

impl Decision<'_> {
    pub(super) fn ordered(&mut self, remedy: Remedy) {
        let episode = match self.state.phase {
            Phase::Repairing { .. } => return, // It is in flight already; `admit` lets the order join it.
            Phase::Quarantined { failures, .. } => Episode { failures, quarantined: true, ails: None },
            Phase::Settling { episode, .. } | Phase::Verifying { episode, .. } => episode,
            Phase::Watching | Phase::Waiting { .. } | Phase::LeftToPeers | Phase::Stranded => {
                Episode::default()
            }
        };
        self.start(remedy, episode);
    }

    pub(super) fn hold(&mut self, hold: &Hold) {
        self.state.hold = Some(hold.clone());
        if matches!(self.state.phase, Phase::Waiting { .. } | Phase::LeftToPeers) {
            self.go(Phase::Watching);
        }
    }

    pub(super) fn release(&mut self) {
        self.state.hold = None;
        match self.state.phase {
            Phase::Quarantined { .. } => {
                self.state.relaunches.clear();
                self.go(Phase::Watching);
            }
            Phase::Waiting { why: Wait::Hold, failures, .. } => {
                self.go(Phase::Waiting { due: self.now, why: Wait::Hold, failures });
            }
            Phase::Watching
            | Phase::Waiting { .. }
            | Phase::LeftToPeers
            | Phase::Repairing { .. }
            | Phase::Settling { .. }
            | Phase::Verifying { .. }
            | Phase::Stranded => {}
        }
    }
}
