//! What came of an order.

use std::fmt::Write as _;
use std::time::Duration;

use super::{ms, us};
use crate::peer::wire::{Outcome, Refusal, RelaunchFailed, Relaunched};
use crate::vocabulary::{Target, human, printable};

/// The outcome of a relaunch that took `whole`, from the connect to the answer. None if it is not one.
pub fn relaunched(target: &Target, outcome: &Outcome, whole: Duration) -> Option<String> {
    match outcome {
        Outcome::Relaunched(done) => Some(running(target, done, whole)),
        Outcome::AlreadyRecovered { invocation } => Some(format!(
            "{target} has already recovered: it runs as invocation {}; nothing was touched\n",
            invocation.short()
        )),
        Outcome::Failed(failed) => Some(not_back(target, failed, whole)),
        Outcome::Status(_)
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
        | Outcome::Noted
        | Outcome::Watching => None,
    }
}

/// The outcome of a nudge or repipe that took `whole`. None if it is not one.
pub fn remedied(target: &Target, outcome: &Outcome, whole: Duration) -> Option<String> {
    match outcome {
        Outcome::Remedied(done) => {
            let verdict = match done.helped {
                Some(true) => "helped",
                Some(false) => "did not help",
                None => "was carried out",
            };
            Some(format!(
                "{} of {target} {verdict}: {} (after {})\n",
                done.remedy,
                printable(&done.why),
                human(whole)
            ))
        }
        Outcome::AlreadyRecovered { .. }
        | Outcome::Relaunched(_)
        | Outcome::Failed(_)
        | Outcome::Status(_)
        | Outcome::Fleet(_)
        | Outcome::Held { .. }
        | Outcome::Released { .. }
        | Outcome::Explained(_)
        | Outcome::ExplainedNode(_)
        | Outcome::Audit(_)
        | Outcome::Proof(_)
        | Outcome::Powered { .. }
        | Outcome::Drilled(_)
        | Outcome::Noted
        | Outcome::Watching => relaunched(target, outcome, whole),
    }
}

fn running(target: &Target, done: &Relaunched, whole: Duration) -> String {
    // Writing to a String cannot fail, here and below.
    let mut text =
        format!("{target} is running again: {}, invocation {}", done.unit, done.invocation.short());
    if let Some(before) = done.before {
        let _ = write!(text, " (was {})", before.short());
    }
    let _ = write!(text, ", systemd's job {}, whole order {}", us(done.took_us), human(whole));
    text.push_str(if done.settled {
        ", and it stayed up for its settle time\n"
    } else {
        "; whether it stays up was not waited for\n"
    });
    if done.shared {
        text.push_str("  another order came first; its relaunch served this one too\n");
    }
    if done.break_glass {
        text.push_str("  the system bus did not answer, so systemctl did it (break-glass)\n");
    }
    for degraded in &done.degraded {
        let _ = writeln!(text, "  degraded: {}", printable(degraded));
    }
    text
}

fn not_back(target: &Target, failed: &RelaunchFailed, whole: Duration) -> String {
    let how = if failed.under_way { "not back yet" } else { "NOT back" };
    let mut text = format!("{target} is {how}: {}\n", printable(&failed.why));
    let _ = write!(text, "  {}", failed.unit);
    if let Some(job) = &failed.job {
        let _ = write!(text, ", systemd's job: {}", printable(job));
    }
    let _ = writeln!(text, ", tried for {}, whole order {}", us(failed.took_us), human(whole));
    if !failed.log.is_empty() {
        text.push_str("  its last journal lines:\n");
        for line in &failed.log {
            let _ = writeln!(text, "    {}", printable(line));
        }
    }
    let _ = writeln!(text, "  what happens next: keyholder explain {target}");
    text
}

/// A hold that was taken down.
pub fn held(target: &Target, for_ms: u64) -> String {
    format!("{target} is left alone for {}; end that earlier with: keyholder release {target}\n", ms(for_ms))
}

/// What a release has ended.
pub fn released(target: &Target, hold: bool, quarantine: bool) -> String {
    let what = match (hold, quarantine) {
        (true, true) => "its hold and its quarantine have ended",
        (true, false) => "its hold has ended",
        (false, true) => "its quarantine has ended",
        (false, false) => "it was neither on hold nor in quarantine; nothing was changed",
    };
    format!("{target}: {what}\n")
}

/// A refusal's kind, in the wire's own word: the text itself follows as the error's cause.
pub fn refused(refusal: &Refusal) -> String {
    let code = serde_json::to_string(&refusal.code).unwrap_or_default();
    format!("refused ({})", code.trim_matches('"'))
}
