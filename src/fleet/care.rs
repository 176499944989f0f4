//! What the file says about a worker that runs: its sign of life, its queue and the gentle remedies; and how a node is
//! switched on again. A lane has all of it without a word.

use std::path::PathBuf;
use std::time::Duration;

use super::leaf as own;
use crate::config::leaf;
use crate::config::report::{At, Report};
use crate::config::walk::{Fields, items, word};
use crate::config::yaml::{Kind, Value};
use crate::vocabulary::{
    Canary, Command, DeliveryGap, Flow, Heartbeat, Mode, Nudge, NudgeSignal, Power, Repipe, Stuck, UnitName,
};

/// A lane passes its loop at least every two seconds (its claim blocks no longer); this is seven passes missed.
const LANE_OLDER_THAN: Duration = Duration::from_secs(15);
/// Longer than a busy lane's own pause after an error, shorter than anybody's patience.
const LANE_NOT_DRAINING: Duration = Duration::from_secs(60);
/// What a detector's or a nudge's command may take unless the file says otherwise.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(10);
/// A fence agent talks to a slow board.
const POWER_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a node must have been unreachable before its power is touched, unless the file says otherwise.
const POWER_AFTER: Duration = Duration::from_secs(30);
/// A command with more arguments than this is a program of its own and belongs into a file.
const MAX_ARGV: usize = 32;

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3_600);
const WEEK: Duration = Duration::from_secs(7 * 86_400);

/// What was written about one worker, its lane's defaults filled in.
#[derive(Debug, Default)]
pub(super) struct RawCare {
    pub stuck: Option<Stuck>,
    /// For a lane it is there also if the fleet has no Redis; `build` leaves it out then.
    pub delivery_gap: Option<DeliveryGap>,
    /// Where something stands that has to be looked up in Redis.
    pub needs_redis: Vec<At>,
}

/// Reads `stuck` and `delivery_gap`. `unit` is the worker's own.
pub(super) fn care(
    report: &mut Report<'_>,
    fields: &Fields<'_>,
    lane: Option<Mode>,
    unit: Option<&UnitName>,
) -> RawCare {
    let mut care = RawCare::default();
    care.stuck = match fields.get("stuck").zip(fields.key("stuck")) {
        Some((value, key)) if !is_none(value) => stuck(report, key, value, lane, &mut care.needs_redis),
        Some(_) => None,
        None => lane.map(|mode| Stuck {
            heartbeat: Heartbeat::Lane(mode),
            older_than: LANE_OLDER_THAN,
            nudge: Some(LANE_NUDGE),
        }),
    };
    care.delivery_gap = match fields.get("delivery_gap").zip(fields.key("delivery_gap")) {
        Some((value, key)) if !is_none(value) => {
            care.needs_redis.push(key);
            delivery_gap(report, key, value, lane, unit)
        }
        Some(_) => None,
        None => lane.map(|mode| DeliveryGap {
            flow: Flow::Lane(mode),
            not_draining_for: LANE_NOT_DRAINING,
            canary: None,
            repipe: Some(Repipe::Hangup),
        }),
    };
    care
}

/// What wakes a lane's loop.
const LANE_NUDGE: Nudge = Nudge::Signal(NudgeSignal::Usr1);

/// The word `none`: what a lane would have without a word is switched off.
fn is_none(value: &Value) -> bool {
    matches!(&value.kind, Kind::Text(text) if text == "none")
}

fn stuck(
    report: &mut Report<'_>,
    key: At,
    value: &Value,
    lane: Option<Mode>,
    needs_redis: &mut Vec<At>,
) -> Option<Stuck> {
    let fields = Fields::of(report, key, "`stuck`", value, &["heartbeat", "nudge"])?;
    let nudge = match fields.get("nudge").zip(fields.key("nudge")) {
        Some((value, _)) if is_none(value) => None,
        Some((value, key)) => nudge(report, key, value),
        None => lane.map(|_| LANE_NUDGE),
    };
    let written = fields.get("heartbeat").zip(fields.key("heartbeat"));
    let (heartbeat, older_than) = match (written, lane) {
        (Some((value, key)), _) => heartbeat(report, key, value, lane, needs_redis)?,
        (None, Some(mode)) => (Heartbeat::Lane(mode), LANE_OLDER_THAN),
        (None, None) => {
            let help = "expected `heartbeat: { file: /run/agent/beat, older_than: 90s }` or the like";
            fields.need(report, "heartbeat", help)?;
            return None;
        }
    };
    Some(Stuck { heartbeat, older_than, nudge })
}

