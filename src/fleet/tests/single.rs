//! Each single value that is wrong.

use super::{good, load, pin, refused, with};

#[test]
fn the_head_of_the_file() {
    refused("", "fleet.yaml: the file is empty (expected `version: 1`, `nodes:` and `grants:`)");
    refused(
        "# only a comment\n",
        "fleet.yaml: the file is empty (expected `version: 1`, `nodes:` and `grants:`)",
    );
    refused(
        &with("version: 1\n", ""),
        "fleet.yaml:1:1: the file has no `version` (found `redis: { url: \"redis://ai-core:6379\" }`; \
         expected `version: 1` as the first line)",
    );
    let version = "this version of the file is not known here";
    for bad in ["2", "\"1\"", "one", "01", "1.0", "[1]", "~"] {
        refused(
            &with("version: 1", &format!("version: {bad}")),
            &format!("fleet.yaml:1:10: {version} (found `{bad}`; expected 1)"),
        );
    }
    refused(
        "[1, 2]",
        "fleet.yaml:1:1: the file is a list (found `[1, 2]`; expected a map: lines with `key: value`, indented below \
         it, or {})",
    );
    refused(
        "version: 1\n",
        "fleet.yaml:1:1: the file has no `nodes` (found `version: 1`; expected `nodes:` with at least one node below it)",
    );
    refused(
        "version: 1\nnodes: {}\n",
        "fleet.yaml:2:1: there is no node (found `nodes`; expected at least one)",
    );
}

#[test]
fn unknown_settings() {
    refused(
        &with("grants:", "grant:"),
        "fleet.yaml:19:1: the file has no such setting (found `grant`; did you mean `grants`?)",
    );
    refused(
        &with("        grace: 10s", "        graze: 10s"),
        "fleet.yaml:18:9: worker `agent` has no such setting (found `graze`; did you mean `grace`?)",
    );
    refused(
        &with(
            "workers: [write], verbs: [status, relaunch, nudge, repipe]",
            "workers: [write], verbs: [status, reboot]",
        ),
        "fleet.yaml:21:66: there is no such verb (found `reboot`; expected one of status, relaunch, hold, nudge, repipe, drill, power, prove)",
    );
    refused(
        &with("        grace: 10s", "        <<: {}"),
        "fleet.yaml:18:9: merge keys are not allowed (found `<<`; write the settings out)",
    );
}

#[test]
fn duplicate_keys() {
    let twice = |place: &str| format!("fleet.yaml:{place}; keep one of the two)");
    refused(
        &with("version: 1", "version: 1\nversion: 1"),
        &twice("2:1: this stands here a second time (found `version`"),
    );
    refused(
        &with("        grace: 10s", "        grace: 10s\n        \"grace\": 5s"),
        &twice("19:9: this stands here a second time (found `\"grace\"`"),
    );
    refused(
        &with("  mars:\n", "  ai-core: { address: 192.0.2.9:1 }\n  mars:\n"),
        &twice("10:3: this stands here a second time (found `ai-core`"),
    );
}

#[test]
fn addresses() {
    let address = |bad: &str| with("192.0.2.40:7433", bad);
    let wants =
        "expected an IP address and a port, such as 192.0.2.40:7433 or \"[2001:db8::40]:7433\" (in quotes)";
    for (bad, message) in [
        (
            "ai-core:7433",
            "host names are not allowed here, because bringing a worker back must not depend on DNS",
        ),
        ("ai-core", "host names are not allowed here, because bringing a worker back must not depend on DNS"),
        ("192.0.2.40", "the port is missing"),
        ("\"2001:db8::1\"", "the port is missing"),
        ("192.0.2.40:0", "port 0 is not a port that a peer could connect to"),
        ("192.0.2.40:65536", "this is not an address"),
        ("192.0.2.040:7433", "this is not an address"),
        ("0.0.0.0:7433", "this means every address, and a peer could not connect to it"),
        ("\"[::]:7433\"", "this means every address, and a peer could not connect to it"),
        ("\"[::ffff:0.0.0.0]:7433\"", "this means every address, and a peer could not connect to it"),
        ("224.0.0.1:7433", "this is a multicast address"),
        ("\"[ff02::1]:7433\"", "this is a multicast address"),
        ("255.255.255.255:7433", "this is a broadcast address"),
        ("7433", "this is not an address"),
        ("\"192.0.2.40:7433 \"", "this is not an address"),
        ("{}", "a map cannot stand here"),
        ("~", "the value is missing"),
    ] {
        refused(&address(bad), &format!("fleet.yaml:5:14: {message} (found `{bad}`; {wants})"));
    }
    for fine in ["\"[::1]:7433\"", "\"[2001:db8::40]:7433\"", "127.0.0.1:1"] {
        assert!(load(&address(fine)).is_ok(), "{fine}");
    }
    refused(
        &with("    address: 192.0.2.40:7433\n", ""),
        "fleet.yaml:4:3: node `ai-core` has no `address` (found `ai-core`; expected an IP address and a port, such as \
         `address: 192.0.2.40:7433`)",
    );
}

