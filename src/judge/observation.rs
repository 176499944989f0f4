//! What was seen of one worker's unit. No judgement is in here.

use serde::{Deserialize, Serialize};

use super::transit::Timeouts;
use crate::vocabulary::InvocationId;

/// One look at a unit, or the reason why there is none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
// Nearly every look succeeds; a box would be an allocation for each.
#[allow(clippy::large_enum_variant)]
pub enum Observation {
    /// The unit as systemd describes it.
    Unit(UnitSnapshot),
    /// It could not be observed, in one sentence. This says nothing about the worker.
    Failed(String),
}

/// A unit at one moment, from one coherent read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UnitSnapshot {
    /// Whether systemd has a definition of the unit.
    pub load: LoadState,
    /// The unit's state.
    pub active: ActiveState,
    /// systemd's SubState of a service: "running", "exited", "auto-restart", "dead", "failed", …
    pub sub: String,
    /// The service's Result: "success", "exit-code", "signal", "timeout", … It never says "start-limit-hit" on 252.
    pub result: String,
    /// The present or last run; none if the unit never ran in this boot or systemd has forgotten it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub invocation: Option<InvocationId>,
    /// Whether a job is queued or running for the unit.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub job: bool,
    /// Whether the unit refuses to be started by hand (RefuseManualStart=yes).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub refuse_manual_start: bool,
    /// Whether systemd itself restarts it in some case (Restart= is not "no").
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub restarts_itself: bool,
    /// How often systemd has restarted it itself since somebody last started or reset it (NRestarts). Nothing is decided by it.
    #[serde(default, skip_serializing_if = "none")]
    pub restarts: u32,
    /// How the last run ended, if it has ended.
    pub stop: StopCause,
    /// How the main process of the last run ended, in words: "exit code 1", "signal 9 (KILL)".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit: Option<String>,
    /// What its unit file and the units that it hangs together with say about its state.
    #[serde(default, skip_serializing_if = "Context::is_plain")]
    // Boxed: it is seldom there, and large.
    pub context: Box<Context>,
    /// Its own timeouts; what is left out has systemd's defaults.
    #[serde(default, skip_serializing_if = "is_default")]
    pub timeouts: Timeouts,
    /// The command beside the main process that runs for it (ControlPID), 0 for none; only while it is on its way.
    #[serde(default, skip_serializing_if = "none")]
    pub control: u32,
    /// What it says of itself (StatusText); only while it is on its way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<String>,
}

fn is_default(timeouts: &Timeouts) -> bool {
    *timeouts == Timeouts::default()
}

/// What a unit file and other units say about a unit that is down, or in which nothing runs. Only what matters is in here:
/// nothing, for a unit that runs.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Context {
    /// The condition that was not met at its last start: "ConditionPathExists=/etc/agent.conf".
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unmet: Option<String>,
    /// The assertion that was not met at its last start. Unlike a condition this is a fault.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unasserted: Option<String>,
    /// Whether it ended in a way after which its unit file wants no restart (RestartPreventExitStatus=).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub agreed_exit: bool,
    /// Whether it ended well by itself, as its unit file counts. A reset of its failure leaves no other trace of that.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub ended_well: bool,
    /// Whether it ends when its work is done (Type=oneshot).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub oneshot: bool,
    /// Whether a call on the bus starts it (it has an alias "dbus-….service").
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub on_bus: bool,
    /// Whether it runs and systemd knows no main process of it (Type=forking).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub no_main: bool,
    /// The units that it hangs together with, as far as their state matters to its own.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<Other>,
}

impl Context {
    fn is_plain(&self) -> bool {
        *self == Self::default()
    }

    /// The first of the others that hangs together with it in this way and stands so.
    pub fn first(&self, tie: Tie, standing: Standing) -> Option<&Other> {
        self.others.iter().find(|other| other.tie == tie && other.standing == standing)
    }

