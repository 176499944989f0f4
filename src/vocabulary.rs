//! The words that code, command line, documentation and journal share, as types that cannot hold anything else.

mod allowance;
mod care;
mod ids;
mod lane_status;
mod mode;
mod names;
mod policy;
mod task_id;
mod task_status;
mod text;
mod time;

pub use allowance::Allowance;
pub use care::{
    Canary, Command, DeliveryGap, FailureClass, Flow, Heartbeat, Nudge, NudgeSignal, Power, Remedy, Repipe,
    Stuck, Witness,
};
pub use ids::{BootNonce, CatalogHash, FleetHash, IdError, InvocationId, Pin, ReqId, TaskKey};
pub use lane_status::{
    InFlight, LANE_STATUS_EVERY, LANE_STATUS_MAX, LANE_STATUS_TASKS, LANE_TEXT_MAX, LaneStatus, LastTask,
};
pub use mode::Mode;
pub use names::{ActionName, NameError, NodeName, ParamName, Target, TaskId, UnitName, WorkerName};
pub use policy::{BlastRadius, Policy, RepairBy};
pub use task_id::CANARY_ID;
pub use task_status::TaskStatus;
pub use text::{bounded, clipped, cut, hex, is_unsafe, printable, printable_bytes, with_causes};
pub use time::{Moment, human, parse_duration};
