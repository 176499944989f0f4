//! The few messages exchanged with PID 1 and the bus: how calls are written and bodies read.

use std::collections::HashMap;

use zbus::message::{Flags, Message};
use zbus::{Error, MatchRule, ObjectPath, Variant, message};

use super::facts::Facts;
use super::path;
use super::raw::{Raw, Value};
use crate::vocabulary::UnitName;

pub(super) const SYSTEMD: &str = "org.freedesktop.systemd1";
pub(super) const BUS: &str = "org.freedesktop.DBus";
pub(super) const MANAGER: &str = "org.freedesktop.systemd1.Manager";
pub(super) const UNIT: &str = "org.freedesktop.systemd1.Unit";
pub(super) const SERVICE: &str = "org.freedesktop.systemd1.Service";
pub(super) const PROPERTIES: &str = "org.freedesktop.DBus.Properties";
const MANAGER_PATH: &str = "/org/freedesktop/systemd1";
const BUS_PATH: &str = "/org/freedesktop/DBus";

type Built = Result<Message, Error>;

fn to_systemd<'a>(path: &'a str, interface: &'a str, method: &'a str) -> message::Builder<'a> {
    // Nobody is to be started in PID 1's place.
    Message::method_call(path, method)
        .destination(SYSTEMD)
        .interface(interface)
        .with_flags(Flags::NO_AUTO_START)
}

fn to_manager(method: &str) -> message::Builder<'_> {
    to_systemd(MANAGER_PATH, MANAGER, method)
}

pub(super) fn subscribe() -> Built {
    to_manager("Subscribe").build(&())
}

pub(super) fn system_state() -> Built {
    to_systemd(MANAGER_PATH, PROPERTIES, "Get").build(&(MANAGER, "SystemState"))
}

pub(super) fn list(units: &[UnitName]) -> Built {
    let names: Vec<&str> = units.iter().map(UnitName::as_str).collect();
    to_manager("ListUnitsByNames").build(&names)
}

/// The unit by which PID 1 holds our door.
pub(super) const DOOR: &str = "keyholder.socket";

/// Whether it still does.
pub(super) fn door() -> Built {
    to_manager("ListUnitsByNames").build(&[DOOR].as_slice())
}

/// Clears the unit's failure and its start counter. No answer is wanted: it fails for a unit that has nothing to clear.
pub(super) fn reset_failed(unit: &UnitName) -> Built {
    to_manager("ResetFailedUnit").with_flags(Flags::NO_REPLY_EXPECTED).build(&(unit.as_str(),))
}

pub(super) fn restart(unit: &UnitName) -> Built {
    to_manager("RestartUnit").build(&(unit.as_str(), "replace"))
}

pub(super) fn start(unit: &UnitName) -> Built {
    to_manager("StartUnit").build(&(unit.as_str(), "replace"))
}

pub(super) fn stop(unit: &UnitName) -> Built {
    to_manager("StopUnit").build(&(unit.as_str(), "replace"))
}

pub(super) fn reload(unit: &UnitName) -> Built {
    to_manager("ReloadUnit").build(&(unit.as_str(), "replace"))
}

/// A signal to the unit's main process, or to all of its processes.
pub(super) fn kill(unit: &UnitName, signal: i32, whole: bool) -> Built {
    let whom = if whole { "all" } else { "main" };
    to_manager("KillUnit").build(&(unit.as_str(), whom, signal))
}

/// The last ping of the unit's watchdog.
pub(super) fn watchdog(unit: &UnitName) -> Built {
    to_systemd(&path::of(unit), PROPERTIES, "Get").build(&(SERVICE, "WatchdogTimestampMonotonic"))
}

