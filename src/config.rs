//! What every file of an operator has in common: who may have written it, how it is read strictly, and how each of its
//! mistakes is told with its place. `fleet` and `catalog` say what stands in the files.

pub(crate) mod file;
pub(crate) mod leaf;
pub(crate) mod problem;
mod render;
pub(crate) mod report;
mod suggest;
pub(crate) mod trust;
pub(crate) mod walk;
pub(crate) mod yaml;

pub use file::MAX_FILE;
pub use problem::{Problem, Problems, Severity, escape};
pub use suggest::did_you_mean;
