//! What the documentation names is there.

use std::fs;

use crate::sources::{root, rust_files};

/// Each row of the table of threats has a test, and each test that it names is there.
#[test]
fn every_test_that_the_threats_name_exists() {
    let threats = fs::read_to_string(root().join("docs/threats.md")).unwrap();
    let files = rust_files("src").into_iter().chain(rust_files("tests"));
    let source: String = files.map(|path| fs::read_to_string(path).unwrap()).collect();
    let mut named = 0;
    for row in threats.lines().filter(|line| line.starts_with('|') && !line.starts_with("| at most")) {
        let Some(tests) = row.trim_matches('|').split('|').nth(1) else { panic!("no test: {row}") };
        if tests.chars().all(|c| c == '-') {
            continue;
        }
        let tests: Vec<&str> = tests.split('`').skip(1).step_by(2).collect();
        assert!(!tests.is_empty(), "no test: {row}");
        for test in tests {
            let last = test.rsplit("::").next().unwrap_or(test);
            let there = [format!("fn {last}("), format!("mod {last};"), format!("mod {last} {{")];
            let fuzz = test == "redis";
            assert!(fuzz || there.iter().any(|there| source.contains(there)), "{test} is not there: {row}");
            named += 1;
        }
    }
    assert!(named > 30, "{named} tests are named");
}
