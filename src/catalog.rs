//! The catalogs: what each node may be asked to do, and by which exact command.
//!
//! Bytes become a tree that knows where everything stands (`config`), the tree becomes checked values (`raw`, `leaf`), these
//! must fit together (`validate`) and mean no harm (`lint`), each catalog for itself and all of them `together`; then they
//! become the types of `model`. `argv` makes a command from a task's parameters, `sudoers` the lines it needs. The
//! supervisor, which is root, never reads a catalog.

mod argv;
mod draft;
mod habit;
mod installed;
mod leaf;
mod lint;
mod load;
mod model;
mod own;
mod pid1;
mod program;
mod raw;
mod schema;
pub mod sudoers;
mod together;
mod validate;

#[cfg(test)]
mod tests;

pub use argv::ParamError;
pub use draft::Loaded;
pub use installed::installed;
pub use load::{inspect, parse, parse_all};
pub use model::{Action, Arg, Catalog, DEFAULT_TIMEOUT, Mode, Param, Rate};
pub(crate) use own::ends_write_lane;
pub use schema::schema;