#[test]
fn durations_and_numbers() {
    let line = |setting: &str| with("grace: 10s", setting);
    for (setting, message) in [
        (
            "grace: 90",
            "this has no unit (found `90`; expected ms, s, m, h or d after the number, as in 90s or 1h30m)",
        ),
        ("grace: 0s", "this is too short (found `0s`; expected a duration from 100 ms to 1h 00m)"),
        ("grace: 61m", "this is too long (found `61m`; expected a duration from 100 ms to 1h 00m)"),
        (
            "grace: soon",
            "this is not a duration (found `soon`; expected 90s, 2m, 1h30m or the like, from 100 ms to 1h 00m)",
        ),
        (
            "grace: -1s",
            "this is not a duration (found `-1s`; expected 90s, 2m, 1h30m or the like, from 100 ms to 1h 00m)",
        ),
        ("grace:", "the value is missing (found `:`; expected a duration such as 90s, 2m or 1h30m)"),
        ("settle: 11m", "this is too long (found `11m`; expected a duration from 100 ms to 10m 00s)"),
        ("undeclared_stop: 8d", "this is too long (found `8d`; expected a duration from 100 ms to 7d 0h)"),
        (
            "start_timeout: 999ms",
            "this is too short (found `999ms`; expected a duration from 1.0 s to 1h 00m)",
        ),
        ("per: 999d", "this is too long (found `999d`; expected a duration from 1.0 s to 7d 0h)"),
        ("quarantine_retry: 1ms", "this is too short (found `1ms`; expected a duration from 1.0 s to 7d 0h)"),
        ("relaunches: 0", "this number is not allowed (found `0`; expected a whole number from 1 to 1000)"),
        (
            "relaunches: 1001",
            "this number is not allowed (found `1001`; expected a whole number from 1 to 1000)",
        ),
        (
            "relaunches: 010",
            "this number is not allowed (found `010`; expected a whole number from 1 to 1000)",
        ),
        (
            "relaunches: 0x10",
            "this number is not allowed (found `0x10`; expected a whole number from 1 to 1000)",
        ),
        (
            "relaunches: 1_0",
            "this number is not allowed (found `1_0`; expected a whole number from 1 to 1000)",
        ),
        (
            "relaunches: 3.0",
            "this number is not allowed (found `3.0`; expected a whole number from 1 to 1000)",
        ),
        (
            "relaunches: \"3\"",
            "this number is not allowed (found `\"3\"`; expected a whole number from 1 to 1000)",
        ),
    ] {
        let column = 9 + setting.find(' ').map_or(setting.len() - 1, |space| space + 1);
        refused(&line(setting), &format!("fleet.yaml:18:{column}: {message}"));
    }
    for fine in ["grace: 100ms", "grace: 1h", "per: 1d12h", "relaunches: 1000", "quarantine_retry: 1h30m"] {
        assert!(load(&line(fine)).is_ok(), "{fine}");
    }
}

