//! What was seen of one worker's unit. No judgement is in here.

use crate::vocabulary::InvocationId;

/// One look at a unit, or the reason why there is none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Observation {
    /// What systemd says of the unit.
    Unit(UnitSnapshot),
    /// The unit could not be observed, and why.
    Failed(String),
}

/// The properties of a unit that matter, read in one go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnitSnapshot {
    /// Whether there is such a unit (`LoadState`).
    pub load: LoadState,
    /// What it does (`ActiveState`).
    pub active: ActiveState,
    /// systemd's finer word for it (`SubState`): `running`, `exited`, `auto-restart`, …
    pub sub: String,
    /// How its last run ended (`Result` of the service): `success`, `exit-code`, `signal`, …
    pub result: String,
    /// Its run, present or last.
    pub invocation: Option<InvocationId>,
    /// Whether systemd has a job queued or running for it.
    pub job: bool,
    /// Whether the unit refuses to be started by hand (`RefuseManualStart=`).
    pub refuse_manual_start: bool,
    /// Whether systemd itself restarts it (`Restart=` is not `no`).
    pub restarts_itself: bool,
    /// How its last run came to its end.
    pub stop: StopCause,
    /// How its main process ended, in words: `exit code 1`, `signal 9 (KILL)`.
    pub exit: Option<String>,
}

/// systemd's `LoadState`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LoadState {
    /// The unit file was read.
    Loaded,
    /// There is no such unit file.
    NotFound,
    /// Linked to /dev/null: it can never be started.
    Masked,
    /// The file has an error that forbids starting.
    BadSetting,
    /// The file could not be read.
    Error,
    /// Known by name only, not read yet.
    Stub,
    /// Another name of a unit.
    Merged,
    /// A state that this version does not know.
    Other(String),
}

/// systemd's `ActiveState`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ActiveState {
    /// Up; a oneshot that is `exited` is up, too.
    Active,
    /// Up and reading its configuration again.
    Reloading,
    /// Up and refreshing its mounts.
    Refreshing,
    /// Down after a good end.
    Inactive,
    /// Down after a bad end.
    Failed,
    /// On its way up, also waiting for systemd's own restart.
    Activating,
    /// On its way down.
    Deactivating,
    /// Down while systemd cleans up behind it.
    Maintenance,
    /// A state that this version does not know.
    Other(String),
}

/// How the last run came to its end; read from timestamps, so it holds also when nobody was watching.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopCause {
    /// It has not run since the host booted.
    Never,
    /// Somebody had it stopped: `systemctl stop`, a dependency, a shutdown.
    Ordered,
    /// It ended without being asked to, or never came up.
    ByItself,
}
