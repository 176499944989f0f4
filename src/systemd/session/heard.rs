//! What a session hears: answers and signals.

use zbus::message::Type;
use zbus::{Error, Message};

use super::super::{act, path};
use super::*;

impl Session {
    pub(super) fn answer(&mut self, hub: &mut Hub, call: Call, message: &Message) -> Result<(), String> {
        let failed = (message.message_type() == Type::Error).then(|| error_text(message));
        // What was asked of a PID 1 that is gone is asked again of the next one; only orders have to know at once.
        if self.absent.is_some() && failed.is_some() && !matches!(call, Call::Restart(_) | Call::Act(_)) {
            return Ok(());
        }
        match (call, failed) {
            (Call::Setup, None) => Ok(()),
            (Call::Setup | Call::Owner | Call::List(_), Some(why)) => Err(why),
            (Call::Subscribe, why) => match why {
                // Somebody else's connection never counts as ours, so this is a repetition of our own.
                Some(why) if !why.contains("AlreadySubscribed") => Err(why),
                _ => {
                    self.ready(hub);
                    Ok(())
                }
            },
            (Call::Owner, None) => {
                self.owner = message.body().deserialize().map_err(|error| unreadable(&error))?;
                Ok(())
            }
            (Call::SystemState, None) => {
                let state = message::text(message).map_err(|error| unreadable(&error))?;
                hub.system_state(&state);
                Ok(())
            }
            (Call::SystemState, Some(why)) => {
                tracing::warn!(%why, "the host's state could not be read");
                Ok(())
            }
            (Call::Door, None) => {
                let listed = message::listed(message).map_err(|error| unreadable(&error))?;
                hub.table.tell_door(listed.first().is_some_and(message::Listed::shut));
                Ok(())
            }
            (Call::Door, Some(why)) => {
                tracing::warn!(%why, "whether PID 1 holds the door could not be read");
                Ok(())
            }
            (Call::List(units), None) => {
                self.compare(hub, &units, message).map_err(|error| unreadable(&error))
            }
            (Call::Read(unit), failed) => {
                self.read(hub, &unit, message, failed);
                Ok(())
            }
            (Call::Other(unit, other), failed) => {
                self.others = self.others.saturating_sub(1);
                let mut raw = Raw::default();
                let read = failed.is_none() && message::all(message, &mut raw).is_ok() && raw.complete();
                hub.table.looked(&unit, other, read.then_some(raw));
                Ok(())
            }
            (Call::Restart(id), failed) => self.restart_answered(hub, id, message, failed.is_some()),
            (Call::Act(id), failed) => {
                self.act_answered(id, message, failed.is_some());
                Ok(())
            }
            (Call::ActRead(id), failed) => {
                self.act_read(id, message, failed.is_some());
                Ok(())
            }
            (Call::Host(reply), None) => {
                let state = message::text(message).map_err(|error| unreadable(&error))?;
                hub.system_state(&state);
                let known = hub.table.host().ok_or_else(|| format!("systemd calls it {state:?}"));
                let _ = reply.send(known);
                Ok(())
            }
            (Call::Host(reply), Some(why)) => {
                let _ = reply.send(Err(why));
                Ok(())
            }
            (Call::Watchdog(reply), failed) => {
                let read = || message::number(message).map_err(|error| unreadable(&error));
                // Whoever asked may have given up.
                let _ = reply.send(failed.map_or_else(read, Err));
                Ok(())
            }
            (Call::Facts(reply), failed) => {
                let read = || message::facts(message).map_err(|error| unreadable(&error));
                // Whoever asked may have given up.
                let _ = reply.send(failed.map_or_else(read, Err));
                Ok(())
            }
        }
    }

    /// PID 1 is heard: everything is looked at.
    fn ready(&mut self, hub: &mut Hub) {
        hub.connected();
        self.watch(hub);
        // Units that were watched before this connection are not new to the table, but to PID 1.
        for unit in hub.table.units() {
            if !self.to_read.contains(&unit) {
                self.pin_and_read(&unit);
            }
        }
    }

    fn read(&mut self, hub: &mut Hub, unit: &UnitName, message: &Message, failed: Option<String>) {
        self.reading.remove(unit);
        let mut raw = Raw::default();
        let failed = failed.or_else(|| message::all(message, &mut raw).err().map(|error| unreadable(&error)));
        match failed {
            Some(why) => hub.table.failed(unit, &why),
            None if !raw.complete() => hub.table.failed(unit, "systemd did not tell the unit's state"),
            None => {
                hub.table.replace(unit, raw);
                self.each_order(hub, |order, raw| match raw {
                    Some(raw) if order.unit == *unit => order.looked(raw),
                    _ => Next::Wait,
                });
            }
        }
        if self.again.remove(unit) {
            self.want(unit);
        }
    }

    fn restart_answered(
        &mut self,
        hub: &Hub,
        id: u64,
        message: &Message,
        failed: bool,
    ) -> Result<(), String> {
        let job = match failed {
            true => None,
            false => Some(message::job(message).map_err(|error| unreadable(&error))?),
        };
        let mut look = None;
        if let Some(at) = self.orders.iter().position(|(own, _)| *own == id)
            && let Some((_, order)) = self.orders.get_mut(at)
        {
            let raw = hub.table.raw(&order.unit);
            let next = match job {
                Some(job) => order.accepted(job, raw),
                None => order.refused(message, raw),
            };
            match next {
                Next::Wait => {}
                Next::Look => look = Some(order.unit.clone()),
                Next::Finished => drop(self.orders.remove(at)),
            }
        }
        if let Some(unit) = look {
            self.want(&unit);
        }
        Ok(())
    }

