//! Each single value that is wrong.

use super::{load, refused, with};

#[test]
fn the_head_of_the_file() {
    refused("", "c.yaml: the file is empty (expected `version: 1`, `node:` and `actions:`)");
    refused(
        &with("version: 1", "version: 2"),
        "c.yaml:1:10: this version of the file is not known here (found `2`; expected 1)",
    );
    refused(
        &with("node: mars\n", ""),
        "c.yaml:1:1: the file has no `node` (found `version: 1`; expected the node whose lanes serve this catalog)",
    );
    refused(
        &with("node: mars", "node: \"a:read\""),
        "c.yaml:2:7: this name is not allowed (found `\"a:read\"`; expected letters, digits, '-', '_' and '.', starting \
         with a letter or digit, at most 63)",
    );
    refused(
        "version: 1\nnode: m\nactions: {}\n",
        "c.yaml:3:1: there is no action (found `actions`; expected at least one)",
    );
    refused(
        &with("node: mars", "node: mars\nnode: venus"),
        "c.yaml:3:1: this stands here a second time (found `node`; keep one of the two)",
    );
}

#[test]
fn unknown_settings() {
    for (setting, at, help) in [
        (
            "env: { A: b }",
            "env",
            "expected one of mode, description, argv, params, timeout, rate, approval, idempotent, only_here",
        ),
        ("timeuot: 1s", "timeuot", "did you mean `timeout`?"),
        (
            "shell: true",
            "shell",
            "expected one of mode, description, argv, params, timeout, rate, approval, idempotent, only_here",
        ),
    ] {
        refused(
            &with("    only_here: true", &format!("    {setting}")),
            &format!(
                "c.yaml:21:5: action `queue.length_aicore_peer` has no such setting (found `{at}`; {help})"
            ),
        );
    }
    refused(
        &with("lines: { int: {", "lines: { pattern: \".*\", int: {"),
        "c.yaml:10:16: parameter `lines` has no such setting (found `pattern`; expected one of enum, int)",
    );
}

#[test]
fn names_and_words() {
    let rule = "expected lower-case letters, digits and '_', in parts joined by dots, such as service.logs, at most 64";
    for bad in ["service..logs", "Service.logs", "service-logs", ".logs", "service/logs"] {
        refused(
            &with("  service.logs:", &format!("  {bad}:")),
            &format!("c.yaml:4:3: this name is not allowed (found `{bad}`; {rule})"),
        );
    }
    refused(
        &with("    mode: write\n", "    mode: wrte\n"),
        "c.yaml:14:11: this word is not known here (found `wrte`; did you mean `write`?)",
    );
    refused(
        &with("    mode: write\n", ""),
        "c.yaml:13:3: action `service.restart` has no `mode` (found `service.restart`; expected `mode: read` or `mode: write`)",
    );
    refused(
        &with("approval: required", "approval: true"),
        "c.yaml:17:15: this word is not known here (found `true`; expected one of required, none)",
    );
    refused(
        &with("idempotent: true", "idempotent: yes"),
        "c.yaml:18:17: this is neither true nor false (found `yes`; expected true or false)",
    );
    let text = with("the last lines of a service's log", "\"a\\nb\"");
    refused(
        &text,
        "c.yaml:6:18: this description has characters that cannot be shown (found `\"a\\nb\"`; expected one line of at most \
         200 characters)",
    );
    assert!(load(&with("the last lines of a service's log", "サービスのログの最後の行")).is_ok());
}

#[test]
fn times_and_rates() {
    for (bad, message, help) in [
        ("10", "this has no unit", "expected ms, s, m, h or d after the number, as in 90s or 1h30m"),
        ("1ms", "this is too short", "expected a duration from 100 ms to 6h 00m"),
        ("7h", "this is too long", "expected a duration from 100 ms to 6h 00m"),
    ] {
        refused(
            &with("timeout: 10s", &format!("timeout: {bad}")),
            &format!("c.yaml:11:14: {message} (found `{bad}`; {help})"),
        );
    }
    for bad in ["0", "03", "+3", "1e3", "3.0", "10001", "three", "-1"] {
        refused(
            &with("at_most: 3", &format!("at_most: {bad}")),
            &format!(
                "c.yaml:12:22: this number is not allowed (found `{bad}`; expected a whole number from 1 to 10000)"
            ),
        );
    }
    refused(
        &with("at_most: 3, per: 1h", "at_most: 3"),
        "c.yaml:12:5: `rate` has no `per` (found `rate`; expected { at_most: 3, per: 1h } or the like)",
    );
}

