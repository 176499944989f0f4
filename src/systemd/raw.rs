//! The properties of a unit that matter here, as systemd tells them by signal, by reply or through `systemctl show`.

use zbus::Variant;

use super::stop;
use super::ties::Ties;
use crate::judge::{ActiveState, Context, LoadState, Step, StopCause, Timeouts, UnitSnapshot};
use crate::vocabulary::InvocationId;

/// What [`Raw`] takes notice of, for `systemctl show --property=`.
pub(super) const PROPERTIES: &str = "Id,LoadState,ActiveState,SubState,Job,InvocationID,RefuseManualStart,\
    InactiveExitTimestampMonotonic,ActiveEnterTimestampMonotonic,ActiveExitTimestampMonotonic,Result,Restart,\
    RemainAfterExit,NRestarts,RuntimeMaxUSec,ExecMainExitTimestampMonotonic,ExecMainCode,ExecMainStatus,Type,MainPID,Names,\
    ConditionResult,ConditionTimestampMonotonic,AssertResult,AssertTimestampMonotonic,RestartPreventExitStatus,\
    SuccessExitStatus,Conflicts,\
    ConflictedBy,BindsTo,Requires,Requisite,PartOf,TriggeredBy,UpheldBy,ConsistsOf,BoundBy,\
    TimeoutStartUSec,TimeoutStopUSec,TimeoutAbortUSec,RestartUSec,RestartMaxDelayUSec,JobTimeoutUSec,ControlPID,StatusText";

/// A unit's properties, under systemd's names for them. Times are microseconds of CLOCK_MONOTONIC, 0 for never.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Raw {
    /// The unit's proper name; the one it was asked for by may be an alias.
    pub(super) id: String,
    pub(super) load: String,
    pub(super) active: String,
    pub(super) sub: String,
    pub(super) result: String,
    pub(super) invocation: Option<InvocationId>,
    /// The id of the queued job, 0 for none.
    pub(super) job: u32,
    pub(super) refuse_manual_start: bool,
    pub(super) restart: String,
    pub(super) remain_after_exit: bool,
    pub(super) restarts: u32,
    /// `u64::MAX` for no limit.
    pub(super) runtime_max: u64,
    pub(super) inactive_exit: u64,
    pub(super) active_enter: u64,
    pub(super) active_exit: u64,
    pub(super) main_exit: u64,
    /// How the main process ended: a `CLD_` code, see [`stop`].
    pub(super) main_code: i32,
    pub(super) main_status: i32,
    /// Microseconds, `u64::MAX` for no limit; none while it has not been told, as by a systemd that does not know it.
    pub(super) timeout_start: Option<u64>,
    pub(super) timeout_stop: Option<u64>,
    pub(super) timeout_abort: Option<u64>,
    pub(super) restart_after: Option<u64>,
    pub(super) restart_after_at_most: Option<u64>,
    pub(super) job_timeout: Option<u64>,
    pub(super) control: u32,
    pub(super) status: String,
    /// Whether the start of this run was called off: its job was cancelled, as a stop order does. No property shows that;
    /// see [`super::table::Table::called_off`].
    pub(super) called_off: bool,
    /// The service's Type=.
    pub(super) kind: String,
    pub(super) main_pid: u64,
    /// Whether it has a name by which a call on the bus starts it.
    pub(super) on_bus: bool,
    /// Whether conditions and assertions were met at the last start, and when that was looked at.
    pub(super) condition: Check,
    pub(super) assertion: Check,
    /// The exit statuses and signals after which its unit file wants no restart.
    pub(super) prevents: (Vec<i32>, Vec<i32>),
    /// Those that its unit file counts as a success, beside 0 and the signals that end a service.
    pub(super) successes: (Vec<i32>, Vec<i32>),
    /// The units that it hangs together with.
    pub(super) ties: Ties,
}

/// What came of a unit's conditions, or of its assertions, at its last start.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Check {
    met: bool,
    at: u64,
    /// The first that was not met, as the unit file has it.
    unmet: Option<String>,
}

