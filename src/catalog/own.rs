//! Commands that end the write lane, which runs them, and wait until it has ended; and those that stop other units of
//! keyholder's.

use super::model::Arg;
use super::program::{literal, name};
use crate::config::report::{Located, Report};

/// The unit that runs write actions.
pub(crate) const WRITE_LANE: &str = "keyholder-lane-write.service";
/// What keeps this node repaired and reachable.
const OTHERS: [&str; 3] = ["keyholder.service", "keyholder.socket", "keyholder-lane-read.service"];
/// What of systemctl's ends a running unit, and is waited for.
const ENDS: [&str; 4] = ["restart", "stop", "try-restart", "condrestart"];
/// What ends a unit for longer than a moment.
const STOPS: [&str; 4] = ["stop", "disable", "mask", "kill"];
const NO_BLOCK: &str = "--no-block";

/// Whether a command ends the write lane by systemctl, however it is started, and waits for its end.
pub(crate) fn ends_write_lane<'a>(argv: impl IntoIterator<Item = &'a str>) -> bool {
    let mut words =
        argv.into_iter().skip_while(|word| word.rsplit('/').next() != Some("systemctl")).skip(1).peekable();
    let mut waits = true;
    let mut plain = Vec::new();
    for word in words.by_ref() {
        waits &= word != NO_BLOCK;
        if !word.starts_with('-') {
            plain.push(word);
        }
    }
    matches!(plain.split_first(), Some((verb, units)) if ENDS.contains(verb) && units.iter().any(|unit| names(unit, WRITE_LANE)))
        && waits
}

/// Whether a word of a command line means a unit: by its name, without its ending, or by a pattern.
fn names(word: &str, unit: &str) -> bool {
    match word.split_once(['*', '?', '[']) {
        Some((start, _)) => unit.starts_with(start),
        None => word == unit || unit.strip_suffix(".service") == Some(word),
    }
}

/// Warns of an action that ends units of keyholder's. `words` are all values that each argument may have.
pub(super) fn action(report: &mut Report<'_>, program: &Located<Arg>, words: &[Vec<&str>]) {
    if name(program) != "systemctl" || literal(program).is_empty() {
        return;
    }
    let option = |values: &&Vec<&str>| values.iter().all(|value| value.starts_with('-'));
    let mut plain = words.iter().filter(|values| !option(values));
    let Some(verbs) = plain.next() else { return };
    let units: Vec<&str> = plain.flatten().copied().collect();
    let has = |wanted: &[&str]| verbs.iter().any(|verb| wanted.contains(verb));
    let waits = !words.iter().flatten().any(|word| *word == NO_BLOCK);
    if has(&ENDS) && waits && units.iter().any(|unit| names(unit, WRITE_LANE)) {
        report.warn(
            program.at,
            format!("this restarts or stops {WRITE_LANE}, which runs it: the command waits for the lane, and the lane for the command"),
            format!("add {NO_BLOCK} after systemctl; without it the lane leaves, and answers the task when it is back"),
        );
    }
    if has(&STOPS)
        && let Some(unit) = OTHERS.iter().find(|unit| units.iter().any(|word| names(word, unit)))
    {
        report.warn(
            program.at,
            format!("this stops {unit}: nobody here repairs or answers until it is started again"),
            "expected restart, or `keyholder hold` for a worker that is to be left alone",
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_waits_for_the_lane_is_found_however_it_is_started() {
        let ends = |line: &str| ends_write_lane(line.split(' '));
        for yes in [
            "/usr/bin/sudo -n -- /usr/bin/systemctl restart keyholder-lane-write.service",
            "/usr/bin/sudo -n -- /usr/bin/systemctl stop web.service keyholder-lane-write",
            "/usr/bin/sudo -n -- /usr/bin/systemd-run --pipe --wait /usr/bin/systemctl --quiet try-restart keyholder-lane-write.service",
            "systemctl restart keyholder-*",
            "/bin/systemctl --quiet --system restart a.service keyholder-lane-write.service b.service",
        ] {
            assert!(ends(yes), "{yes}");
        }
        for no in [
            "/usr/bin/sudo -n -- /usr/bin/systemctl --no-block restart keyholder-lane-write.service",
            "/usr/bin/sudo -n -- /usr/bin/systemctl restart keyholder-lane-write.service --no-block",
            "/usr/bin/sudo -n -- /usr/bin/systemctl restart keyholder-lane-read.service",
            "/usr/bin/sudo -n -- /usr/bin/systemctl reload keyholder-lane-write.service",
            "/usr/bin/systemctl status keyholder-lane-write.service",
            "/usr/bin/printf restart keyholder-lane-write.service",
            "systemctl restart",
            "",
        ] {
            assert!(!ends(no), "{no}");
        }
    }
}
