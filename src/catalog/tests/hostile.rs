//! Files that are no honest mistake.

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};
use proptest::prelude::*;

use super::super::sudoers;
use super::{AI_CORE, GOOD, MANY, MARS, errors, parse, with};
use crate::config::{MAX_FILE, Severity};

/// The time that this thread has had a processor for: how busy the machine is otherwise does not count.
fn cpu() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).unwrap().into()
}

#[test]
fn big_things_are_refused_quickly() {
    let within = |text: String, expected: &str| {
        let start = cpu();
        let found = errors(&text);
        let took = cpu() - start;
        assert!(took < Duration::from_secs(2), "{took:?} for {expected}");
        assert!(found.iter().any(|line| line.contains(expected)), "{:?}", found.first());
        assert!(found.len() <= 100);
    };
    within("x".repeat(MAX_FILE + 1), "the file is too large");
    let actions: String = (0..10_000).map(|n| format!("  a{n}: 1\n")).collect();
    within(format!("version: 1\nnode: m\nactions:\n{actions}"), "there are 10000 actions");
    let values: String = (0..20_000).map(|n| format!("v{n}, ")).collect();
    within(with("[a.service, b.service]", &format!("[{values}]")), "there are 20000 values");
    within(with("--no-pager", &"x, ".repeat(40_000)), "elements");
    let params: String = (0..9).map(|n| format!("      p{n}: {{ enum: [a] }}\n")).collect();
    within(with("    timeout: 10s\n", &format!("{params}    timeout: 10s\n")), "there are 11 parameters");
    within(with("a.service, b.service", &"y".repeat(100_000)), "this is too long");
    within(with("the last lines of a service's log", &"z ".repeat(50_000)), "this description is too long");
}

/// Whatever comes in: no panic, an answer that can be shown, never an empty refusal; and what is accepted has sudoers lines.
fn survives(bytes: &[u8]) {
    let problems = match parse("catalog_mars.yaml", bytes) {
        Ok(loaded) => {
            let text = sudoers::file(&loaded.catalog, "x").unwrap();
            assert!(text.lines().all(|line| line.bytes().all(|b| b == b' ' || b.is_ascii_graphic())));
            loaded.warnings
        }
        Err(problems) => {
            assert!(!problems.is_empty());
            problems
        }
    };
    let shown = format!("{problems}{}", problems.fancy(Severity::Error, false));
    assert!(!shown.chars().any(|c| c.is_control() && c != '\n'), "{shown:?}");
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        survives(&bytes);
    }

    #[test]
    fn mutated_catalogs_never_panic(
        which in 0..4usize,
        edits in proptest::collection::vec((any::<prop::sample::Index>(), 0..4u8, any::<u8>(), any::<prop::sample::Index>()), 1..8),
    ) {
        let mut bytes = [MARS, AI_CORE, GOOD, MANY][which].as_bytes().to_vec();
        for (at, edit, byte, other) in edits {
            let (at, other) = (at.index(bytes.len()), other.index(bytes.len()));
            match edit {
                0 => bytes[at] = byte,
                1 => { bytes.remove(at); }
                2 => bytes.insert(at, byte),
                _ => bytes.swap(at, other),
            }
        }
        survives(&bytes);
    }

    #[test]
    fn arguments_of_any_kind_are_taken_literally_or_refused(word in "[ -~]{1,12}") {
        let quoted = serde_json::to_string(&word).unwrap();
        survives(with("restart, \"{unit}\"", &format!("{quoted}, \"{{unit}}\"")).as_bytes());
        survives(with("enum: [a.service] }", &format!("enum: [{quoted}] }}")).as_bytes());
    }
}
