//! What the file says about the lanes: who may sign, where reads go, and who takes what nobody signed.

use super::{good, load, refused, warnings, with};

const VERSION: &str = "version: 1\n";

fn top(more: &str) -> String {
    with(VERSION, &format!("version: 1\n{more}"))
}

#[test]
fn without_a_word_about_them_lanes_are_as_ever_and_take_only_signed_writes() {
    let fleet = load(&good()).unwrap().fleet;
    assert!(fleet.task_keys.is_empty() && !fleet.lanes.read_routing);
    assert!(fleet.nodes.values().all(|node| !node.insecure_unsigned_write));
}

#[test]
fn keys_have_names_of_their_own_and_their_own_form() {
    let (a, b) = (format!("ed25519:{}", "a".repeat(64)), format!("ed25519:{}", "b".repeat(64)));
    let fleet = load(&top(&format!("task_keys: {{ ada: \"{a}\", hub: \"{b}\" }}\n"))).unwrap().fleet;
    assert_eq!(fleet.task_keys["hub"].to_string(), b);
    refused(
        &top("task_keys: { ada: \"ed25519:abc\" }\n"),
        "fleet.yaml:2:19: this is not a key for tasks (found `\"ed25519:abc\"`; expected ed25519: and 64 lower-case \
         hexadecimal digits, as `keyholder key show --task` prints it)",
    );
    refused(
        &top(&format!("task_keys:\n  ada: \"{a}\"\n  hub: \"{a}\"\n")),
        &format!(
            "fleet.yaml:4:8: `ada` has the same key (found `\"{a}\"`; expected a key of its own for each name: it says \
             who has signed)"
        ),
    );
    refused(
        &top("task_keys: {}\n"),
        "fleet.yaml:2:1: there is no key here (found `task_keys`; expected at least one, or no `task_keys`)",
    );
}

#[test]
fn who_may_approve_has_a_key_that_signs_no_tasks() {
    let (a, b) = (format!("ed25519:{}", "a".repeat(64)), format!("ed25519:{}", "b".repeat(64)));
    let fleet =
        load(&top(&format!("task_keys: {{ hub: \"{a}\" }}\napprover_keys: {{ ada: \"{b}\" }}\n"))).unwrap();
    assert_eq!(fleet.fleet.approver_keys["ada"].to_string(), b);
    refused(
        &top(&format!("task_keys:\n  hub: \"{a}\"\napprover_keys:\n  ada: \"{a}\"\n")),
        &format!(
            "fleet.yaml:5:8: `hub` has the same key (found `\"{a}\"`; expected a key of its own for each name: it says \
             who has signed)"
        ),
    );
    refused(
        &top("approver_keys: { ada: \"sha256:abc\" }\n"),
        "fleet.yaml:2:23: this is not an approver's key (found `\"sha256:abc\"`; expected ed25519: and 64 lower-case \
         hexadecimal digits, as `keyholder key show --approver` prints it)",
    );
}

#[test]
fn reads_have_their_own_lane_only_when_somebody_says_so() {
    assert!(load(&top("lanes: { read_routing: true }\n")).unwrap().fleet.lanes.read_routing);
    refused(
        &top("lanes: { read_routing: maybe }\n"),
        "fleet.yaml:2:24: this is neither true nor false (found `maybe`; expected true or false)",
    );
    refused(
        &top("lanes: { routing: true }\n"),
        "fleet.yaml:2:10: `lanes` has no such setting (found `routing`; expected read_routing)",
    );
}

#[test]
fn a_lane_that_takes_what_nobody_signed_is_warned_about() {
    let text = with("watched_by: [mars]", "watched_by: [mars]\n    insecure_unsigned_write: true");
    assert!(load(&text).unwrap().fleet.nodes[&"ai-core".parse().unwrap()].insecure_unsigned_write);
    assert_eq!(
        warnings(&text),
        [
            "fleet.yaml:8:30: whoever reaches Redis may order what the catalog of node `ai-core` allows (found `true`; take \
          it out once every producer signs its tasks (`keyholder run` does))"
        ]
    );
    assert!(warnings(&text.replace("write: true", "write: false")).is_empty());
}
