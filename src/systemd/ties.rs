//! The other units that a unit hangs together with, and what of their state matters to its own.

use std::collections::HashMap;

use super::raw::Raw;
use super::stop;
use crate::judge::{Other, Standing, StopCause, Tie};

/// How many other units are looked at for one. A unit that hangs together with more is judged by these.
const MOST: usize = 16;
/// Everything hangs together with these, and they say nothing of a single unit.
const COMMON: [&str; 6] =
    ["-.mount", "basic.target", "local-fs.target", "shutdown.target", "sysinit.target", "umount.target"];

/// The properties that name other units, and what they mean.
const PROPERTIES: [(&str, Tie); 10] = [
    ("Conflicts", Tie::Conflicts),
    ("ConflictedBy", Tie::Conflicts),
    ("BindsTo", Tie::Needs),
    ("Requires", Tie::Needs),
    ("Requisite", Tie::Needs),
    ("PartOf", Tie::PartOf),
    ("TriggeredBy", Tie::Trigger),
    ("UpheldBy", Tie::UpheldBy),
    ("ConsistsOf", Tie::Instance),
    ("BoundBy", Tie::Instance),
];

/// The names of other units, by the place in [`PROPERTIES`] of the property that has them. Most units have none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Ties(Vec<(usize, Vec<String>)>);

impl Ties {
    /// Takes a property over, if it is one of these.
    pub(super) fn set(&mut self, name: &str, units: Option<Vec<String>>) {
        let Some(place) = PROPERTIES.iter().position(|(known, _)| *known == name) else { return };
        let Some(mut units) = units else { return };
        units.retain(|unit| !COMMON.contains(&unit.as_str()) && !unit.ends_with(".slice"));
        self.0.retain(|(known, _)| *known != place);
        if !units.is_empty() {
            let before = self.0.partition_point(|(known, _)| *known < place);
            self.0.insert(before, (place, units));
        }
    }

    fn all(&self) -> impl Iterator<Item = (&'static str, Tie, &String)> {
        self.0
            .iter()
            .filter_map(|(place, units)| Some((PROPERTIES.get(*place)?, units)))
            .flat_map(|((name, tie), units)| units.iter().map(move |unit| (*name, *tie, unit)))
    }

    /// Every other unit, each once, at most [`MOST`].
    pub(super) fn units(&self) -> Vec<String> {
        let mut units = Vec::new();
        for (_, _, unit) in self.all() {
            if units.len() < MOST && !units.contains(unit) {
                units.push(unit.clone());
            }
        }
        units
    }
}

/// The units to be looked at before it can be said how it is with this one: none, if it runs.
pub(super) fn wanted(raw: &Raw) -> Vec<String> {
    let hollow = raw.up() && raw.sub == "exited";
    if raw.down() || hollow { raw.ties.units() } else { Vec::new() }
}

/// What of the others' state matters to the unit's own.
pub(super) fn others(raw: &Raw, known: &HashMap<String, Raw>) -> Vec<Other> {
    let ordered = stop::cause(raw) == StopCause::Ordered;
    let mut others: Vec<Other> = Vec::new();
    for (property, tie, unit) in raw.ties.all() {
        let Some(other) = known.get(unit) else { continue };
        let standing = match (tie, standing(other)) {
            // Its stop may be queued behind that of this unit, which is passed on to this one first.
            (Tie::Needs | Tie::PartOf, Standing::Up) if ordered && other.job != 0 => Standing::Busy,
            (Tie::Conflicts, Standing::Up) if other.job != 0 => Standing::Busy,
            (_, standing) => standing,
        };
        let went_down = other.active_exit.max(other.inactive_exit) > raw.inactive_exit;
        let matters = match (tie, standing) {
            (Tie::Conflicts, Standing::Up | Standing::Busy) => raw.down(),
            (Tie::Needs, Standing::Busy) => raw.down(),
            // A unit that this one only needs at its start may have done its work and be down (a oneshot).
            (Tie::Needs, Standing::Failed) => raw.down(),
            (Tie::Needs, Standing::Down) => {
                raw.down()
                    && (property == "BindsTo" || other.active == "failed" || went_down || !startable(other))
            }
            // Only a stop is passed on to what is part of a unit.
            (Tie::PartOf, Standing::Busy) => raw.down() && ordered,
            (Tie::PartOf, Standing::Down | Standing::Failed) => raw.down() && ordered && went_down,
            (Tie::Trigger, _) => raw.down(),
            (Tie::UpheldBy, Standing::Up) => raw.down(),
            (Tie::Instance, Standing::Up) => raw.up(),
            (Tie::Conflicts, Standing::Down | Standing::Failed)
            | (Tie::Needs | Tie::PartOf, Standing::Up)
            | (Tie::UpheldBy | Tie::Instance, Standing::Busy | Standing::Down | Standing::Failed) => false,
        };
        if matters && !others.iter().any(|known| known.tie == tie && known.unit == *unit) {
            let why = words(other, standing);
            others.push(Other { unit: unit.clone(), tie, standing, why, ours: false });
        }
    }
    others
}

