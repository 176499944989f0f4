//! What `status` is asked for, once or for as long as somebody watches.

use crate::cli::link::{Link, LinkArgs};
use crate::cli::render::Look;
use crate::cli::screen::{self, ColorArgs};
use crate::cli::subject::Subject;

/// Show nodes and workers: health, since when, which run, what was done last
///
/// HEALTH is healthy, starting, held (down, and somebody said so), idle (down by design; `held` in JSON), dead, stuck (it runs,
/// and its loop makes no progress),
/// delivery-gap (it runs, and nothing reaches it) or unknown (it could not be observed). A question mark means that its node is
/// silent and this is the last that was known. SINCE is for how long. Exit status 3 if anything is not well.
///
/// Lanes have a table of their own: how many tasks wait, what runs and for how long, how many are done since its start, and what
/// came last, all by the lane's own word. A question mark there means that it takes no tasks at present.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  keyholder status\n  keyholder status mars --watch\n  \
    keyholder status --json | jq '.outcome.fleet[].workers[] | .class'")]
pub struct StatusArgs {
    /// One node, or one worker of it [default: the whole fleet]
    #[arg(value_name = "NODE[/WORKER]")]
    pub subject: Option<Subject>,
    /// Keep it on a screen as it changes, with keys (? shows them); into a pipe, one line per change
    #[arg(long, short)]
    pub watch: bool,
    /// Print the supervisor's answer as one line of JSON; with --watch one such line per change
    #[arg(long)]
    pub json: bool,
    /// Colour.
    #[command(flatten)]
    pub color: ColorArgs,
    /// The supervisor.
    #[command(flatten)]
    pub link: LinkArgs,
}

/// How to show what this link's supervisor says.
pub(in crate::cli) fn look<'a>(link: &'a Link, color: &ColorArgs) -> Look<'a> {
    Look {
        width: screen::width(),
        paint: color.paint(),
        server: link.server(),
        version: env!("CARGO_PKG_VERSION"),
    }
}
