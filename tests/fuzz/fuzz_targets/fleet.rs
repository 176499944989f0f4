//! Any bytes as a fleet file: an answer without a panic, which can be shown on a terminal; and what is accepted keeps
//! what the types promise.
#![no_main]

use std::collections::BTreeSet;

use keyholder::fleet::{Loaded, Problems, Severity, parse};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| match parse("fleet.yaml", bytes) {
    Ok(Loaded { fleet, warnings }) => {
        assert!(!fleet.nodes.is_empty());
        let pins: BTreeSet<_> = fleet.nodes.values().flat_map(|node| &node.pins).collect();
        assert_eq!(pins.len(), fleet.nodes.values().map(|node| node.pins.len()).sum::<usize>());
        for grant in &fleet.grants {
            assert!(fleet.nodes.contains_key(&grant.from) && fleet.nodes.contains_key(&grant.on));
        }
        shown(&warnings);
    }
    Err(problems) => {
        assert!(!problems.is_empty());
        shown(&problems);
    }
});

fn shown(problems: &Problems) {
    let text = format!("{problems}{}", problems.fancy(Severity::Error, false));
    assert!(!text.chars().any(|c| c.is_control() && c != '\n'));
}
