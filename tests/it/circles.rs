//! No file of the crate imports another one that imports it, by whatever way round.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use crate::sources::{code, is_test, root, rust_files};

/// How many files of each module are in a circle. A circle that is new fails the test; so does one that is gone, until its number is
/// taken out here.
const LEFT: [(&str, usize); 7] =
    [("cli", 2), ("judge", 5), ("lane", 9), ("peer", 3), ("queue", 5), ("store", 4), ("systemd", 13)];

/// A path of the language, or the module that a file is: its names from the root of the crate.
type Names = Vec<String>;

/// What a file imports: the paths, and whether the file only passes them on (`pub use`).
#[derive(Default)]
struct Imports {
    paths: Vec<(Names, bool)>,
    passed_on: BTreeMap<String, Names>,
}

/// `a::{b, c::{d, e}}` as `a::b`, `a::c::d`, `a::c::e`.
fn expanded(tree: &str) -> Vec<Names> {
    let tree = tree.trim();
    let Some((before, inner)) = tree.split_once('{') else {
        let path = tree.split(" as ").next().unwrap_or_default();
        return vec![path.split("::").map(|name| name.trim().to_owned()).collect()];
    };
    let before: Names =
        before.split("::").map(|name| name.trim().to_owned()).filter(|name| !name.is_empty()).collect();
    let inner = inner.trim_end().strip_suffix('}').unwrap_or(inner);
    let (mut depth, mut parts) = (0, vec![String::new()]);
    for c in inner.chars() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(String::new());
                continue;
            }
            _ => {}
        }
        parts.last_mut().unwrap().push(c);
    }
    let parts = parts.iter().filter(|part| !part.trim().is_empty());
    parts.flat_map(|part| expanded(part)).map(|path| [before.clone(), path].concat()).collect()
}

/// The code without what stands between quotes.
fn unquoted(code: &str) -> String {
    let mut out = String::new();
    for line in code.lines() {
        let parts = line.replace("\\\"", "");
        out.extend(parts.split('"').step_by(2));
        out.push('\n');
    }
    out
}

fn imports(code: &str) -> Imports {
    let mut imports = Imports::default();
    let mut rest = String::new();
    let mut statements = code.split_inclusive(';');
    for statement in statements.by_ref() {
        let at = statement.find("use ").filter(|at| {
            let before = statement[..*at].lines().last().unwrap_or_default().trim();
            before.is_empty() || before.starts_with("pub")
        });
        let Some(at) = at.filter(|_| !statement.contains("#[cfg(test)]")) else {
            rest.push_str(statement);
            continue;
        };
        rest.push_str(&statement[..at]);
        let passes_on = statement[..at].lines().last().is_some_and(|line| line.trim().starts_with("pub"));
        for path in expanded(statement[at + 4..].trim_end_matches(';')) {
            if let (true, Some(name)) = (passes_on, path.last()) {
                imports.passed_on.insert(name.clone(), path.clone());
            }
            imports.paths.push((path, passes_on));
        }
    }
    let is_path = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    for word in rest.split(|c: char| !is_path(c)) {
        if word.starts_with("crate::") || word.starts_with("super::") {
            let names = word.split("::").filter(|name| !name.is_empty());
            imports.paths.push((names.map(str::to_owned).collect(), false));
        }
    }
    imports
}

struct Files(BTreeMap<Names, Imports>);

impl Files {
    fn read() -> Self {
        let src = root().join("src");
        let mut files = BTreeMap::new();
        for path in rust_files("src").iter().filter(|path| !is_test(path)) {
            let file = path.strip_prefix(&src).unwrap().with_extension("");
            let names: Names = file.iter().map(|name| name.to_string_lossy().into_owned()).collect();
            match names.join("::").as_str() {
                "main" | "supervisor" => {}
                "lib" => drop(files.insert(Names::new(), imports(&unquoted(&code(path))))),
                _ => drop(files.insert(names, imports(&unquoted(&code(path))))),
            }
        }
        assert!(files.len() > 200 && fs::metadata(&src).is_ok());
        Self(files)
    }