#[test]
fn arguments() {
    let expected = "expected 1 to 256 printable ASCII characters";
    for (bad, message) in [
        ("\"\"", "an empty argument is not allowed"),
        ("\"a\\0b\"", "this has characters that are not printable ASCII"),
        ("\"a\\nb\"", "this has characters that are not printable ASCII"),
        ("\"a\\tb\"", "this has characters that are not printable ASCII"),
        ("--wörter", "this has characters that are not printable ASCII"),
    ] {
        refused(&with("--no-pager", bad), &format!("c.yaml:7:62: {message} (found `{bad}`; {expected})"));
    }
    let braces = "a parameter fills a whole argument, and braces mean nothing else";
    for bad in ["--unit={unit}", "{unit}.service", "{Unit}", "{", "}{", "{}", "{ unit }", "{{unit}}"] {
        let quoted = format!("\"{bad}\"");
        let found = super::errors(&with("--no-pager", &quoted));
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with(&format!("c.yaml:7:62: {braces} (found `{quoted}`; ")), "{found:?}");
    }
    refused(
        &with("--no-pager", "{unit}"),
        "c.yaml:7:62: a placeholder must stand in quotes (found `{unit}`; expected \"{unit}\" in quotes; without them YAML \
         reads a map)",
    );
    refused(
        &with(
            "argv: [/usr/bin/journalctl, -u, \"{unit}\", -n, \"{lines}\", --no-pager]",
            "argv: journalctl -u",
        ),
        "c.yaml:7:11: this is not a list (found `journalctl -u`; expected [/path/of/the/command, argument, …])",
    );
    let many = vec!["x"; 33].join(", ");
    let found = super::errors(&with("--no-pager", &many));
    assert!(found[0].contains("this command has 38 elements") && found.len() == 1, "{found:?}");
    assert!(load(&with("--no-pager", "5")).is_ok(), "a number is an argument as it is spelt");
}

#[test]
fn values() {
    refused(
        &with("[a.service, b.service]", "[a.service, --evil]"),
        "c.yaml:9:33: a value that begins with `-` would be an option of the command (found `--evil`; expected a value that \
         begins with something else; a fixed option belongs into `argv`)",
    );
    refused(
        &with("[a.service, b.service]", "[a.service, a.service]"),
        "c.yaml:9:33: this stands in the list a second time (found `a.service`; keep one of the two)",
    );
    refused(
        &with("[a.service, b.service]", "[]"),
        "c.yaml:9:21: this list is empty (found `[]`; expected the allowed values, such as [one, two])",
    );
    for bad in ["\"a\\nb\"", "\"a\\0\"", "dienst-ä", "٣"] {
        refused(
            &with("[a.service, b.service]", &format!("[a.service, {bad}]")),
            &format!(
                "c.yaml:9:33: this has characters that are not printable ASCII (found `{bad}`; expected 1 to 256 printable \
                 ASCII characters)"
            ),
        );
    }
    let both = "expected either `enum: [value, …]` or `int: { min: 1, max: 100 }`";
    refused(
        &with("{ int: { min: 10, max: 200 } }", "{}"),
        &format!("c.yaml:10:7: parameter `lines` has neither `enum` nor `int` (found `lines`; {both})"),
    );
    refused(
        &with("{ int: { min: 10, max: 200 } }", "{ enum: [a], int: { min: 1, max: 2 } }"),
        &format!("c.yaml:10:27: parameter `lines` has both `enum` and `int` (found `int`; {both})"),
    );
    refused(
        &with("min: 10, max: 200", "min: 200, max: 10"),
        "c.yaml:10:38: no number is from 200 to 10 (found `10`; expected a `max` that is not below `min`)",
    );
    for bad in ["-5", "010", "1e1", "4294967296", "1.5"] {
        refused(
            &with("min: 10", &format!("min: {bad}")),
            &format!(
                "c.yaml:10:28: this number is not allowed (found `{bad}`; expected a whole number from 0 to 4294967295)"
            ),
        );
    }
    assert!(load(&with("min: 10", "min: 0")).is_ok());
}
