//! What a catalog may let its lanes do: sudo, shells, modes; and the sudoers lines.

use super::super::installed::compare;
use super::super::sudoers;
use super::{AI_CORE, GOOD, Loaded, MARS, errors, lines, load, refused, with};

const RESTART: &str = "/usr/bin/sudo, -n, --, /usr/bin/systemctl, restart, \"{unit}\"";
const FORM: &str = "expected [/usr/bin/sudo, -n, --, /path/of/the/command, argument, …]";

#[test]
fn sudo_is_called_in_one_way() {
    for (argv, place, message, found) in [
        (
            "/usr/local/bin/sudo, -n, --, /bin/x, \"{unit}\"",
            "12",
            "this is not the sudo of the system",
            "/usr/local/bin/sudo",
        ),
        ("/usr/bin/sudo, --, /bin/x, \"{unit}\"", "27", "sudo must be called with `-n --` only", "--"),
        (
            "/usr/bin/sudo, -n, -u, joe, /bin/x, \"{unit}\"",
            "31",
            "sudo must be called with `-n --` only",
            "-u",
        ),
        ("/usr/bin/sudo, -n, /bin/x, \"{unit}\"", "31", "sudo must be called with `-n --` only", "/bin/x"),
        ("/usr/bin/sudo, \"{unit}\"", "27", "sudo must be called with `-n --` only", "\"{unit}\""),
    ] {
        refused(&with(RESTART, argv), &format!("c.yaml:15:{place}: {message} (found `{found}`; {FORM})"));
    }
    for (argv, message) in [
        ("/usr/bin/sudo, -n, --, systemctl, restart, \"{unit}\"", "this path is not absolute"),
        ("/usr/bin/sudo, -n, --, \"{unit}\"", "a parameter cannot choose the program"),
        (
            "/usr/bin/sudo, -n, --, /usr/bin/sudo, -n, \"{unit}\"",
            "`sudo` is a way to other rights that is not checked here",
        ),
        ("/usr/bin/pkexec, /bin/x, \"{unit}\"", "`pkexec` is a way to other rights that is not checked here"),
        (
            "/usr/bin/sudo, -n, --, /usr/bin/su, \"{unit}\"",
            "`su` is a way to other rights that is not checked here",
        ),
        (
            "/usr/bin/sudo, -n, --, /bin/bash, -c, \"{unit}\"",
            "`bash` runs whatever its arguments say, and a catalog runs no shell",
        ),
        ("/usr/bin/env, \"{unit}\"", "`env` runs whatever its arguments say, and a catalog runs no shell"),
    ] {
        let found = errors(&with(RESTART, argv));
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains(&format!(": {message} (found ")), "{found:?}");
    }
    let no_command = with(
        "[/usr/bin/sudo, -n, --, /usr/bin/systemctl, restart, \"{unit}\"]\n    params: { unit: { enum: [a.service] } }",
        "[/usr/bin/sudo, -n, --]",
    );
    refused(&no_command, &format!("c.yaml:15:12: sudo has no command (found `/usr/bin/sudo`; {FORM})"));
}

#[test]
fn what_sudo_would_not_compare_exactly_is_refused() {
    for (bad, why) in [
        ("app-*.service", "it would be a pattern, and a pattern matches blanks and further arguments too"),
        ("app-?.service", "it would be a pattern, and a pattern matches blanks and further arguments too"),
        (
            "\"[a-z].service\"",
            "it would be a pattern, and a pattern matches blanks and further arguments too",
        ),
        ("\"a.service b.service\"", "one argument with a blank and two arguments are the same to it"),
        ("^a.*$", "it would be a pattern, and a pattern matches blanks and further arguments too"),
        ("^a.$", "it would be a regular expression"),
        ("'\"\"'", "quotes and exclamation marks have meanings of their own there"),
    ] {
        // In the command as well as among the values, each where it stands.
        refused(
            &with("restart, \"{unit}\"", &format!("{bad}, \"{{unit}}\"")),
            &format!(
                "c.yaml:15:55: sudo cannot be given this exactly: {why} (found `{bad}`; put it into a script of root's and let sudo run that)"
            ),
        );
        refused(
            &with("enum: [a.service] }", &format!("enum: [b.service, {bad}] }}")),
            &format!(
                "c.yaml:16:41: sudo cannot be given this exactly: {why} (found `{bad}`; put it into a script of root's and let sudo run that)"
            ),
        );
    }
    assert!(
        load(&with("[a.service, b.service]", "[\"a*\", \"b c\"]")).is_ok(),
        "without sudo they are only characters"
    );
}

#[test]
fn a_range_that_no_one_could_read_as_sudoers_lines_is_refused() {
    let wide = |max: u32| {
        with("{ unit: { enum: [a.service] } }", &format!("{{ unit: {{ int: {{ min: 1, max: {max} }} }} }}"))
    };
    assert!(load(&wide(256)).is_ok());
    refused(
        &wide(257),
        "c.yaml:13:3: this action would need 257 sudoers lines, one for each combination of its values (found \
         `service.restart`; expected at most 256: narrow its ranges or enums)",
    );
    let huge = with(
        "restart, \"{unit}\"]\n    params: { unit: { enum: [a.service] } }",
        "\"{a}\", \"{b}\", \"{c}\"]\n    params: { a: { int: { min: 0, max: 4294967295 } }, b: { int: { min: 0, max: 4294967295 } }, c: { int: { min: 0, max: 4294967295 } } }",
    );
    assert!(
        errors(&huge)[0].contains("would need 18446744073709551615 sudoers lines"),
        "counting does not overflow"
    );
}

