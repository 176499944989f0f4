//! Units that are down by design: what their unit file, or one key of the fleet file, says about it.

use std::fmt;

use super::classify::{Death, Health};
use super::observation::{ActiveState, Standing, StopCause, Tie, UnitSnapshot};

/// Why a unit is down and nobody has to do anything.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Idle {
    /// A condition of its unit file was not met when it was to start.
    Skipped(String),
    /// A command of `ExecCondition=` said that it is not to start.
    ExecCondition,
    /// It ended in a way after which `RestartPreventExitStatus=` wants no restart; the text says how.
    Agreed(String),
    /// Its work is done: a oneshot whose process ended well.
    Done,
    /// It ended well, and this starts it when there is work.
    Ended(String),
    /// It has not run yet, and this starts it when there is work.
    Waits(String),
    /// It ended well, and the fleet file says that it may (`ends: clean`).
    MayEnd,
    /// A unit with which it cannot run together runs.
    Conflicts(String),
}

impl fmt::Display for Idle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Skipped(condition) => write!(f, "skipped: {condition} is not met"),
            Self::ExecCondition => f.write_str("skipped: its ExecCondition= is not met"),
            Self::Agreed(exit) => write!(f, "ended by design: {exit} (RestartPreventExitStatus=)"),
            Self::Done => f.write_str("ended by design: its work is done (Type=oneshot)"),
            Self::Ended(by) => write!(f, "ended by design: {by} starts it again"),
            Self::Waits(on) => write!(f, "not started: {on} starts it"),
            Self::MayEnd => f.write_str("ended by design: it ended well (`ends: clean` in fleet.yaml)"),
            Self::Conflicts(unit) => write!(f, "conflicts with {unit}, which runs"),
        }
    }
}

/// Whether a unit that is down, and that nothing keeps from being started, is down by design.
pub(super) fn by_design(unit: &UnitSnapshot, ends_clean: bool) -> Option<Idle> {
    let context = &unit.context;
    // First, and however it fell: its start would take the other one down.
    if let Some(other) = context.first(Tie::Conflicts, Standing::Up) {
        return Some(Idle::Conflicts(other.unit.clone()));
    }
    if let Some(condition) = &context.unmet {
        return Some(Idle::Skipped(condition.clone()));
    }
    let trigger = || {
        let bus = context.on_bus.then(|| "a call on the bus".to_owned());
        context.first(Tie::Trigger, Standing::Up).map(|other| other.unit.clone()).or(bus)
    };
    match unit.stop {
        StopCause::Never => {
            context.first(Tie::Trigger, Standing::Up).map(|other| Idle::Waits(other.unit.clone()))
        }
        // Somebody wanted it down; that is told, and ends.
        StopCause::Ordered => None,
        StopCause::ByItself if unit.active == ActiveState::Inactive && unit.result == "exec-condition" => {
            Some(Idle::ExecCondition)
        }
        StopCause::ByItself if context.agreed_exit => {
            Some(Idle::Agreed(unit.exit.clone().unwrap_or_else(|| unit.result.clone())))
        }
        StopCause::ByItself if !context.ended_well => None,
        StopCause::ByItself if context.oneshot => Some(Idle::Done),
        StopCause::ByItself => trigger().map(Idle::Ended).or(ends_clean.then_some(Idle::MayEnd)),
    }
}

/// What is wrong with a unit that is up without a process that systemd knows; nothing if it is not such a unit.
pub(super) fn hollow(unit: &UnitSnapshot) -> Option<String> {
    if unit.context.no_main {
        return Some(
            "systemd knows no main process of it (Type=forking without PIDFile=), so it cannot tell whether the right one runs: \
             name its PIDFile=, or a heartbeat under `stuck` in fleet.yaml"
                .to_owned(),
        );
    }
    if unit.sub != "exited" {
        return None;
    }
    let running: Vec<&str> = unit
        .context
        .others
        .iter()
        .filter(|other| other.tie == Tie::Instance && other.standing == Standing::Up)
        .map(|other| other.unit.as_str())
        .collect();
    Some(if running.is_empty() {
        "active, but nothing runs in it; if that is how it is to be: `ends: clean` in fleet.yaml".to_owned()
    } else {
        format!("active, but nothing runs in it: {} runs; name that as the worker's unit", running.join(", "))
    })
}

/// The health of a unit of which systemd has forgotten that a condition was not met: it drops a unit that does not run and that
/// nobody needs, and then shows it as never started. `skipped` is the condition that was seen last.
pub fn remembered(health: Health, skipped: Option<&str>) -> Health {
    match (health, skipped) {
        (Health::Dead(Death::NeverStarted), Some(condition)) => {
            Health::Idle(Idle::Skipped(condition.to_owned()))
        }
        (health, _) => health,
    }
}

#[cfg(test)]
mod tests {
    use super::super::classify::{Cause, Death, Health, Host, classify};
    use super::super::observation::{Context, Observation, Other};
    use super::super::vitals::{Pulse, Vitals};
    use super::*;

    fn unit(active: ActiveState, sub: &str, result: &str, stop: StopCause, context: Context) -> UnitSnapshot {
        UnitSnapshot {
            result: result.to_owned(),
            stop,
            exit: Some("exit code 0".to_owned()),
            context: Box::new(context),
            ..UnitSnapshot::plain(active, sub)
        }
    }

    fn with(tie: Tie, standing: Standing) -> Context {
        let unit = "other.service".to_owned();
        let other = Other { unit, tie, standing, why: "is as it is".to_owned(), ours: false };
        Context { others: vec![other], ..Context::default() }
    }

