//! When keyholder keeps its hands off, or waits: stops that nobody declared, holds, units that systemd or an operator is
//! busy with, and units that cannot be started.

use std::time::Duration;

use crate::harness::{Lab, service, wait};
use crate::scene::{SECOND, Stream, all_along, house, monotonic_us};

/// How much later than due a repair may come on a busy machine.
const LATE: Duration = Duration::from_millis(700);

const WORKERS: &str = "
    stopped:   { unit: stopped.service, undeclared_stop: 2s }
    byhand:    { unit: byhand.service, undeclared_stop: 2s }
    survives:  { unit: survives.service }
    heldhere:  { unit: heldhere.service }
    heldthere: { unit: heldthere.service }
    released:  { unit: released.service }
    oneshot:   { unit: oneshot.service }
    reloads:   { unit: reloads.service }
    slow:      { unit: slow.service }
    auto:      { unit: auto.service }
    operated:  { unit: operated.service }
    ghost:     { unit: ghost.service }
    masked:    { unit: masked.service }
    refuses:   { unit: refuses.service }
";

fn units() -> Vec<(&'static str, String)> {
    let oneshot = "[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=/bin/true\n";
    let reloads = "[Service]\nType=notify\nNotifyAccess=all\nExecReload=/bin/sleep 1.5\n\
        ExecStart=/bin/sh -c 'systemd-notify --ready; exec sleep infinity'\n";
    let refuses = "# not started\n[Unit]\nRefuseManualStart=yes\n[Service]\nExecStart=/bin/sleep infinity\n";
    units.extend([
        ("oneshot.service", oneshot.to_owned()),
        ("reloads.service", reloads.to_owned()),
        ("slow.service", service("ExecStartPre=/bin/sleep 1.5\nExecStop=/bin/sleep 0.5")),
        ("auto.service", service("Restart=always\nRestartSec=2")),
        ("masked.service", service("# not started")),
        ("refuses.service", refuses.to_owned()),
    ]);
    units
}
