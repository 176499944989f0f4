//! What the documentation names is there.

use std::fs;
use std::path::Path;

/// Every line of Rust in the repository.
fn source() -> String {
    fn read(dir: &Path, into: &mut String) {
        for entry in fs::read_dir(dir).expect("a directory") {
            let path = entry.expect("an entry").path();
            if path.is_dir() && !path.ends_with("target") {
                read(&path, into);
            } else if path.extension().is_some_and(|ext| ext == "rs") {
                into.push_str(&fs::read_to_string(&path).expect("a text"));
            }
        }
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut text = String::new();
    read(&root.join("src"), &mut text);
    read(&root.join("tests"), &mut text);
    text
}

/// Each row of the table of threats has a test, and each test that it names is there.
#[test]
fn every_test_that_the_threats_name_exists() {
    let threats = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/threats.md")).unwrap();
    let source = source();
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
