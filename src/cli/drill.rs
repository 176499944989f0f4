//! `keyholder drill`

mod cells;

use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::process::ExitCode;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::ValueEnum;
use serde::Serialize;

use super::ask::{duration, outcome, reason, unexpected_reply, whole_fleet};
use super::exit::Exit;
use super::link::{Link, LinkArgs};
use super::render::Rehearsed;
use super::subject::Subject;
use super::{render, screen};
use crate::fleet::Fleet;
use crate::peer::wire::{DrillOrder, Outcome, RefusalCode, Verb, Verdict};
use crate::vocabulary::{FailureClass, NodeName, human, printable};
use cells::{Cell, Whose, cells, stalest};

/// What a rehearsal may take beyond its lease: the last chance of a remedy that is under way, the node's own repair, and a
/// task through a lane.
const BEYOND: Duration = Duration::from_secs(30 + 60 + 60);
/// The longest lease; it is also what is waited for when the node decides how long it is.
const LEASE_AT_MOST: Duration = Duration::from_secs(600);
/// How often somebody who waits asks again.
const AGAIN: Duration = Duration::from_secs(2);
/// How long the next of many rehearsals waits for the fleet to be well after the one before.
const BETWEEN: Duration = Duration::from_secs(30);

/// Break a worker, or a node's supervisor, on purpose, and see that it is found and repaired from next door
///
/// The node breaks it and then leaves it alone: its real detector has to find it, and a watcher has to repair it. If nobody
/// does, the node restores it by itself when the lease ends. Nothing is broken on a degraded fleet, on hold, in quarantine
/// or during a write that must not be interrupted. Only root may.
///
/// Root on the node itself is not limited further. From next door a critical worker is never rehearsed, any other three
/// times an hour, and it is broken for ten minutes a day at most; the node counts that itself.
///
/// --all says of each rehearsal when it begins and how it ended, and has a table at the end. Exit status 1 if one failed,
/// else 5 if one was refused.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  keyholder drill mars/agent --class stuck\n  \
    keyholder drill mars --class supervisor-dead\n  keyholder drill --all")]
pub struct DrillArgs {
    /// The worker, or the node for its supervisor
    #[arg(value_name = "NODE[/WORKER]", required_unless_present_any = ["all", "stalest"])]
    pub target: Option<Subject>,
    /// How it is to fall
    #[arg(long, value_enum)]
    pub class: Option<ClassArg>,
    /// Everything that can be rehearsed from here, one after the other
    #[arg(long, conflicts_with_all = ["target", "class", "stalest"])]
    pub all: bool,
    /// Only what was never rehearsed or the longest ago, on a node that this one watches; for the timer
    #[arg(long, conflicts_with_all = ["target", "class"])]
    pub stalest: bool,
    /// Also a worker of this node that is critical
    #[arg(long)]
    pub yes: bool,
    /// If it is refused for now, ask again for as long as this
    #[arg(long, value_name = "TIME", value_parser = duration, num_args = 0..=1, default_missing_value = "10m")]
    pub wait: Option<Duration>,
    /// When the node restores it by itself at the latest, 10m at most; from next door it can only be made shorter [default:
    /// what its detector and remedies may take]
    #[arg(long, value_name = "TIME", value_parser = lease)]
    pub lease: Option<Duration>,
    /// Why, for the audit
    #[arg(long, value_name = "TEXT", value_parser = reason, default_value = "a rehearsal")]
    pub why: String,
    /// The fleet file, for --all and --stalest
    #[arg(long, value_name = "FILE", default_value = "/etc/keyholder/fleet.yaml")]
    pub fleet: PathBuf,
    /// Print the supervisor's verdict as one line of JSON; with --all one such line as each rehearsal ends, with its subject
    /// and class
    #[arg(long)]
    pub json: bool,
    /// The supervisor.
    #[command(flatten)]
    pub link: LinkArgs,
}

/// A class that is missing, or is not of the kind of thing that was named.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Misplaced(String);

/// How it falls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ClassArg {
    /// Its unit is stopped
    Dead,
    /// It is halted in its tracks (SIGSTOP)
    Stuck,
    /// A lane is told to be deaf; of another worker the unit that feeds it is stopped
    DeliveryGap,
    /// The node's supervisor is killed
    SupervisorDead,
}

