//! The command line: one file per subcommand, with its arguments and its `run`.

pub mod check;
