//! What is known of each watched unit, and what has yet to be told about it.

use std::collections::{BTreeMap, HashMap, VecDeque};

use super::raw::Raw;
use super::ties;
use super::{BusState, HostState, SystemdEvent, path};
use crate::judge::Observation;
use crate::vocabulary::{InvocationId, UnitName};

/// One watched unit.
#[derive(Debug, Default)]
struct Entry {
    /// The last known properties; none until the first answer.
    raw: Option<Raw>,
    /// Where its signals come from; another place than its name says if the name is an alias.
    path: String,
    /// The run whose start was called off. It outlives the connection, which the properties of the unit do not.
    called_off: Option<Option<InvocationId>>,
    /// What was told last.
    told: Option<Observation>,
    /// What is to be told next.
    next: Option<Observation>,
    /// The next is to be told even if it is no news, because somebody asked.
    asked: bool,
    /// The units that it hangs together with, as they were looked at when it went down.
    others: HashMap<String, Raw>,
    /// How many of them are still to be looked at before the unit's state is told, …
    awaited: usize,
    /// … and whether something has changed meanwhile.
    again: bool,
}

impl Entry {
    fn news(&self, observation: &Observation) -> bool {
        self.asked
            || match (&self.told, observation) {
                // The reason may differ from one attempt to the next without anything having changed.
                (Some(Observation::Failed(_)), Observation::Failed(_)) => false,
                (told, new) => told.as_ref() != Some(new),
            }
    }
}

/// The watched units, and the news in the order in which they are to be told. It holds at most one piece of news per
/// unit: who listens too slowly gets the latest state, never an endless queue.
#[derive(Debug, Default)]
pub(super) struct Table {
    // Boxed: a node of the map keeps room for eleven, and is half full if the names come in order.
    entries: BTreeMap<UnitName, Box<Entry>>,
    by_path: HashMap<String, Vec<UnitName>>,
    news: VecDeque<UnitName>,
    /// For each unit that others hang together with, where its signals come from: those others.
    dependants: HashMap<String, Vec<UnitName>>,
    /// Which unit is to be looked at, and for which.
    to_look: VecDeque<(UnitName, String)>,
    bus: Option<BusState>,
    host: Option<HostState>,
    host_told: Option<HostState>,
    /// Whether the door is shut, as it is and as it was told last.
    door: bool,
    door_told: bool,
}

impl Table {
    /// Watches exactly `units` from here on; returns those that are new and those that are gone.
    pub(super) fn watch(&mut self, units: &[UnitName]) -> (Vec<UnitName>, Vec<UnitName>) {
        let gone: Vec<UnitName> =
            self.entries.keys().filter(|known| !units.contains(known)).cloned().collect();
        for unit in &gone {
            self.untie(unit);
            self.entries.remove(unit);
        }
        let mut new = Vec::new();
        for unit in units {
            if !self.entries.contains_key(unit) {
                let entry = Entry { path: path::of(unit), ..Entry::default() };
                self.entries.insert(unit.clone(), Box::new(entry));
                new.push(unit.clone());
            }
        }
        self.index();
        (new, gone)
    }

    fn index(&mut self) {
        self.by_path.clear();
        for (unit, entry) in &self.entries {
            self.by_path.entry(entry.path.clone()).or_default().push(unit.clone());
        }
    }

    pub(super) fn units(&self) -> Vec<UnitName> {
        self.entries.keys().cloned().collect()
    }

    pub(super) fn watches(&self, unit: &UnitName) -> bool {
        self.entries.contains_key(unit)
    }

    /// The watched units whose signals come from `path`: none, one, or several that are names of the same unit.
    pub(super) fn at(&self, path: &str) -> &[UnitName] {
        self.by_path.get(path).map_or(&[], Vec::as_slice)
    }

    pub(super) fn raw(&self, unit: &UnitName) -> Option<&Raw> {
        self.entries.get(unit)?.raw.as_ref()
    }

    /// The properties, to be changed by a signal. What is learnt this way is told by [`Table::publish`].
    pub(super) fn raw_mut(&mut self, unit: &UnitName) -> Option<&mut Raw> {
        self.entries.get_mut(unit)?.raw.as_mut()
    }

    /// Nothing that was known counts any more; what was told is remembered, so that the same is not told twice.
    pub(super) fn forget(&mut self) {
        for entry in self.entries.values_mut() {
            (entry.raw, entry.awaited, entry.again) = (None, 0, false);
        }
        self.to_look.clear();
        self.dependants.clear();
    }

    /// Takes a complete look over and tells it if it is news.
    pub(super) fn replace(&mut self, unit: &UnitName, raw: Raw) {
        let Some(entry) = self.entries.get_mut(unit) else { return };
        let proper = raw.id.parse::<UnitName>().map_or_else(|_| path::of(unit), |id| path::of(&id));
        let moved = entry.path != proper;
        entry.path = proper;
        let mut raw = match &entry.raw {
            Some(known) if raw.forgotten(known) => raw.remembering(known),
            Some(_) | None => raw,
        };
        raw.called_off = entry.called_off == Some(raw.invocation);
        let tied = entry.raw.as_ref().is_none_or(|known| known.ties != raw.ties);
        if tied {
            self.untie(unit);
            for other in raw.ties.units() {
                self.dependants.entry(path::of_name(&other)).or_default().push(unit.clone());
            }
        }
        let Some(entry) = self.entries.get_mut(unit) else { return };
        entry.raw = Some(raw);
        if moved {
            self.index();
        }
        self.publish(unit);
    }

