//! The clock of `tests/bench/lanes`: a Redis, lanes, the floor under them and others who do the same job, in turns, in one run.

// A measuring tool stops at the first surprise, with the whole story.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stderr
)]

mod client;
mod figures;
mod floor;
mod measure;
mod python;
#[path = "../../it/redis_server.rs"]
#[allow(dead_code, reason = "the tests kill it and bring it back, the benchmark does not")]
mod redis_server;
mod rig;

use std::path::PathBuf;
use std::process::ExitCode;

/// What the shell around this program says.
struct Plan {
    /// The keyholder that is measured.
    keyholder: PathBuf,
    /// A Python that has rq and celery; without it they are left out.
    python: Option<PathBuf>,
    /// Where their part of this lies.
    python_jobs: PathBuf,
    /// How often each way has its turn.
    turns: usize,
    json: bool,
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args.as_slice() {
        ["floor", port, queue, results] => floor::serve(port.parse().unwrap(), queue, results),
        ["measure", turns, form @ ("table" | "json"), keyholder, jobs, python @ ..] => {
            let plan = Plan {
                keyholder: keyholder.into(),
                python: python.first().map(Into::into),
                python_jobs: jobs.into(),
                turns: turns.parse().unwrap(),
                json: *form == "json",
            };
            let figures = measure::all(&plan);
            let text = if plan.json { figures.json() } else { figures.table() };
            print!("{text}");
        }
        // `cargo bench` calls it like this; a test run must not trip over it.
        [] | ["--bench"] => {}
        _ => {
            eprintln!(
                "usage: lanes-clock measure TURNS table|json KEYHOLDER JOBS [PYTHON] | floor PORT QUEUE RESULTS"
            );
            return ExitCode::from(2);
        }
    }
    ExitCode::SUCCESS
}
