//! A rehearsal: a worker is broken on purpose, its detector has to find it, and its watchers have to bring it back. It is a
//! lease: when it ends and nobody has, the node restores the worker by itself.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::classify::{Health, Host};
use super::state::{Phase, WorkerState};
use crate::vocabulary::{BlastRadius, FailureClass, InvocationId, Moment, Policy, RepairBy};

/// How much longer than its lease a rehearsal may take if a remedy is under way by then.
const LAST_CHANCE: Duration = Duration::from_secs(30);
/// How long the worker may take to be well again once the node restores it by itself.
const RESTORED_WITHIN: Duration = Duration::from_secs(60);

/// A rehearsal that is under way. It is saved, so that the supervisor's own death leaves no worker broken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drill {
    /// How the worker falls.
    pub class: FailureClass,
    /// Who asked for it.
    pub by: String,
    /// Whether that is a peer.
    #[serde(default)]
    pub by_peer: bool,
    /// When it began.
    pub began: Moment,
    /// When the lease ends.
    pub until: Moment,
    /// The run that was broken.
    pub before: Option<InvocationId>,
    /// Whether the worker's detector has seen it fall.
    pub found: bool,
    /// Who has brought it back, from outside.
    pub helped: Option<String>,
    /// Where it stands.
    pub stage: Stage,
    /// The flap guard as it was: a fall on purpose is no fall.
    pub relaunches: Vec<Moment>,
    /// The same for nudges and repipes.
    pub gentle: Vec<Moment>,
}

/// Where a rehearsal stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// The worker is being broken.
    Breaking,
    /// It is broken; everything else is up to detector and watchers.
    Broken,
    /// The node restores it by itself, until then at the latest.
    Restoring {
        /// Until when.
        until: Moment,
        /// Why nobody else has.
        why: DrillEnd,
    },
    /// It is over.
    Over {
        /// How it ended.
        end: DrillEnd,
        /// Whether the worker was seen to be well.
        well: bool,
    },
}

/// How a rehearsal ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DrillEnd {
    /// The detector found it and a watcher brought it back.
    Passed,
    /// It ran again before its detector had found anything.
    NotFound,
    /// It came back, and no watcher had a hand in that.
    NotHelped,
    /// The lease ended and the detector had found nothing.
    UnseenToTheEnd,
    /// The lease ended and no watcher had brought it back.
    NobodyCame,
    /// It could not be broken; the text says why.
    NotBroken(String),
    /// The supervisor was started again meanwhile.
    Interrupted,
}

impl fmt::Display for DrillEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Passed => f.write_str("found by its detector and brought back by a watcher"),
            Self::NotFound => f.write_str("it was started again before its detector had found it"),
            Self::NotHelped => f.write_str("its detector found it, and it came back without a watcher"),
            Self::UnseenToTheEnd => f.write_str("its detector did not find it before the lease ended"),
            Self::NobodyCame => {
                f.write_str("its detector found it, and no watcher brought it back before the lease ended")
            }
            Self::NotBroken(why) => write!(f, "it could not be broken: {why}"),
            Self::Interrupted => f.write_str("the node's supervisor was started again during the rehearsal"),
        }
    }
}

/// Something that a rehearsal waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trigger<'a> {
    /// The order that breaks the worker was carried out, or was not.
    Break(Result<(), String>),
    /// Somebody has ordered a remedy, and it was admitted. None for somebody on the node itself.
    Remedy(Option<&'a str>),
    /// The worker was looked at, or time has passed since it was.
    Seen {
        /// What the look means.
        health: &'a Health,
        /// The run that was looked at.
        invocation: Option<InvocationId>,
        /// What is in hand for it.
        phase: &'a Phase,
    },
    /// A new supervisor has found this rehearsal of an earlier one.
    Inherited,
}

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DrillEffect {
    /// Restore the worker.
    Restore,
    /// Report: the stage is [`Stage::Over`].
    Report,
}

