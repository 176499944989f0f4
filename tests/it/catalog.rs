//! Catalogs on a real file system, on the command line, and their sudoers lines in front of a real sudo.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests are tests")]

use std::fmt::Write as _;
use std::io::Write as _;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use keyholder::catalog::{Catalog, Loaded, parse, parse_all, sudoers};

use crate::cli::fake::{keyholder, told};

const MARS: &str = include_str!("../../catalogs/catalog_mars.yaml");

fn shipped() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("catalogs")
}

fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}

fn chmod(path: &Path, mode: u32) {
    std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
}

/// A directory of our own with a catalog in it, as it would be installed.
fn place(text: &str) -> (tempfile::TempDir, PathBuf, PathBuf) {
    let holder = tempfile::tempdir().unwrap();
    let dir = holder.path().join("etc");
    std::fs::create_dir(&dir).unwrap();
    let file = dir.join("catalog_mars.yaml");
    std::fs::write(&file, text).unwrap();
    chmod(&dir, 0o755);
    chmod(&file, 0o644);
    (holder, dir, file)
}

#[test]
fn every_shipped_catalog_is_good_alone_and_together() {
    let mut paths: Vec<PathBuf> =
        std::fs::read_dir(shipped()).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.file_name().unwrap().to_string_lossy().starts_with("catalog"));
    let files: Vec<(String, Vec<u8>)> = paths
        .iter()
        .map(|path| (path.to_string_lossy().into_owned(), std::fs::read(path).unwrap()))
        .collect();
    let files: Vec<(&str, &[u8])> =
        files.iter().map(|(name, bytes)| (name.as_str(), bytes.as_slice())).collect();
    let fleet = std::fs::read(shipped().join("fleet.yaml")).unwrap();
    let fleet = keyholder::fleet::parse("fleet.yaml", &fleet).unwrap().fleet;
    let all = parse_all(&files, Some(&fleet.nodes.keys().cloned().collect()));
    assert_eq!(all.len(), fleet.nodes.len(), "a catalog for each node of the example");
    for loaded in all {
        assert_eq!(loaded.unwrap_or_else(|problems| panic!("{problems}")).warnings.to_string(), "");
    }
}

#[test]
fn a_catalog_that_others_may_write_is_not_obeyed_by_anybody() {
    let (_holder, dir, file) = place(MARS);
    let refused = |why: &str| {
        let found = Catalog::load(&file).unwrap_err().to_string();
        assert!(found.contains(why), "{found}");
    };
    if !is_root() {
        // What a lane's user could write is not root's word.
        return refused("not to root");
    }
    assert!(Catalog::load(&file).is_ok());
    for (path, good, bad) in [(&file, 0o644, [0o664, 0o646]), (&dir, 0o755, [0o775, 0o777])] {
        for mode in bad {
            chmod(path, mode);
            refused(&format!("run: chmod go-w {}", path.display()));
        }
        chmod(path, good);
    }
    for path in [&file, &dir] {
        chown(path, Some(1234), None).unwrap();
        refused("belongs to uid 1234, not to root (run: chown root:root ");
        chown(path, Some(0), None).unwrap();
    }
    assert!(Catalog::load(&file).is_ok());
}

/// Design section 3: the root process parses neither plans nor catalogs.
#[test]
fn nothing_that_runs_as_root_reads_catalogs() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut waiting: Vec<PathBuf> = ["supervise", "judge", "peer", "systemd", "store", "journal", "fleet"]
        .map(|part| source.join(part))
        .into();
    let mut seen = 0;
    while let Some(path) = waiting.pop() {
        if path.is_dir() {
            waiting.extend(std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = std::fs::read_to_string(&path).unwrap();
            assert!(!text.contains("catalog::") && !text.contains("Catalog"), "{}", path.display());
            seen += 1;
        }
    }
    assert!(seen > 30);
}

#[test]
fn the_command_line_shows_a_catalog() {
    // Files of a checkout may belong to anybody, and root is right not to read those.
    let (_holder, dir, file) = place(MARS);
    let text = |args: &[&str]| told(&mut keyholder(args)).replace(&format!("{}/", dir.display()), "");
    let [dir, file] = [&dir, &file].map(|path| path.to_str().unwrap());
    insta::assert_snapshot!("catalog_show", text(&["catalog", "show", file]));
    assert_eq!(text(&["catalog", "show", "mars", "--catalogs", dir]), text(&["catalog", "show", file]));
    let json: serde_json::Value = serde_json::from_slice(
        &keyholder(&["catalog", "show", file, "--json"]).assert().code(0).get_output().stdout,
    )
    .unwrap();
    assert_eq!(json["actions"]["service.logs"]["params"]["lines"]["int"]["max"], 200);
    assert_eq!(json["actions"]["queue.length"]["rate"]["per_ms"], 3_600_000);
    let schema = keyholder(&["catalog", "schema"]).assert().code(0).get_output().stdout.clone();
    assert_eq!(serde_json::from_slice::<serde_json::Value>(&schema).unwrap(), keyholder::catalog::schema());
}

