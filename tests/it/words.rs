//! Words that were replaced do not come back.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use crate::sources::rust_files;

/// Identifiers that were replaced, and by what.
const NAMES: [(&str, &str); 15] = [
    ("Sluice", "RateLimiter"),
    ("Eyes", "QueueProbe"),
    ("Bird", "CanaryTask"),
    ("Seat", "ConnectionPermit"),
    ("Occupant", "OpenConnection"),
    ("Deed", "Operation, DrillEffect"),
    ("Wish", "OrderRequest, OperationOrder"),
    ("Cue", "Trigger"),
    ("Objection", "Rejection"),
    ("Obstacle", "StartBlocker"),
    ("Errand", "WatcherJob"),
    ("Desk", "Inbox, Connection"),
    ("Told", "what is told: Announcements, EventOutput"),
    ("disappoint", "fail_waiters"),
    ("beside_the_point", "unexpected_reply"),
];

/// Phrases that people read, and what is said instead.
const PHRASES: [(&str, &str); 13] = [
    ("answered something else", "unexpected reply"),
    ("turned us away", "rejected our certificate"),
    ("given to anybody", "submitted"),
    ("closed by itself", "the listener ended unexpectedly"),
    ("is no address of", "is not a valid Redis URL"),
    ("was not taken within", "the peer does not read: the write timed out"),
    ("on somebody's order", "by an operator or a program"),
    ("and nobody declared it", "and no hold was declared"),
    ("is mended", "is fixed"),
    (" anew", "again"),
    ("ask anew", "ask again"),
    ("started anew", "started again"),
    ("may nothing", "has no rights"),
];

fn identifiers(line: &str) -> impl Iterator<Item = &str> {
    line.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}

#[test]
fn replaced_words_do_not_come_back() {
    let mut found = Vec::new();
    for path in rust_files("src") {
        let text = fs::read_to_string(&path).unwrap();
        for (at, line) in text.lines().enumerate() {
            let place = || format!("{}:{}", path.display(), at + 1);
            for (old, new) in NAMES {
                if identifiers(line).any(|word| word == old) {
                    found.push(format!("{}: `{old}` is called {new}", place()));
                }
            }
            for (old, new) in PHRASES {
                if line.contains(old) {
                    found.push(format!("{}: instead of \"{old}\": {new}", place()));
                }
            }
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// The name of the type that a line defines, if it defines one.
fn defined(line: &str) -> Option<&str> {
    let words = identifiers(line).filter(|word| !matches!(*word, "pub" | "super" | "crate" | "in"));
    let mut words = words.skip_while(|word| word.chars().all(char::is_lowercase) && !is_definition(word));
    // What is indented is a part of something: an associated type, or a type within a function.
    (!line.starts_with(' ') && words.next().is_some_and(is_definition)).then(|| words.next()).flatten()
}

fn is_definition(word: &str) -> bool {
    matches!(word, "struct" | "enum" | "trait" | "type" | "union")
}

#[test]
fn a_type_name_means_one_thing_or_two_at_most() {
    assert_eq!(defined("pub(in crate::supervise) struct Line<'a> {"), Some("Line"));
    assert_eq!(defined("type Line = u8;"), Some("Line"));
    assert_eq!(defined("    type Line = u8;"), None);
    assert_eq!(defined("fn line() {}"), None);
    let mut places = BTreeMap::<String, BTreeSet<String>>::new();
    for path in rust_files("src") {
        if path.ends_with("tests.rs") || path.components().any(|part| part.as_os_str() == "tests") {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        for name in text.lines().filter_map(defined) {
            places.entry(name.to_owned()).or_default().insert(path.display().to_string());
        }
    }
    assert!(places.len() > 300, "{}", places.len());
    places.retain(|_, files| files.len() > 2);
    assert!(places.is_empty(), "{places:#?}");
}
