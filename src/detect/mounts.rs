//! Whether a file system could take a beat at all: one that is full, read-only or not mounted carries none, however well the
//! worker is.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use nix::sys::statvfs::statvfs;

/// Why no beat can be written at `path`; none if it can, or if that cannot be said. Rights are no matter here: the worker has
/// others than we.
pub(crate) fn unfit(path: &Path) -> Option<String> {
    let dir = path.parent()?;
    match dir.metadata() {
        Ok(meta) if !meta.is_dir() => return Some(format!("{} is no directory", dir.display())),
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return Some(format!(
                "the directory {} is missing, so no beat can be written there",
                dir.display()
            ));
        }
        Err(error) => return Some(format!("the directory {} cannot be looked at: {error}", dir.display())),
    }
    let real = fs::canonicalize(dir).ok()?;
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let mounted = holds(&mounts, &real);
    let shown = real.display();
    if let Some(at) =
        fs::read_to_string("/etc/fstab").ok().and_then(|fstab| unmounted(&fstab, &mounts, &real))
    {
        return Some(format!("{} is not mounted, so no beat can be written at {shown}", at.display()));
    }
    if mounted.is_some_and(|mount| mount.read_only) {
        return Some(format!("the file system of {shown} is read-only, so no beat can be written there"));
    }
    let space = statvfs(&real).ok()?;
    if space.blocks() > 0 && space.blocks_available() == 0 {
        return Some(format!("the file system of {shown} is full, so no beat may be written there"));
    }
    if space.files() > 0 && space.files_available() == 0 {
        return Some(format!(
            "the file system of {shown} has no inodes left, so no beat may be written there"
        ));
    }
    None
}

/// A mount, as far as it matters.
#[derive(Debug, PartialEq, Eq)]
struct Mount {
    at: PathBuf,
    /// The file system itself, and not only our view of it, which our unit makes read-only.
    read_only: bool,
}

/// The mount that holds `path`; see `proc_pid_mountinfo(5)`.
fn holds(mounts: &str, path: &Path) -> Option<Mount> {
    // Of two at one place the later one is on top.
    let all = mounts.lines().filter_map(mount).filter(|mount| path.starts_with(&mount.at));
    all.max_by_key(|mount| mount.at.components().count())
}

fn mount(line: &str) -> Option<Mount> {
    let (own, of) = line.split_once(" - ")?;
    let at = own.split(' ').nth(4)?;
    let options = of.split(' ').nth(2)?;
    Some(Mount { at: unescaped(at), read_only: options.split(',').any(|option| option == "ro") })
}

/// The place of a file system that is in fstab, should hold `path` and is not there.
fn unmounted(fstab: &str, mounts: &str, path: &Path) -> Option<PathBuf> {
    let places = fstab.lines().map(str::trim).filter(|line| !line.starts_with('#'));
    let places = places.filter_map(|line| line.split_ascii_whitespace().nth(1)).map(unescaped);
    let deepest = places
        .filter(|at| at.is_absolute() && path.starts_with(at))
        .max_by_key(|at| at.components().count())?;
    let there = mounts.lines().filter_map(mount).any(|mount| mount.at == deepest);
    (!there && deepest != Path::new("/")).then_some(deepest)
}

/// Blanks and the like are `\040` there.
fn unescaped(text: &str) -> PathBuf {
    let mut plain = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('\\') {
        plain.push_str(before);
        let code = after.get(..3).and_then(|digits| u8::from_str_radix(digits, 8).ok());
        rest = match code {
            Some(code) => {
                plain.push(char::from(code));
                after.get(3..).unwrap_or_default()
            }
            None => {
                plain.push('\\');
                after
            }
        };
    }
    plain.push_str(rest);
    plain.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "30 1 0:27 / / rw,relatime - overlay overlay rw\n\
        31 30 0:28 / /var ro,relatime - ext4 /dev/sda2 rw,errors=remount-ro\n\
        32 30 0:29 / /srv/my\\040data rw - ext4 /dev/sda3 ro\n33 30\n";

    #[test]
    fn the_deepest_mount_counts_and_only_what_the_file_system_itself_says() {
        let at = |path: &str| holds(MOUNTS, Path::new(path)).map(|mount| (mount.at, mount.read_only));
        assert_eq!(at("/run/beat"), Some(("/".into(), false)));
        assert_eq!(at("/var/lib/x"), Some(("/var".into(), false)), "our own view of it is read-only");
        assert_eq!(at("/srv/my data/x"), Some(("/srv/my data".into(), true)));
    }

    #[test]
    fn what_fstab_names_and_nobody_has_mounted_is_missed() {
        let fstab = "# <fs> <at>\n/dev/sda1 / ext4\n/dev/sda2 /var ext4\n/dev/sdb1 /srv/agent ext4 noauto\n";
        let missed = |path: &str| unmounted(fstab, MOUNTS, Path::new(path));
        assert_eq!(missed("/var/lib/x"), None);
        assert_eq!(missed("/run/x"), None);
        assert_eq!(missed("/srv/agent/x"), Some("/srv/agent".into()));
    }

    #[test]
    fn a_missing_directory_carries_no_beat() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(unfit(&dir.path().join("beat")), None);
        assert!(unfit(&dir.path().join("none/beat")).unwrap().contains("is missing"));
        fs::write(dir.path().join("file"), "").unwrap();
        assert!(unfit(&dir.path().join("file/beat")).unwrap().contains("no directory"));
    }
}