fn heartbeat(
    report: &mut Report<'_>,
    key: At,
    value: &Value,
    lane: Option<Mode>,
    needs_redis: &mut Vec<At>,
) -> Option<(Heartbeat, Duration)> {
    const WAYS: [&str; 5] = ["file", "redis", "journal", "command", "watchdog"];
    let known = ["file", "redis", "journal", "command", "watchdog", "older_than"];
    let fields = Fields::of(report, key, "`heartbeat`", value, &known)?;
    let older_than = match (fields.get("older_than"), lane) {
        (Some(value), _) => leaf::duration(report, value, &(SECOND..=WEEK)),
        (None, Some(_)) => Some(LANE_OLDER_THAN),
        (None, None) => {
            fields.need(report, "older_than", "expected how long a sign of life may be missing, such as 90s");
            None
        }
    };
    let heartbeat = match (one_of_ways(report, key, "`heartbeat`", &fields, &WAYS, lane.is_some())?, lane) {
        (Some(("file", value, _)), _) => Heartbeat::File(beat_file(report, value)?),
        (Some(("redis", value, at)), _) => {
            needs_redis.push(at);
            Heartbeat::Redis(redis_key(report, value)?)
        }
        (Some(("journal", value, _)), _) => yes(report, value).map(|()| Heartbeat::Journal)?,
        (Some(("watchdog", value, _)), _) => yes(report, value).map(|()| Heartbeat::Watchdog)?,
        (Some((_, value, at)), _) => Heartbeat::Command(beat_command(report, at, value, older_than)?),
        (None, mode) => Heartbeat::Lane(mode?),
    };
    Some((heartbeat, older_than?))
}

/// A heartbeat's command has to have ended before the beat would count as missing.
fn beat_command(
    report: &mut Report<'_>,
    key: At,
    value: &Value,
    older_than: Option<Duration>,
) -> Option<Command> {
    let fields = Fields::of(report, key, "`command`", value, &["argv", "user", "timeout"])?;
    let half = older_than.map_or(COMMAND_TIMEOUT, |time| time / 2);
    let command = command(report, &fields, COMMAND_TIMEOUT.min(half))?;
    if let Some(at) = fields.get("timeout").map(|value| value.at)
        && older_than.is_some_and(|time| command.timeout >= time)
    {
        report.error(
            at,
            "the command may take longer than a sign of life may be missing",
            "expected less than `older_than`",
        );
        return None;
    }
    Some(command)
}

fn nudge(report: &mut Report<'_>, key: At, value: &Value) -> Option<Nudge> {
    const WAYS: [&str; 3] = ["signal", "reload", "command"];
    let fields = Fields::of(report, key, "`nudge`", value, &WAYS)?;
    match one_of_ways(report, key, "`nudge`", &fields, &WAYS, false)?? {
        ("signal", value, _) => {
            let words = NudgeSignal::ALL.map(|signal| (signal.name(), signal));
            leaf::one_of(report, value, &words).map(Nudge::Signal)
        }
        ("reload", value, _) => yes(report, value).map(|()| Nudge::Reload),
        (_, value, at) => {
            let fields = Fields::of(report, at, "`command`", value, &["argv", "user", "timeout"])?;
            command(report, &fields, COMMAND_TIMEOUT).map(Nudge::Command)
        }
    }
}

fn delivery_gap(
    report: &mut Report<'_>,
    key: At,
    value: &Value,
    lane: Option<Mode>,
    unit: Option<&UnitName>,
) -> Option<DeliveryGap> {
    let fields = Fields::of(report, key, "`delivery_gap`", value, &["backlog", "canary", "repipe"])?;
    let repipe = match fields.get("repipe").zip(fields.key("repipe")) {
        Some((value, _)) if is_none(value) => None,
        Some((value, key)) => repipe(report, key, value, unit),
        None => lane.map(|_| Repipe::Hangup),
    };
    let canary = fields.get("canary").zip(fields.key("canary"));
    let canary = canary.and_then(|(value, key)| canary_of(report, key, value, lane));
    let written = fields.get("backlog").zip(fields.key("backlog"));
    let (flow, not_draining_for) = match (written, lane) {
        (Some((value, key)), _) => backlog(report, key, value, lane)?,
        (None, Some(mode)) => (Flow::Lane(mode), LANE_NOT_DRAINING),
        (None, None) => {
            let help = "expected `backlog: { queue: \"agent:inbox\", not_draining_for: 60s }`";
            fields.need(report, "backlog", help)?;
            return None;
        }
    };
    Some(DeliveryGap { flow, not_draining_for, canary, repipe })
}

