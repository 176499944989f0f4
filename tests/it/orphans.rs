//! A file of tests that no module names is not compiled, and looks like tests all the same.

use std::fs;
use std::path::{Path, PathBuf};

fn files_of_tests(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files_of_tests(&path, found);
        } else if path.ends_with("tests.rs") {
            found.push(path);
        }
    }
}

#[test]
fn every_file_of_tests_is_compiled() {
    let mut found = Vec::new();
    files_of_tests(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut found);
    assert!(found.len() > 20, "{found:?}");
    for tests in found {
        let folder = tests.parent().unwrap();
        let module = folder.with_extension("rs");
        assert!(module.exists(), "{} belongs to no module", tests.display());
        let named = fs::read_to_string(&module).unwrap().lines().any(|line| line.ends_with("mod tests;"));
        assert!(named, "{} does not name {}", module.display(), tests.display());
    }
}