    /// Reads those units afresh of which PID 1 now says something else than is known.
    fn compare(&mut self, hub: &Hub, units: &[UnitName], message: &Message) -> Result<(), Error> {
        for (unit, listed) in units.iter().zip(message::listed(message)?) {
            let same = hub.table.raw(unit).is_some_and(|raw| {
                raw.load == listed.load
                    && raw.active == listed.active
                    && raw.sub == listed.sub
                    && raw.job == listed.job
            });
            if !same {
                self.want(unit);
            }
        }
        Ok(())
    }

    pub(super) fn signal(&mut self, hub: &mut Hub, message: &Message) -> Result<(), Broken> {
        let header = message.header();
        let (Some(sender), Some(interface), Some(member)) =
            (header.sender(), header.interface(), header.member())
        else {
            return Ok(());
        };
        if sender.as_str() == BUS {
            // The bus's own name cannot be taken by anybody.
            if interface.as_str() == BUS && member.as_str() == "NameOwnerChanged" {
                return self.owner_changed(message);
            }
            return Ok(());
        }
        if sender.as_str() != self.owner {
            return Ok(());
        }
        let heard = match (interface.as_str(), member.as_str()) {
            (PROPERTIES, "PropertiesChanged") => {
                let path = header.path().map_or("", |path| path.as_str());
                self.changed(hub, path, message);
                hub.table.other_changed(path);
                self.each_act(|_, act| if act.path == path { act.changed(message) } else { act::Next::Wait });
                Ok(())
            }
            (MANAGER, "JobRemoved") => self.job_removed(hub, message),
            (MANAGER, "JobNew") => message.body().deserialize().map(|body| {
                let (_, _, unit): (u32, zbus::ObjectPath<'_>, &str) = body;
                hub.table.other_changed(&path::of_name(unit));
                if unit == SHUTDOWN {
                    hub.table.tell_host(HostState::Stopping);
                }
            }),
            (MANAGER, "UnitNew") => message.body().deserialize().map(|body| {
                // For the first change after a unit was loaded PID 1 sends this instead of the change itself.
                let (_, path): (&str, zbus::ObjectPath<'_>) = body;
                for unit in hub.table.at(path.as_str()).to_vec() {
                    self.want(&unit);
                }
                hub.table.other_changed(path.as_str());
            }),
            (MANAGER, "Reloading") => message.body().deserialize().map(|active: bool| {
                self.reloading = active;
                if !active {
                    // What never signals (LoadState, Restart=, …) may have changed, and names may point elsewhere.
                    self.want_all(hub);
                    self.send(message::system_state(), Some(Call::SystemState));
                }
            }),
            (MANAGER, "StartupFinished") => {
                self.send(message::system_state(), Some(Call::SystemState));
                Ok(())
            }
            _ => Ok(()),
        };
        heard.map_err(|error| unreadable(&error).into())
    }

    fn owner_changed(&mut self, message: &Message) -> Result<(), Broken> {
        let body = message.body();
        let (_, _, new): (&str, &str, &str) = body.deserialize().map_err(|error| unreadable(&error))?;
        // Before the first answer about the owner this is no news: that answer will be newer.
        if self.owner.is_empty() && self.absent.is_none() {
            return Ok(());
        }
        if !new.is_empty() {
            return Err(Broken::Renewed);
        }
        self.owner.clear();
        self.absent = Some(Instant::now() + ABSENCE);
        Ok(())
    }

    fn changed(&mut self, hub: &mut Hub, path: &str, message: &Message) {
        for unit in hub.table.at(path).to_vec() {
            // Before the first answer there is nothing to change; that answer will be newer than this signal.
            let Some(raw) = hub.table.raw_mut(&unit) else { continue };
            match message::changed(message, raw) {
                Ok(false) => {}
                Ok(true) => {
                    // A unit that was not usable and now moves has been loaded again without a reload.
                    let stale = raw.load != "loaded" || raw.unmet();
                    hub.table.publish(&unit);
                    if stale {
                        self.want(&unit);
                    }
                }
                Err(error) => {
                    tracing::warn!(%unit, %error, "a change could not be read; reading the unit instead");
                    self.want(&unit);
                }
            }
        }
    }

    fn job_removed(&mut self, hub: &mut Hub, message: &Message) -> Result<(), Error> {
        let body = message.body();
        let (id, job, unit, result): (u32, zbus::ObjectPath<'_>, &str, &str) = body.deserialize()?;
        if unit == SHUTDOWN && result != "done" {
            self.send(message::system_state(), Some(Call::SystemState));
        }
        hub.table.other_changed(&path::of_name(unit));
        // The unit's own signal says so a moment later; an order's outcome is not to show a job that has ended.
        if let Ok(unit) = unit.parse::<UnitName>() {
            for unit in hub.table.at(&path::of(&unit)).to_vec() {
                if result == "canceled" {
                    hub.table.called_off(&unit);
                }
                if let Some(raw) = hub.table.raw_mut(&unit)
                    && raw.job == id
                {
                    raw.job = 0;
                    hub.table.publish(&unit);
                }
            }
        }
        if !self.orders.is_empty() {
            self.each_order(hub, |order, raw| order.job_ended(job.as_str(), result, raw));
        }
        self.each_act(|_, act| act.job_ended(job.as_str(), result));
        Ok(())
    }
}

fn error_text(message: &Message) -> String {
    let name = message.header().error_name().map_or_else(String::new, |name| name.as_str().to_owned());
    let text = message.body().deserialize::<&str>().map_or_else(|_| String::new(), str::to_owned);
    super::super::systemctl::one_line(&format!("{name}: {text}"))
}
