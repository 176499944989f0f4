//! What became of a task, for people.

use std::time::Duration;

use crate::lane::{Output, Status, TaskResult, Text};
use crate::vocabulary::{human, printable};

/// One line: how it ended, where it ran, how long it took.
pub(super) fn summary(result: &TaskResult) -> String {
    let action = result.action.as_deref().unwrap_or("?");
    let mut text = format!("{} {}: ", result.node, printable(action));
    match (&result.refusal, &result.ran) {
        (Some(refusal), _) => text += &format!("refused, not run: {}", printable(&refusal.text)),
        (None, Some(ran)) => {
            text += match result.status {
                Status::Ok => "ok",
                Status::Failed => "failed",
                Status::Killed => "killed",
                Status::TimedOut => "over its time and ended",
                Status::Refused => "refused",
                Status::Interrupted => "interrupted",
            };
            match (ran.exit_code, ran.signal) {
                (Some(code), _) => text += &format!(", exit code {code}"),
                (None, Some(signal)) => text += &format!(", signal {signal}"),
                (None, None) => {}
            }
            text += &format!(", {}", human(Duration::from_millis(ran.took_ms)));
            if ran.left_behind {
                text += ", and what it left running was killed";
            }
        }
        (None, None) => text += result.status.name(),
    }
    if let Some(note) = &result.note {
        text += &format!(": {}", printable(note));
    }
    text += &format!("; {} lane", result.lane);
    if let Some(unit) = &result.unit {
        text += &format!(" ({}", printable(unit));
        if let Some(run) = &result.invocation {
            text += &format!(", run {}", printable(run).chars().take(8).collect::<String>());
        }
        text.push(')');
    }
    text + &format!(", task {}", printable(&result.id))
}

/// What the command wrote, fit for a terminal, each line a line.
pub(super) fn output(output: &Output) -> String {
    let mut shown = text(&output.head);
    if output.omitted > 0 {
        end_line(&mut shown);
        shown += &format!("… {} bytes are left out here …\n", output.omitted);
        shown += &text(&output.tail);
    }
    end_line(&mut shown);
    shown
}

fn end_line(text: &mut String) {
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
}

fn text(text: &Text) -> String {
    match text {
        // Tabs and line feeds are what tables are made of, and move nothing but forward.
        Text::Text(text) => {
            let lines =
                text.split('\n').map(|line| line.split('\t').map(printable).collect::<Vec<_>>().join("\t"));
            lines.collect::<Vec<_>>().join("\n")
        }
        Text::Escaped(text) => text.replace("\\n", "\n"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::Mode;
    use crate::lane::{Ran, Refusal, RefusalCode};

    fn result() -> TaskResult {
        TaskResult {
            id: "t1".into(),
            action: Some("service.logs".into()),
            status: Status::Ok,
            refusal: None,
            note: None,
            ran: Some(Ran {
                exit_code: Some(0),
                signal: None,
                timed_out: false,
                left_behind: false,
                beyond: false,
                took_ms: 23,
                stdout: Output { head: Text::Text("a\tb\n\x1b[2Jc".into()), ..Output::default() },
                stderr: Output::default(),
            }),
            node: "mars".parse().unwrap(),
            lane: Mode::Read,
            unit: Some("keyholder-lane-read.service".into()),
            invocation: Some("0123456789abcdef0123456789abcdef".into()),
            at: "2026-11-29T12:00:00Z".into(),
        }
    }

    #[test]
    fn the_summary_says_how_where_and_how_long() {
        assert_eq!(
            summary(&result()),
            "mars service.logs: ok, exit code 0, 23 ms; read lane (keyholder-lane-read.service, run 01234567), task t1"
        );
        let refused = TaskResult {
            status: Status::Refused,
            refusal: Some(Refusal::new(RefusalCode::RateLimit, "queue.length: 3+1 in 3600 s > 3")),
            ran: None,
            unit: None,
            ..result()
        };
        assert_eq!(
            summary(&refused),
            "mars service.logs: refused, not run: rate_limit: queue.length: 3+1 in 3600 s > 3; read lane, task t1"
        );
    }

    #[test]
    fn output_moves_no_cursor_and_says_what_is_missing() {
        let out = result().ran.unwrap().stdout;
        assert_eq!(output(&out), "a\tb\n\\x1b[2Jc\n");
        let long = Output { omitted: 7, tail: Text::Text("end".into()), ..out };
        assert_eq!(output(&long), "a\tb\n\\x1b[2Jc\n… 7 bytes are left out here …\nend\n");
        assert_eq!(output(&Output::default()), "");
    }
}
