//! How things fit together.

use super::{errors, good, load, pin, refused, warnings, with};

#[test]
fn names_must_exist() {
    refused(
        &with("    watched_by: [mars]", "    watched_by: [marz]"),
        "fleet.yaml:7:18: there is no such node (found `marz`; did you mean `mars`?)",
    );
    refused(
        &with("from: mars, on: ai-core", "from: venus, on: ai-core"),
        "fleet.yaml:21:13: there is no such node (found `venus`; expected one of ai-core, mars)",
    );
    refused(
        &with("from: mars, on: ai-core", "from: mars, on: aicore"),
        "fleet.yaml:21:23: there is no such node (found `aicore`; did you mean `ai-core`?)",
    );
    refused(
        &with("workers: [write]", "workers: [wirte]"),
        "fleet.yaml:21:42: node `ai-core` has no such worker (found `wirte`; did you mean `write`?)",
    );
    refused(
        &with("    watched_by: [mars]", "    watched_by: [mars, ai-core]"),
        "fleet.yaml:7:24: a node cannot watch itself (found `ai-core`; expected another node)",
    );
    refused(
        &with("from: mars, on: ai-core", "from: ai-core, on: ai-core"),
        "fleet.yaml:21:26: a node needs no grant on itself (found `ai-core`; expected another node: root on a node may \
         everything there)",
    );
}

#[test]
fn values_must_differ() {
    let found = errors(&good().replace(&pin('b'), &pin('a')));
    assert_eq!(found.len(), 1);
    assert!(
        found[0].starts_with("fleet.yaml:12:12: node `ai-core` has the same on line 6 (found `\"sha256:"),
        "{found:?}"
    );
    refused(
        &with("192.0.2.10:7433", "\"[::ffff:192.0.2.40]:7433\""),
        "fleet.yaml:11:14: node `ai-core` has the same on line 5 (found `\"[::ffff:192.0.2.40]:7433\"`; expected an \
         address of its own for each node)",
    );
    refused(
        &with("ai-agent.service", "keyholder-lane-write.service"),
        "fleet.yaml:17:15: worker `write` has the same on line 15 (found `keyholder-lane-write.service`; expected a unit \
         of its own for each worker of a node)",
    );
    assert!(load(&with("192.0.2.10:7433", "192.0.2.40:7434")).is_ok(), "one host, two ports");
}

#[test]
fn whoever_meets_a_peer_needs_a_pin() {
    let help = "expected `pins: [\"sha256:…\"]`, from `keyholder key show` on that node";
    let without_b = with(&format!("    pins: [\"{}\"]\n", pin('b')), "");
    refused(
        &without_b,
        &format!("fleet.yaml:10:3: node `mars` has no `pins`, so no peer can know it (found `mars`; {help})"),
    );
    let disabled = without_b.replace("  mars:\n", "  mars:\n    disabled: true\n");
    assert!(load(&disabled).is_ok());
    let alone =
        "version: 1\nnodes:\n  mars: { address: 192.0.2.10:7433, workers: { write: { lane: write } } }\n";
    assert_eq!(
        warnings(alone),
        [
            "fleet.yaml:3:3: nobody watches node `mars` (found `mars`; if its supervisor dies nobody will know; name a peer \
          in `watched_by`)"
        ]
    );
}

#[test]
fn a_repair_that_nobody_may_do_is_an_error() {
    let by_peer = with("grace: 10s", "repair_by: peer");
    assert_eq!(warnings(&by_peer), [""; 0]);
    let nobody = "fleet.yaml:18:20: only peers may repair `mars/agent`, and no peer that watches `mars` may (found `peer`; \
                  expected a grant of `relaunch` to a node in `watched_by`, or `repair_by: node`)";
    refused(
        &by_peer.replace("[\"*\"], verbs: [status, relaunch, nudge, repipe]", "[\"*\"], verbs: [status]"),
        nobody,
    );
    refused(
        &by_peer.replace(
            "[\"*\"], verbs: [status, relaunch, nudge, repipe]",
            "[write], verbs: [status, relaunch, nudge, repipe]",
        ),
        nobody,
    );
    let unwatched = by_peer.replace("    watched_by: [ai-core]\n", "");
    let found = errors(&unwatched);
    assert_eq!(found.len(), 1);
    assert!(
        found[0].starts_with("fleet.yaml:17:20: only peers may repair `mars/agent`, and no peer"),
        "{found:?}"
    );
    let disabled = by_peer.replace("  ai-core:\n", "  ai-core:\n    disabled: true\n");
    assert!(
        load(&disabled).is_ok(),
        "cutting a peer off must never make the file invalid: the old one would stay in force"
    );
}