#[test]
fn names_units_and_words() {
    let rule = "letters, digits, '-', '_' and '.', starting with a letter or digit, at most 63";
    let text = good().replace("ai-core", "ai:core").replace("//ai:core", "//ai-core");
    let found = super::errors(&text);
    assert_eq!(
        found,
        [format!("fleet.yaml:4:3: this name is not allowed (found `ai:core`; expected {rule})")],
        "said once, though the name is used in four places"
    );
    let unit = |bad: &str| with("ai-agent.service", bad);
    for bad in ["ai-agent", "../x.service", "a@.service", "\"a b.service\"", "-x.service", "x.socket"] {
        let found = super::errors(&unit(bad));
        assert_eq!(found.len(), 1);
        assert!(
            found[0].starts_with(&format!("fleet.yaml:17:15: this is no service unit (found `{bad}`; ")),
            "{found:?}"
        );
    }
    refused(
        &unit("keyholder.service"),
        "fleet.yaml:17:15: the supervisor looks after units, and is none of them (found `keyholder.service`; take it out: systemd \
         restarts the supervisor, and a peer's knock starts it)",
    );
    let help = "expected either `unit: some.service` or `lane: write` or `lane: read`";
    refused(
        &with("        unit: ai-agent.service\n", ""),
        &format!("fleet.yaml:16:7: worker `agent` has neither `unit` nor `lane` (found `agent`; {help})"),
    );
    refused(
        &with("{ lane: write }", "{ lane: write, unit: x.service }"),
        &format!("fleet.yaml:9:22: worker `write` has both `unit` and `lane` (found `write`; {help})"),
    );
    refused(
        &with("{ lane: write }", "{ lane: wrote }"),
        "fleet.yaml:9:22: this word is not known here (found `wrote`; did you mean `write`?)",
    );
    refused(
        &with("critical", "fatal"),
        "fleet.yaml:15:43: this word is not known here (found `fatal`; expected one of critical, normal, auxiliary)",
    );
    refused(
        &with("grace: 10s", "repair_by: pear"),
        "fleet.yaml:18:20: this word is not known here (found `pear`; did you mean `peer`?)",
    );
    for bad in ["yes", "on", "\"true\"", "1", "~"] {
        refused(
            &with("    watched_by: [mars]", &format!("    watched_by: [mars]\n    disabled: {bad}")),
            &format!(
                "fleet.yaml:8:15: this is neither true nor false (found `{bad}`; expected true or false)"
            ),
        );
    }
}

#[test]
fn pins() {
    let help = "expected sha256: and 64 lower-case hexadecimal digits, as `keyholder key show` prints it on that node";
    let good_pin = pin('a');
    for bad in [good_pin.to_uppercase(), good_pin.replace("sha256:", ""), format!("{good_pin}0")] {
        let found = super::errors(&with(&good_pin, &bad));
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(
            found[0].starts_with("fleet.yaml:6:12: this is not a pin (found `")
                && found[0].ends_with(&format!("; {help})")),
            "{found:?}"
        );
    }
}

#[test]
fn redis_urls() {
    let url = |bad: &str| with("redis://ai-core:6379", bad);
    for (bad, message) in [
        ("http://ai-core", "this is no Redis URL"),
        ("redis:ai-core", "this is no Redis URL"),
        (
            "redis+unix://run/redis.sock",
            "the path of the socket is not absolute, or has other than letters, digits, '.', '_' and '-'",
        ),
        ("redis://", "the host is missing"),
        ("redis://:6379", "the host is missing"),
        ("rediss:///0", "the host is missing"),
        ("redis://a b", "a URL has no spaces and no characters outside ASCII"),
        ("redis://a:port", "the port is not a number from 1 to 65535"),
        ("redis://a:0", "the port is not a number from 1 to 65535"),
        ("redis://[::1", "the bracket of the IPv6 address is not closed"),
        ("redis://[nope]", "the host is not an IPv6 address"),
        ("redis://a/b", "the database after the slash is not a number"),
        ("redis://a;b", "this is no host name"),
    ] {
        refused(
            &url(bad),
            &format!(
                "fleet.yaml:2:15: {message} (found `\"{bad}\"`; expected redis://HOST:PORT or rediss://HOST:PORT)"
            ),
        );
    }
    for fine in [
        "rediss://u:p@h:1/3?x=y",
        "redis://[::1]:6379",
        "redis://10.0.0.1",
        "redis://h/",
        "unix:///run/redis/redis.sock?db=2",
        "redis+unix:///run/redis.sock",
    ] {
        assert!(load(&url(fine)).is_ok(), "{fine}");
    }
    let found = super::errors(&url("redis://me:secret@h:x"));
    assert_eq!(
        found,
        [
            "fleet.yaml:2:15: the port is not a number from 1 to 65535 (found `\"redis://*********@h:x\"`; expected \
          redis://HOST:PORT or rediss://HOST:PORT)"
        ]
    );
}

