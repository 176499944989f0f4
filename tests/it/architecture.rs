//! The map in `docs/architecture.md` is the territory.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use crate::sources::{code, is_test, root, rust_files};

type Arrows = BTreeMap<String, BTreeSet<String>>;

/// The module of the crate that a file belongs to.
fn module(path: &Path) -> String {
    let first = path.strip_prefix(root().join("src")).unwrap().components().next().unwrap();
    first.as_os_str().to_string_lossy().trim_end_matches(".rs").to_owned()
}

/// Which modules the code imports.
fn imported(code: &str) -> BTreeSet<String> {
    let names = code.split("crate::").skip(1);
    let ends = |text: &str| text.find(|c: char| !c.is_ascii_lowercase() && c != '_').unwrap_or(text.len());
    names.map(|text| text.split_at(ends(text)).0.to_owned()).filter(|name| !name.is_empty()).collect()
}

fn drawn() -> Arrows {
    let text = fs::read_to_string(root().join("docs/architecture.md")).unwrap();
    let block = text.split("```arrows\n").nth(1).expect("a list of arrows").split("```").next().unwrap();
    let line = |line: &str| {
        let (from, to) = line.split_once("->").expect("an arrow");
        (from.trim().to_owned(), to.split_whitespace().map(str::to_owned).collect())
    };
    block.lines().map(line).collect()
}

#[test]
fn every_import_between_modules_is_an_arrow_of_the_map_and_no_arrow_is_idle() {
    let all = rust_files("src");
    let modules: BTreeSet<String> =
        all.iter().map(|path| module(path)).filter(|m| m != "lib" && m != "main").collect();
    let mut found = Arrows::new();
    for path in all.iter().filter(|path| !is_test(path)) {
        let from = module(path);
        for to in imported(&code(path)).into_iter().filter(|to| *to != from && modules.contains(to)) {
            found.entry(from.clone()).or_default().insert(to);
        }
    }
    let drawn = drawn();
    for (from, to) in &found {
        let missing: Vec<_> =
            to.iter().filter(|to| !drawn.get(from).is_some_and(|drawn| drawn.contains(*to))).collect();
        assert!(missing.is_empty(), "{from} imports {missing:?}: docs/architecture.md has no such arrow");
    }
    for (from, to) in &drawn {
        let idle: Vec<_> =
            to.iter().filter(|to| !found.get(from).is_some_and(|found| found.contains(*to))).collect();
        assert!(idle.is_empty(), "docs/architecture.md draws {from} -> {idle:?}, and no file needs it");
    }
}

#[test]
fn the_arrows_between_modules_have_no_circle() {
    let drawn = drawn();
    let mut done = BTreeSet::new();
    loop {
        let next = drawn.iter().find(|(from, to)| {
            !done.contains(*from) && to.iter().all(|to| done.contains(to) || !drawn.contains_key(to))
        });
        match next {
            Some((from, _)) => done.insert(from.clone()),
            None => break,
        };
    }
    let circle: Vec<_> = drawn.keys().filter(|from| !done.contains(*from)).collect();
    assert!(circle.is_empty(), "a circle among {circle:?}");
}

/// The files that the map and the decisions name exist.
#[test]
fn every_file_that_the_documentation_names_exists() {
    let mut pages = vec![root().join("CONTRIBUTING.md"), root().join("docs/architecture.md")];
    pages.extend(fs::read_dir(root().join("docs/decisions")).unwrap().map(|entry| entry.unwrap().path()));
    for page in pages {
        let text = fs::read_to_string(&page).unwrap();
        for name in
            text.split('`').skip(1).step_by(2).filter(|name| name.ends_with(".rs") && !name.contains(' '))
        {
            let there = [root().join(name), root().join("src").join(name)];
            assert!(there.iter().any(|path| path.exists()), "{}: there is no {name}", page.display());
        }
    }
}
