//! What sudo gives in the write lane, and the way to more.

use super::{MARS, errors, lines, load, with};

fn warned(text: &str) -> Vec<String> {
    lines(&load(text).unwrap().warnings)
}

const RESTART: &str = "/usr/bin/systemctl, restart, \"{unit}\"";

#[test]
fn what_needs_more_than_the_lane_has_is_run_by_pid_1() {
    let [warning] = <[_; 1]>::try_from(warned(&with(RESTART, "/usr/bin/chmod, 600, \"{unit}\""))).unwrap();
    assert!(
        warning.contains("`chmod` gets little from sudo here")
            && warning.contains("--pipe, --wait, --collect")
    );
    let by_pid1 = |options: &str| {
        with(RESTART, &format!("/usr/bin/systemd-run, {options}/usr/bin/chmod, 600, \"{{unit}}\""))
    };
    assert_eq!(warned(&by_pid1("--quiet, --pipe, --wait, --property=RuntimeMaxSec=90, ")), [""; 0]);
    let [forgotten, endless] = <[_; 2]>::try_from(warned(&by_pid1("--pipe, "))).unwrap();
    assert!(
        forgotten.contains("nobody waits") && endless.contains("RuntimeMaxSec"),
        "{forgotten}\n{endless}"
    );
    // The example does it so.
    assert_eq!(warned(MARS), [""; 0]);
}

#[test]
fn pid_1_is_no_way_around_what_is_refused_otherwise() {
    for (command, why) in [
        ("/usr/bin/systemd-run, --wait, /bin/sh, -c, \"{unit}\"", "`sh` runs whatever its arguments say"),
        ("/usr/bin/systemd-run, --wait, \"{unit}\"", "a parameter cannot choose the program"),
        ("/usr/bin/systemd-run, -p, \"{unit}\", /bin/true", "this path is not absolute"),
        ("/usr/bin/systemd-run, --wait, /usr/bin/sudo, \"{unit}\"", "`sudo` is a way to other rights"),
    ] {
        let found = errors(&with(RESTART, command));
        assert!(found.iter().any(|line| line.contains(why)), "{command}: {found:?}");
    }
    let nothing = with(
        "/usr/bin/systemctl, restart, \"{unit}\"]\n    params: { unit: { enum: [a.service] } }",
        "/usr/bin/systemd-run, --wait]",
    );
    assert!(errors(&nothing).concat().contains("systemd-run has no command"), "{:?}", errors(&nothing));
}
