//! The repository's own files, for tests that read them.

use std::fs;
use std::path::{Path, PathBuf};

/// Where the repository is.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Every file of Rust in a directory of the repository, but for what is built there.
pub(crate) fn rust_files(dir: &str) -> Vec<PathBuf> {
    fn walk(dir: &Path, into: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() && !path.ends_with("target") {
                walk(&path, into);
            } else if path.extension().is_some_and(|ext| ext == "rs") {
                into.push(path);
            }
        }
    }
    let mut all = Vec::new();
    walk(&root().join(dir), &mut all);
    all
}

/// The code of a file without comments and without what only tests contain.
pub(crate) fn code(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap();
    let text = text.split("\n#[cfg(test)]\nmod tests").next().unwrap_or_default();
    text.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n")
}

pub(crate) fn is_test(path: &Path) -> bool {
    let name = |part: &str| {
        path.components().any(|c| c.as_os_str().to_string_lossy().trim_end_matches(".rs") == part)
    };
    name("tests") || name("snapshots")
}
