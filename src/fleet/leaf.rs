//! The single values that only a fleet file has: units, pins, addresses. Each reports what is wrong with it and
//! then is left out.

use std::net::{IpAddr, SocketAddr};

use crate::config::report::{Located, Report};
use crate::config::walk;
use crate::config::yaml::Value;
use crate::vocabulary::{Pin, UnitName, Witness, printable};

/// A service unit.
pub(super) fn unit(report: &mut Report<'_>, given: &Located<String>) -> Option<Located<UnitName>> {
    let unit: UnitName = match given.value.parse::<UnitName>() {
        Ok(unit) => unit,
        Err(error) => {
            report.error(given.at, "this is no service unit", format!("expected {}", error.rule()));
            return None;
        }
    };
    if unit.as_str() == "keyholder.service" {
        report.error(
            given.at,
            "the supervisor looks after units, and is none of them",
            "take it out: systemd restarts the supervisor, and a peer's knock starts it",
        );
        return None;
    }
    Some(Located { at: given.at, value: unit })
}

/// A pin.
pub(super) fn pin(report: &mut Report<'_>, given: &Located<String>) -> Option<Pin> {
    let pin = given.value.parse().ok();
    if pin.is_none() {
        report.error(
            given.at,
            "this is not a pin",
            "expected sha256: and 64 lower-case hexadecimal digits, as `keyholder key show` prints it on that node",
        );
    }
    pin
}

/// The most bytes of a path, an argument or a key that anybody writes by hand.
const MAX_WORD: usize = 512;

/// A path that means the same everywhere.
pub(super) fn path(report: &mut Report<'_>, given: &Located<String>) -> Option<String> {
    let text = &given.value;
    let message = if !text.starts_with('/') {
        "this path is not absolute"
    } else if text.split('/').any(|part| part == "..") {
        "this path climbs up with `..`"
    } else if text.ends_with('/') {
        "this is a directory"
    } else {
        return argument(report, given);
    };
    report.error(given.at, message, "expected a path from / on, without `..`, to a file");
    None
}

/// A word of a command: everything that can be seen, for it is shown in logs.
pub(super) fn argument(report: &mut Report<'_>, given: &Located<String>) -> Option<String> {
    let text = &given.value;
    let message = if text.len() > MAX_WORD {
        "this is too long"
    } else if printable(text) != *text {
        "this has characters that cannot be seen"
    } else {
        return Some(text.clone());
    };
    report.error(
        given.at,
        message,
        format!("expected at most {MAX_WORD} bytes of printable text on one line"),
    );
    None
}

/// A user of the host, by name: the shape that useradd takes.
pub(super) fn user(report: &mut Report<'_>, given: &Located<String>) -> Option<String> {
    let text = &given.value;
    let good = (1..=32).contains(&text.len())
        && text.starts_with(|c: char| c.is_ascii_lowercase() || c == '_')
        && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'_' | b'-'));
    if good {
        return Some(text.clone());
    }
    report.error(
        given.at,
        "this is no user's name",
        "expected lower-case letters, digits, '_' and '-', starting with a letter or '_', at most 32",
    );
    None
}

/// A Redis key.
pub(super) fn redis_key(report: &mut Report<'_>, given: &Located<String>) -> Option<String> {
    let text = &given.value;
    if (1..=MAX_WORD).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_graphic()) {
        return Some(text.clone());
    }
    report.error(
        given.at,
        "this is no key that could be looked up",
        format!("expected at most {MAX_WORD} printable ASCII characters without spaces"),
    );
    None
}

/// Where a door listens: an address that a peer can reach without asking anybody.
pub(super) fn address(report: &mut Report<'_>, value: &Value) -> Option<Located<SocketAddr>> {
    const EXPECTED: &str =
        "an IP address and a port, such as 192.0.2.40:7433 or \"[2001:db8::40]:7433\" (in quotes)";
    let given = walk::word(report, value, EXPECTED)?;
    let help = format!("expected {EXPECTED}");
    let Ok(address) = given.value.parse::<SocketAddr>() else {
        let message = if given.value.parse::<IpAddr>().is_ok() {
            "the port is missing"
        } else if is_host_name(&given.value) {
            "host names are not allowed here, because bringing a worker back must not depend on DNS"
        } else {
            "this is not an address"
        };
        report.error(given.at, message, help);
        return None;
    };
    // An IPv4 address in IPv6 clothes is still what it is.
    let ip = address.ip().to_canonical();
    let message = if address.port() == 0 {
        "port 0 is not a port that a peer could connect to"
    } else if ip.is_unspecified() {
        "this means every address, and a peer could not connect to it"
    } else if ip.is_multicast() {
        "this is a multicast address"
    } else if ip == IpAddr::V4(std::net::Ipv4Addr::BROADCAST) {
        "this is a broadcast address"
    } else {
        return Some(Located { at: given.at, value: address });
    };
    report.error(given.at, message, help);
    None
}

/// Whom a watcher has to reach before it runs `power`.
pub(super) fn witness(report: &mut Report<'_>, value: &Value) -> Option<Witness> {
    const EXPECTED: &str = "gateway, an IP address, or an IP address and a TCP port";
    let given = walk::word(report, value, EXPECTED)?;
    if given.value == "gateway" {
        return Some(Witness::Gateway);
    }
    let bare = given.value.parse::<IpAddr>().map(|ip| (ip, None)).ok();
    let with_port = || given.value.parse::<SocketAddr>().map(|to| (to.ip(), Some(to.port()))).ok();
    let found = bare.or_else(with_port).filter(|(ip, port)| {
        let ip = ip.to_canonical();
        !ip.is_unspecified() && !ip.is_multicast() && !ip.is_loopback() && *port != Some(0)
    });
    if found.is_none() {
        let message = "this is nobody whom a watcher could reach to see that it is not cut off";
        report.error(given.at, message, format!("expected {EXPECTED}"));
    }
    found.map(|(ip, port)| Witness::At(ip.to_canonical(), port))
}

fn is_host_name(text: &str) -> bool {
    let host = text.rsplit_once(':').map_or(text, |(host, _)| host);
    host.bytes().any(|b| b.is_ascii_alphabetic())
        && host.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_'))
}
