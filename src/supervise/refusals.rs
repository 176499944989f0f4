//! What is answered, and recorded, when an order is not carried out.

use tokio::sync::oneshot;

use super::core::Core;
use super::evidence::{causes, journal_of};
use crate::journal::{Event as Kind, Priority, Record};
use crate::judge::{OfRoot, Rejection};
use crate::peer::inbox::Asker;
use crate::peer::wire::{Refusal, RefusalCode, Verdict};
use crate::vocabulary::{Moment, Remedy, WorkerName, human};

pub(super) fn refused(code: RefusalCode, text: impl Into<String>) -> Verdict {
    Verdict::Refused(Refusal::new(code, text))
}

impl Core {
    /// Refuses an order, and takes that down.
    pub(super) fn refuse(
        &self,
        asker: &Asker,
        name: &WorkerName,
        remedy: Remedy,
        objection: Rejection,
        reply: oneshot::Sender<Verdict>,
    ) {
        let spent = matches!(objection, Rejection::Quarantined | Rejection::TooOften);
        let verdict = self.object(name, objection);
        if let (true, Verdict::Refused(refusal), Some(worker)) = (spent, &verdict, self.workers.get(name)) {
            let (unit, ended, refusal) = (worker.spec.unit.clone(), worker.why(), refusal.clone());
            let (target, by, recorder) =
                (self.target(name), asker.to_string(), self.handles.recorder.clone());
            tokio::spawn(async move {
                let text = format!("{}; {}", refusal.text, causes(&ended, &journal_of(&unit).await));
                let record = format!("{remedy} refused: {text}");
                let record = Record::local(Kind::Refused, Priority::Warning, target, record);
                recorder.record(Record { by, ..record });
                let _ = reply.send(refused(refusal.code, text));
            });
            return;
        }
        if let Verdict::Refused(refusal) = &verdict {
            let text = format!("{remedy} refused: {refusal}");
            let record = Record::local(Kind::Refused, Priority::Warning, self.target(name), text);
            self.handles.recorder.record(Record { by: asker.to_string(), ..record });
        }
        let _ = reply.send(verdict);
    }

    fn object(&self, name: &WorkerName, objection: Rejection) -> Verdict {
        let target = self.target(name);
        match objection {
            Rejection::Leaving => refused(RefusalCode::Leaving, format!("{} shuts down", self.me)),
            Rejection::Held { left, why, by } => refused(
                RefusalCode::Held,
                format!(
                    "{target} is held by {by} for another {}: {why}. End it: keyholder release {target}",
                    human(left)
                ),
            ),
            Rejection::Quarantined => refused(
                RefusalCode::Quarantined,
                format!(
                    "{target} is in quarantine. When its cause is fixed, root on {} ends it: keyholder release {target}",
                    self.me
                ),
            ),
            Rejection::TooOften => {
                let policy =
                    self.workers.get(name).map(|worker| worker.spec.policy.clone()).unwrap_or_default();
                refused(
                    RefusalCode::Quarantined,
                    format!(
                        "{target} was relaunched {} times within {}, which is all that fleet.yaml allows; root on {} can insist: keyholder relaunch {target} --force",
                        policy.relaunches,
                        human(policy.per),
                        self.me
                    ),
                )
            }
            Rejection::Conflicts(unit) => refused(
                RefusalCode::NotStartable,
                format!(
                    "{target} cannot run beside {unit}, which runs and would be stopped. Stop that first, or, as root on {}: keyholder relaunch {target} --force",
                    self.me
                ),
            ),
            Rejection::NotRunning => refused(
                RefusalCode::NotRunning,
                format!("{target} does not run, and the dead cannot be nudged: keyholder relaunch {target}"),
            ),
            Rejection::UnderWay(remedy) => {
                refused(RefusalCode::Busy, format!("a {remedy} of {target} is under way already: ask again"))
            }
            Rejection::InTransition(what) => {
                refused(RefusalCode::Busy, format!("{target}: {what}: ask again when that has ended"))
            }
            Rejection::NotStartable(obstacle) => {
                refused(RefusalCode::NotStartable, format!("{target}: {obstacle}"))
            }
        }
    }

    /// Refuses a peer what only root on this node may, and takes that down.
    pub(super) fn refuse_of_root(
        &self,
        asker: &Asker,
        name: &WorkerName,
        verb: &'static str,
        of_root: OfRoot,
        now: Moment,
    ) -> Verdict {
        let (target, me) = (self.target(name), &self.me);
        let (code, text) = match of_root {
            OfRoot::Hold(hold) => {
                let left = human(hold.until.since(now));
                let text = format!(
                    "{target} is held by {} for another {left}: {}. Only root on {me} ends that, there: keyholder release {target}",
                    hold.by, hold.why
                );
                (RefusalCode::Held, text)
            }
            OfRoot::Quarantine => {
                let text = format!(
                    "{target} is in quarantine, and only root on {me} ends that, there, when its cause is fixed: keyholder release {target}"
                );
                (RefusalCode::Quarantined, text)
            }
        };
        let record =
            Record::local(Kind::Refused, Priority::Warning, target, format!("{verb} refused: {text}"));
        self.handles.recorder.record(Record { by: asker.to_string(), verb: Some(verb), ..record });
        refused(code, text)
    }
}
