//! What came of rehearsals.

use std::fmt::Write as _;

use comfy_table::presets::NOTHING;
use comfy_table::{ContentArrangement, Table};

use super::us;
use crate::cli::fold::fold;
use crate::peer::wire::{DrillReport, Refusal};
use crate::vocabulary::{FailureClass, printable};

/// What came of one of many.
#[derive(Debug)]
pub enum Rehearsed {
    /// It took place.
    Done(DrillReport),
    /// It was refused, and nothing was touched.
    Refused(Refusal),
    /// It was not asked for.
    Spared(String),
}

/// One rehearsal.
pub fn drilled(report: &DrillReport) -> String {
    let subject = match &report.worker {
        Some(worker) => format!("{}/{worker}", report.node),
        None => report.node.to_string(),
    };
    let verdict = if report.passed { "passed" } else { "FAILED" };
    let mut text = format!("rehearsal of {} with {subject} {verdict}: {}\n", report.class, times(report));
    if !report.passed {
        // Writing to a String cannot fail, here and below.
        let _ = writeln!(text, "  {}", printable(&report.why));
    }
    for line in &report.evidence {
        let _ = writeln!(text, "  {}", printable(line));
    }
    text
}

fn times(report: &DrillReport) -> String {
    let found =
        report.detect_us.map_or_else(|| "not found".to_owned(), |time| format!("found after {}", us(time)));
    let by = report.by.as_ref().map(|by| format!(" by {}", printable(by))).unwrap_or_default();
    match report.repair_us {
        Some(time) => format!("{found}, well again{by} {} later", us(time)),
        None => format!("{found}, not repaired from outside"),
    }
}

/// What came of one of many, in a line.
pub fn rehearsed(came: &Rehearsed) -> String {
    match came {
        Rehearsed::Done(report) if report.passed => format!("passed: {}", times(report)),
        Rehearsed::Done(report) => format!("FAILED: {}; {}", times(report), printable(&report.why)),
        Rehearsed::Refused(refusal) => format!("refused: {}", printable(&refusal.text)),
        Rehearsed::Spared(why) => format!("left out: {}", printable(why)),
    }
}

/// Many of them: a row each, then why, of each that did not pass, in lines of at most `width`.
pub fn rehearsals(rows: &[(String, FailureClass, Rehearsed)], width: Option<u16>) -> String {
    if rows.is_empty() {
        return "there is nothing to rehearse from here\n".to_owned();
    }
    let mut table = Table::new();
    table.load_style(NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(["SUBJECT", "CLASS", "RESULT", "FOUND", "REPAIRED", "BY"]);
    let time = |time: Option<u64>| time.map_or_else(|| "-".to_owned(), us);
    let mut reasons = String::new();
    for (subject, class, came) in rows {
        let (result, found, repaired, by, why) = match came {
            Rehearsed::Done(report) => (
                if report.passed { "passed" } else { "FAILED" },
                time(report.detect_us),
                time(report.repair_us),
                report.by.as_deref().unwrap_or("-"),
                (!report.passed).then_some(&report.why),
            ),
            Rehearsed::Refused(refusal) => ("refused", time(None), time(None), "-", Some(&refusal.text)),
            Rehearsed::Spared(why) => ("left out", time(None), time(None), "-", Some(why)),
        };
        if let Some(why) = why {
            let told = format!("{subject} {class} {result}: {}", printable(why));
            // Writing to a String cannot fail.
            let _ = writeln!(reasons, "{}", fold(&told, width, 0, 2));
        }
        let by = printable(by).into_owned();
        table.add_row([subject.clone(), class.to_string(), result.to_owned(), found, repaired, by]);
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    let mut text: String = table.trim_fmt().lines().map(|line| format!("{}\n", line.trim_end())).collect();
    if !reasons.is_empty() {
        let _ = write!(text, "\n{reasons}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peer::wire::RefusalCode;

    fn report(passed: bool) -> DrillReport {
        DrillReport {
            node: "mars".parse().unwrap(),
            worker: Some("write".parse().unwrap()),
            class: FailureClass::Dead,
            passed,
            why: "nobody came".to_owned(),
            by: passed.then(|| "ai-core".to_owned()),
            detect_us: Some(4_200),
            repair_us: passed.then_some(1_300_000),
            evidence: vec!["stopped\u{7} after 12 ms".to_owned()],
        }
    }

    #[test]
    fn a_rehearsal_says_what_was_shown_and_many_are_a_table() {
        let rows = [
            ("mars/write".to_owned(), FailureClass::Dead, Rehearsed::Done(report(true))),
            ("mars/agent".to_owned(), FailureClass::Stuck, Rehearsed::Done(report(false))),
            (
                "mars".to_owned(),
                FailureClass::SupervisorDead,
                Rehearsed::Refused(Refusal::new(RefusalCode::NotNow, "not now")),
            ),
            ("mars/vital".to_owned(), FailureClass::Dead, Rehearsed::Spared("it is critical".to_owned())),
        ];
        insta::assert_snapshot!(format!(
            "{}{}{}",
            drilled(&report(true)),
            drilled(&report(false)),
            rehearsals(&rows, None)
        ));
    }
}
