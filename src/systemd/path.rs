//! Where a unit lives on the bus.

use std::fmt::Write;

use crate::vocabulary::UnitName;

/// The parent of every unit's object.
pub(super) const UNITS: &str = "/org/freedesktop/systemd1/unit";

/// The object path of a unit, by systemd's own escaping (`bus_label_escape` in its source): all but letters and
/// digits, and a digit in front, become `_xx`. Computed, because asking costs a call per unit.
pub(super) fn of(unit: &UnitName) -> String {
    of_name(unit.as_str())
}

/// The same for a unit of any type, as systemd names it.
pub(super) fn of_name(unit: &str) -> String {
    let mut path = String::with_capacity(UNITS.len() + 1 + unit.len() * 2);
    path.push_str(UNITS);
    path.push('/');
    for (at, byte) in unit.bytes().enumerate() {
        if byte.is_ascii_alphabetic() || (at > 0 && byte.is_ascii_digit()) {
            path.push(char::from(byte));
        } else {
            // Writing to a String does not fail.
            let _ = write!(path, "_{byte:02x}");
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_escaped_as_systemd_does() {
        // Read with `busctl call … LoadUnit` on systemd 252.
        for (unit, path) in [
            ("w.service", "w_2eservice"),
            ("keyholder-lane-write.service", "keyholder_2dlane_2dwrite_2eservice"),
            ("9to5@a\\x2db:c_d.service", "_39to5_40a_5cx2db_3ac_5fd_2eservice"),
        ] {
            assert_eq!(of(&unit.parse().unwrap()), format!("{UNITS}/{path}"));
        }
    }
}
