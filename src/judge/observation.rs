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
