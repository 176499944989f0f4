//! `keyholder alert`: what `keyholder-alert@.service` runs.

use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow, bail};
use nix::unistd::Uid;
use serde::Serialize;

use super::exit::Exit;
use super::link::{LinkArgs, QUESTION_DEADLINE};
use super::screen;
use crate::config::trust;
use crate::fleet;
use crate::peer::wire::{EventLine, Outcome, Verb, Verdict};
use crate::vocabulary::{NodeName, printable};

/// How many lines of the audit are asked for first: an alert is among the newest, unless the host is very busy.
const NEAR: u32 = 50;
/// How many at most.
const FAR: u32 = 1000;
/// How long a supervisor that does not answer is asked again. The unit's own limit leaves the hook the rest.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long to wait in between.
const AGAIN: Duration = Duration::from_millis(500);

/// Tell a person of one record: run the alert hook with it, as JSON, on its standard input
///
/// For keyholder-alert@.service, which the supervisor starts for each alert. The hook is /etc/keyholder/alert, a program or
/// script of root's, run without arguments and not as root. It gets one line: {node, seq, at, event, priority, message_id,
/// by, subject, text}.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  keyholder alert 4711")]
pub struct AlertArgs {
    /// The record's number in the audit
    #[arg(value_name = "SEQ", value_parser = clap::value_parser!(u64).range(1..))]
    pub seq: u64,
    /// What to run
    #[arg(long, value_name = "FILE", default_value = "/etc/keyholder/alert")]
    pub hook: PathBuf,
    /// The supervisor.
    #[command(flatten)]
    pub link: LinkArgs,
}

/// What the hook reads.
#[derive(Debug, Serialize)]
struct AlertOutput {
    /// Whose record it is; empty if not even that is known.
    node: String,
    #[serde(flatten)]
    line: EventLine,
}

/// Carries it out.
///
/// # Errors
/// Somebody but root could have written the hook, it cannot be run, or it fails.
pub fn run(args: AlertArgs) -> anyhow::Result<ExitCode> {
    trust::program(&args.hook, Uid::from_raw(0))
        .map_err(|why| anyhow!("the alert hook is not run: {}; {}", why.message, why.help))?;
    let told = read(&args).unwrap_or_else(|why| unreadable(args.seq, &format!("{why:#}")));
    let status = hand_over(&args.hook, &screen::json(&told)?)?;
    if !status.success() {
        bail!(
            "{} ended with {status}: whether anybody was told of record {} is not known",
            args.hook.display(),
            args.seq
        );
    }
    Ok(Exit::Ok.into())
}

/// Reads the record, and asks a supervisor that is not there again.
fn read(args: &AlertArgs) -> anyhow::Result<AlertOutput> {
    let until = Instant::now() + PATIENCE;
    loop {
        match ask(args) {
            Err(_) if Instant::now() + AGAIN < until => thread::sleep(AGAIN),
            end => return end,
        }
    }
}

fn ask(args: &AlertArgs) -> anyhow::Result<AlertOutput> {
    let mut link = args.link.open()?;
    let node = link.server().node.clone();
    for last in [NEAR, FAR] {
        match link.ask(&node, None, Verb::Audit { last }, "", QUESTION_DEADLINE)? {
            Verdict::Outcome(Outcome::Audit(lines)) => {
                if let Some(line) = lines.into_iter().find(|line| line.seq == args.seq) {
                    return Ok(AlertOutput { node: node.to_string(), line: line.into() });
                }
            }
            Verdict::Refused(refusal) => return Err(refusal.into()),
            Verdict::Outcome(_) => return Err(super::ask::unexpected_reply("audit")),
        }
    }
    bail!("it is not among the newest {FAR} of the audit")
}

/// Somebody must be told all the same.
fn unreadable(seq: u64, why: &str) -> AlertOutput {
    let text =
        format!("record {seq} is an alert that could not be read ({}): keyholder status", printable(why));
    AlertOutput {
        node: fleet::whoami(None).as_ref().map(NodeName::to_string).unwrap_or_default(),
        line: EventLine {
            seq,
            at: format!("{:.3}", jiff::Timestamp::now()),
            event: crate::journal::Event::Alert.name().to_owned(),
            priority: crate::journal::Priority::Error.number(),
            message_id: crate::journal::Event::Alert.message_id().to_owned(),
            by: "local".to_owned(),
            subject: String::new(),
            text,
        },
    }
}

/// Runs the hook and gives it the line. How long that may take is the unit's business.
fn hand_over(hook: &Path, line: &str) -> anyhow::Result<ExitStatus> {
    let mut child = Command::new(hook)
        .current_dir("/")
        .stdin(Stdio::piped())
        .spawn()
        .with_context(|| format!("{} cannot be run", hook.display()))?;
    if let Some(mut stdin) = child.stdin.take() {
        match stdin.write_all(line.as_bytes()) {
            // It need not read what it does not want to know.
            Err(error) if error.kind() != ErrorKind::BrokenPipe => {
                return Err(error).with_context(|| format!("{} takes nothing", hook.display()));
            }
            Ok(()) | Err(_) => {}
        }
    }
    child.wait().with_context(|| format!("{} cannot be waited for", hook.display()))
}