    /// The unit that keeps this one down: one that it needs or is part of, which is down itself or on its way.
    pub fn cause(&self) -> Option<&Other> {
        self.others.iter().find(|other| match (other.tie, other.standing) {
            (Tie::Needs | Tie::PartOf, Standing::Down | Standing::Failed | Standing::Busy) => true,
            (Tie::Needs | Tie::PartOf, Standing::Up)
            | (Tie::Conflicts | Tie::Trigger | Tie::UpheldBy | Tie::Instance, _) => false,
        })
    }
}

/// Another unit, as far as it matters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Other {
    /// Its name; it need not be a service.
    pub unit: String,
    /// How the two hang together.
    pub tie: Tie,
    /// How it stands.
    pub standing: Standing,
    /// How it stands, in words that follow "which".
    pub why: String,
    /// Whether it is a worker of this node, too.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ours: bool,
}

/// How two units hang together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tie {
    /// The two cannot run together (Conflicts=, on either side).
    Conflicts,
    /// It cannot run without the other (BindsTo=, Requires=, Requisite=).
    Needs,
    /// It is stopped with the other (PartOf=).
    PartOf,
    /// The other starts it when there is work: a socket, timer or path (TriggeredBy=).
    Trigger,
    /// The other has systemd start it again and again (Upholds=).
    UpheldBy,
    /// The other is part of it (ConsistsOf=, BoundBy=).
    Instance,
}

/// How another unit stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    /// It is up.
    Up,
    /// It is starting or stopping, or systemd has a job queued for it.
    Busy,
    /// It was stopped, or never ran.
    Down,
    /// It is down and failed, or cannot be started.
    Failed,
}

#[cfg(test)]
impl UnitSnapshot {
    /// A unit in this state of which nothing else is known.
    pub(crate) fn plain(active: ActiveState, sub: &str) -> Self {
        Self {
            load: LoadState::Loaded,
            active,
            sub: sub.to_owned(),
            result: "success".to_owned(),
            invocation: None,
            job: false,
            refuse_manual_start: false,
            restarts_itself: false,
            restarts: 0,
            stop: StopCause::Never,
            exit: None,
            context: Box::default(),
            timeouts: Timeouts::default(),
            control: 0,
            status: None,
        }
    }
}

fn none(count: &u32) -> bool {
    *count == 0
}

/// systemd's LoadState.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LoadState {
    /// "loaded": the unit file was read.
    Loaded,
    /// "not-found": there is no such unit file.
    NotFound,
    /// "masked": an operator linked the unit to /dev/null; it cannot be started.
    Masked,
    /// "bad-setting": the unit file lacks something essential, for example ExecStart=.
    BadSetting,
    /// "error": the unit file could not be read.
    Error,
    /// "stub": not loaded yet.
    Stub,
    /// "merged": the name is an alias of another unit.
    Merged,
    /// A state that this version does not know.
    Other(String),
}

/// systemd's ActiveState.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ActiveState {
    /// "active": it runs, or it is a oneshot that has done its work.
    Active,
    /// "reloading": it runs and reads its configuration again.
    Reloading,
    /// "inactive": it does not run.
    Inactive,
    /// "failed": it does not run, and its last run ended badly.
    Failed,
    /// "activating": it is being started, or systemd waits to restart it (SubState "auto-restart").
    Activating,
    /// "deactivating": it is being stopped.
    Deactivating,
    /// "maintenance": a maintenance operation is under way.
    Maintenance,
    /// "refreshing": it runs and its mounts are being refreshed (systemd 257 and later).
    Refreshing,
    /// A state that this version does not know.
    Other(String),
}

impl ActiveState {
    /// Whether it runs, or has done its work, and is neither being started nor stopped.
    pub const fn up(&self) -> bool {
        match self {
            Self::Active | Self::Reloading | Self::Refreshing => true,
            Self::Inactive
            | Self::Failed
            | Self::Activating
            | Self::Deactivating
            | Self::Maintenance
            | Self::Other(_) => false,
        }
    }
}

/// How a unit came to be down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopCause {
    /// It never ran in this boot, as far as systemd remembers.
    Never,
    /// Somebody or something ordered the stop: `systemctl stop`, a dependency, a shutdown.
    Ordered,
    /// It ended by itself, was killed from outside systemd, or its start failed.
    ByItself,
}
