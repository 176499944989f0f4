//! Where the lanes' Redis is, in the one form that everything else takes: a URL.

use crate::config::leaf;
use crate::config::report::{At, Located, Report};
use crate::config::walk::{Fields, distinct, items, word};
use crate::config::yaml::Value;

/// As many as a lane asks in turn.
const MAX_SENTINELS: usize = 8;
const EXPECTED: &str = "redis://HOST:PORT or rediss://HOST:PORT";
const NODES: &str = "a list of sentinels, such as [\"ai-core:26379\", \"mars:26379\", \"venus:26379\"]";

/// `redis: { url }` or `redis: { sentinel }`, both with `ca`, and with `cert` and `key`.
pub(super) fn redis(report: &mut Report<'_>, key: At, value: &Value) -> Option<String> {
    let fields = Fields::of(report, key, "`redis`", value, &["url", "sentinel", "ca", "cert", "key"])?;
    let either =
        "expected `url: \"redis://HOST:PORT\"` or `sentinel: { master: NAME, nodes: [\"HOST:PORT\"] }`";
    let url = match (fields.get("url"), fields.get("sentinel").zip(fields.key("sentinel"))) {
        (Some(value), None) => url(report, value),
        (None, Some((value, key))) => sentinel(report, key, value),
        (Some(_), Some((_, key))) => {
            report.error(key, "`redis` has both `url` and `sentinel`", either);
            None
        }
        (None, None) => {
            report.error(key, "`redis` has neither `url` nor `sentinel`", either);
            None
        }
    };
    for (one, other) in [("cert", "key"), ("key", "cert")] {
        if let (Some(at), None) = (fields.key(one), fields.get(other)) {
            let help = "expected both: our certificate, and the private key that belongs to it";
            report.error(at, format!("`redis` has `{one}` and no `{other}`"), help);
            return None;
        }
    }
    // The mistakes of a file are worth telling also if the URL is none.
    ["ca", "cert", "key"].into_iter().fold(url, |url, name| match fields.get(name) {
        None => url,
        Some(value) => file(report, name, value, url.as_deref()),
    })
}

fn url(report: &mut Report<'_>, value: &Value) -> Option<String> {
    let given = word(report, value, EXPECTED)?;
    let Err(message) = check(&given.value) else { return Some(given.value) };
    report.error(given.at, message, format!("expected {EXPECTED}"));
    None
}

fn sentinel(report: &mut Report<'_>, key: At, value: &Value) -> Option<String> {
    let fields = Fields::of(report, key, "`sentinel`", value, &["master", "nodes", "tls"])?;
    let master = fields
        .need(report, "master", "expected what the sentinels call it, such as `master: mymaster`")
        .and_then(|value| word(report, value, "what the sentinels call the master"));
    let nodes = fields.need(report, "nodes", &format!("expected {NODES}"));
    let nodes = nodes.zip(fields.key("nodes")).map(|(value, key)| nodes_of(report, key, value));
    let tls = fields.get("tls").and_then(|value| leaf::boolean(report, value)).unwrap_or_default();
    let (master, nodes) = (master?, nodes??);
    if let Err(message) = check_master(&master.value) {
        report.error(master.at, message, "expected letters, digits, '.', '-' and '_', as Sentinel does");
        return None;
    }
    let scheme = if tls { "rediss" } else { "redis" };
    Some(format!("{scheme}-sentinel://{}/{}", nodes.join(","), master.value))
}

fn nodes_of(report: &mut Report<'_>, key: At, value: &Value) -> Option<Vec<String>> {
    let list = items(report, key, value, NODES)?;
    if list.len() > MAX_SENTINELS {
        let help = format!("expected at most {MAX_SENTINELS}");
        report.error(key, format!("there are {} sentinels", list.len()), help);
        return None;
    }
    let node = |report: &mut Report<'_>, given: &Located<String>| match check_host(&given.value) {
        Ok(()) => Some(given.value.clone()),
        Err(message) => {
            report.error(given.at, message, "expected HOST:PORT");
            None
        }
    };
    let nodes = distinct(report, list, "HOST:PORT", node);
    // One that is left out has been reported.
    (nodes.len() == list.len()).then(|| nodes.into_iter().map(|node| node.value).collect())
}

