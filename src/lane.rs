//! The executor: takes tasks from one queue, runs what this node's catalog allows, and answers each exactly once.
//!
//! `pipe` connects and claims, `admit` decides (purely), `ledger` remembers, `run` runs, `recover` puts in order what was
//! left after any death of anything. One thread; the write lane runs one task at a time, the read lane several.

mod admit;
pub mod approval;
mod clock;
mod guard;
mod guard_error;
mod journal_writer;
mod ledger;
mod main_loop;
mod output;
mod own;
mod pipe;
mod recover;
mod refusal;
mod result;
mod run;
mod seal;
mod serve;
mod shared;
mod sign;
mod signer;
mod status;
mod sudo;
mod task;
mod unstored;

pub use admit::{Admitted, MAX_AGE, MAX_AHEAD, Past, Refused, Rules, admit};
pub use guard_error::GuardError;
pub use journal_writer::{EXECUTED, TRANSITION};
pub use ledger::LedgerError;
pub use main_loop::{LaneError, Reload, Setup, work};
pub use recover::Mark;
pub use refusal::{Refusal, RefusalCode};
pub use result::{Output, Ran, Status, TaskResult, Text};
pub use sign::{Context, TaskKeys, seal};
pub use signer::{KeyUse, Signer, SignerError, TASK_KEY_FILE};
pub use task::{Envelope, MAX_TASK, Task};