fn backlog(report: &mut Report<'_>, key: At, value: &Value, lane: Option<Mode>) -> Option<(Flow, Duration)> {
    let fields = Fields::of(report, key, "`backlog`", value, &["queue", "not_draining_for", "busy"])?;
    let busy = match fields.get("busy").zip(fields.key("busy")) {
        Some((_, key)) if fields.get("queue").is_none() => {
            let help = "take it out: a lane says itself what it has in hand";
            report.error(key, "`busy` belongs to a `queue`", help);
            return None;
        }
        Some((value, _)) => Some(redis_key(report, value)?),
        None => None,
    };
    let time = match (fields.get("not_draining_for"), lane) {
        (Some(value), _) => leaf::duration(report, value, &(SECOND..=WEEK)),
        (None, Some(_)) => Some(LANE_NOT_DRAINING),
        (None, None) => {
            let help = "expected how long work may wait while none is taken, such as 60s";
            fields.need(report, "not_draining_for", help);
            None
        }
    };
    let flow = match (fields.get("queue"), lane) {
        (Some(value), _) => Flow::Queue { key: redis_key(report, value)?, busy },
        (None, Some(mode)) => Flow::Lane(mode),
        (None, None) => {
            fields.need(report, "queue", "expected the Redis list that the worker takes from")?;
            return None;
        }
    };
    Some((flow, time?))
}

fn canary_of(report: &mut Report<'_>, key: At, value: &Value, lane: Option<Mode>) -> Option<Canary> {
    if lane.is_none() {
        let help = "take it out: nobody else knows a task that does nothing";
        report.error(key, "only lanes take canaries", help);
        return None;
    }
    let fields = Fields::of(report, key, "`canary`", value, &["every", "within"])?;
    let every = fields.need(report, "every", "expected how often one is sent, such as 10m");
    let every = every.and_then(|value| leaf::duration(report, value, &(SECOND..=WEEK)));
    let within = fields.need(report, "within", "expected how soon its result has to be there, such as 30s");
    let within = within.and_then(|value| leaf::duration(report, value, &(SECOND..=HOUR)));
    let (every, within) = (every?, within?);
    if within > every {
        report.error(
            key,
            "a canary would be sent before the one before it is missed",
            "expected `within` to be at most `every`",
        );
        return None;
    }
    Some(Canary { every, within })
}

fn repipe(report: &mut Report<'_>, key: At, value: &Value, unit: Option<&UnitName>) -> Option<Repipe> {
    const WAYS: [&str; 2] = ["restart", "hangup"];
    let fields = Fields::of(report, key, "`repipe`", value, &WAYS)?;
    match one_of_ways(report, key, "`repipe`", &fields, &WAYS, false)?? {
        ("restart", value, _) => {
            let given = word(report, value, "the service unit that feeds the worker")?;
            let pipe = own::unit(report, &given)?;
            if Some(&pipe.value) == unit {
                report.error(
                    pipe.at,
                    "this is the worker itself, not its receive pipe",
                    "expected the unit that feeds it; the worker itself is relaunched anyway if this does not help",
                );
                return None;
            }
            Some(Repipe::Restart(pipe.value))
        }
        (_, value, _) => yes(report, value).map(|()| Repipe::Hangup),
    }
}

/// Reads a node's `power`.
pub(super) fn power(report: &mut Report<'_>, key: At, value: &Value) -> Option<Power> {
    let fields = Fields::of(report, key, "`power`", value, &["argv", "user", "timeout", "after", "witness"])?;
    let after = match fields.get("after") {
        Some(value) => leaf::duration(report, value, &(SECOND..=HOUR)),
        None => Some(POWER_AFTER),
    };
    let command = command(report, &fields, POWER_TIMEOUT)?;
    let witness = match fields.get("witness") {
        Some(value) => Some(own::witness(report, value)?),
        None => None,
    };
    Some(Power { command, after: after?, witness })
}

