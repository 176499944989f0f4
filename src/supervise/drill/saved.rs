//! What is kept of rehearsals over a restart of the supervisor and of the host.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::kept::Kept;
use super::state::{Rehearsing, UnderWay};
use crate::journal::{Event as Kind, Priority, Record};
use crate::judge::Drill;
use crate::store::SavedWorker;
use crate::supervise::core::Core;
use crate::vocabulary::{Moment, Target, UnitName, WorkerName};

/// Under which name the rehearsal that is under way is kept.
const LEASE: &str = "under way";

/// Under which name it is kept what peers had of this supervisor, and the beginning of that for a worker.
const ASKED: &str = "asked";

/// The rehearsal that is under way, as it is written down.
#[derive(Debug, Serialize, Deserialize)]
struct Lease {
    worker: WorkerName,
    unit: UnitName,
    drill: Drill,
}

impl Core {
    /// Writes down what came of a rehearsal.
    pub(super) fn keep(&self, key: &str, kept: &Kept) {
        if let Some(json) = kept.to_json() {
            self.handles.store.save_rehearsal(key, json);
        }
    }

    /// Writes down what is under way, so that a new supervisor restores the worker.
    pub(super) fn save_lease(&self) {
        let lease = self.drills.under_way.as_ref().map(|UnderWay { worker, unit, drill, .. }| Lease {
            worker: worker.clone(),
            unit: unit.clone(),
            drill: drill.clone(),
        });
        if let Ok(json) = serde_json::to_string(&lease) {
            self.handles.store.save_rehearsal(LEASE, json);
        }
    }

    /// A peer has a worker, or this supervisor, broken from now on.
    pub(super) fn peer_rehearses(&mut self, worker: Option<WorkerName>, lease: Duration, now: Moment) {
        self.drills.asked.entry(worker.clone()).or_default().begin(lease, now);
        self.save_asked(&worker);
    }

    /// What a peer has asked for is over, or did not take place.
    pub(super) fn peer_rehearsed(
        &mut self,
        worker: &WorkerName,
        began: Moment,
        took_place: bool,
        now: Moment,
    ) {
        let worker = Some(worker.clone());
        let Some(asked) = self.drills.asked.get_mut(&worker) else { return };
        if took_place {
            asked.end(began, now)
        } else {
            asked.forget(began)
        }
        self.save_asked(&worker);
    }

    fn save_asked(&self, worker: &Option<WorkerName>) {
        let key = match worker {
            Some(worker) => format!("{ASKED} {worker}"),
            None => ASKED.to_owned(),
        };
        if let Some(json) = self.drills.asked.get(worker).and_then(|asked| serde_json::to_string(asked).ok())
        {
            self.handles.store.save_rehearsal(&key, json);
        }
    }

    /// What peers had in an earlier run. After a reboot its moments mean nothing, and counting begins afresh.
    fn take_over_asked(&mut self, worker: Option<&str>, saved: &SavedWorker) {
        let worker = match worker.map(str::parse) {
            None => None,
            Some(Ok(worker)) => Some(worker),
            Some(Err(_)) => return,
        };
        if let (true, Ok(asked)) = (saved.same_boot, serde_json::from_str(&saved.json)) {
            self.drills.asked.insert(worker, asked);
        }
    }

    /// Takes over what an earlier run of the supervisor has written down under `key`. `away` is how long ago that was by the
    /// wall clock, which is all there is after a reboot.
    pub(in crate::supervise) fn take_over_rehearsal(
        &mut self,
        key: &str,
        saved: &SavedWorker,
        away: Duration,
        now: Moment,
    ) {
        if key == LEASE {
            return self.take_over_lease(saved, now);
        }
        match key.strip_prefix(ASKED) {
            Some("") => return self.take_over_asked(None, saved),
            Some(worker) if worker.starts_with(' ') => {
                return self.take_over_asked(Some(worker.trim_start()), saved);
            }
            Some(_) | None => {}
        }
        let Some((kept, (subject, _))) = Kept::saved(saved, away, now).zip(key.split_once(' ')) else {
            return;
        };
        match subject.parse::<Target>() {
            Ok(target) if target.node == self.me => {
                if let Some(worker) = self.workers.get_mut(&target.worker) {
                    worker.rehearsed.insert(kept.class(), kept);
                }
            }
            Ok(_) => {}
            Err(_) => {
                if let Ok(node) = subject.parse() {
                    self.drills.nodes.insert(node, kept);
                }
            }
        }
    }

    /// A rehearsal that an earlier run of this supervisor did not see through. After a reboot there is nothing to restore:
    /// the host has started what it starts.
    fn take_over_lease(&mut self, saved: &SavedWorker, now: Moment) {
        let Ok(Some(lease)) = serde_json::from_str::<Option<Lease>>(&saved.json) else { return };
        let Lease { worker: name, unit, drill } = lease;
        if !saved.same_boot {
            self.save_lease();
            return;
        }
        let text = format!("a rehearsal of {} with {unit} was under way: it is ended", drill.class);
        self.handles.recorder.record(Record::local(
            Kind::Supervisor,
            Priority::Warning,
            self.target(&name),
            text,
        ));
        if let Some(worker) = self.workers.get_mut(&name) {
            worker.rehearsing = Some(Rehearsing { class: drill.class, policy: None });
        }
        let began = std::time::Instant::now();
        let began = began.checked_sub(now.since(drill.began)).unwrap_or(began);
        self.drills.under_way = Some(UnderWay {
            worker: name,
            unit,
            drill,
            inherited: true,
            reply: None,
            evidence: Vec::new(),
            began,
            found: None,
            well: None,
            deafened: began,
        });
    }
}