#[test]
fn a_second_watcher_without_the_right_is_a_warning() {
    let third =
        format!("  venus: {{ address: 192.0.2.11:7433, pins: [\"{}\"], watched_by: [mars] }}\n", pin('c'));
    let text = with("grace: 10s", "repair_by: peer")
        .replace("watched_by: [ai-core]", "watched_by: [ai-core, venus]");
    let text = text.replace(
        "grants:\n",
        &format!("{third}grants:\n  - {{ from: venus, on: mars, workers: [\"*\"], verbs: [status] }}\n"),
    );
    assert_eq!(
        warnings(&text),
        [
            "fleet.yaml:13:27: `venus` may not relaunch `agent`, which only peers repair (found `venus`; grant it: - { from: \
          venus, on: mars, workers: [\"*\"], verbs: [relaunch] })"
        ]
    );
}

#[test]
fn gaps_are_warned_of() {
    assert_eq!(
        warnings(&with(
            "[\"*\"], verbs: [status, relaunch, nudge, repipe]",
            "[\"*\"], verbs: [relaunch, nudge, repipe]"
        )),
        [
            "fleet.yaml:13:18: `ai-core` watches `mars` but may not see any of its workers (found `ai-core`; grant it: - { \
          from: ai-core, on: mars, workers: [\"*\"], verbs: [status] })"
        ]
    );
    assert_eq!(
        warnings(&with(
            "workers: [\"*\"], verbs: [status, relaunch, nudge, repipe]",
            "workers: [write], verbs: [status, relaunch, nudge, repipe]"
        )),
        [
            "fleet.yaml:10:3: no watcher of `mars` may relaunch `agent` (found `mars`; if `mars` itself cannot repair it, \
             nobody will; grant `relaunch` to a watcher)",
            "fleet.yaml:13:18: `ai-core` watches `mars` but may not see `agent` (found `ai-core`; grant it: - { from: \
             ai-core, on: mars, workers: [\"*\"], verbs: [status] })"
        ]
    );
    assert!(warnings(&with("grace: 10s", "repair_by: nobody")).is_empty());
    let no_grants = good().split("grants:").next().unwrap().to_owned();
    assert_eq!(warnings(&no_grants).len(), 8, "two nodes, blind and each remedy missing");
}

#[test]
fn disabled_nodes_and_duplicate_grants_are_warned_of() {
    let disabled = with("  mars:\n", "  mars:\n    disabled: true\n");
    let inert = |place: &str| {
        format!(
            "fleet.yaml:{place}: node `mars` is disabled, so this grant has no effect (found `mars`; harmless while the \
             node is disabled; otherwise take it out)"
        )
    };
    assert_eq!(
        warnings(&disabled),
        [
            "fleet.yaml:4:3: nobody watches node `ai-core`: each of its watchers is disabled (found `ai-core`; if its \
             supervisor dies nobody will know; name another peer in `watched_by`)"
                .to_owned(),
            inert("21:26"),
            inert("22:13")
        ]
    );
    let line =
        "  - { from: ai-core, on: mars, workers: [\"*\"], verbs: [status, relaunch, nudge, repipe] }\n";
    let contained = "  - { from: ai-core, on: mars, workers: [write], verbs: [status] }\n";
    let contains = |place: &str, by: u32| {
        format!("fleet.yaml:{place}:5: the grant on line {by} already contains this one")
    };
    for (text, expected) in [
        (with(line, &format!("{line}{line}")), contains("21", 20)),
        (with(line, &format!("{line}{contained}")), contains("21", 20)),
        (with(line, &format!("{contained}{line}")), contains("20", 21)),
    ] {
        let found = warnings(&text);
        assert_eq!(found.len(), 1);
        assert!(found[0].starts_with(&expected), "{found:?}");
    }
}

#[test]
fn a_slip_is_not_reported_again_as_the_right_that_is_now_missing() {
    let by_peer = with("grace: 10s", "repair_by: peer");
    for (old, new) in [
        (
            "workers: [\"*\"], verbs: [status, relaunch, nudge, repipe]",
            "workers: [\"*\"], verbs: [status, relanch]",
        ),
        (
            "workers: [\"*\"], verbs: [status, relaunch, nudge, repipe]",
            "workers: [agnet], verbs: [status, relaunch, nudge, repipe]",
        ),
        ("from: ai-core, on: mars", "from: ai-cor, on: mars"),
        ("watched_by: [ai-core]", "watched_by: [ai-cor]"),
    ] {
        assert!(by_peer.contains(old));
        let found = errors(&by_peer.replace(old, new));
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains("did you mean"), "{found:?}");
    }
}

#[test]
fn a_disabled_watcher_need_not_be_allowed_to_look() {
    let disabled = with("  mars:\n", "  mars:\n    disabled: true\n");
    let grant =
        "  - { from: mars, on: ai-core, workers: [write], verbs: [status, relaunch, nudge, repipe] }\n";
    assert!(disabled.contains(grant));
    let found = warnings(&disabled.replace(grant, ""));
    assert!(found.iter().all(|line| !line.contains("may not see")), "{found:?}");
}