impl Check {
    /// What was not met, if the last start came to nothing because of it.
    fn failed(&self, raw: &Raw, what: &str) -> Option<String> {
        let last = !self.met && self.at > raw.inactive_exit.max(raw.active_exit) && raw.down();
        last.then(|| self.unmet.clone().unwrap_or_else(|| what.to_owned()))
    }
}

/// The longest text that a service says of itself which is kept, in characters.
const STATUS: usize = 200;

/// A property's value in either notation. `None` means that it is not of the asked type; the property then keeps its
/// old value, because a guess would be worse.
pub(super) trait Value {
    fn text(&self) -> Option<&str>;
    fn flag(&self) -> Option<bool>;
    fn number(&self) -> Option<u64>;
    /// A number with a sign.
    fn code(&self) -> Option<i32>;
    /// The id in the `(uo)` of a job.
    fn job(&self) -> Option<u32>;
    fn units(&self) -> Option<Vec<String>>;
    /// Exit statuses and signals.
    fn statuses(&self) -> Option<(Vec<i32>, Vec<i32>)>;
    /// The first condition that was not met; the outer `None` is a wrong type.
    fn unmet(&self) -> Option<Option<String>>;
    /// The outer `None` is a wrong type, the inner one a unit without a run.
    fn invocation(&self) -> Option<Option<InvocationId>>;
}

fn put<T>(to: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *to = value;
    }
}

fn put_some<T>(to: &mut Option<T>, value: Option<T>) {
    if value.is_some() {
        *to = value;
    }
}

fn put_text(to: &mut String, value: Option<&str>) {
    if let Some(value) = value
        && to != value
    {
        to.clear();
        to.push_str(value);
    }
}

impl Raw {
    /// Takes one property over; others than those needed are passed by.
    pub(super) fn set(&mut self, name: &str, value: &impl Value) {
        match name {
            "Id" => put_text(&mut self.id, value.text()),
            "LoadState" => put_text(&mut self.load, value.text()),
            "ActiveState" => put_text(&mut self.active, value.text()),
            "SubState" => put_text(&mut self.sub, value.text()),
            "Result" => put_text(&mut self.result, value.text()),
            "Restart" => put_text(&mut self.restart, value.text()),
            "InvocationID" => {
                let before = self.invocation;
                put(&mut self.invocation, value.invocation());
                self.called_off &= self.invocation == before;
            }
            "Job" => put(&mut self.job, value.job()),
            "RefuseManualStart" => put(&mut self.refuse_manual_start, value.flag()),
            "RemainAfterExit" => put(&mut self.remain_after_exit, value.flag()),
            "NRestarts" => put(&mut self.restarts, value.number().and_then(|count| count.try_into().ok())),
            "RuntimeMaxUSec" => put(&mut self.runtime_max, value.number()),
            "InactiveExitTimestampMonotonic" => put(&mut self.inactive_exit, value.number()),
            "ActiveEnterTimestampMonotonic" => put(&mut self.active_enter, value.number()),
            "ActiveExitTimestampMonotonic" => put(&mut self.active_exit, value.number()),
            "ExecMainExitTimestampMonotonic" => put(&mut self.main_exit, value.number()),
            "ExecMainCode" => put(&mut self.main_code, value.code()),
            "ExecMainStatus" => put(&mut self.main_status, value.code()),
            "Type" => put_text(&mut self.kind, value.text()),
            "MainPID" => put(&mut self.main_pid, value.number()),
            "Names" => {
                let on_bus = |name: &String| name.starts_with("dbus-");
                put(&mut self.on_bus, value.units().map(|names| names.iter().any(on_bus)));
            }
            "ConditionResult" => put(&mut self.condition.met, value.flag()),
            "ConditionTimestampMonotonic" => put(&mut self.condition.at, value.number()),
            "Conditions" => put(&mut self.condition.unmet, value.unmet()),
            "AssertResult" => put(&mut self.assertion.met, value.flag()),
            "AssertTimestampMonotonic" => put(&mut self.assertion.at, value.number()),
            "Asserts" => put(&mut self.assertion.unmet, value.unmet()),
            "SuccessExitStatus" => put(&mut self.successes, value.statuses()),
            "RestartPreventExitStatus" => put(&mut self.prevents, value.statuses()),
            "TimeoutStartUSec" => put_some(&mut self.timeout_start, value.number()),
            "TimeoutStopUSec" => put_some(&mut self.timeout_stop, value.number()),
            "TimeoutAbortUSec" => put_some(&mut self.timeout_abort, value.number()),
            "RestartUSec" => put_some(&mut self.restart_after, value.number()),
            "RestartMaxDelayUSec" => put_some(&mut self.restart_after_at_most, value.number()),
            "JobTimeoutUSec" => put_some(&mut self.job_timeout, value.number()),
            "ControlPID" => put(&mut self.control, value.number().and_then(|pid| pid.try_into().ok())),
            "StatusText" => put_text(&mut self.status, value.text()),
            other => self.ties.set(other, value.units()),
        }
    }

