//! `keyholder status --watch`: a screen on a terminal, appended lines to anything else.

mod draw;
mod follow;
mod keys;
mod question;
mod scene;
mod stage;
#[cfg(test)]
mod tests;

use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use super::ask::{outcome, unexpected_reply};
use super::exit::Exit;
use super::link::{Link, LinkError, QUESTION_DEADLINE};
use super::status::args::{StatusArgs, look};
use super::view::{Changed, View};
use super::{render, screen};
use crate::peer::wire::{Outcome, ServerFrame, Verb};
use crate::vocabulary::printable;

/// How often ages move on a terminal, and how long one wait is.
const TICK: Duration = Duration::from_secs(1);
/// A supervisor sends something each second; after this long without anything it is not there any more.
const SILENCE: Duration = Duration::from_secs(5);
/// How long to wait before asking a supervisor that is gone again. Its socket starts it.
const AGAIN: Duration = Duration::from_secs(1);

/// How a watch is written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Json,
    Lines,
}

/// Follows until the reader has gone. A supervisor that goes away is said and asked again; a watch would not be one if
/// it ended with what it watches.
///
/// # Errors
/// The first request is refused, or the output cannot be written.
pub(super) fn run(args: &StatusArgs, mut link: Link) -> anyhow::Result<ExitCode> {
    if !args.json && screen::is_interactive() {
        return stage::run(args, link);
    }
    let form = if args.json { Form::Json } else { Form::Lines };
    loop {
        let lost = match follow(args, &mut link, form) {
            Ok(()) => return Ok(Exit::Ok.into()),
            Err(error) if error.is::<LinkError>() => error,
            Err(error) => return Err(error),
        };
        screen::complain(&format!("keyholder: {}; asking again", printable(&format!("{lost:#}"))));
        link = loop {
            thread::sleep(AGAIN);
            if let Ok(link) = args.link.open() {
                break link;
            }
        };
    }
}

/// Follows one connection until its reader has gone.
fn follow(args: &StatusArgs, link: &mut Link, form: Form) -> anyhow::Result<()> {
    let here = link.server().node.clone();
    match outcome(link.ask(&here, None, Verb::Watch {}, "", QUESTION_DEADLINE)?, false)? {
        Outcome::Watching => {}
        Outcome::Relaunched(_)
        | Outcome::AlreadyRecovered { .. }
        | Outcome::Failed(_)
        | Outcome::Status(_)
        | Outcome::Fleet(_)
        | Outcome::Held { .. }
        | Outcome::Released { .. }
        | Outcome::Explained(_)
        | Outcome::ExplainedNode(_)
        | Outcome::Audit(_)
        | Outcome::Proof(_)
        | Outcome::Remedied(_)
        | Outcome::Powered { .. }
        | Outcome::Drilled(_)
        | Outcome::Noted => return Err(unexpected_reply("watch")),
    }
    let mut heard = Instant::now();
    let mut view = View::new(heard);
    loop {
        let frame = link.next(Instant::now() + TICK)?;
        let now = Instant::now();
        let changed = match frame {
            Some(frame) => {
                heard = now;
                view.take(frame, &here, args.subject.as_ref(), now)
            }
            None if now.saturating_duration_since(heard) > SILENCE => {
                return Err(LinkError::Silent { path: args.link.socket.clone(), waited: SILENCE }.into());
            }
            None => Changed::Nothing,
        };
        let text = match form {
            Form::Json => lines_of_json(changed)?,
            Form::Lines => lines(changed, &link_look(link, args)),
        };
        if !text.is_empty() && !screen::print(&text)? {
            return Ok(());
        }
    }
}

fn link_look<'a>(link: &'a Link, args: &StatusArgs) -> render::Look<'a> {
    look(link, &args.color)
}

fn lines_of_json(changed: Changed) -> serde_json::Result<String> {
    match changed {
        Changed::Nothing => Ok(String::new()),
        Changed::Node(report, _) => screen::json(&ServerFrame::Snapshot(report)),
        Changed::Worker(worker, _) | Changed::Lane(worker) => screen::json(&ServerFrame::Change(worker)),
    }
}

fn lines(changed: Changed, look: &render::Look) -> String {
    match changed {
        Changed::Nothing => String::new(),
        Changed::Node(report, None) => render::fleet(std::slice::from_ref(&report), look),
        Changed::Node(report, Some(before)) => render::node_change(&before, &report),
        Changed::Worker(worker, before) => format!("{}\n", render::change(before, &worker)),
        Changed::Lane(worker) => format!("{}\n", render::lane_change(&worker)),
    }
}