/// Starts a unit that exists for this one run. Mode `fail`: it may not get into anybody's way.
pub(super) fn start_transient(unit: &UnitName, properties: &[(&str, Variant<'_>)]) -> Built {
    let auxiliary: [(&str, Vec<(&str, Variant<'_>)>); 0] = [];
    to_manager("StartTransientUnit").build(&(unit.as_str(), "fail", properties, auxiliary.as_slice()))
}

/// Pins the unit in PID 1's memory for as long as this connection lasts. Without it an idle unit is collected within a
/// second, and how it stopped is forgotten with it. It also keeps the unit's signals coming should PID 1 lose the
/// subscription. Asked of the object, not of the manager, since the object's lookup loads the unit.
/// No answer is wanted, as the bus counts unanswered calls.
pub(super) fn pin(unit: &UnitName) -> Built {
    to_systemd(&path::of(unit), UNIT, "Ref").with_flags(Flags::NO_REPLY_EXPECTED).build(&())
}

/// Lets PID 1 forget the unit again.
pub(super) fn unpin(unit: &UnitName) -> Built {
    to_systemd(&path::of(unit), UNIT, "Unref").with_flags(Flags::NO_REPLY_EXPECTED).build(&())
}

/// All properties of all of the unit's interfaces, in one coherent answer (an empty interface name means all). On 252 it
/// takes PID 1 0.5 ms; the twenty properties needed, asked for one by one in one go, take 0.8 ms.
pub(super) fn read(unit: &UnitName) -> Built {
    to_systemd(&path::of(unit), PROPERTIES, "GetAll").build(&("",))
}

/// The same of a unit that need not be a service.
pub(super) fn read_other(unit: &str) -> Built {
    to_systemd(&path::of_name(unit), PROPERTIES, "GetAll").build(&("",))
}

pub(super) fn owner() -> Built {
    Message::method_call(BUS_PATH, "GetNameOwner").destination(BUS).interface(BUS).build(&(SYSTEMD,))
}

/// What is to be heard, in few rules: a rule per unit would cost the bus more than we save.
pub(super) fn matches() -> Result<Vec<Message>, Error> {
    let signal = || MatchRule::builder().msg_type(message::Type::Signal);
    let changed = |of| {
        signal()
            .sender(SYSTEMD)
            .interface(PROPERTIES)
            .member("PropertiesChanged")
            .path_namespace(path::UNITS)
            .add_arg(of)
            .build()
    };
    let rules = [
        signal().sender(BUS).interface(BUS).member("NameOwnerChanged").add_arg(SYSTEMD).build()?,
        signal().sender(SYSTEMD).interface(MANAGER).path(MANAGER_PATH).build()?,
        changed(SERVICE)?,
        changed(UNIT)?,
    ];
    rules
        .iter()
        .map(|rule| {
            Message::method_call(BUS_PATH, "AddMatch")
                .destination(BUS)
                .interface(BUS)
                .build(&(rule.to_string(),))
        })
        .collect()
}

/// Takes over what a `PropertiesChanged` says of the unit; true if it was the unit's own interface, which systemd sends
/// last: only then do service and unit fit together.
pub(super) fn changed(message: &Message, raw: &mut Raw) -> Result<bool, Error> {
    let body = message.body();
    let (interface, values, _): (&str, HashMap<&str, Variant<'_>>, Vec<&str>) = body.deserialize()?;
    take(values, raw);
    Ok(interface == UNIT)
}

/// Takes over the answer to [`read`].
pub(super) fn all(message: &Message, raw: &mut Raw) -> Result<(), Error> {
    take(message.body().deserialize()?, raw);
    Ok(())
}

/// The same answer, read for how the unit is connected to the journal.
pub(super) fn facts(message: &Message) -> Result<Facts, Error> {
    let body = message.body();
    let values: HashMap<&str, Variant<'_>> = body.deserialize()?;
    let mut facts = Facts::default();
    for (name, value) in &values {
        facts.set(name, value);
    }
    Ok(facts)
}

fn take(values: HashMap<&str, Variant<'_>>, raw: &mut Raw) {
    for (name, value) in &values {
        raw.set(name, value);
    }
}

/// One line of the answer to [`list`].
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Listed {
    pub(super) load: String,
    pub(super) active: String,
    pub(super) sub: String,
    pub(super) job: u32,
}

impl Listed {
    /// Somebody has stopped it. One that there never was is no door.
    pub(super) fn shut(&self) -> bool {
        self.load != "not-found" && matches!(self.active.as_str(), "inactive" | "failed")
    }
}

/// The answer to [`list`] or [`door`], in the order of the question.
pub(super) fn listed(message: &Message) -> Result<Vec<Listed>, Error> {
    type Line<'a> =
        (&'a str, &'a str, &'a str, &'a str, &'a str, &'a str, ObjectPath<'a>, u32, &'a str, ObjectPath<'a>);
    let body = message.body();
    let lines: Vec<Line<'_>> = body.deserialize()?;
    Ok(lines
        .into_iter()
        .map(|(_, _, load, active, sub, _, _, job, ..)| Listed {
            load: load.to_owned(),
            active: active.to_owned(),
            sub: sub.to_owned(),
            job,
        })
        .collect())
}

/// A text in a variant, the answer to [`system_state`].
pub(super) fn text(message: &Message) -> Result<String, Error> {
    let body = message.body();
    let value: Variant<'_> = body.deserialize()?;
    value.text().map(str::to_owned).ok_or(Error::IncorrectType)
}

/// A number in a variant, the answer to [`watchdog`].
pub(super) fn number(message: &Message) -> Result<u64, Error> {
    let body = message.body();
    let value: Variant<'_> = body.deserialize()?;
    value.number().ok_or(Error::IncorrectType)
}

/// The path of a job: the answer to whatever makes one.
pub(super) fn job(message: &Message) -> Result<String, Error> {
    let body = message.body();
    let path: ObjectPath<'_> = body.deserialize()?;
    Ok(path.as_str().to_owned())
}

#[cfg(test)]
mod tests;