    /// Reads one unit's block of `systemctl show`: lines of `Name=value`.
    pub(super) fn from_show(block: &str) -> Self {
        let mut raw = Self::default();
        for (name, value) in block.lines().filter_map(|line| line.split_once('=')) {
            raw.set(name, &value);
        }
        raw
    }

    /// Whether there is enough for a judgement.
    pub(super) fn complete(&self) -> bool {
        !self.load.is_empty() && !self.active.is_empty() && !self.sub.is_empty()
    }

    /// Whether it runs (or, for a oneshot, has run): up as far as a start job is concerned.
    pub(super) fn up(&self) -> bool {
        matches!(self.active.as_str(), "active" | "reloading" | "refreshing")
    }

    /// Whether it is down and nobody is at it.
    pub(super) fn down(&self) -> bool {
        matches!(self.active.as_str(), "inactive" | "failed") && self.job == 0
    }

    /// Whether this is a unit that PID 1 had dropped from its memory after it stopped as `known` says, and has loaded again:
    /// it shows no run at all. It has not run since, or it would show that.
    pub(super) fn forgotten(&self, known: &Self) -> bool {
        let bare = self.invocation.is_none() && self.inactive_exit == 0;
        self.active == "inactive" && self.job == 0 && bare && known.down() && known.invocation.is_some()
    }

    /// The same with what is known of the run that PID 1 has forgotten.
    pub(super) fn remembering(self, known: &Self) -> Self {
        Self {
            result: known.result.clone(),
            invocation: known.invocation,
            inactive_exit: known.inactive_exit,
            active_enter: known.active_enter,
            active_exit: known.active_exit,
            main_exit: known.main_exit,
            main_code: known.main_code,
            main_status: known.main_status,
            called_off: known.called_off,
            ..self
        }
    }

    /// Whether systemd restarts it by itself in some case.
    pub(super) fn restarts_itself(&self) -> bool {
        !matches!(self.restart.as_str(), "no" | "")
    }

    /// Its own timeouts; what systemd has not told has systemd's default.
    fn timeouts(&self) -> Timeouts {
        let ms = |us: Option<u64>, default: Option<u64>| match us {
            None => default,
            Some(u64::MAX) => None,
            Some(us) => Some(us / 1000),
        };
        let default = Timeouts::default();
        // A delay that does not grow has no longest one.
        let longest = self.restart_after_at_most.filter(|us| *us != u64::MAX);
        Timeouts {
            start_ms: ms(self.timeout_start, default.start_ms),
            stop_ms: ms(self.timeout_stop, default.stop_ms),
            abort_ms: ms(self.timeout_abort.or(self.timeout_stop), default.abort_ms),
            restart_ms: ms(self.restart_after.max(longest), default.restart_ms),
            job_ms: ms(self.job_timeout, default.job_ms),
        }
    }

    /// Whether its last start came to nothing because of a condition or an assertion. Which one it was never signals.
    pub(super) fn unmet(&self) -> bool {
        self.condition.failed(self, "").or_else(|| self.assertion.failed(self, "")).is_some()
    }

