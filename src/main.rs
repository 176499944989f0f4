//! `keyholder`: parse, dispatch, exit code; nothing else.

use std::process::ExitCode;

use clap::Parser;
use keyholder::cli::{Cli, ending, exit, run, screen};
use keyholder::vocabulary::printable;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help whose reader has gone is no failure.
            let _ = error.print();
            return if error.use_stderr() { exit::Exit::Usage.into() } else { exit::Exit::Ok.into() };
        }
    };
    run(cli).unwrap_or_else(|error| {
        screen::complain(&format!("keyholder: error: {}", printable(&format!("{error:#}"))));
        ending::exit(&error).into()
    })
}