    fn health(unit: UnitSnapshot, ends_clean: bool) -> Health {
        classify(&Observation::Unit(unit), &Vitals::default(), Host::Running, ends_clean)
    }

    const CRASHED: Health = Health::Dead(Death::Crashed { systemd_may_restart: false });

    #[test]
    fn a_unit_that_ended_well_is_idle_only_if_something_says_that_it_may() {
        let ended = |context| {
            let context = Context { ended_well: true, ..context };
            unit(ActiveState::Inactive, "dead", "success", StopCause::ByItself, context)
        };
        assert_eq!(health(ended(Context::default()), false), CRASHED);
        assert_eq!(health(ended(Context::default()), true), Health::Idle(Idle::MayEnd));
        let other = || "other.service".to_owned();
        let trigger = |standing| ended(with(Tie::Trigger, standing));
        assert_eq!(health(trigger(Standing::Up), false), Health::Idle(Idle::Ended(other())));
        // Nothing would start it.
        assert_eq!(health(trigger(Standing::Down), false), CRASHED);
        let oneshot = Context { oneshot: true, ..Context::default() };
        assert_eq!(health(ended(oneshot), false), Health::Idle(Idle::Done));
        let never = unit(
            ActiveState::Inactive,
            "dead",
            "success",
            StopCause::Never,
            with(Tie::Trigger, Standing::Up),
        );
        assert_eq!(health(never, false), Health::Idle(Idle::Waits(other())));
        // One that did not end well, or that somebody stopped, is none of these.
        for (active, result, stop, health_of) in [
            (ActiveState::Failed, "exit-code", StopCause::ByItself, CRASHED),
            (ActiveState::Inactive, "success", StopCause::Ordered, Health::Dead(Death::Stopped)),
        ] {
            let context = Context { oneshot: true, on_bus: true, ..with(Tie::Trigger, Standing::Up) };
            assert_eq!(health(unit(active, "dead", result, stop, context), true), health_of, "{result}");
        }
    }

    #[test]
    fn what_the_unit_file_says_is_told() {
        let unmet = Context { unmet: Some("ConditionPathExists=/x".to_owned()), ..Context::default() };
        let never = unit(ActiveState::Inactive, "dead", "success", StopCause::Never, unmet);
        assert_eq!(health(never, false), Health::Idle(Idle::Skipped("ConditionPathExists=/x".to_owned())));
        let skipped =
            unit(ActiveState::Inactive, "dead", "exec-condition", StopCause::ByItself, Context::default());
        assert_eq!(health(skipped, false), Health::Idle(Idle::ExecCondition));
        let agreed = Context { agreed_exit: true, ..Context::default() };
        let failed = unit(ActiveState::Failed, "failed", "exit-code", StopCause::ByItself, agreed);
        assert_eq!(health(failed, false), Health::Idle(Idle::Agreed("exit code 0".to_owned())));
        // An assertion that is not met is a fault.
        let unasserted = Context { unasserted: Some("AssertPathExists=/x".to_owned()), ..Context::default() };
        let never = unit(ActiveState::Inactive, "dead", "success", StopCause::Never, unasserted);
        assert_eq!(health(never, true), Health::Dead(Death::NeverStarted));
    }

    #[test]
    fn two_that_cannot_run_together_do_not_take_turns_and_a_cause_is_named() {
        let stopped = |context| unit(ActiveState::Inactive, "dead", "success", StopCause::Ordered, context);
        let failed = |context| unit(ActiveState::Failed, "failed", "signal", StopCause::ByItself, context);
        for of in [stopped, failed] {
            let conflicts = Health::Idle(Idle::Conflicts("other.service".to_owned()));
            assert_eq!(health(of(with(Tie::Conflicts, Standing::Up)), false), conflicts);
            let busy = health(of(with(Tie::Conflicts, Standing::Busy)), false);
            assert!(matches!(busy, Health::InTransition(_)), "{busy:?}");
            let taken = |cause| Health::Dead(Death::TakenDown(cause));
            assert_eq!(health(of(with(Tie::Needs, Standing::Down)), false), taken(Cause::Stopped));
            assert_eq!(health(of(with(Tie::Needs, Standing::Failed)), false), taken(Cause::Failed));
            assert_eq!(health(of(with(Tie::PartOf, Standing::Busy)), false), taken(Cause::Mended));
            let mut ours = with(Tie::Needs, Standing::Down);
            ours.others[0].ours = true;
            assert_eq!(health(of(ours), false), taken(Cause::Mended));
        }
    }

    #[test]
    fn a_unit_in_which_nothing_runs_is_healthy_only_if_the_fleet_file_or_a_heartbeat_says_so() {
        let exited = |context| unit(ActiveState::Active, "exited", "success", StopCause::Never, context);
        let why = |health| {
            let Health::Blind(why) = health else { panic!("{health:?}") };
            why
        };
        assert!(why(health(exited(Context::default()), false)).contains("nothing runs in it"));
        assert!(why(health(exited(with(Tie::Instance, Standing::Up)), false)).contains("other.service runs"));
        assert_eq!(health(exited(Context::default()), true), Health::Healthy);
        let beats = Vitals { beat: Pulse::Moving, ..Vitals::default() };
        let seen = Observation::Unit(exited(Context::default()));
        assert_eq!(classify(&seen, &beats, Host::Running, false), Health::Healthy);
        let headless = Context { no_main: true, ..Context::default() };
        let running = unit(ActiveState::Active, "running", "success", StopCause::Never, headless);
        assert!(why(health(running, false)).contains("PIDFile="));
    }
}
