//! What the file says about workers that run and nodes that do not answer.

use std::time::Duration;

use super::{good, load, refused, warnings, with};
use crate::fleet::Worker;
use crate::vocabulary::{
    Canary, Command, DeliveryGap, Flow, Heartbeat, Mode, Nudge, NudgeSignal, Power, Repipe, Stuck, Witness,
};

const SECOND: Duration = Duration::from_secs(1);

/// The good file with more said of `mars/agent`, on its line 18.
fn agent(more: &str) -> String {
    with("        grace: 10s", &format!("        {more}"))
}

/// The good file with more said of the lane `mars/write`, on its line 15.
fn lane(more: &str) -> String {
    with("blast_radius: critical }", &format!("{more} }}"))
}

fn worker(text: &str, name: &str) -> Worker {
    let fleet = load(text).unwrap_or_else(|problems| panic!("{problems}in\n{text}")).fleet;
    fleet.nodes[&"mars".parse().unwrap()].workers[&name.parse().unwrap()].as_ref().clone()
}

fn command(argv: &[&str], user: &str, timeout: Duration) -> Command {
    Command { argv: argv.iter().map(|word| (*word).to_owned()).collect(), user: user.to_owned(), timeout }
}

#[test]
fn a_lane_has_its_care_without_a_word_and_another_worker_has_none() {
    let write = worker(&good(), "write");
    let stuck = Stuck {
        heartbeat: Heartbeat::Lane(Mode::Write),
        older_than: 15 * SECOND,
        nudge: Some(Nudge::Signal(NudgeSignal::Usr1)),
    };
    let gap = DeliveryGap {
        flow: Flow::Lane(Mode::Write),
        not_draining_for: 60 * SECOND,
        canary: None,
        repipe: Some(Repipe::Hangup),
    };
    assert_eq!((write.stuck, write.delivery_gap), (Some(stuck.clone()), Some(gap.clone())));
    let other = worker(&good(), "agent");
    assert_eq!((other.stuck, other.delivery_gap), (None, None));

    let without = worker(&with("redis: { url: \"redis://ai-core:6379\" }\n", ""), "write");
    assert_eq!((without.stuck, without.delivery_gap), (Some(stuck.clone()), None), "no Redis, no queue");

    // Each piece for itself.
    let said = worker(&lane("stuck: { heartbeat: { older_than: 40s } }"), "write");
    assert_eq!(said.stuck, Some(Stuck { older_than: 40 * SECOND, ..stuck.clone() }));
    assert_eq!(said.delivery_gap, Some(gap.clone()));
    let said = worker(&lane("stuck: { nudge: none }"), "write").stuck;
    assert_eq!(said, Some(Stuck { nudge: None, ..stuck.clone() }));
    let said = worker(&lane("stuck: { heartbeat: { watchdog: true } }"), "write").stuck;
    assert_eq!(said, Some(Stuck { heartbeat: Heartbeat::Watchdog, ..stuck.clone() }));
    let said = worker(&lane("delivery_gap: { backlog: { not_draining_for: 5m } }"), "write").delivery_gap;
    assert_eq!(said, Some(DeliveryGap { not_draining_for: 300 * SECOND, ..gap.clone() }));
    let said = worker(&lane("delivery_gap: { backlog: { queue: \"my:queue\" } }"), "write").delivery_gap;
    assert_eq!(
        said,
        Some(DeliveryGap { flow: Flow::Queue { key: "my:queue".to_owned(), busy: None }, ..gap.clone() })
    );
    let said = worker(&lane("delivery_gap: { canary: { every: 10m, within: 30s } }"), "write").delivery_gap;
    let canary = Some(Canary { every: 600 * SECOND, within: 30 * SECOND });
    assert_eq!(said, Some(DeliveryGap { canary, ..gap }));
    let said = worker(&lane("stuck: none, delivery_gap: none"), "write");
    assert_eq!((said.stuck, said.delivery_gap), (None, None));
}

