//! The supervisor itself was away: stopped by a signal, starved of its processor, or suspended with its host.
//!
//! What it knows then is old, and the news wait behind it. A repair that was due meanwhile would restart a worker that has
//! long been brought back; so before anything is decided everything is looked at again.

use std::time::Duration;

use super::core::Core;
use crate::journal::{Event as Kind, Priority, Record};
use crate::judge::log::{Absence, Happened};
use crate::vocabulary::{Moment, human};

/// How much later than it meant to it must come back for that to count; a loaded host takes some tenths of it.
const BEHIND: Duration = Duration::from_secs(1);
/// How long it looks and listens then: neighbours that are there speak each second.
const CATCH_UP: Duration = Duration::from_secs(2);

impl Core {
    /// The loop has slept from `before` until `now` and had meant to sleep for `meant` at most.
    pub(super) fn slept(&mut self, before: Moment, meant: Duration, now: Moment) {
        let away = now.since(before).saturating_sub(meant);
        if away < BEHIND {
            return;
        }
        let text = format!(
            "this supervisor was away for {}: everything is looked at again before anything is decided",
            human(away)
        );
        self.handles.recorder.record(Record::local(
            Kind::Supervisor,
            Priority::Warning,
            self.me.as_str(),
            text,
        ));
        let until = now + CATCH_UP;
        self.host.catch_up_until(until);
        for worker in self.workers.values_mut() {
            // What was decided when it went to sleep was decided.
            let since_ms = before + meant.max(Duration::from_millis(1));
            let absence = Absence { since_ms, until_ms: until };
            worker.note(Happened::Away(absence), self.host.state(), now);
            worker.state.count_again(until);
            self.handles.systemd.look(&worker.spec.unit);
        }
        // Whoever has not listened has not heard them be silent.
        for neighbour in self.neighbours.values_mut() {
            neighbour.count_anew(now);
        }
    }

    /// Until when nothing is decided; what has been learnt by then is judged.
    pub(super) fn catch_up(&mut self, now: Moment) -> Option<Moment> {
        match self.host.still_catching_up(now) {
            Ok(until) => return Some(until),
            Err(true) => self.look_at_all(now),
            Err(false) => {}
        }
        None
    }
}
