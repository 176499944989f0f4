//! The words that code, command line, documentation and journal share, as types that cannot hold anything else.

mod care;
mod ids;
mod mode;
mod names;
mod policy;
mod task_id;
mod text;
mod time;

pub use care::{
    Canary, Command, DeliveryGap, FailureClass, Flow, Heartbeat, Nudge, NudgeSignal, Power, Remedy, Repipe,
    Stuck,
};
pub use ids::{BootNonce, CatalogHash, FleetHash, IdError, InvocationId, Pin, ReqId, TaskKey};
pub use mode::Mode;
pub use names::{ActionName, NameError, NodeName, ParamName, Target, TaskId, UnitName, WorkerName};
pub use policy::{BlastRadius, Policy, RepairBy};
pub use text::{clipped, printable, printable_bytes};
pub use time::{Moment, human, parse_duration};