/// The one of several settings that is there: its name, its value and where it stands. `Some(None)` if none is and
/// that is all right.
#[allow(clippy::option_option, reason = "a mistake that was reported, nothing, or something")]
fn one_of_ways<'t>(
    report: &mut Report<'_>,
    key: At,
    what: &str,
    fields: &Fields<'t>,
    ways: &[&'static str],
    may_be_missing: bool,
) -> Option<Option<(&'static str, &'t Value, At)>> {
    let mut given = ways.iter().filter_map(|way| Some((*way, fields.get(way)?, fields.key(way)?)));
    let (first, second) = (given.next(), given.next());
    let help = || format!("expected exactly one of {}", ways.join(", "));
    match (first, second) {
        (Some((one, ..)), Some((other, _, at))) => {
            report.error(at, format!("{what} has both `{one}` and `{other}`"), help());
            None
        }
        (None, _) if !may_be_missing => {
            report.error(key, format!("{what} does not say how"), help());
            None
        }
        (first, _) => Some(first),
    }
}

fn command(report: &mut Report<'_>, fields: &Fields<'_>, timeout: Duration) -> Option<Command> {
    let argv = fields.need(report, "argv", "expected a program by its absolute path, and its arguments");
    let argv = argv.zip(fields.key("argv")).and_then(|(value, key)| argv_of(report, key, value));
    let user = match fields.get("user") {
        Some(value) => user_of(report, value),
        None => Some("nobody".to_owned()),
    };
    let bounds = Duration::from_millis(100)..=Duration::from_secs(600);
    let timeout = match fields.get("timeout") {
        Some(value) => leaf::duration(report, value, &bounds),
        None => Some(timeout),
    };
    Some(Command { argv: argv?, user: user?, timeout: timeout? })
}

fn argv_of(report: &mut Report<'_>, key: At, value: &Value) -> Option<Vec<String>> {
    let list = items(report, key, value, "[/usr/bin/program, argument]")?;
    if list.len() > MAX_ARGV {
        let help = format!("expected at most {MAX_ARGV}");
        report.error(value.at, format!("there are {} words in this command", list.len()), help);
        return None;
    }
    let mut argv = Vec::with_capacity(list.len());
    for (n, item) in list.iter().enumerate() {
        let given = word(report, item, "a word of the command")?;
        let word = if n == 0 { own::path(report, &given)? } else { own::argument(report, &given)? };
        argv.push(word);
    }
    Some(argv)
}

fn user_of(report: &mut Report<'_>, value: &Value) -> Option<String> {
    let given = word(report, value, "a user's name")?;
    own::user(report, &given)
}

fn path(report: &mut Report<'_>, value: &Value) -> Option<PathBuf> {
    let given = word(report, value, "an absolute path")?;
    own::path(report, &given).map(PathBuf::from)
}

/// Where the supervisor's unit sees nothing (ProtectHome=, PrivateTmp=): a file there would always be missing to it, and its
/// worker always stuck.
const HIDDEN: [&str; 5] = ["/home/", "/root/", "/run/user/", "/tmp/", "/var/tmp/"];

fn beat_file(report: &mut Report<'_>, value: &Value) -> Option<PathBuf> {
    let found = path(report, value)?;
    let Some(hidden) = HIDDEN.into_iter().find(|hidden| found.starts_with(hidden)) else {
        return Some(found);
    };
    let help = "expected a place such as /run or /var/lib";
    report.error(value.at, format!("keyholder.service cannot see what is below {hidden}"), help);
    None
}

fn redis_key(report: &mut Report<'_>, value: &Value) -> Option<String> {
    let given = word(report, value, "a Redis key")?;
    own::redis_key(report, &given)
}

/// A setting that is there or is not: `true` is all it can say.
fn yes(report: &mut Report<'_>, value: &Value) -> Option<()> {
    if leaf::boolean(report, value)? {
        return Some(());
    }
    report.error(value.at, "this cannot be switched off here", "expected true, or another way");
    None
}
