//! Words that were replaced do not come back.

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
const PHRASES: [(&str, &str); 12] = [
    ("answered something else", "unexpected reply"),
    ("turned us away", "rejected our certificate"),
    ("given to anybody", "submitted"),
    ("closed by itself", "the listener ended unexpectedly"),
    ("is no address of", "is not a valid Redis URL"),
    ("was not taken within", "the peer does not read: the write timed out"),
    ("on somebody's order", "by an operator or a program"),
    ("and nobody declared it", "and no hold was declared"),
    ("is mended", "is fixed"),
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
