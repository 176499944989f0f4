//! How values fit together: placeholders and parameters, and catalogs with each other.

use super::{AI_CORE, GOOD, MARS, errors, lines, load, parse_all, refused, with};

#[test]
fn the_program_is_said_in_full() {
    let help = "expected the program's absolute path, such as /usr/bin/journalctl";
    for (bad, message) in [
        ("journalctl", "this path is not absolute"),
        ("./journalctl", "this path is not absolute"),
        ("/usr/../tmp/x", "this path is not written plainly"),
        ("/usr//bin/x", "this path is not written plainly"),
        ("/usr/bin/", "this path is not written plainly"),
        ("/", "this path is not written plainly"),
        ("\"/opt/my tool\"", "this path is not written plainly"),
        ("\"/bin/$(id)\"", "this path is not written plainly"),
    ] {
        refused(
            &with("/usr/bin/journalctl", bad),
            &format!("c.yaml:7:12: {message} (found `{bad}`; {help})"),
        );
    }
    let found = errors(&with("[/usr/bin/journalctl, -u, \"{unit}\",", "[\"{unit}\", -u,"));
    assert_eq!(
        found,
        [format!("c.yaml:7:12: a parameter cannot choose the program (found `\"{{unit}}\"`; {help})")]
    );
}

#[test]
fn every_parameter_has_one_place_and_every_place_a_parameter() {
    refused(
        &with("-n, \"{lines}\"", "-n, \"{line}\""),
        "c.yaml:7:51: there is no such parameter (found `\"{line}\"`; did you mean `lines`?)",
    );
    refused(
        &with("-n, \"{lines}\"", "-n, 20"),
        "c.yaml:10:7: parameter `lines` has no place in the command (found `lines`; expected \"{lines}\" as an element of \
         `argv`)",
    );
    refused(
        &with("--no-pager", "\"{unit}\""),
        "c.yaml:7:62: this parameter stands in the command a second time (found `\"{unit}\"`; keep one of the two)",
    );
    refused(
        &with("LLEN, \"tasks:maintenance:ai-core\"", "LLEN, \"{queue}\""),
        "c.yaml:22:51: there is no such parameter (found `\"{queue}\"`; expected it under `params`)",
    );
}

#[test]
fn an_action_that_is_only_here_is_nowhere_else() {
    let peer = AI_CORE.split_once("  queue.length_mars_peer:").unwrap().1;
    let mars = format!("{MARS}\n  queue.length_mars_peer:{}", peer.replace("    only_here: true\n", ""));
    let all = parse_all(
        &[("catalog_mars.yaml", mars.as_bytes()), ("catalog_ai-core.yaml", AI_CORE.as_bytes())],
        None,
    );
    assert!(all[0].is_ok(), "what it says of itself is right");
    let found = lines(all[1].as_ref().unwrap_err());
    let line = mars.lines().position(|line| line == "  queue.length_mars_peer:").unwrap() + 1;
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(
        found[0].contains(&format!(
            ": action `queue.length_mars_peer` is only here, and yet at catalog_mars.yaml:{line} (found `only_here`; "
        )),
        "{found:?}"
    );
    let both = format!("{MARS}\n  queue.length_mars_peer:{peer}");
    let all = parse_all(
        &[("catalog_mars.yaml", both.as_bytes()), ("catalog_ai-core.yaml", AI_CORE.as_bytes())],
        None,
    );
    assert!(all.iter().all(Result::is_err), "both say it");
}

#[test]
fn a_node_has_one_catalog_under_its_name_and_the_fleet_knows_it() {
    let all = parse_all(&[("a.yaml", GOOD.as_bytes()), ("b.yaml", GOOD.as_bytes())], None);
    assert!(all[0].is_ok());
    assert_eq!(
        lines(all[1].as_ref().unwrap_err()),
        [
            "b.yaml:2:7: node `mars` has another catalog, a.yaml (found `mars`; expected one catalog for each node)"
        ]
    );
    let named = |name: &str| super::parse(name, GOOD.as_bytes());
    assert!(named("/etc/keyholder/catalog_mars.yaml").is_ok() && named("mars.yaml").is_ok());
    assert_eq!(
        lines(&named("/etc/keyholder/catalog_ai-core.yaml").unwrap_err()),
        [
            "/etc/keyholder/catalog_ai-core.yaml:2:7: the file's name says that it is the catalog of node `ai-core` (found \
          `mars`; expected `node: ai-core`, or the name catalog_mars.yaml)"
        ]
    );
    let fleet = ["ai-core".parse().unwrap(), "marx".parse().unwrap()].into();
    let all = parse_all(&[("a.yaml", GOOD.as_bytes())], Some(&fleet));
    assert_eq!(
        lines(all[0].as_ref().unwrap_err()),
        ["a.yaml:2:7: there is no such node in the fleet file (found `mars`; did you mean `marx`?)"]
    );
}

#[test]
fn a_broken_catalog_does_not_hide_what_others_say() {
    let all = parse_all(&[("a.yaml", b"version: ["), ("b.yaml", GOOD.as_bytes()), ("c.yaml", b"\xff")], None);
    assert!(all[0].is_err() && all[1].is_ok() && all[2].is_err());
    assert!(load(GOOD).is_ok());
}
