//! The single values that only a fleet file has: units, pins, addresses, URLs. Each reports what is wrong with it and
//! then is left out.

use std::net::{IpAddr, SocketAddr};

use crate::config::report::{Located, Report};
use crate::config::walk;
use crate::config::yaml::Value;
use crate::vocabulary::{Pin, UnitName, printable};

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

fn is_host_name(text: &str) -> bool {
    let host = text.rsplit_once(':').map_or(text, |(host, _)| host);
    host.bytes().any(|b| b.is_ascii_alphabetic())
        && host.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_'))
}

/// Where Redis is.
pub(super) fn redis_url(report: &mut Report<'_>, value: &Value) -> Option<String> {
    const EXPECTED: &str = "redis://HOST:PORT or rediss://HOST:PORT";
    let given = walk::word(report, value, EXPECTED)?;
    let Err(message) = check_redis_url(&given.value) else { return Some(given.value) };
    report.error(given.at, message, format!("expected {EXPECTED}"));
    None
}

/// `[user[:password]@]host[:port][/database][?…]` after the scheme.
fn check_redis_url(url: &str) -> Result<(), &'static str> {
    if !url.bytes().all(|b| b.is_ascii_graphic()) {
        return Err("a URL has no spaces and no characters outside ASCII");
    }
    let rest = ["redis://", "rediss://"].iter().find_map(|scheme| url.strip_prefix(scheme));
    let rest = rest.ok_or("this is no Redis URL")?;
    let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    let host_and_port = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let (host, port) = match host_and_port.strip_prefix('[') {
        Some(v6) => {
            let (host, port) = v6.split_once(']').ok_or("the bracket of the IPv6 address is not closed")?;
            host.parse::<std::net::Ipv6Addr>().map_err(|_| "the host is not an IPv6 address")?;
            (host, port)
        }
        None => host_and_port.split_at(host_and_port.find(':').unwrap_or(host_and_port.len())),
    };
    if host.is_empty() {
        return Err("the host is missing");
    }
    if !host.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_' | b':')) {
        return Err("this is no host name");
    }
    if !port.is_empty()
        && port.strip_prefix(':').and_then(|port| port.parse::<u16>().ok()).is_none_or(|p| p == 0)
    {
        return Err("the port is not a number from 1 to 65535");
    }
    let database = path.strip_prefix('/').unwrap_or(path);
    let database = database.split(['?', '#']).next().unwrap_or_default();
    if !database.bytes().all(|b| b.is_ascii_digit()) {
        return Err("the database after the slash is not a number");
    }
    Ok(())
}