impl Drill {
    /// A rehearsal that begins now.
    pub fn new(
        class: FailureClass,
        (by, by_peer): (String, bool),
        lease: Duration,
        before: Option<InvocationId>,
        state: &WorkerState,
        now: Moment,
    ) -> Self {
        let (relaunches, gentle) = (state.relaunches.clone(), state.gentle.clone());
        let (began, until, stage) = (now, now + lease, Stage::Breaking);
        Self {
            class,
            by,
            by_peer,
            began,
            until,
            before,
            found: false,
            helped: None,
            stage,
            relaunches,
            gentle,
        }
    }

    /// Whether the worker is left to its watchers.
    pub fn is_on(&self) -> bool {
        match self.stage {
            Stage::Breaking | Stage::Broken => true,
            Stage::Restoring { .. } | Stage::Over { .. } => false,
        }
    }

    /// The worker's policy while it lasts: its own node leaves it to the watchers, at once.
    pub fn policy(&self, policy: &Policy) -> Policy {
        Policy {
            repair_by: RepairBy::Peer,
            undeclared_stop: Duration::ZERO,
            grace: Duration::ZERO,
            repair_window: Duration::ZERO,
            ..policy.clone()
        }
    }

    /// From when on [`Drill::take`] has to be asked again and again even if nothing happens.
    pub fn wake(&self) -> Option<Moment> {
        match &self.stage {
            Stage::Breaking | Stage::Broken => Some(self.until),
            Stage::Restoring { until, .. } => Some(*until),
            Stage::Over { .. } => None,
        }
    }

    /// Takes a sign in; says what follows from it.
    pub fn take(&mut self, sign: Trigger<'_>, now: Moment) -> Option<DrillEffect> {
        let broken = self.stage == Stage::Broken;
        match (&self.stage, sign) {
            (Stage::Over { .. }, _) => None,
            (Stage::Breaking, Trigger::Break(Ok(()))) => {
                self.stage = Stage::Broken;
                None
            }
            (Stage::Breaking | Stage::Broken, Trigger::Break(Err(why))) => {
                self.restore(DrillEnd::NotBroken(why), now)
            }
            (_, Trigger::Break(_)) => None,
            (_, Trigger::Remedy(by)) => {
                // Queues and heartbeats in Redis are seen from outside as well, sometimes first; whoever comes has found it.
                let from_outside = matches!(self.class, FailureClass::Stuck | FailureClass::DeliveryGap);
                self.found |= by.is_some() && from_outside && broken;
                self.helped = self.helped.take().or_else(|| by.map(str::to_owned));
                None
            }
            (_, Trigger::Inherited) => self.restore(DrillEnd::Interrupted, now),
            (Stage::Breaking | Stage::Broken, Trigger::Seen { health, invocation, phase }) => {
                self.seen(health, invocation, phase, now)
            }
            (Stage::Restoring { until, why }, Trigger::Seen { health, phase, .. }) => {
                let well = is_up(health) && at_rest(phase);
                let end = (well || now >= *until).then(|| why.clone())?;
                self.stage = Stage::Over { end, well };
                Some(DrillEffect::Report)
            }
        }
    }

    fn seen(
        &mut self,
        health: &Health,
        invocation: Option<InvocationId>,
        phase: &Phase,
        now: Moment,
    ) -> Option<DrillEffect> {
        self.found |= self.is_it(health);
        let another = invocation.is_some() && invocation != self.before;
        // A break that is not carried out yet has done nothing that could be over.
        let well = match self.class {
            // It is up again, which is all that the dead have to show.
            FailureClass::Dead => is_up(health) && another,
            FailureClass::Stuck
            | FailureClass::DeliveryGap
            | FailureClass::SupervisorDead
            | FailureClass::Unreachable => *health == Health::Healthy && (self.found || another),
        };
        if well && at_rest(phase) {
            let end = match (self.found, &self.helped) {
                (false, _) => DrillEnd::NotFound,
                (true, None) => DrillEnd::NotHelped,
                (true, Some(_)) => DrillEnd::Passed,
            };
            self.stage = Stage::Over { end, well: true };
            return Some(DrillEffect::Report);
        }
        let patience = if at_rest(phase) { Duration::ZERO } else { LAST_CHANCE };
        if now < self.until + patience {
            return None;
        }
        let why = if self.found { DrillEnd::NobodyCame } else { DrillEnd::UnseenToTheEnd };
        self.restore(why, now)
    }