#[test]
fn every_sign_of_life_and_every_way_to_wake_can_be_written() {
    for (written, meant) in [
        ("file: /run/agent/beat", Heartbeat::File("/run/agent/beat".into())),
        ("redis: \"agent:beat\"", Heartbeat::Redis("agent:beat".to_owned())),
        ("journal: true", Heartbeat::Journal),
        ("watchdog: true", Heartbeat::Watchdog),
        (
            "command: { argv: [/bin/alive, -q, \"a b\"], user: agent, timeout: 2s }",
            Heartbeat::Command(command(&["/bin/alive", "-q", "a b"], "agent", 2 * SECOND)),
        ),
        // It must have ended before the beat counts as missing.
        (
            "command: { argv: [/bin/alive] }",
            Heartbeat::Command(command(&["/bin/alive"], "nobody", 4 * SECOND)),
        ),
    ] {
        let text = agent(&format!("stuck: {{ heartbeat: {{ {written}, older_than: 8s }} }}"));
        let stuck = Stuck { heartbeat: meant, older_than: 8 * SECOND, nudge: None };
        assert_eq!(worker(&text, "agent").stuck, Some(stuck), "{written}");
    }
    let mut nudges: Vec<(String, Nudge)> = NudgeSignal::ALL
        .iter()
        .map(|signal| (format!("signal: {}", signal.name()), Nudge::Signal(*signal)))
        .collect();
    nudges.push(("reload: true".to_owned(), Nudge::Reload));
    nudges.push((
        "command: { argv: [/bin/wake] }".to_owned(),
        Nudge::Command(command(&["/bin/wake"], "nobody", 10 * SECOND)),
    ));
    for (written, meant) in nudges {
        let text = agent(&format!(
            "stuck: {{ heartbeat: {{ journal: true, older_than: 90s }}, nudge: {{ {written} }} }}"
        ));
        assert_eq!(worker(&text, "agent").stuck.unwrap().nudge, Some(meant), "{written}");
    }
    for (written, meant) in [
        ("{ restart: agent-tunnel.service }", Some(Repipe::Restart("agent-tunnel.service".parse().unwrap()))),
        ("{ hangup: true }", Some(Repipe::Hangup)),
        ("none", None),
    ] {
        let text = agent(&format!(
            "delivery_gap: {{ backlog: {{ queue: \"agent:inbox\", not_draining_for: 60s }}, repipe: {written} }}"
        ));
        let gap = DeliveryGap {
            flow: Flow::Queue { key: "agent:inbox".to_owned(), busy: None },
            not_draining_for: 60 * SECOND,
            canary: None,
            repipe: meant,
        };
        assert_eq!(worker(&text, "agent").delivery_gap, Some(gap), "{written}");
    }
}

#[test]
fn what_cannot_be_a_sign_of_life_is_refused_where_it_stands() {
    let beat = |written: &str| agent(&format!("stuck: {{ heartbeat: {{ {written}, older_than: 90s }} }}"));
    let ways = "expected exactly one of file, redis, journal, command, watchdog";
    let paths = "expected a path from / on, without `..`, to a file";
    for (text, expected) in [
        (
            agent("stuck: {}"),
            "9: `stuck` has no `heartbeat` (found `stuck`; expected `heartbeat: { file: /run/agent/beat, older_than: 90s }` \
             or the like)"
                .to_owned(),
        ),
        (
            agent("stuck: { heartbeat: { older_than: 90s } }"),
            format!("18: `heartbeat` does not say how (found `heartbeat`; {ways})"),
        ),
        (
            agent("stuck: { heartbeat: { file: /a } }"),
            "18: `heartbeat` has no `older_than` (found `heartbeat`; expected how long a sign of life may be missing, such \
             as 90s)"
                .to_owned(),
        ),
        (
            beat("file: /a, journal: true"),
            format!("41: `heartbeat` has both `file` and `journal` (found `journal`; {ways})"),
        ),
        (
            beat("journal: false"),
            "40: this cannot be switched off here (found `false`; expected true, or another way)".to_owned(),
        ),
        (
            beat("watchdog: 90s"),
            "41: this is neither true nor false (found `90s`; expected true or false)".to_owned(),
        ),
        (beat("file: run/beat"), format!("37: this path is not absolute (found `run/beat`; {paths})")),
        (beat("file: /run/../etc/x"), format!("37: this path climbs up with `..` (found `/run/../etc/x`; {paths})")),
        (
            beat("file: /tmp/beat"),
            "37: keyholder.service cannot see what is below /tmp/ (found `/tmp/beat`; expected a place such as /run or /var/lib)"
                .to_owned(),
        ),
        (beat("file: /run/"), format!("37: this is a directory (found `/run/`; {paths})")),
        (
            beat("file: \"/run/a\\0b\""),
            "37: this has characters that cannot be seen (found `\"/run/a\\0b\"`; expected at most 512 bytes of printable \
             text on one line)"
                .to_owned(),
        ),
        (
            beat("redis: \"a b\""),
            "38: this is no key that could be looked up (found `\"a b\"`; expected at most 512 printable ASCII characters \
             without spaces)"
                .to_owned(),
        ),
        (
            agent("stuck: { heartbeat: { journal: true, older_than: 10ms } }"),
            "58: this is too short (found `10ms`; expected a duration from 1.0 s to 7d 0h)".to_owned(),
        ),
        (
            agent("stuck: { heartbeat: { command: { argv: [/a], timeout: 9s }, older_than: 9s } }"),
            "63: the command may take longer than a sign of life may be missing (found `9s`; expected less than \
             `older_than`)"
                .to_owned(),
        ),
        (
            agent("stuck: { heartbeat: { file: /a, older_than: 9s }, nudge: { signal: SIGKILL } }"),
            "76: this word is not known here (found `SIGKILL`; expected one of SIGHUP, SIGUSR1, SIGUSR2, SIGCONT, SIGALRM)"
                .to_owned(),
        ),
        (
            agent("stuck: { heartbeat: { file: /a, older_than: 9s }, nudge: {} }"),
            "59: `nudge` does not say how (found `nudge`; expected exactly one of signal, reload, command)".to_owned(),
        ),
    ] {
        refused(&text, &format!("fleet.yaml:18:{expected}"));
    }
}

