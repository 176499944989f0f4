//! What PID 1 runs for an action: outside of the write lane's sandbox, and so the way for whatever needs all of root's rights.

use super::habit::Habit;
use super::model::Arg;
use super::program::{absolute, literal, name};
use crate::config::report::{Located, Report};

/// Programs that only order PID 1 or its helpers about, for which the rights that sudo gives here are enough.
const CLIENTS: [&str; 7] =
    ["busctl", "hostnamectl", "journalctl", "localectl", "loginctl", "systemctl", "timedatectl"];
/// How a command gets there.
const WAY: &str = "have PID 1 run it: [/usr/bin/sudo, -n, --, /usr/bin/systemd-run, --quiet, --pipe, --wait, --collect, \
                   --property=RuntimeMaxSec=29min, /path/of/the/command, argument, …]";

/// The command that `systemd-run` is to run, which is what counts from here on.
pub(super) fn command<'a>(
    report: &mut Report<'_>,
    program: &Located<Arg>,
    arguments: &'a [Located<Arg>],
) -> Option<(&'a Located<Arg>, &'a [Located<Arg>])> {
    let options = arguments.iter().take_while(|argument| literal(argument).starts_with("--")).count();
    let Some((options, [command, rest @ ..])) = arguments.split_at_checked(options) else {
        let help = "expected its options as --name or --name=value, then /path/of/the/command, argument, …";
        report.error(program.at, "systemd-run has no command", help);
        return None;
    };
    if !absolute(report, command) {
        return None;
    }
    let has = |option: &str| options.iter().any(|given| literal(given).starts_with(option));
    if !has("--wait") {
        report.warn(
            program.at,
            "nobody waits for what PID 1 runs here, so it would count as done when it has only begun",
            "add --wait, and --pipe for its output",
        );
    }
    if !has("--property=RuntimeMaxSec=") {
        report.warn(
            program.at,
            "no lane can end what PID 1 runs for it, so nothing else would be run for as long as it takes",
            "add --property=RuntimeMaxSec=…, somewhat less than the action's `timeout`",
        );
    }
    Some((command, rest))
}

/// A command that sudo runs within the write lane's sandbox, although it is known to want more.
pub(super) fn within(report: &mut Report<'_>, program: &Located<Arg>, habit: Habit) {
    if habit == Habit::Changes && !CLIENTS.contains(&name(program)) {
        report.warn(
            program.at,
            format!(
                "`{}` gets little from sudo here: the write lane's sandbox goes with it (read-only /usr and /etc, next to no \
                 capabilities)",
                name(program)
            ),
            WAY,
        );
    }
}