#[test]
fn sentinels_and_a_certificate_authority() {
    let file = |redis: &str| with("redis: { url: \"redis://ai-core:6379\" }", &format!("redis: {redis}"));
    let url = |redis: &str| load(&file(redis)).unwrap().fleet.redis.unwrap();
    for (written, meant) in [
        (
            "{ sentinel: { master: mymaster, nodes: [\"a:26379\", b, \"[::1]:7\"] } }",
            "redis-sentinel://a:26379,b,[::1]:7/mymaster",
        ),
        (
            "{ sentinel: { master: m, nodes: [a], tls: true }, ca: /etc/keyholder/redis-ca.pem }",
            "rediss-sentinel://a/m?ca=/etc/keyholder/redis-ca.pem",
        ),
        ("{ url: \"rediss://u:p@h/1?x=y\", ca: /ca.pem }", "rediss://u:p@h/1?x=y&ca=/ca.pem"),
        (
            "{ url: \"rediss://h\", ca: /ca.pem, cert: /c.pem, key: /k.pem }",
            "rediss://h?ca=/ca.pem&cert=/c.pem&key=/k.pem",
        ),
        ("{ url: \"redis-sentinel://u:p@a,b:1/m/2\" }", "redis-sentinel://u:p@a,b:1/m/2"),
    ] {
        assert_eq!(url(written), meant);
    }
    // Where the mistake stands: the first place with that text.
    for (bad, there, message) in [
        ("{}", "redis", "`redis` has neither `url` nor `sentinel`"),
        ("{ sentinel: {}, url: \"redis://a\" }", "sentinel", "`redis` has both `url` and `sentinel`"),
        ("{ sentinel: { master: m } }", "sentinel", "`sentinel` has no `nodes`"),
        ("{ sentinel: { nodes: [a] } }", "sentinel", "`sentinel` has no `master`"),
        ("{ sentinel: { master: \"m/0\", nodes: [a] } }", "\"m/0", "this is no name of a master"),
        ("{ sentinel: { master: m, nodes: [] } }", "[]", "this list is empty"),
        (
            "{ sentinel: { master: m, nodes: [\"a:0\"] } }",
            "\"a:0",
            "the port is not a number from 1 to 65535",
        ),
        ("{ sentinel: { master: m, nodes: [\"u@a\"] } }", "\"u@a", "this is no host name"),
        ("{ sentinel: { master: m, nodes: [a, a] } }", "a] }", "this stands in the list a second time"),
        ("{ sentinel: { master: m, nodes: [a, b, c, d, e, f, g, h, i] } }", "nodes", "there are 9 sentinels"),
        ("{ url: \"redis://a\", ca: /ca.pem }", "/ca.pem", "without TLS there is no certificate to check"),
        ("{ url: \"rediss://a\", cert: /c.pem }", "cert", "`redis` has `cert` and no `key`"),
        ("{ url: \"rediss://a\", key: /k.pem }", "key:", "`redis` has `key` and no `cert`"),
        ("{ url: \"unix:///a\", ca: /ca.pem }", "/ca.pem", "without TLS there is no certificate to check"),
        ("{ url: \"rediss://a\", ca: ca.pem }", "ca.pem", "this is no absolute path"),
        ("{ url: \"rediss://a\", ca: \"/c&a\" }", "\"/c&a", "this is no absolute path"),
        ("{ url: \"redis-sentinel://a\" }", "\"redis-", "what the sentinels call the master is missing"),
        ("{ url: \"redis-sentinel://a/m/x\" }", "\"redis-", "the database after the slash is not a number"),
    ] {
        let text = file(bad);
        let column = text.lines().nth(1).unwrap().find(there).unwrap() + 1;
        let found = super::errors(&text);
        let expected = format!("fleet.yaml:2:{column}: {message}");
        assert!(
            matches!(&found[..], [one] if one.starts_with(&expected)),
            "{bad}: {found:?}, not {expected}"
        );
    }
}

#[test]
fn lists() {
    let verbs = "workers: [write], verbs: [status, relaunch, nudge, repipe]";
    refused(
        &with(verbs, "workers: [write], verbs: []"),
        "fleet.yaml:21:57: this list is empty (found `[]`; expected a list of status, relaunch, hold, nudge, repipe, drill, power and prove)",
    );
    refused(
        &with(verbs, "workers: [write], verbs: status"),
        "fleet.yaml:21:57: this is not a list (found `status`; expected a list of status, relaunch, hold, nudge, repipe, drill, power and prove)",
    );
    refused(
        &with(verbs, "workers: [write], verbs: [status, status]"),
        "fleet.yaml:21:66: this stands in the list a second time (found `status`; keep one of the two)",
    );
    refused(
        &with(verbs, "workers: [write, \"*\"], verbs: [status]"),
        "fleet.yaml:21:49: `*` already means every worker (found `\"*\"`; keep it alone, or take it out)",
    );
    refused(
        &with(verbs, "workers: [write]"),
        "fleet.yaml:21:5: this grant has no `verbs` (found `{ from: mars, on: ai-core, workers: [write] }`; expected a \
         list of status, relaunch, hold, nudge, repipe, drill, power and prove)",
    );
    refused(
        &with("    watched_by: [mars]", "    watched_by:"),
        "fleet.yaml:7:5: this is not a list (found `watched_by`; expected a list of nodes, or no `watched_by`)",
    );
}
