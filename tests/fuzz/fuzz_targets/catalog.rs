//! Any bytes as a catalog: an answer without a panic, which can be shown on a terminal; and what is accepted keeps what
//! the types promise, has sudoers lines, and makes commands of the catalog's own words only.
#![no_main]

use std::collections::BTreeMap;

use keyholder::catalog::{Arg, Catalog, Loaded, Param, parse, sudoers};
use keyholder::config::{Problems, Severity};
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

fuzz_target!(|bytes: &[u8]| match parse("catalog.yaml", bytes) {
    Ok(Loaded { catalog, warnings }) => {
        promises(&catalog);
        shown(&warnings);
    }
    Err(problems) => {
        assert!(!problems.is_empty());
        shown(&problems);
    }
});

fn promises(catalog: &Catalog) {
    assert!(!catalog.actions.is_empty());
    let lines = sudoers::file(catalog, "x").expect("a good catalog has sudoers lines");
    assert!(lines.lines().all(|line| line.bytes().all(|b| b == b' ' || b.is_ascii_graphic())));
    for action in catalog.actions.values() {
        assert!(matches!(action.argv.first(), Some(Arg::Literal(program)) if program.starts_with('/')));
        let places = action.argv.iter().filter(|arg| matches!(arg, Arg::Param(_))).count();
        assert_eq!(places, action.params.len());
        let given: BTreeMap<String, Value> = action
            .params
            .iter()
            .map(|(name, param)| {
                let value = match param {
                    Param::Enum(values) => values.last().expect("there is a value").as_str().into(),
                    Param::Int { max, .. } => (*max).into(),
                };
                (name.to_string(), value)
            })
            .collect();
        let argv = action.argv(&given).expect("allowed values are accepted");
        assert!(
            argv.iter()
                .all(|word| !word.is_empty() && word.bytes().all(|b| b == b' ' || b.is_ascii_graphic()))
        );
    }
}

fn shown(problems: &Problems) {
    let text = format!("{problems}{}", problems.fancy(Severity::Error, false));
    assert!(!text.chars().any(|c| c.is_control() && c != '\n'));
}