impl From<ClassArg> for FailureClass {
    fn from(class: ClassArg) -> Self {
        match class {
            ClassArg::Dead => Self::Dead,
            ClassArg::Stuck => Self::Stuck,
            ClassArg::DeliveryGap => Self::DeliveryGap,
            ClassArg::SupervisorDead => Self::SupervisorDead,
        }
    }
}

fn lease(text: &str) -> Result<Duration, String> {
    let lease = duration(text)?;
    if lease > LEASE_AT_MOST { Err("expected at most 10m".to_owned()) } else { Ok(lease) }
}

/// Carries it out.
///
/// # Errors
/// No answer from the supervisor, a refusal, a fleet file that is not valid, or an output that cannot be written. A
/// rehearsal that failed is exit code 1 and no error.
pub fn run(args: DrillArgs) -> anyhow::Result<ExitCode> {
    if let Some(subject) = args.target.clone() {
        let Some(class) = args.class.map(FailureClass::from) else { return Err(unsaid(&subject).into()) };
        if (class == FailureClass::SupervisorDead) == subject.worker().is_some() {
            return Err(misplaced(&subject, class).into());
        }
        return one(&mut args.link.open()?, &args, &subject, class);
    }
    let mut link = args.link.open()?;
    let fleet = Fleet::load(&args.fleet).context("the fleet file is not valid")?.fleet;
    let here = link.server().node.clone();
    let reports = whole_fleet(&mut link, "fleet")?;
    if args.all {
        return all(&mut link, &args, &here, &cells(&fleet, &reports, &here, Whose::All));
    }
    let cells = cells(&fleet, &reports, &here, Whose::Watched);
    // All of them are other nodes' workers, and no peer may have a critical one broken.
    match stalest(&cells, false) {
        Some(cell) => one(&mut link, &args, &cell.subject, cell.class),
        None => {
            screen::complain("there is nothing to rehearse from here");
            Ok(Exit::Ok.into())
        }
    }
}

/// How it is to fall was not said: the ways there are.
fn unsaid(subject: &Subject) -> Misplaced {
    Misplaced(match subject.worker() {
        Some(_) => {
            format!("how is it to fall? keyholder drill {subject} --class dead, stuck or delivery-gap")
        }
        None => format!(
            "how is it to fall? keyholder drill {subject} --class supervisor-dead; of a worker of it: \
             keyholder drill {subject}/WORKER --class dead, stuck or delivery-gap"
        ),
    })
}

/// A worker does not fall like a supervisor, nor the other way round: a wrong command line, and the way to the right one.
fn misplaced(subject: &Subject, class: FailureClass) -> Misplaced {
    let node = subject.node();
    let text = match subject.worker() {
        Some(_) => format!("{class} is about a node, not a worker: keyholder drill {node} --class {class}"),
        None => format!(
            "{class} is about a worker, and {node} is a node: keyholder drill {node}/WORKER --class {class}"
        ),
    };
    Misplaced(text)
}

fn one(
    link: &mut Link,
    args: &DrillArgs,
    subject: &Subject,
    class: FailureClass,
) -> anyhow::Result<ExitCode> {
    let tell = |text: &str| {
        if !args.json && io::stderr().is_terminal() {
            screen::complain(text);
        }
        Ok(())
    };
    tell(&format!("rehearsing {class} with {subject} …"))?;
    let verdict = ask(link, args, (subject, class), args.wait.unwrap_or_default(), &tell)?;
    let Outcome::Drilled(report) = outcome(verdict, args.json)? else {
        return Err(unexpected_reply("drill"));
    };
    if !args.json {
        screen::say(&render::drilled(&report))?;
    }
    Ok(if report.passed { Exit::Ok } else { Exit::Failed }.into())
}