fn startable(raw: &Raw) -> bool {
    !matches!(raw.load.as_str(), "not-found" | "masked" | "bad-setting" | "error")
}

fn standing(raw: &Raw) -> Standing {
    if raw.up() {
        Standing::Up
    } else if !startable(raw) || (raw.down() && raw.active == "failed") {
        Standing::Failed
    } else if raw.down() {
        Standing::Down
    } else {
        Standing::Busy
    }
}

fn words(raw: &Raw, standing: Standing) -> String {
    match standing {
        Standing::Up => "runs".to_owned(),
        Standing::Busy if raw.sub.starts_with("auto-restart") => {
            "failed and is restarted by systemd".to_owned()
        }
        Standing::Busy => "is starting or stopping".to_owned(),
        Standing::Failed if !startable(raw) => format!("systemd cannot start ({})", raw.load),
        Standing::Failed => {
            let how = stop::exit(raw).unwrap_or_else(|| raw.result.clone());
            format!("failed ({how})")
        }
        Standing::Down => "is stopped".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(active: &str, [inactive_exit, active_enter, active_exit]: [u64; 3]) -> Raw {
        Raw {
            load: "loaded".to_owned(),
            active: active.to_owned(),
            sub: "x".to_owned(),
            result: "success".to_owned(),
            inactive_exit,
            active_enter,
            active_exit,
            ..Raw::default()
        }
    }

    fn tied(mut raw: Raw, property: &str) -> Raw {
        raw.ties.set(property, Some(vec!["db.service".to_owned(), "system.slice".to_owned()]));
        raw
    }

    fn seen(raw: &Raw, db: Raw) -> Option<(Tie, Standing, String)> {
        let known = HashMap::from([("db.service".to_owned(), db)]);
        others(raw, &known).into_iter().next().map(|other| (other.tie, other.standing, other.why))
    }

    /// The times are those that systemd 252 gave in the lab, in milliseconds.
    #[test]
    fn the_unit_that_took_another_down_is_found_and_one_that_has_done_its_work_is_not() {
        // `systemctl stop db`: what needs it goes first. `systemctl kill db`: what is bound to it goes after it.
        let stopped = raw("inactive", [49_171, 49_171, 49_188]);
        let db = raw("inactive", [49_169, 49_169, 49_196]);
        for property in ["Requires", "BindsTo", "Requisite", "PartOf"] {
            let (_, standing, why) = seen(&tied(stopped.clone(), property), db.clone()).unwrap();
            assert_eq!((standing, why.as_str()), (Standing::Down, "is stopped"), "{property}");
        }
        let failed =
            Raw { main_exit: 1, main_code: 2, main_status: 9, ..raw("failed", [48_637, 48_637, 48_661]) };
        let (_, _, why) = seen(&tied(stopped.clone(), "BindsTo"), failed).unwrap();
        assert_eq!(why, "failed (signal 9 (KILL))");
        // A oneshot that prepared something, before this one ever ran, and that never was active.
        let prepared = raw("inactive", [49_100, 0, 0]);
        assert_eq!(seen(&tied(stopped.clone(), "Requires"), prepared.clone()), None);
        assert_eq!(seen(&tied(stopped.clone(), "PartOf"), prepared), None);
        // Its own stop waits until those that need it have stopped.
        let stopping = Raw { job: 7, ..raw("active", [49_169, 49_169, 0]) };
        for property in ["Requires", "PartOf"] {
            let (_, standing, _) = seen(&tied(stopped.clone(), property), stopping.clone()).unwrap();
            assert_eq!(standing, Standing::Busy, "{property}");
        }
        // One that runs takes nobody down, and who runs has no cause.
        assert_eq!(seen(&tied(stopped, "Requires"), raw("active", [1, 1, 0])), None);
        let running = tied(raw("active", [49_171, 49_171, 0]), "Requires");
        assert_eq!((seen(&running, db), wanted(&running)), (None, Vec::new()));
    }

    #[test]
    fn what_conflicts_counts_as_soon_as_it_is_on_its_way() {
        let blue = tied(raw("inactive", [1, 1, 2]), "ConflictedBy");
        assert_eq!(wanted(&blue), ["db.service"], "slices say nothing");
        let standing = |green| seen(&blue, green).map(|(_, standing, _)| standing);
        assert_eq!(standing(raw("active", [3, 3, 0])), Some(Standing::Up));
        assert_eq!(standing(Raw { job: 7, ..raw("inactive", [0, 0, 0]) }), Some(Standing::Busy));
        assert_eq!(standing(raw("inactive", [0, 0, 0])), None);
    }
}