    fn restore(&mut self, why: DrillEnd, now: Moment) -> Option<DrillEffect> {
        self.stage = Stage::Restoring { until: now + RESTORED_WITHIN, why };
        Some(DrillEffect::Restore)
    }

    /// Whether that is how it was to fall.
    fn is_it(&self, health: &Health) -> bool {
        match health {
            Health::Dead(_) => self.class == FailureClass::Dead,
            Health::Stuck(_) => self.class == FailureClass::Stuck,
            Health::DeliveryGap(_) => self.class == FailureClass::DeliveryGap,
            Health::Healthy
            | Health::Blind(_)
            | Health::InTransition(_)
            | Health::Idle(_)
            | Health::Unknown(_) => false,
        }
    }
}

fn is_up(health: &Health) -> bool {
    match health {
        Health::Healthy | Health::Blind(_) => true,
        Health::Dead(_)
        | Health::Idle(_)
        | Health::Stuck(_)
        | Health::DeliveryGap(_)
        | Health::InTransition(_)
        | Health::Unknown(_) => false,
    }
}

/// Whether no remedy is under way or being verified.
fn at_rest(phase: &Phase) -> bool {
    match phase {
        Phase::Watching
        | Phase::Waiting { .. }
        | Phase::LeftToPeers
        | Phase::Quarantined { .. }
        | Phase::Stranded => true,
        Phase::Repairing { .. } | Phase::Settling { .. } | Phase::Verifying { .. } => false,
    }
}

/// What a rehearsal would start from.
#[derive(Debug, Clone)]
pub struct Ground<'a> {
    /// How the worker is to fall.
    pub class: FailureClass,
    /// The host.
    pub host: Host,
    /// The rehearsal that is under way somewhere, in words.
    pub under_way: Option<String>,
    /// What is not as it should be with the fleet, as far as it is seen from here, the worker itself left out.
    pub degraded: Option<String>,
    /// The worker.
    pub health: &'a Health,
    /// What is in hand for it.
    pub state: &'a WorkerState,
    /// Its own policy.
    pub policy: &'a Policy,
    /// What depends on it.
    pub blast_radius: BlastRadius,
    /// Whether a peer asks, and not root on the node.
    pub by_peer: bool,
    /// Why peers had their share of rehearsals with it.
    pub asked: Option<String>,
    /// Whether it was said that it may be broken although it is critical. A peer cannot say so.
    pub yes: bool,
    /// Why this class cannot be rehearsed with it, whatever its state: no detector, no way to break it.
    pub not_configured: Option<&'static str>,
    /// Whether a watcher that may repair it is there.
    pub helper: bool,
    /// A task that must not be interrupted, in words.
    pub write: Option<String>,
}