#[test]
fn a_bad_catalog_and_a_bad_name_are_told_apart() {
    let (_holder, dir, file) = place(&MARS.replace("mode: write", "mode: wrote"));
    let file = file.to_str().unwrap();
    for what in [&["catalog", "show", file][..], &["catalog", "sudoers", file]] {
        let told = told(&mut keyholder(what));
        assert!(told.starts_with("exit 1\n--- stdout\n--- stderr\n"), "{told}");
        assert_eq!(told.matches("this word is not known here").count(), 2, "{told}");
    }
    let missing = told(keyholder(&["catalog", "show", "venus", "--catalogs"]).arg(&dir));
    assert!(
        missing.starts_with("exit 1\n") && missing.contains("catalog_venus.yaml: No such file"),
        "{missing}"
    );
    let name = told(&mut keyholder(&["catalog", "show", "a:b"]));
    assert!(name.starts_with("exit 1\n") && name.contains("is not a node name"), "{name}");
    if !Path::new("/etc/keyholder/node").exists() {
        let unsaid = told(&mut keyholder(&["catalog", "show"]));
        assert!(unsaid.contains("this node's name is not said"), "{unsaid}");
    }
}

#[test]
fn sudoers_lines_pass_visudo_and_an_installed_file_is_compared() {
    let (_holder, dir, file) = place(MARS);
    let file = file.to_str().unwrap();
    let printed = keyholder(&["catalog", "sudoers", file]).assert().code(0).get_output().stdout.clone();
    let installed = dir.join("keyholder");
    std::fs::write(&installed, &printed).unwrap();
    visudo(&installed);
    let check = || told(keyholder(&["catalog", "sudoers", file, "--check"]).arg(&installed));
    assert!(check().starts_with("exit 0\n"), "{}", check());
    let line = "keyholder-write ALL=(root) NOPASSWD: /usr/bin/systemctl restart apache2.service\n";
    let wide = String::from_utf8(printed).unwrap().replace(line, &line.replace("apache2.service", "*"));
    std::fs::write(&installed, wide).unwrap();
    let told = check();
    assert!(
        told.starts_with("exit 1\n")
            && told.contains("this is a pattern")
            && told.contains("this line is missing"),
        "{told}"
    );
}

fn visudo(file: &Path) {
    // The package sudo is what it is about: tests/run installs it.
    let checked = Command::new("visudo")
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .arg("-cf")
        .arg(file)
        .output()
        .unwrap();
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
}

/// Every character that an argument may have, in the middle of a word and at its beginning.
fn words() -> Vec<String> {
    let fit = |c: &char| !"*?[]\"!".contains(*c);
    let all = || ('!'..='~').filter(fit);
    let within = all().map(|c| format!("x{c}y"));
    let first = all().filter(|c| !"-^".contains(*c)).map(|c| format!("{c}y"));
    within.chain(first).collect()
}

#[test]
fn a_real_sudo_allows_every_argument_as_it_is_and_nothing_near_it() {
    let words = words();
    let mut text = "version: 1\nnode: mars\nactions:\n".to_owned();
    for (number, chunk) in words.chunks(100).enumerate() {
        let values =
            chunk.iter().map(|word| serde_json::to_string(word).unwrap()).collect::<Vec<_>>().join(", ");
        writeln!(text, "  a{number}:\n    mode: write\n    argv: [/usr/bin/sudo, -n, --, /usr/bin/printf, \"{{v}}\"]\n    params: {{ v: {{ enum: [{values}] }} }}").unwrap();
    }
    text.push_str("  bare:\n    mode: write\n    argv: [/usr/bin/sudo, -n, --, /usr/bin/id]\n");
    let Loaded { catalog, .. } =
        parse("c.yaml", text.as_bytes()).unwrap_or_else(|problems| panic!("{problems}"));
    let sudoers = sudoers::file(&catalog, "c.yaml").unwrap();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("sudoers");
    std::fs::write(&file, sudoers.replace(&format!("{} ALL", sudoers::USER), "nobody ALL")).unwrap();
    visudo(&file);
    if !is_root() {
        return; // Only root may ask what others may do.
    }
    chmod(&file, 0o440);
    // Neighbours of the allowed words: another character, one more, one less, two arguments.
    let near = ["xZy", "xy", "x", "y", "Zy", "x\\\\y", "xyy", "--help", "x y"];
    let asked: Vec<&str> = words.iter().map(String::as_str).chain(near).collect();
    let answers = ask_sudo(&file, &asked);
    // `x` + letter + `y` is itself allowed; only what is no word of the list must be refused.
    let expected: Vec<(&str, bool)> =
        asked.iter().map(|word| (*word, words.iter().any(|known| known == word))).collect();
    assert_eq!(asked.iter().copied().zip(answers).collect::<Vec<_>>(), expected);
}

/// Whether sudo would let `nobody` run printf with each of these, one argument each, under this sudoers file alone: in a
/// mount namespace of its own, so that this host's file stays as it is.
fn ask_sudo(sudoers: &Path, words: &[&str]) -> Vec<bool> {
    const ASK: &str = r#"mount --bind "$1" /etc/sudoers || exit 9
        sudo -n -l -U nobody -- /usr/bin/id >/dev/null 2>&1 || exit 8
        ! sudo -n -l -U nobody -- /usr/bin/id -u >/dev/null 2>&1 || exit 7
        while IFS= read -r word; do
            if sudo -n -l -U nobody -- /usr/bin/printf "$word" >/dev/null 2>&1; then echo yes; else echo no; fi
        done"#;
    let mut child = Command::new("unshare")
        .args(["--mount", "--propagation", "private", "--", "sh", "-c", ASK, "sh"])
        .arg(sudoers)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all((words.join("\n") + "\n").as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap().lines().map(|line| line == "yes").collect()
}
