//! What is wrong with a catalog although every value in it is right: ways to gain more rights than meant, and modes that do
//! not fit.

use std::path::Path;

use super::habit::{Habit, habit};
use super::model::{Arg, Mode, Param};
use super::own;
use super::pid1;
use super::program::{absolute, literal, name};
use super::raw::{RawAction, RawCatalog};
use super::sudoers::{MAX_LINES, SUDO, ambiguous};
use crate::config::report::{At, Located, Report};

/// They run whatever they are told to, so a fixed program in front of them says nothing.
const SHELLS: [&str; 10] = ["sh", "ash", "bash", "busybox", "dash", "env", "fish", "ksh", "xargs", "zsh"];
/// Other ways to root than the one for which sudoers lines are made.
const OTHER_WAYS: [&str; 7] = ["doas", "pkexec", "run0", "runuser", "setpriv", "su", "sudoedit"];

/// One action that is right in itself.
pub(super) fn action(report: &mut Report<'_>, action: &RawAction) {
    let Some((first, rest)) = action.argv.split_first() else { return };
    let uses_sudo = name(first) == "sudo";
    let (program, arguments) = if uses_sudo {
        let Some(command) = sudo(report, action, first, rest) else { return };
        command
    } else {
        (first, rest)
    };
    if !honest(report, program) {
        return;
    }
    if name(program) != "systemd-run" {
        fit(report, action, uses_sudo, false, program, arguments);
    } else if let Some((program, arguments)) = pid1::command(report, program, arguments)
        && honest(report, program)
    {
        fit(report, action, uses_sudo, true, program, arguments);
    }
}

/// The command behind sudo, if sudo is called in the one way for which sudoers lines can be exact.
fn sudo<'a>(
    report: &mut Report<'_>,
    action: &RawAction,
    first: &'a Located<Arg>,
    rest: &'a [Located<Arg>],
) -> Option<(&'a Located<Arg>, &'a [Located<Arg>])> {
    const HELP: &str = "expected [/usr/bin/sudo, -n, --, /path/of/the/command, argument, …]";
    let [path, options @ ..] = SUDO;
    if literal(first) != path {
        report.error(first.at, "this is not the sudo of the system", HELP);
        return None;
    }
    for (place, option) in options.into_iter().enumerate() {
        let at = rest.get(place).map_or(first.at, |arg| arg.at);
        if rest.get(place).map(literal) != Some(option) {
            report.error(at, format!("sudo must be called with `{}` only", options.join(" ")), HELP);
            return None;
        }
    }
    let Some((program, arguments)) = rest.get(options.len()..).and_then(<[_]>::split_first) else {
        report.error(first.at, "sudo has no command", HELP);
        return None;
    };
    if !absolute(report, program) {
        return None;
    }
    for argument in arguments {
        for (word, at) in values(action, argument) {
            if let Some(why) = ambiguous(word) {
                report.error(
                    at,
                    format!("sudo cannot be given this exactly: {why}"),
                    "put it into a script of root's and let sudo run that",
                );
            }
        }
    }
    let lines = action.params.iter().filter_map(|param| param.param.as_ref());
    let lines = lines.fold(1_u64, |lines, param| lines.saturating_mul(param.size()));
    if lines > MAX_LINES {
        report.error(
            action.name.at,
            format!("this action would need {lines} sudoers lines, one for each combination of its values"),
            format!("expected at most {MAX_LINES}: narrow its ranges or enums"),
        );
    }
    Some((program, arguments))
}

/// Everything that an argument may be, with its place; nothing for a number, which is harmless.
fn values<'a>(action: &'a RawAction, argument: &'a Located<Arg>) -> Vec<(&'a str, At)> {
    match &argument.value {
        Arg::Literal(text) => vec![(text.as_str(), argument.at)],
        Arg::Param(name) => {
            let param = action.params.iter().find(|param| param.name.value == name.as_str());
            let Some(Some(Param::Enum(values))) = param.map(|param| &param.param) else { return Vec::new() };
            let places = param.map(|param| param.places.as_slice()).unwrap_or_default();
            values.iter().map(String::as_str).zip(places.iter().copied()).collect()
        }
    }
}

/// A program that stands for itself.
fn honest(report: &mut Report<'_>, program: &Located<Arg>) -> bool {
    let name = name(program);
    if SHELLS.contains(&name) {
        report.error(
            program.at,
            format!("`{name}` runs whatever its arguments say, and a catalog runs no shell"),
            "put the commands into a script of root's and name that",
        );
    } else if OTHER_WAYS.contains(&name) || name == "sudo" {
        report.error(
            program.at,
            format!("`{name}` is a way to other rights that is not checked here"),
            "expected [/usr/bin/sudo, -n, --, /path/of/the/command, argument, …], once",
        );
    } else {
        return true;
    }
    false
}

/// Whether the mode is what the command is known for.
fn fit(
    report: &mut Report<'_>,
    action: &RawAction,
    uses_sudo: bool,
    by_pid1: bool,
    program: &Located<Arg>,
    arguments: &[Located<Arg>],
) {
    let Some(mode) = &action.mode else { return };
    let words: Vec<Vec<&str>> = arguments
        .iter()
        .map(|argument| values(action, argument).into_iter().map(|(word, _)| word).collect())
        .collect();
    let habit = habit(literal(program), &words);
    if uses_sudo && !by_pid1 {
        pid1::within(report, program, habit);
    }
    if mode.value == Mode::Write {
        own::action(report, program, &words);
    }
    match (mode.value, uses_sudo, habit) {
        (Mode::Read, true, _) => report.error(
            mode.at,
            "a read action cannot use sudo: the read lane can gain no rights",
            "make it `mode: write`, or take sudo out",
        ),
        (Mode::Read, false, Habit::Changes) => report.error(
            mode.at,
            format!("`{}` changes something here, so this is no read action", name(program)),
            "expected `mode: write`",
        ),
        (Mode::Write, true, Habit::Looks) => report.warn(
            mode.at,
            format!("`{}` changes nothing here, so this need not be a write action", name(program)),
            "if it works without sudo make it `mode: read`, and it will not wait behind writes",
        ),
        (Mode::Write, false, Habit::Looks | Habit::Unknown) => report.warn(
            mode.at,
            "this write action needs no sudo, so it could be read",
            "if it changes nothing make it `mode: read`, and it will not wait behind writes",
        ),
        (Mode::Read, false, Habit::Looks | Habit::Unknown)
        | (Mode::Write, true, Habit::Changes | Habit::Unknown)
        | (Mode::Write, false, Habit::Changes) => {}
    }
}

/// A file that is called `catalog_<node>.yaml` must be that node's.
pub(super) fn file_name(report: &mut Report<'_>, file: &str, raw: &RawCatalog) {
    let (Some(node), Some(named)) = (&raw.node, node_of(Path::new(file))) else { return };
    if named != node.value.as_str() {
        report.error(
            node.at,
            format!("the file's name says that it is the catalog of node `{named}`"),
            format!("expected `node: {named}`, or the name catalog_{}.yaml", node.value),
        );
    }
}

/// The node in a name such as `catalog_mars.yaml`.
pub(super) fn node_of(file: &Path) -> Option<&str> {
    file.file_name()?.to_str()?.strip_prefix("catalog_")?.strip_suffix(".yaml")
}