/// Why there is no rehearsal now.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Hindrance {
    /// The host boots or shuts down.
    #[error("the host boots or shuts down: ask again when it is up")]
    Host,
    /// It cannot be rehearsed at all.
    #[error("{0}")]
    NotConfigured(&'static str),
    /// Nobody would repair it.
    #[error("fleet.yaml has nobody repair it (`repair_by: nobody`), so there is nothing to rehearse")]
    NobodyRepairs,
    /// It is critical.
    #[error("it is critical: say --yes if it may be down for as long as its repair takes")]
    Critical,
    /// It is critical, and a peer asks.
    #[error("it is critical, and no peer may have it broken: root on its own node may, there, with --yes")]
    CriticalForPeers,
    /// Peers had their share.
    #[error("{0}; root on its own node may at any time, there")]
    Asked(String),
    /// It is on hold.
    #[error("it is on hold, and what is held is left alone: end that first with `keyholder release`")]
    Held,
    /// It is in quarantine.
    #[error("it is in quarantine: fix its cause first, then `keyholder release`")]
    Quarantined,
    /// The flap guard would refuse the repair.
    #[error(
        "its flap guard allows no further relaunch at the moment, so nobody could repair it: ask again later, or with --wait"
    )]
    Spent,
    /// Another one.
    #[error("a rehearsal of {0} is under way; one at a time")]
    UnderWay(String),
    /// Something else is broken already.
    #[error(
        "the fleet is degraded, and nothing is broken on purpose then: {0}; see to that first, or --wait"
    )]
    Degraded(String),
    /// The worker itself is not well.
    #[error("it is not healthy, so there is nothing to rehearse: {0}")]
    Unwell(String),
    /// Who would repair it is not there.
    #[error(
        "no watcher that may repair it is connected: `keyholder status` shows which are there, and `grants` in fleet.yaml which may"
    )]
    NoHelper,
    /// It is in the middle of something.
    #[error("it runs a task that must not be interrupted ({0}): ask again later, or with --wait")]
    Writes(String),
}

/// Whether a worker may be broken on purpose now. What is forbidden at any time comes before what is in the way at present.
///
/// # Errors
/// The [`Hindrance`]. Nothing has been touched then.
pub fn rehearsable(ground: &Ground<'_>, now: Moment) -> Result<(), Hindrance> {
    let Ground { state, policy, .. } = ground;
    if let Some(why) = ground.not_configured {
        return Err(Hindrance::NotConfigured(why));
    }
    if policy.repair_by == RepairBy::Nobody {
        return Err(Hindrance::NobodyRepairs);
    }
    match (ground.blast_radius, ground.by_peer) {
        (BlastRadius::Critical, true) => return Err(Hindrance::CriticalForPeers),
        (BlastRadius::Critical, false) if !ground.yes => return Err(Hindrance::Critical),
        (BlastRadius::Critical | BlastRadius::Normal | BlastRadius::Auxiliary, _) => {}
    }
    if ground.host != Host::Running {
        return Err(Hindrance::Host);
    }
    if let Some(other) = &ground.under_way {
        return Err(Hindrance::UnderWay(other.clone()));
    }
    if state.held(now).is_some() {
        return Err(Hindrance::Held);
    }
    if state.quarantined() {
        return Err(Hindrance::Quarantined);
    }
    match ground.health {
        Health::Healthy => {}
        Health::Blind(why) | Health::Stuck(why) | Health::DeliveryGap(why) | Health::Unknown(why) => {
            return Err(Hindrance::Unwell(why.clone()));
        }
        Health::InTransition(what) => return Err(Hindrance::Unwell((*what).to_owned())),
        Health::Dead(death) => return Err(Hindrance::Unwell(death.to_string())),
        Health::Idle(idle) => return Err(Hindrance::Unwell(idle.to_string())),
    }
    if state.phase != Phase::Watching {
        return Err(Hindrance::Unwell("a repair of it is not over yet".to_owned()));
    }
    if state.recent(policy, now) >= usize::try_from(policy.relaunches).unwrap_or(usize::MAX) {
        return Err(Hindrance::Spent);
    }
    if let Some(why) = &ground.asked {
        return Err(Hindrance::Asked(why.clone()));
    }
    if let Some(what) = &ground.degraded {
        return Err(Hindrance::Degraded(what.clone()));
    }
    if !ground.helper {
        return Err(Hindrance::NoHelper);
    }
    match &ground.write {
        Some(task) => Err(Hindrance::Writes(task.clone())),
        None => Ok(()),
    }
}

#[cfg(test)]
#[path = "drill/tests.rs"]
mod tests;