#[test]
fn a_command_is_a_program_by_its_path_and_words_that_can_be_seen() {
    let power = |written: &str| {
        with("    watched_by: [mars]", &format!("    power: {{ {written} }}\n    watched_by: [mars]"))
    };
    let words = "expected at most 512 bytes of printable text on one line";
    let long = "x".repeat(513);
    let many = format!("argv: [{}]", ["/a"; 33].join(", "));
    for (written, expected) in [
        (
            "user: root",
            "5: `power` has no `argv` (found `power`; expected a program by its absolute path, and its arguments)"
                .to_owned(),
        ),
        ("argv: []", "20: this list is empty (found `[]`; expected [/usr/bin/program, argument])".to_owned()),
        (
            "argv: etherwake",
            "20: this is not a list (found `etherwake`; expected [/usr/bin/program, argument])".to_owned(),
        ),
        (
            "argv: [etherwake]",
            "21: this path is not absolute (found `etherwake`; expected a path from / on, without `..`, to a file)"
                .to_owned(),
        ),
        (
            "argv: [/a, \"b\\nc\"]",
            format!("25: this has characters that cannot be seen (found `\"b\\nc\"`; {words})"),
        ),
        (
            "argv: [/a, \"\\u202e\"]",
            format!("25: this has characters that cannot be seen (found `\"\\u202e\"`; {words})"),
        ),
        (
            "argv: [/a], user: \"0\"",
            "32: this is no user's name (found `\"0\"`; expected lower-case letters, digits, '_' and '-', starting with a \
             letter or '_', at most 32)"
                .to_owned(),
        ),
        (
            "argv: [/a], timeout: 11m",
            "35: this is too long (found `11m`; expected a duration from 100 ms to 10m 00s)".to_owned(),
        ),
        (
            "argv: [/a], after: 0s",
            "33: this is too short (found `0s`; expected a duration from 1.0 s to 1h 00m)".to_owned(),
        ),
        (
            "argv: [/a], shell: true",
            "26: `power` has no such setting (found `shell`; expected one of argv, user, timeout, after, witness)".to_owned(),
        ),
        (
            "argv: [/a], witness: mars",
            "35: this is nobody whom a watcher could reach to see that it is not cut off (found `mars`; expected gateway, an IP \
             address, or an IP address and a TCP port)"
                .to_owned(),
        ),
    ] {
        refused(&power(written), &format!("fleet.yaml:7:{expected}"));
    }
    assert!(super::errors(&power(&many))[0].contains("there are 33 words in this command"));
    assert!(super::errors(&power(&format!("argv: [/a, {long}]")))[0].contains("this is too long"));
}