    /// What its unit file says about its state.
    fn context(&self, stop: StopCause) -> Context {
        let by_itself = self.down() && stop == StopCause::ByItself;
        Context {
            unmet: self.condition.failed(self, "a condition of its unit file (Condition…=)"),
            unasserted: self.assertion.failed(self, "an assertion of its unit file (Assert…=)"),
            agreed_exit: by_itself && stop::agreed(self),
            ended_well: by_itself && stop::well(self),
            oneshot: by_itself && self.kind == "oneshot" && !self.remain_after_exit,
            on_bus: by_itself && self.on_bus,
            no_main: self.up() && self.sub == "running" && self.kind == "forking" && self.main_pid == 0,
            others: Vec::new(),
        }
    }

    /// The same in the vocabulary of the judge, without the units that it hangs together with.
    pub(super) fn snapshot(&self) -> UnitSnapshot {
        let stop = stop::cause(self);
        let mut unit = UnitSnapshot {
            load: match self.load.as_str() {
                "loaded" => LoadState::Loaded,
                "not-found" => LoadState::NotFound,
                "masked" => LoadState::Masked,
                "bad-setting" => LoadState::BadSetting,
                "error" => LoadState::Error,
                "stub" => LoadState::Stub,
                "merged" => LoadState::Merged,
                other => LoadState::Other(other.to_owned()),
            },
            active: match self.active.as_str() {
                "active" => ActiveState::Active,
                "reloading" => ActiveState::Reloading,
                "inactive" => ActiveState::Inactive,
                "failed" => ActiveState::Failed,
                "activating" => ActiveState::Activating,
                "deactivating" => ActiveState::Deactivating,
                "maintenance" => ActiveState::Maintenance,
                "refreshing" => ActiveState::Refreshing,
                other => ActiveState::Other(other.to_owned()),
            },
            sub: self.sub.clone(),
            result: self.result.clone(),
            invocation: self.invocation,
            job: self.job != 0,
            refuse_manual_start: self.refuse_manual_start,
            restarts_itself: self.restarts_itself(),
            restarts: self.restarts,
            stop,
            exit: stop::exit(self),
            context: Box::new(self.context(stop)),
            timeouts: self.timeouts(),
            control: 0,
            status: None,
        };
        // A unit that is up may say something new of itself each second, which is no news here.
        if Step::of(&unit).is_some() {
            unit.control = self.control;
            let status = super::systemctl::one_line(&self.status);
            unit.status = (!status.is_empty()).then(|| status.chars().take(STATUS).collect());
        }
        unit
    }
}

/// A time span as `systemctl show` prints it for people: "1min 30s", "100ms".
fn microseconds(text: &str) -> Option<u64> {
    const UNITS: [(&str, u64); 9] = [
        ("us", 1),
        ("ms", 1_000),
        ("min", 60_000_000),
        ("s", 1_000_000),
        ("h", 3_600_000_000),
        ("d", 86_400_000_000),
        ("w", 604_800_000_000),
        ("month", 2_629_800_000_000),
        ("y", 31_557_600_000_000),
    ];
    let mut total = 0u64;
    for part in text.split_ascii_whitespace() {
        let digits = part.find(|letter: char| !letter.is_ascii_digit() && letter != '.')?;
        let (number, unit) = part.split_at_checked(digits)?;
        let (_, scale) = UNITS.into_iter().find(|(name, _)| *name == unit)?;
        let (whole, rest) = number.split_once('.').unwrap_or((number, ""));
        total = total.checked_add(whole.parse::<u64>().ok()?.checked_mul(scale)?)?;
        // The digits behind the point: "1.500s".
        let mut place = scale;
        for digit in rest.bytes() {
            place /= 10;
            total = total.checked_add(u64::from(digit.checked_sub(b'0')?) * place)?;
        }
    }
    (!text.is_empty()).then_some(total)
}

fn some_id(bytes: [u8; 16]) -> Option<InvocationId> {
    (bytes != [0; 16]).then(|| InvocationId::from_bytes(bytes))
}