#[test]
fn the_mode_fits_the_command() {
    refused(
        &with("    mode: write\n", "    mode: read\n"),
        "c.yaml:14:11: a read action cannot use sudo: the read lane can gain no rights (found `read`; make it `mode: write`, \
         or take sudo out)",
    );
    refused(
        &with("LLEN, \"tasks:maintenance:ai-core\"", "DEL, \"tasks:maintenance:ai-core\""),
        "c.yaml:20:11: `redis-cli` changes something here, so this is no read action (found `read`; expected `mode: write`)",
    );
    refused(
        &with("/usr/bin/journalctl, -u, \"{unit}\"", "/usr/bin/systemctl, restart, \"{unit}\""),
        "c.yaml:5:11: `systemctl` changes something here, so this is no read action (found `read`; expected `mode: write`)",
    );
    let warned = |text: &str| lines(&load(text).unwrap().warnings);
    assert_eq!(
        warned(&with("    mode: read\n    only_here", "    mode: write\n    only_here")),
        [
            "c.yaml:20:11: this write action needs no sudo, so it could be read (found `write`; if it changes nothing make it \
          `mode: read`, and it will not wait behind writes)"
        ]
    );
    assert_eq!(
        warned(&with("systemctl, restart", "systemctl, status")),
        [
            "c.yaml:14:11: `systemctl` changes nothing here, so this need not be a write action (found `write`; if it works \
          without sudo make it `mode: read`, and it will not wait behind writes)"
        ]
    );
    let own = with(RESTART, "/usr/bin/redis-cli, DEL, \"{unit}\"");
    assert_eq!(warned(&own), [""; 0], "a write that needs no sudo and is known to change something");
}

fn sudoers_of(text: &str) -> String {
    let Loaded { catalog, .. } = load(text).unwrap_or_else(|problems| panic!("{problems}"));
    sudoers::file(&catalog, "c.yaml").unwrap()
}

#[test]
fn sudoers_lines_are_exact_and_complete() {
    let Loaded { catalog, .. } = load(MARS).unwrap();
    let text = sudoers::file(&catalog, "catalog_mars.yaml").unwrap();
    assert!(text.contains(&format!("\n# catalog catalog_mars.yaml ({})\n", catalog.hash)));
    insta::assert_snapshot!("sudoers_mars", text.replace(&catalog.hash.to_string(), "HASH"));
    assert!(sudoers_of(AI_CORE).ends_with("# No action of it uses sudo.\n"));
    let text = with(
        "restart, \"{unit}\"]\n    params: { unit: { enum: [a.service] } }",
        "\"{verb}\", \"{unit}\", \"{n}\"]\n    params: { n: { int: { min: 9, max: 10 } }, verb: { enum: [stop, start] }, unit: { enum: ['a\\x2db:c,d=e#f.service', b] } }",
    );
    let lines: Vec<String> =
        sudoers_of(&text).lines().filter(|line| line.starts_with("keyholder")).map(str::to_owned).collect();
    assert_eq!(lines.len(), 8);
    assert!(
        lines.contains(
            &r"keyholder-write ALL=(root) NOPASSWD: /usr/bin/systemctl stop a\\\\x2db\:c\,d\=e\#f.service 10"
                .to_owned()
        ),
        "{lines:#?}"
    );
    let bare = with(
        ", /usr/bin/systemctl, restart, \"{unit}\"]\n    params: { unit: { enum: [a.service] } }",
        ", /opt/site/rotate]",
    );
    assert!(sudoers_of(&bare).contains("NOPASSWD: /opt/site/rotate \"\"\n"), "no arguments, and not any");
}

#[test]
fn an_installed_sudoers_file_is_compared() {
    let Loaded { catalog, .. } = load(GOOD).unwrap();
    let good = sudoers::file(&catalog, "c.yaml").unwrap();
    let told = |text: &str| {
        compare("s", text.as_bytes(), &catalog).map_or_else(|problems| lines(&problems), |()| Vec::new())
    };
    assert_eq!(told(&good), [""; 0]);
    let line = "keyholder-write ALL=(root) NOPASSWD: /usr/bin/systemctl restart a.service";
    assert_eq!(told(line), [""; 0], "comments do not matter");
    let help = "take it out, and install what `keyholder catalog sudoers` prints";
    for (command, why) in [
        (
            "/usr/bin/systemctl restart app-*.service",
            "this is a pattern, and a pattern matches blanks and further arguments too",
        ),
        ("/usr/bin/systemctl", "this command has no argument list, so it may be run with any arguments"),
        ("ALL", "this allows every command"),
        ("/usr/bin/systemctl restart a\\*", "no action of the catalog needs this line"),
    ] {
        let extra = format!("keyholder-write ALL=(root) NOPASSWD: {command}");
        assert_eq!(
            told(&format!("{good}  {extra}\n")),
            [format!("s:{}:3: {why} (found `{extra}`; {help})", good.lines().count() + 1)]
        );
    }
    for line in ["#includedir /tmp", "@include x", "Defaults !authenticate", "# a \\"] {
        assert_eq!(told(&format!("{good}{line}\n")).len(), 1, "{line}");
    }
    assert_eq!(
        told("\n"),
        [format!("s: this line is missing: {line} (install what `keyholder catalog sudoers` prints)")]
    );
}
