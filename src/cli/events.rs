//! `keyholder events`

use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::ask::{outcome, unexpected_reply};
use super::exit::Exit;
use super::link::{Link, LinkArgs, LinkError, QUESTION_DEADLINE};
use super::render::Trail;
use super::screen::ColorArgs;
use super::{render, screen};
use crate::peer::wire::{EventLine, Outcome, ServerFrame, Verb, Verdict};
use crate::vocabulary::printable;

/// How many lines of the audit one answer has at most: what happened while the supervisor was away is read from there.
const MOST: u32 = 1000;
/// How long one wait is.
const TICK: Duration = Duration::from_secs(1);
/// A supervisor sends something each second; after this long without anything it is not there any more.
const SILENCE: Duration = Duration::from_secs(5);
/// How long to wait before asking a supervisor that is gone again. Its socket starts it.
const AGAIN: Duration = Duration::from_secs(1);

/// Follow what this node's supervisor sees, orders, does and refuses, as it happens
///
/// Each record is what the audit has, with its priority (as in syslog: 3 somebody must look, 6 for the trail) and the
/// MESSAGE_ID under which the journal has it. It goes on when the supervisor restarts, and what happened meanwhile is told
/// then. A reader that is too slow is told how many records it has missed. Times are in UTC. Into a pipe each record is one
/// line: time, kind, by whom, about what, text.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  keyholder events\n  keyholder events --last 0 --json | jq 'select(.event == \"alert\")'"
)]
pub struct EventsArgs {
    /// How many earlier records to begin with
    #[arg(short = 'n', long = "last", value_name = "N", default_value_t = 10,
          value_parser = clap::value_parser!(u32).range(0..=1000))]
    pub last: u32,
    /// End after those instead of following
    #[arg(long)]
    pub no_follow: bool,
    /// Print one line of JSON per record, and {"missed":N} where the reader was too slow
    #[arg(long)]
    pub json: bool,
    /// Colour.
    #[command(flatten)]
    pub color: ColorArgs,
    /// The supervisor.
    #[command(flatten)]
    pub link: LinkArgs,
}

/// What a reader of JSON is told of a gap.
#[derive(Serialize)]
struct Missed {
    missed: u64,
}

/// Carries it out: until the reader has gone.
///
/// # Errors
/// No answer from the supervisor at the start, a refusal, or an output that cannot be written.
pub fn run(args: EventsArgs) -> anyhow::Result<ExitCode> {
    let mut link = args.link.open()?;
    let trail = Trail::new(screen::fold_at(), args.color.paint());
    let mut told = EventOutput { args: &args, newest: None, trail };
    loop {
        let lost = match told.follow(&mut link) {
            Ok(()) => return Ok(Exit::Ok.into()),
            Err(error) if error.is::<LinkError>() && !args.no_follow => error,
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

/// What has been told so far.
struct EventOutput<'a> {
    args: &'a EventsArgs,
    /// The highest number among it.
    newest: Option<u64>,
    trail: Trail,
}

impl EventOutput<'_> {
    /// Follows one connection until its reader has gone.
    fn follow(&mut self, link: &mut Link) -> anyhow::Result<()> {
        let here = link.server().node.clone();
        // First the stream, then what was before it, so that nothing falls between the two.
        if !self.args.no_follow
            && outcome(link.ask(&here, None, Verb::Events {}, "", QUESTION_DEADLINE)?, false)?
                != Outcome::Watching
        {
            return Err(unexpected_reply("events"));
        }
        if !self.earlier(link)? || self.args.no_follow {
            return Ok(());
        }
        // Up to here the audit has told everything; what the stream has of that is told already.
        let before = self.newest;
        let mut heard = Instant::now();
        loop {
            let frame = link.next(Instant::now() + TICK)?;
            let reads_on = match frame {
                Some(ServerFrame::Event(line)) if before.is_some_and(|before| line.seq <= before) => true,
                Some(ServerFrame::Event(line)) => self.tell(&line)?,
                Some(ServerFrame::Missed { count }) => self.missed(count)?,
                Some(
                    ServerFrame::Hello(_)
                    | ServerFrame::Snapshot(_)
                    | ServerFrame::Change(_)
                    | ServerFrame::Keepalive
                    | ServerFrame::Leaving
                    | ServerFrame::Reply(_),
                ) => true,
                None if heard.elapsed() > SILENCE => {
                    return Err(
                        LinkError::Silent { path: self.args.link.socket.clone(), waited: SILENCE }.into()
                    );
                }
                None => continue,
            };
            heard = Instant::now();
            if !reads_on {
                return Ok(());
            }
        }
    }

    /// Tells what was before the stream; false once the reader has gone.
    fn earlier(&mut self, link: &mut Link) -> anyhow::Result<bool> {
        let first = self.newest.is_none();
        // Also who wants to see nothing of it must know where it ends, or a restart would lose what comes next.
        let last = if first { self.args.last.max(1) } else { MOST };
        let here = link.server().node.clone();
        let lines = match link.ask(&here, None, Verb::Audit { last }, "", QUESTION_DEADLINE)? {
            Verdict::Outcome(Outcome::Audit(lines)) => lines,
            // A disk that fails is a thing to be told of, not a reason to tell nothing.
            Verdict::Refused(refusal) if !self.args.no_follow => {
                screen::complain(&format!("keyholder: what was before: {}", printable(&refusal.text)));
                return Ok(true);
            }
            verdict @ (Verdict::Outcome(_) | Verdict::Refused(_)) => {
                outcome(verdict, false)?;
                return Err(unexpected_reply("audit"));
            }
        };
        if first && self.args.last == 0 {
            self.newest = Some(lines.last().map_or(0, |line| line.seq));
            return Ok(true);
        }
        let after = self.newest.unwrap_or(0);
        let mut lines =
            lines.into_iter().filter(|line| first || line.seq > after).map(EventLine::from).peekable();
        if let Some(next) = lines.peek()
            && !first
            && next.seq > after + 1
            && !self.missed(next.seq - after - 1)?
        {
            return Ok(false);
        }
        for line in lines {
            if !self.tell(&line)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn tell(&mut self, line: &EventLine) -> anyhow::Result<bool> {
        self.newest = self.newest.max(Some(line.seq));
        let text = if self.args.json { screen::json(line)? } else { self.trail.record(line) };
        Ok(screen::print(&text)?)
    }

    fn missed(&self, missed: u64) -> anyhow::Result<bool> {
        let text = if self.args.json { screen::json(&Missed { missed })? } else { render::missed(missed) };
        Ok(screen::print(&text)?)
    }
}