#[test]
fn a_queue_needs_a_redis_and_a_pipe_is_not_the_worker_itself() {
    let gap = |more: &str| {
        agent(&format!("delivery_gap: {{ backlog: {{ queue: \"q\", not_draining_for: 60s }}{more} }}"))
    };
    let nowhere = |text: &str, place: &str, found: &str| {
        let text = text.replace("redis: { url: \"redis://ai-core:6379\" }\n", "");
        let seen = "this is seen in Redis, and the file does not say where that is";
        let help = "expected `redis: { url: \"redis://HOST:PORT\" }` at the top of the file";
        refused(&text, &format!("fleet.yaml:{place}: {seen} (found `{found}`; {help})"));
    };
    nowhere(&gap(""), "17:9", "delivery_gap");
    nowhere(&agent("stuck: { heartbeat: { redis: k, older_than: 9s } }"), "17:31", "redis");
    nowhere(&lane("delivery_gap: { canary: { every: 9s, within: 9s } }"), "14:29", "delivery_gap");
    // A slip in `redis` is said once.
    assert_eq!(super::errors(&gap("").replace("//ai-core:6379", "//")).len(), 1);
    for (text, expected) in [
        (
            gap(", repipe: { restart: ai-agent.service }"),
            "92: this is the worker itself, not its receive pipe (found `ai-agent.service`; expected the unit that feeds it; \
             the worker itself is relaunched anyway if this does not help)",
        ),
        (
            gap(", repipe: { restart: keyholder.service }"),
            "92: the supervisor looks after units, and is none of them (found `keyholder.service`; take it out: systemd \
             restarts the supervisor, and a peer's knock starts it)",
        ),
        (
            gap(", canary: { every: 9s, within: 9s }"),
            "73: only lanes take canaries (found `canary`; take it out: nobody else knows a task that does nothing)",
        ),
        (
            agent("delivery_gap: { repipe: { hangup: true } }"),
            "9: `delivery_gap` has no `backlog` (found `delivery_gap`; expected `backlog: { queue: \"agent:inbox\", \
             not_draining_for: 60s }`)",
        ),
        (
            agent("delivery_gap: { backlog: { queue: q } }"),
            "25: `backlog` has no `not_draining_for` (found `backlog`; expected how long work may wait while none is taken, \
             such as 60s)",
        ),
        (
            agent("delivery_gap: { backlog: { not_draining_for: 9s } }"),
            "25: `backlog` has no `queue` (found `backlog`; expected the Redis list that the worker takes from)",
        ),
    ] {
        refused(&text, &format!("fleet.yaml:18:{expected}"));
    }
    refused(
        &lane("delivery_gap: { canary: { every: 9s, within: 10s } }"),
        "fleet.yaml:15:45: a canary would be sent before the one before it is missed (found `canary`; expected `within` to be \
         at most `every`)",
    );
}

#[test]
fn a_worker_whose_process_may_end_is_said_to_be_one() {
    assert!(!worker(&good(), "agent").policy.ends_clean);
    assert!(worker(&agent("ends: clean"), "agent").policy.ends_clean);
    assert!(!worker(&agent("ends: never"), "agent").policy.ends_clean);
    let found = super::errors(&agent("ends: sometimes"));
    assert!(matches!(&found[..], [one] if one.contains("clean") && one.contains("never")), "{found:?}");
}

#[test]
fn a_unit_that_only_holds_its_instances_together_is_no_worker() {
    let hollow = |more: &str| agent(more).replace("ai-agent.service", "postgresql.service");
    let found = super::warnings(&hollow("ends: never"));
    assert!(found.iter().any(|one| one.contains("nothing runs in `postgresql.service`")), "{found:?}");
    let found = super::warnings(&hollow("ends: clean"));
    assert!(!found.iter().any(|one| one.contains("nothing runs in")), "{found:?}");
}

#[test]
fn only_an_auxiliary_worker_may_wait() {
    let aside = worker(
        &agent("blast_radius: auxiliary\n        repair_window: 6h\n        rehearse_every: 7d"),
        "agent",
    );
    assert_eq!(aside.policy.repair_window, 6 * 3_600 * SECOND);
    assert_eq!(aside.policy.rehearse_every, 7 * 86_400 * SECOND);
    assert_eq!(worker(&good(), "agent").policy.rehearse_every, 30 * 86_400 * SECOND);
    for radius in ["", "blast_radius: normal\n        ", "blast_radius: critical\n        "] {
        let found = super::errors(&agent(&format!("{radius}repair_window: 6h")));
        assert!(
            matches!(&found[..], [one] if one.contains("only an auxiliary worker may be left lying for a while")),
            "{found:?}"
        );
    }
}

