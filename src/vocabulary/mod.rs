//! The words that code, command line, documentation and journal share, as types that cannot hold anything else.

mod ids;
mod names;
mod text;
mod time;

pub use ids::{BootNonce, FleetHash, IdError, InvocationId, Pin, ReqId};
pub use names::{NameError, NodeName, Target, UnitName, WorkerName};
pub use text::{clipped, printable, printable_bytes};
pub use time::{Moment, human, parse_duration};