// A type that another systemd may use for a property is refused, not guessed at; and zbus's enum is not ours.
#[allow(clippy::wildcard_enum_match_arm)]
impl Value for Variant<'_> {
    fn text(&self) -> Option<&str> {
        match self {
            Variant::Str(text) => Some(text.as_str()),
            _ => None,
        }
    }

    fn flag(&self) -> Option<bool> {
        match self {
            Variant::Bool(flag) => Some(*flag),
            _ => None,
        }
    }

    fn number(&self) -> Option<u64> {
        match self {
            Variant::U64(number) => Some(*number),
            Variant::U32(number) => Some(u64::from(*number)),
            _ => None,
        }
    }

    fn code(&self) -> Option<i32> {
        match self {
            Variant::I32(number) => Some(*number),
            _ => None,
        }
    }

    fn job(&self) -> Option<u32> {
        match self {
            Variant::Structure(job) => match job.fields().first() {
                Some(Variant::U32(id)) => Some(*id),
                _ => None,
            },
            _ => None,
        }
    }

    fn units(&self) -> Option<Vec<String>> {
        let Variant::Array(units) = self else { return None };
        units
            .iter()
            .map(|unit| match unit {
                Variant::Str(name) => Some(name.as_str().to_owned()),
                _ => None,
            })
            .collect()
    }

    fn statuses(&self) -> Option<(Vec<i32>, Vec<i32>)> {
        let Variant::Structure(both) = self else { return None };
        let list = |at: usize| match both.fields().get(at) {
            Some(Variant::Array(codes)) => codes.iter().map(Value::code).collect::<Option<Vec<i32>>>(),
            _ => None,
        };
        Some((list(0)?, list(1)?))
    }

    /// Of `a(sbbsi)`: name, whether it is one of several of which one is enough, whether it is negated, parameter, and
    /// what came of it.
    fn unmet(&self) -> Option<Option<String>> {
        let Variant::Array(all) = self else { return None };
        for one in all.iter() {
            let Variant::Structure(one) = one else { return None };
            let [
                Variant::Str(name),
                _,
                Variant::Bool(negated),
                Variant::Str(parameter),
                Variant::I32(result),
            ] = one.fields()
            else {
                return None;
            };
            if *result < 0 {
                let not = if *negated { "!" } else { "" };
                return Some(Some(format!("{}={not}{}", name.as_str(), parameter.as_str())));
            }
        }
        Some(None)
    }

    fn invocation(&self) -> Option<Option<InvocationId>> {
        match self {
            Variant::Array(bytes) if bytes.is_empty() => Some(None),
            Variant::Array(bytes) => {
                let mut id = [0; 16];
                if bytes.len() != id.len() {
                    return None;
                }
                for (to, from) in id.iter_mut().zip(bytes.iter()) {
                    match from {
                        Variant::U8(byte) => *to = *byte,
                        _ => return None,
                    }
                }
                Some(some_id(id))
            }
            _ => None,
        }
    }
}

/// As `systemctl show` prints it.
impl Value for &str {
    fn text(&self) -> Option<&str> {
        Some(self)
    }

    fn flag(&self) -> Option<bool> {
        match *self {
            "yes" => Some(true),
            "no" => Some(false),
            _ => None,
        }
    }

    fn number(&self) -> Option<u64> {
        if *self == "infinity" { Some(u64::MAX) } else { self.parse().ok().or_else(|| microseconds(self)) }
    }

    fn code(&self) -> Option<i32> {
        self.parse().ok()
    }

    fn job(&self) -> Option<u32> {
        if self.is_empty() { Some(0) } else { self.parse().ok() }
    }

    fn units(&self) -> Option<Vec<String>> {
        Some(self.split_ascii_whitespace().map(str::to_owned).collect())
    }

    fn statuses(&self) -> Option<(Vec<i32>, Vec<i32>)> {
        // Signals are printed by name, and none has to be known here: a process that a signal ends is brought back.
        Some((self.split_ascii_whitespace().filter_map(|code| code.parse().ok()).collect(), Vec::new()))
    }

    /// `systemctl show` cannot print them.
    fn unmet(&self) -> Option<Option<String>> {
        None
    }

    fn invocation(&self) -> Option<Option<InvocationId>> {
        if self.is_empty() { Some(None) } else { self.parse().ok().map(Some) }
    }
}
