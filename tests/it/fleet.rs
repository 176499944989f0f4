//! The fleet file on a real file system: whom it may belong to, and what is never even read.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests are tests")]

use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};

use keyholder::fleet::{Fleet, MAX_FILE, Problems};

const EXAMPLE: &str = include_str!("../../catalogs/fleet.yaml");

struct Place {
    _dir: tempfile::TempDir,
    dir: PathBuf,
    file: PathBuf,
}

fn place(text: &[u8]) -> Place {
    let holder = tempfile::tempdir().unwrap();
    let dir = holder.path().join("etc");
    std::fs::create_dir(&dir).unwrap();
    let file = dir.join("fleet.yaml");
    std::fs::write(&file, text).unwrap();
    chmod(&dir, 0o755);
    chmod(&file, 0o644);
    Place { _dir: holder, dir, file }
}

fn chmod(path: &Path, mode: u32) {
    std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
}

fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}

/// What `load` says when others could have written the file: root is refused, everybody else is warned.
fn doubts(file: &Path) -> Problems {
    match Fleet::load(file) {
        Ok(loaded) => {
            assert!(!is_root() || loaded.warnings.is_empty());
            loaded.warnings
        }
        Err(problems) => {
            assert!(is_root(), "{problems}");
            problems
        }
    }
}

#[test]
fn every_shipped_fleet_file_is_good() {
    let catalogs = Path::new(env!("CARGO_MANIFEST_DIR")).join("catalogs");
    let files = std::fs::read_dir(catalogs).unwrap().map(|entry| entry.unwrap().path());
    let fleets: Vec<PathBuf> =
        files.filter(|path| path.file_name().unwrap().to_string_lossy().starts_with("fleet")).collect();
    assert!(!fleets.is_empty());
    for path in fleets {
        let loaded = keyholder::fleet::parse(&path.to_string_lossy(), &std::fs::read(&path).unwrap());
        assert_eq!(loaded.unwrap_or_else(|problems| panic!("{problems}")).warnings.to_string(), "");
    }
}

#[test]
fn a_file_that_others_may_write_is_not_obeyed() {
    let at = place(EXAMPLE.as_bytes());
    assert!(doubts(&at.file).is_empty());
    for (path, good, bad) in [(&at.file, 0o644, [0o664, 0o646]), (&at.dir, 0o755, [0o775, 0o777])] {
        for mode in bad {
            chmod(path, mode);
            let found = doubts(&at.file);
            assert_eq!(found.len(), 1, "{found}");
            assert!(found.to_string().contains(&format!("run: chmod go-w {}", path.display())), "{found}");
        }
        chmod(path, good);
    }
    assert!(doubts(&at.file).is_empty());
    let link = at.dir.parent().unwrap().join("link.yaml");
    std::os::unix::fs::symlink(&at.file, &link).unwrap();
    chmod(&at.dir, 0o777);
    assert_eq!(doubts(&link).len(), 1, "a link hides nothing");
}

#[test]
fn a_file_of_another_user_is_not_obeyed() {
    if !is_root() {
        return; // Nobody else can give a file away.
    }
    let at = place(EXAMPLE.as_bytes());
    for path in [&at.file, &at.dir] {
        chown(path, Some(1234), None).unwrap();
        let found = doubts(&at.file).to_string();
        assert!(found.contains("belongs to uid 1234, not to root (run: chown root:root "), "{found}");
        chown(path, Some(0), None).unwrap();
    }
}

#[test]
fn a_password_that_everybody_can_read_is_warned_of() {
    let at = place(EXAMPLE.replace("redis://ai-core", "redis://:secret@ai-core").as_bytes());
    let warnings = Fleet::load(&at.file).unwrap().warnings.to_string();
    assert!(warnings.contains("can read the Redis password") && !warnings.contains("secret"), "{warnings}");
    chmod(&at.file, 0o640);
    assert!(Fleet::load(&at.file).unwrap().warnings.is_empty());
}

#[test]
fn what_is_not_a_file_of_reasonable_size_is_never_read() {
    let at = place(&vec![b'#'; MAX_FILE + 1]);
    let message = |path: &Path| Fleet::load(path).unwrap_err().to_string();
    assert!(message(&at.file).ends_with("the file is too large (expected at most 256 KiB)"));
    assert!(message(&at.dir).contains("not a regular file"));
    assert!(message(Path::new("/dev/zero")).contains("not a regular file"));
    assert!(message(&at.dir.join("none")).contains("No such file"));
}