fn all(link: &mut Link, args: &DrillArgs, here: &NodeName, cells: &[Cell]) -> anyhow::Result<ExitCode> {
    let mut rows = Vec::new();
    for (n, Cell { subject, class, critical, .. }) in cells.iter().enumerate() {
        let tell =
            |text: &str| progress(args, &format!("{}/{} {subject} {class}: {text}", n + 1, cells.len()));
        let node = subject.node();
        let came = if *critical && node != here {
            Rehearsed::Spared(format!("it is critical: root on {node} rehearses it there, with --yes"))
        } else if *critical && !args.yes {
            Rehearsed::Spared("it is critical: --yes rehearses it as well".to_owned())
        } else {
            tell("rehearsing …")?;
            match ask(link, args, (subject, *class), args.wait.unwrap_or(BETWEEN), &tell)? {
                Verdict::Outcome(Outcome::Drilled(report)) => Rehearsed::Done(report),
                Verdict::Outcome(_) => return Err(unexpected_reply("drill")),
                Verdict::Refused(refusal) => Rehearsed::Refused(refusal),
            }
        };
        if args.json {
            screen::print(&screen::json(&OutcomeLine::of(subject, *class, &came))?)?;
        }
        // That will be so with all the others.
        if let Rehearsed::Refused(refusal) = &came
            && refusal.code == RefusalCode::NotRoot
        {
            return Err(refusal.clone().into());
        }
        tell(&render::rehearsed(&came))?;
        rows.push((subject.to_string(), *class, came));
    }
    if !args.json {
        let gap = if rows.is_empty() { "" } else { "\n" };
        screen::print(&format!("{gap}{}", render::rehearsals(&rows, screen::fold_at())))?;
    }
    let any = |of: fn(&Rehearsed) -> bool| rows.iter().any(|(_, _, came)| of(came));
    let exit = if any(|came| matches!(came, Rehearsed::Done(report) if !report.passed)) {
        Exit::Failed
    } else if any(|came| matches!(came, Rehearsed::Refused(_))) {
        Exit::Refused
    } else {
        Exit::Ok
    };
    Ok(exit.into())
}

/// How far many rehearsals are. It takes minutes, so whoever reads is told at once: beside the table on a terminal, before
/// it in a pipe.
fn progress(args: &DrillArgs, text: &str) -> anyhow::Result<()> {
    if args.json {
        return Ok(());
    }
    if screen::is_terminal() {
        screen::complain(text);
    } else {
        screen::print(&format!("{text}\n"))?;
    }
    Ok(())
}

/// What a reader of JSON is told of one of many: the verdict, and whose it is.
#[derive(Serialize)]
struct OutcomeLine<'a> {
    subject: String,
    class: FailureClass,
    #[serde(skip_serializing_if = "Option::is_none")]
    left_out: Option<&'a str>,
    #[serde(flatten)]
    verdict: Option<Verdict>,
}

impl<'a> OutcomeLine<'a> {
    fn of(subject: &Subject, class: FailureClass, came: &'a Rehearsed) -> Self {
        let (verdict, left_out) = match came {
            Rehearsed::Done(report) => (Some(Verdict::Outcome(Outcome::Drilled(report.clone()))), None),
            Rehearsed::Refused(refusal) => (Some(Verdict::Refused(refusal.clone())), None),
            Rehearsed::Spared(why) => (None, Some(why.as_str())),
        };
        Self { subject: subject.to_string(), class, left_out, verdict }
    }
}

/// Orders one rehearsal; for as long as `patience` again and again if this is not the time for it, which is told once.
fn ask(
    link: &mut Link,
    args: &DrillArgs,
    (subject, class): (&Subject, FailureClass),
    patience: Duration,
    tell: &dyn Fn(&str) -> anyhow::Result<()>,
) -> anyhow::Result<Verdict> {
    let lease_ms = args.lease.map_or(0, |lease| lease.as_millis().try_into().unwrap_or(u64::MAX));
    let order = DrillOrder { class, lease_ms, yes: args.yes };
    let timeout = args.lease.unwrap_or(LEASE_AT_MOST) + BEYOND;
    let until = Instant::now() + patience;
    let mut told = false;
    loop {
        let verdict = link.ask(subject.node(), subject.worker(), Verb::Drill(order), &args.why, timeout)?;
        match &verdict {
            Verdict::Refused(refusal)
                if matches!(refusal.code, RefusalCode::NotNow | RefusalCode::Busy)
                    && Instant::now() < until =>
            {
                if !told {
                    let why = printable(&refusal.text);
                    tell(&format!("not now ({why}); asking again for {}", human(patience)))?;
                    told = true;
                }
                sleep(AGAIN);
            }
            Verdict::Refused(_) | Verdict::Outcome(_) => return Ok(verdict),
        }
    }
}
