//! What a worker's judge is told, taken down as it is told it, for `keyholder explain --record`.

use std::sync::Arc;
use std::time::Duration;

use super::worker::{Worker, rungs, salt};
use crate::fleet::Worker as Spec;
use crate::judge::log::{Care, Happened, Line};
use crate::judge::tape::Baseline;
use crate::judge::{Crowd, Event, Host, Observation, Signs};
use crate::vocabulary::{Moment, NodeName, Target, WorkerName};

impl Worker {
    /// Takes down what is about to happen to it; call it before it does.
    pub(super) fn note(&mut self, what: Happened, host: Host, now: Moment) {
        let Self { tape, seen, signs, state, .. } = self;
        let known = || Baseline { host, seen: seen.clone(), signs: signs.clone(), state: state.clone() };
        tape.note(what, now, known);
    }

    /// Takes down what the judge is about to be told, and what it is told of the others. A look is taken down where its
    /// news comes in.
    pub(super) fn note_event(&mut self, event: &Event, crowd: Crowd, host: Host, now: Moment) {
        match event {
            Event::Seen { .. } => {}
            Event::Done(ending) => self.note(Happened::Done(*ending), host, now),
            Event::Ordered(remedy) => self.note(Happened::Ordered(*remedy), host, now),
            Event::Hold(hold) => self.note(Happened::Hold(Box::new(hold.clone())), host, now),
            Event::Release => self.note(Happened::Release, host, now),
        }
        let Self { tape, seen, signs, state, .. } = self;
        let known = || Baseline { host, seen: seen.clone(), signs: signs.clone(), state: state.clone() };
        tape.crowd(crowd, now, known);
    }

    /// Takes down that time alone is about to change its state.
    pub(super) fn note_time(&mut self, host: Host, now: Moment) {
        let Self { tape, seen, signs, state, .. } = self;
        let known = || Baseline { host, seen: seen.clone(), signs: signs.clone(), state: state.clone() };
        tape.time(now, known);
    }

    /// Takes a look at its unit in.
    pub(super) fn take_in(&mut self, seen: Observation, host: Host, now: Moment) {
        if seen == self.seen {
            return;
        }
        self.note(Happened::Seen(Box::new(seen.clone())), host, now);
        self.signs.look(&seen);
        self.seen = seen;
    }

    /// The fleet file describes it again. What was seen by other limits counts no more.
    pub(super) fn adopt(&mut self, spec: Arc<Spec>) {
        if spec != self.spec {
            self.tape.rewind();
            self.signs = Signs::default();
            self.spec = spec;
        }
    }

    /// What was taken down, as a log that can be replayed.
    pub(super) fn log(&self, node: &NodeName, name: &WorkerName) -> Vec<Line> {
        let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let Spec { policy, blast_radius, stuck, delivery_gap, .. } = &*self.spec;
        let gap = delivery_gap.as_ref();
        let care = Care {
            older_than_ms: stuck.as_ref().map(|stuck| ms(stuck.older_than)),
            not_draining_for_ms: gap.map(|gap| ms(gap.not_draining_for)),
            canary_within_ms: gap.and_then(|gap| gap.canary).map(|canary| ms(canary.within)),
            ..Care::of(policy, rungs(&self.spec), *blast_radius, salt(name.as_str()))
        };
        self.tape.log(&Target { node: node.clone(), worker: name.clone() }, &care)
    }
}