#[test]
fn power_is_granted_for_a_whole_node_and_to_somebody() {
    let text = with(
        "    watched_by: [mars]",
        "    watched_by: [mars]\n    power: { argv: [/usr/sbin/etherwake, \"aa:bb:cc:dd:ee:ff\"], user: root, after: 2m, witness: \"192.0.2.1:22\" }",
    );
    assert_eq!(
        warnings(&text),
        [
            "fleet.yaml:8:5: nobody may switch `ai-core` on again (found `power`; grant it: - { from: mars, on: ai-core, \
             workers: [\"*\"], verbs: [power] })"
        ]
    );
    let granted = format!("{text}  - {{ from: mars, on: ai-core, workers: [\"*\"], verbs: [power] }}\n");
    let loaded = load(&granted).unwrap();
    assert!(loaded.warnings.is_empty());
    let (mars, core) = ("mars".parse().unwrap(), "ai-core".parse().unwrap());
    let fleet = loaded.fleet;
    let command = command(&["/usr/sbin/etherwake", "aa:bb:cc:dd:ee:ff"], "root", 30 * SECOND);
    assert_eq!(
        fleet.nodes[&core].power,
        Some(Power {
            command,
            after: 120 * SECOND,
            witness: Some(Witness::At([192, 0, 2, 1].into(), Some(22)))
        })
    );
    // With two nodes a watcher cannot tell a dead neighbour from its own fault by itself.
    let alone = warnings(&granted.replace(", witness: \"192.0.2.1:22\"", ""));
    assert!(
        matches!(&alone[..], [one] if one.contains("`mars` will not run `power` of `ai-core` by itself")),
        "{alone:?}"
    );
    assert!(warnings(&granted.replace("\"192.0.2.1:22\"", "gateway")).is_empty());
    use crate::fleet::Right;
    assert!(fleet.allows_node(&mars, &core, Right::Power));
    assert!(!fleet.allows_node(&core, &mars, Right::Power), "deny by default");
    assert!(!fleet.allows_node(&mars, &core, Right::Relaunch), "granted for one worker only");
    refused(
        &granted.replace("[\"*\"], verbs: [power]", "[write], verbs: [power]"),
        "fleet.yaml:23:58: a node's power cannot be granted for some of its workers (found `power`; expected `workers: \
         [\"*\"]` in this grant, or `power` in one of its own)",
    );
    let unwatched = granted.replace("    watched_by: [mars]\n", "");
    assert!(
        warnings(&unwatched).iter().any(|line| line.contains("only a watcher can use it")),
        "{unwatched}"
    );
}

#[test]
fn a_ladder_that_no_watcher_may_climb_is_warned_of() {
    let lane = "what only a watcher can see is not fixed that way then; grant";
    assert_eq!(
        warnings(&with(
            "[\"*\"], verbs: [status, relaunch, nudge, repipe]",
            "[\"*\"], verbs: [status, relaunch]"
        )),
        [
            format!(
                "fleet.yaml:10:3: no watcher of `mars` may nudge `write` (found `mars`; {lane} `nudge` to a watcher)"
            ),
            format!(
                "fleet.yaml:10:3: no watcher of `mars` may repipe `write` (found `mars`; {lane} `repipe` to a watcher)"
            ),
        ]
    );
    let by_peer = super::with("lane: write, blast_radius", "lane: write, repair_by: peer, blast_radius");
    let by_peer = by_peer.replace(
        "[\"*\"], verbs: [status, relaunch, nudge, repipe]",
        "[\"*\"], verbs: [status, relaunch, nudge]",
    );
    assert_eq!(
        warnings(&by_peer),
        [
            "fleet.yaml:13:18: `ai-core` may not repipe `write`, which only peers repair (found `ai-core`; grant it: - { \
             from: ai-core, on: mars, workers: [\"*\"], verbs: [repipe] })"
        ]
    );
}
