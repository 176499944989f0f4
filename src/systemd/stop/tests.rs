//! What systemd 252 (Debian 12) said in a real node after each of these was done to a unit that something else kept
//! loaded.

use super::*;
use crate::judge::StopCause::{ByItself, Never, Ordered};

/// Name, ActiveState/SubState/Result, ExecMainCode, ExecMainStatus, then the monotonic times InactiveExit, ActiveEnter,
/// ActiveExit, ExecMainExit; RemainAfterExit, RuntimeMaxUSec (0: no limit) and what the stop was.
type Row = (&'static str, &'static str, i32, i32, [u64; 4], bool, u64, StopCause);

#[rustfmt::skip]
const RECORDED: &[Row] = &[
    ("stop", "inactive/dead/success", 2, 15, [1607292474, 1607292474, 1607497858, 1607498260], false, 0, Ordered),
    ("kill", "failed/failed/signal", 2, 9, [1607520442, 1607520442, 1607725870, 1607725690], false, 0, ByItself),
    ("kill-reset-failed", "inactive/dead/success", 2, 9, [1607520442, 1607520442, 1607725870, 1607725690], false, 0, ByItself),
    ("kill-term", "inactive/dead/success", 2, 15, [1607952536, 1607952536, 1608158608, 1608158487], false, 0, ByItself),
    ("autorestart", "activating/auto-restart/signal", 2, 9, [1608575450, 1608369063, 1608575098, 1608574898], false, 0, ByItself),
    ("autorestart-stop", "inactive/dead/signal", 2, 9, [1608575450, 1608369063, 1608575098, 1608574898], false, 0, Ordered),
    ("exit0", "inactive/dead/success", 1, 0, [1608812425, 1608812425, 1609115683, 1609115421], false, 0, ByItself),
    ("exit1", "failed/failed/exit-code", 1, 1, [1609544423, 1609544423, 1609846734, 1609846557], false, 0, ByItself),
    ("ign-stop", "failed/failed/timeout", 2, 9, [1610272412, 1610272412, 1610578243, 1611642689], false, 0, Ordered),
    ("ign-stopping", "deactivating/stop-sigterm/success", 0, 0, [1611660492, 1611660492, 1611966766, 0], false, 0, Ordered),
    ("term3-stop", "failed/failed/exit-code", 1, 3, [1613292342, 1613292342, 1613597272, 1613597559], false, 0, Ordered),
    ("one-active", "active/exited/success", 1, 0, [1613620512, 1613621119, 0, 1613621023], true, 0, Never),
    ("one-stop", "inactive/dead/success", 1, 0, [1613620512, 1613621119, 1613630640, 1613621023], true, 0, Ordered),
    ("onend", "inactive/dead/success", 1, 0, [1613638604, 0, 0, 1613639490], false, 0, ByItself),
    ("missing", "failed/failed/exit-code", 1, 203, [1613650192, 1613650192, 1613650568, 1613650450], false, 0, ByItself),
    ("pre", "failed/failed/exit-code", 0, 0, [1613972270, 0, 0, 0], false, 0, ByItself),
    ("rae-exited", "active/exited/success", 1, 0, [1613990429, 1613990429, 0, 1614293256], true, 0, Never),
    ("rae-stop", "inactive/dead/success", 1, 0, [1613990429, 1613990429, 1614601374, 1614293256], true, 0, Ordered),
    ("cond", "inactive/dead/success", 0, 0, [0, 0, 0, 0], false, 0, Never),
    ("wd", "failed/failed/watchdog", 2, 6, [1614632315, 1614632315, 1615641853, 1615642178], false, 0, ByItself),
    ("rmax", "failed/failed/timeout", 2, 15, [1616361288, 1616361288, 1617391712, 1617392119], false, 1000000, ByItself),
    ("rmax-stop", "inactive/dead/success", 2, 15, [1617892403, 1617892403, 1618097655, 1618097782], false, 1000000, Ordered),
    ("slow-run", "active/running/success", 0, 0, [1618117197, 1619122055, 0, 0], false, 0, Never),
    ("slow-kill", "failed/failed/signal", 2, 9, [1618117197, 1619122055, 1619132750, 1619132639], false, 0, ByItself),
    ("slow-starting", "activating/start/success", 0, 0, [1619364531, 1619122055, 1619132750, 0], false, 0, Never),
    ("slow-stopped-starting", "inactive/dead/success", 2, 15, [1619364531, 1619122055, 1619132750, 1619674169], false, 0, Ordered),
    ("slow-killed-starting", "failed/failed/signal", 2, 9, [1619689116, 1619122055, 1619132750, 1619994069], false, 0, ByItself),
    ("never", "failed/failed/timeout", 2, 15, [1620112315, 0, 0, 1622142016], false, 0, ByItself),
    ("lim", "failed/failed/exit-code", 1, 1, [1622166447, 1622165333, 1622166182, 1622166018], false, 0, ByItself),
    ("stop-reload", "inactive/dead/success", 2, 15, [1622992419, 1622992419, 1623198834, 1623199343], false, 0, Ordered),
    ("kill-reexec", "failed/failed/signal", 2, 9, [1623292484, 1623292484, 1623499591, 1623498791], false, 0, ByItself),
    ("forky-stop", "inactive/dead/success", 0, 0, [1626404417, 1626405837, 1626511252, 0], false, 0, Ordered),
    ("rae1", "failed/failed/exit-code", 1, 4, [1626856503, 1626856503, 1627158505, 1627158346], true, 0, ByItself),
    ("quick-limit-after-stop", "failed/failed/start-limit-hit", 2, 15, [1627589755, 1627589755, 1627593462, 1627593630], false, 0, ByItself),
    ("restarted", "active/running/success", 0, 0, [1627724459, 1627724459, 1627713320, 0], false, 0, Never),
];

fn raw(row: &Row) -> Raw {
    let (_, states, main_code, main_status, [inactive_exit, active_enter, active_exit, main_exit], ..) = *row;
    let mut states = states.split('/').map(str::to_owned);
    Raw {
        active: states.next().unwrap(),
        sub: states.next().unwrap(),
        result: states.next().unwrap(),
        main_code,
        main_status,
        inactive_exit,
        active_enter,
        active_exit,
        main_exit,
        remain_after_exit: row.5,
        runtime_max: row.6,
        ..Raw::default()
    }
}

#[test]
fn the_cause_of_every_recorded_stop_is_told() {
    for row in RECORDED {
        assert_eq!(cause(&raw(row)), row.7, "{}", row.0);
    }
}

#[test]
fn an_end_is_told_in_words() {
    let told = |name| exit(&raw(RECORDED.iter().find(|row| row.0 == name).unwrap()));
    assert_eq!(told("kill").unwrap(), "signal 9 (KILL)");
    assert_eq!(told("exit1").unwrap(), "exit code 1");
    assert_eq!(told("missing").unwrap(), "exit code 203 (the command could not be executed)");
    assert_eq!(told("restarted"), None);
    let dumped = Raw { main_exit: 1, main_code: DUMPED, main_status: 11, ..Raw::default() };
    assert_eq!(exit(&dumped).unwrap(), "signal 11 (SEGV), core dumped");
    let realtime = Raw { main_exit: 1, main_code: KILLED, main_status: 35, ..Raw::default() };
    assert_eq!(exit(&realtime).unwrap(), "signal 35");
}