/// The file goes into the URL as it is.
fn file(report: &mut Report<'_>, name: &str, value: &Value, url: Option<&str>) -> Option<String> {
    const EXPECTED: &str = "the absolute path of a PEM file, such as /etc/keyholder/redis-ca.pem";
    let given = word(report, value, EXPECTED)?;
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'/' | b'.' | b'_' | b'-');
    if !given.value.starts_with('/') || !given.value.bytes().all(plain) {
        let message = "this is no absolute path of letters, digits, '.', '_' and '-'";
        report.error(given.at, message, format!("expected {EXPECTED}"));
        return None;
    }
    let url = url?;
    if !url.starts_with("rediss") {
        let help = "expected rediss:// in `url` or `tls: true` in `sentinel`, or no `ca`, `cert` and `key`";
        report.error(given.at, "without TLS there is no certificate to check", help);
        return None;
    }
    let (url, fragment) = url.split_at(url.find('#').unwrap_or(url.len()));
    let joint = if url.contains('?') { '&' } else { '?' };
    Some(format!("{url}{joint}{name}={}{fragment}", given.value))
}

/// `[user[:password]@]host[:port][/database][?…]` after the scheme; with sentinels, several hosts and `/master[/database]`.
fn check(url: &str) -> Result<(), &'static str> {
    if !url.bytes().all(|b| b.is_ascii_graphic()) {
        return Err("a URL has no spaces and no characters outside ASCII");
    }
    if let Some(path) = url.strip_prefix("unix://").or_else(|| url.strip_prefix("redis+unix://")) {
        let path = path.split(['?', '#']).next().unwrap_or_default();
        let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'/' | b'.' | b'_' | b'-');
        return if path.starts_with('/') && path.len() > 1 && path.bytes().all(plain) {
            Ok(())
        } else {
            Err("the path of the socket is not absolute, or has other than letters, digits, '.', '_' and '-'")
        };
    }
    let schemes = [
        ("redis://", false),
        ("rediss://", false),
        ("redis-sentinel://", true),
        ("rediss-sentinel://", true),
    ];
    let found = schemes.iter().find_map(|(scheme, many)| Some((url.strip_prefix(scheme)?, *many)));
    let (rest, many) = found.ok_or("this is no Redis URL")?;
    let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    let hosts = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let path = path.strip_prefix('/').unwrap_or(path).split(['?', '#']).next().unwrap_or_default();
    let database = if many {
        if hosts.split(',').count() > MAX_SENTINELS {
            return Err("there are more than 8 sentinels");
        }
        hosts.split(',').try_for_each(check_host)?;
        let (master, database) = path.split_once('/').unwrap_or((path, ""));
        check_master(master)?;
        database
    } else {
        check_host(hosts)?;
        path
    };
    if !database.bytes().all(|b| b.is_ascii_digit()) {
        return Err("the database after the slash is not a number");
    }
    Ok(())
}

fn check_host(text: &str) -> Result<(), &'static str> {
    let (host, port) = match text.strip_prefix('[') {
        Some(v6) => {
            let (host, port) = v6.split_once(']').ok_or("the bracket of the IPv6 address is not closed")?;
            host.parse::<std::net::Ipv6Addr>().map_err(|_| "the host is not an IPv6 address")?;
            (host, port)
        }
        None => text.split_at(text.find(':').unwrap_or(text.len())),
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
    Ok(())
}

fn check_master(name: &str) -> Result<(), &'static str> {
    if name.is_empty() {
        return Err("what the sentinels call the master is missing");
    }
    if !name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_')) {
        return Err("this is no name of a master");
    }
    Ok(())
}
