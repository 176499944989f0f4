//! What the commands have in common: their arguments, and how an answer that is none ends them.

use std::time::Duration;

use anyhow::anyhow;

use super::link::{Link, QUESTION_DEADLINE};
use super::{render, screen};
use crate::peer::wire::{MAX_BECAUSE, NodeReport, Outcome, Refusal, Verb, Verdict};
use crate::vocabulary::{parse_duration, printable};

/// Reads a duration argument.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    parse_duration(text)
        .filter(|duration| !duration.is_zero())
        .ok_or_else(|| "expected a whole number with its unit, such as 90s, 30m or 1h30m".to_owned())
}

/// Reads a reason: it goes into the audit, so it is one line of printable characters.
pub(super) fn reason(text: &str) -> Result<String, String> {
    let text = text.trim();
    if text.is_empty() {
        Err("expected a reason for whoever reads the audit later".to_owned())
    } else if text.chars().count() > MAX_BECAUSE {
        Err(format!("expected at most {MAX_BECAUSE} characters"))
    } else if printable(text) != text {
        Err("expected one line of printable characters".to_owned())
    } else {
        Ok(text.to_owned())
    }
}

/// The outcome, or the refusal as the error that ends the command. With `json` the verdict is printed as it came,
/// refusals too.
pub(super) fn outcome(verdict: Verdict, json: bool) -> anyhow::Result<Outcome> {
    if json {
        screen::print(&screen::json(&verdict)?)?;
    }
    match verdict {
        Verdict::Outcome(outcome) => Ok(outcome),
        Verdict::Refused(refusal) => Err(refused(refusal)),
    }
}

/// Every node and worker as this link's supervisor sees them. `verb` is the command that asks.
pub(super) fn whole_fleet(link: &mut Link, verb: &str) -> anyhow::Result<Vec<NodeReport>> {
    let here = link.server().node.clone();
    match outcome(link.ask(&here, None, Verb::Fleet {}, "", QUESTION_DEADLINE)?, false)? {
        Outcome::Fleet(reports) => Ok(reports),
        Outcome::Status(_)
        | Outcome::Relaunched(_)
        | Outcome::AlreadyRecovered { .. }
        | Outcome::Failed(_)
        | Outcome::Held { .. }
        | Outcome::Released { .. }
        | Outcome::Explained(_)
        | Outcome::ExplainedNode(_)
        | Outcome::Audit(_)
        | Outcome::Proof(_)
        | Outcome::Remedied(_)
        | Outcome::Powered { .. }
        | Outcome::Drilled(_)
        | Outcome::Noted
        | Outcome::Watching => Err(unexpected_reply(verb)),
    }
}

/// A refusal as an error whose chain says its kind, its reason and the way out.
pub(super) fn refused(refusal: Refusal) -> anyhow::Error {
    let kind = render::refused(&refusal);
    anyhow::Error::new(refusal).context(kind)
}

/// The answer does not belong to the question.
pub(super) fn unexpected_reply(verb: &str) -> anyhow::Error {
    anyhow!(
        "unexpected reply to {verb}: does it run another version? \
         try: systemctl restart keyholder.service"
    )
}