    /// A job of the unit was cancelled. If the unit is not up, that was its start: an order to stop it does that, and so does
    /// one to start what conflicts with it.
    pub(super) fn called_off(&mut self, unit: &UnitName) {
        if let Some(entry) = self.entries.get_mut(unit)
            && let Some(raw) = entry.raw.as_mut().filter(|raw| !raw.up() && raw.active != "deactivating")
        {
            entry.called_off = Some(raw.invocation);
            raw.called_off = true;
            self.publish(unit);
        }
    }

    /// Tells the unit's state if it is news or was asked for.
    ///
    /// Of a unit that is down it is not told before the units that it hangs together with were looked at: how it came to be
    /// down may be their doing. PID 1 answers in the order in which it is asked, so that what it says of them is not older.
    pub(super) fn publish(&mut self, unit: &UnitName) {
        let Some(entry) = self.entries.get_mut(unit) else { return };
        let Some(raw) = &entry.raw else { return };
        let wanted = ties::wanted(raw);
        if wanted.is_empty() {
            entry.others.clear();
            self.tell_unit(unit);
        } else if entry.awaited > 0 {
            entry.again = true;
        } else {
            entry.awaited = wanted.len();
            entry.others.clear();
            self.to_look.extend(wanted.into_iter().map(|other| (unit.clone(), other)));
        }
    }

    fn tell_unit(&mut self, unit: &UnitName) {
        let Some(entry) = self.entries.get(unit) else { return };
        let Some(raw) = &entry.raw else { return };
        let mut snapshot = raw.snapshot();
        snapshot.context.others = ties::others(raw, &entry.others);
        self.tell(unit, Observation::Unit(snapshot));
    }

    /// The next unit to be looked at for another, and that other.
    pub(super) fn next_to_look(&mut self) -> Option<(UnitName, String)> {
        self.to_look.pop_front()
    }

    /// Takes in how it is with a unit that `unit` hangs together with; none if that could not be read.
    pub(super) fn looked(&mut self, unit: &UnitName, other: String, raw: Option<Raw>) {
        let Some(entry) = self.entries.get_mut(unit) else { return };
        entry.awaited = entry.awaited.saturating_sub(1);
        if let Some(raw) = raw {
            entry.others.insert(other, raw);
        }
        if entry.awaited > 0 {
            return;
        }
        let again = std::mem::take(&mut entry.again);
        self.tell_unit(unit);
        if again {
            self.publish(unit);
        }
    }

    /// A unit has changed, or its jobs have: those that are down and hang together with it are looked at again.
    pub(super) fn other_changed(&mut self, path: &str) {
        let Some(units) = self.dependants.get(path) else { return };
        for unit in units.clone() {
            if self.raw(&unit).is_some_and(|raw| !ties::wanted(raw).is_empty()) {
                self.publish(&unit);
            }
        }
    }

    fn untie(&mut self, unit: &UnitName) {
        let Some(raw) = self.entries.get(unit).and_then(|entry| entry.raw.as_ref()) else { return };
        for other in raw.ties.units() {
            let path = path::of_name(&other);
            if let Some(units) = self.dependants.get_mut(&path) {
                units.retain(|known| known != unit);
                if units.is_empty() {
                    self.dependants.remove(&path);
                }
            }
        }
    }

    /// Says that the unit could not be observed. What was known of it counts no more.
    pub(super) fn failed(&mut self, unit: &UnitName, why: &str) {
        self.untie(unit);
        if let Some(entry) = self.entries.get_mut(unit) {
            entry.raw = None;
        }
        self.tell(unit, Observation::Failed(why.to_owned()));
    }

    fn tell(&mut self, unit: &UnitName, observation: Observation) {
        let Some(entry) = self.entries.get_mut(unit) else { return };
        if entry.next.is_none() && !entry.news(&observation) {
            return;
        }
        if entry.next.replace(observation).is_none() {
            self.news.push_back(unit.clone());
        }
    }

    /// Makes the next look at the unit be told in any case.
    pub(super) fn ask(&mut self, unit: &UnitName) {
        if let Some(entry) = self.entries.get_mut(unit) {
            entry.asked = true;
        }
    }

    pub(super) fn tell_bus(&mut self, state: BusState) {
        self.bus = Some(state);
    }

    pub(super) fn tell_host(&mut self, state: HostState) {
        self.host = (self.host_told != Some(state)).then_some(state);
    }

    pub(super) fn tell_door(&mut self, shut: bool) {
        self.door = shut;
    }

    /// What is known of the host, told or not.
    pub(super) fn host(&self) -> Option<HostState> {
        self.host.or(self.host_told)
    }

    pub(super) fn has_news(&self) -> bool {
        !self.news.is_empty() || self.bus.is_some() || self.host.is_some() || self.door != self.door_told
    }

    /// Takes the next piece of news out; from then on it counts as told.
    pub(super) fn next_news(&mut self) -> Option<SystemdEvent> {
        if let Some(state) = self.bus.take() {
            return Some(SystemdEvent::Bus(state));
        }
        if let Some(state) = self.host.take() {
            self.host_told = Some(state);
            return Some(SystemdEvent::Host(state));
        }
        if self.door != self.door_told {
            self.door_told = self.door;
            return Some(SystemdEvent::Door { shut: self.door });
        }
        while let Some(unit) = self.news.pop_front() {
            let Some(entry) = self.entries.get_mut(&unit) else { continue };
            let Some(observation) = entry.next.take().filter(|next| entry.news(next)) else { continue };
            entry.asked = false;
            entry.told = Some(observation.clone());
            return Some(SystemdEvent::Observed { unit, observation });
        }
        None
    }
}

#[cfg(test)]
mod tests;