    /// The path from the root of the crate; none if it is one of another crate.
    fn absolute(&self, from: &Names, path: &[String]) -> Option<Names> {
        let ups = path.iter().take_while(|name| *name == "super").count();
        match path.first()?.as_str() {
            "crate" => Some(path[1..].to_vec()),
            "self" => Some([from, &path[1..]].concat()),
            "super" => Some([from.get(..from.len().checked_sub(ups)?)?, &path[ups..]].concat()),
            first => {
                let own = [from.clone(), vec![first.to_owned()]].concat();
                self.0.contains_key(&own).then(|| [from, path].concat())
            }
        }
    }

    /// The file that has what the path means, through whatever passes it on.
    fn file_of(&self, path: &Names, depth: u8) -> Option<Names> {
        let file =
            (0..=path.len()).rev().map(|end| &path[..end]).find(|names| self.0.contains_key(*names))?;
        let rest = &path[file.len()..];
        let through = rest.first().and_then(|name| self.0[file].passed_on.get(name));
        match through.and_then(|path| self.absolute(&file.to_vec(), path)) {
            Some(meant) if depth < 8 => self.file_of(&[meant, rest[1..].to_vec()].concat(), depth + 1),
            Some(_) | None => Some(file.to_vec()),
        }
    }

    fn arrows(&self) -> BTreeMap<Names, BTreeSet<Names>> {
        let arrows = |(from, imports): (&Names, &Imports)| {
            let of = |(path, passed_on): &(Names, bool)| {
                let to = self.file_of(&self.absolute(from, path)?, 0)?;
                // What a module passes on of its own is no use of it.
                (to != *from && !(*passed_on && to.starts_with(from))).then_some(to)
            };
            (from.clone(), imports.paths.iter().filter_map(of).collect())
        };
        self.0.iter().map(arrows).collect()
    }
}

fn reached(from: &Names, arrows: &BTreeMap<Names, BTreeSet<Names>>) -> BTreeSet<Names> {
    let (mut seen, mut waiting) = (BTreeSet::new(), vec![from]);
    while let Some(next) = waiting.pop() {
        waiting.extend(arrows[next].iter().filter(|to| seen.insert((*to).clone())));
    }
    seen
}

#[test]
fn a_tree_of_imports_is_read_as_its_paths() {
    let paths: Vec<String> =
        expanded("super::a::{self, b::{C, D as E}, F}").iter().map(|path| path.join("::")).collect();
    assert_eq!(paths, ["super::a::self", "super::a::b::C", "super::a::b::D", "super::a::F"]);
    let imports = imports("pub use own::Thing;\nuse super::x::Y;\nfn f() { crate::z::g(); }\n");
    let paths: Vec<String> = imports.paths.iter().map(|(path, _)| path.join("::")).collect();
    assert_eq!(paths, ["own::Thing", "super::x::Y", "crate::z::g"]);
    assert!(imports.passed_on.contains_key("Thing"));
}

#[test]
fn no_circle_of_imports_between_files_is_new() {
    let arrows = Files::read().arrows();
    let reached: BTreeMap<&Names, BTreeSet<Names>> =
        arrows.keys().map(|from| (from, reached(from, &arrows))).collect();
    let mut circles = BTreeMap::<&str, Vec<String>>::new();
    for (file, to) in &reached {
        if to.contains(*file) {
            let others = to.iter().filter(|other| other != file && reached[*other].contains(*file));
            let others: Vec<String> = others.map(|other| other.join("/")).collect();
            let text = format!("{} with {}", file.join("/"), others.join(", "));
            circles.entry(file.first().map_or("", String::as_str)).or_default().push(text);
        }
    }
    let is: Vec<(&str, usize)> = circles.iter().map(|(module, files)| (*module, files.len())).collect();
    assert_eq!(is, LEFT, "{circles:#?}");
}
