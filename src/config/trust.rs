//! Reading a file that root will obey: a regular file of bounded size, written by nobody but root or ourselves.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::fcntl::OFlag;
use nix::unistd::Uid;

const GROUP_OR_WORLD_WRITABLE: u32 = 0o022;
const STICKY: u32 = 0o1000;

/// For a file beyond the limit.
pub(crate) const TOO_LARGE: (&str, &str) = ("the file is too large", "expected at most 256 KiB");

/// What is wrong and the way out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refused {
    pub message: String,
    pub help: String,
}

/// What was read, and why root should not obey it.
#[derive(Debug)]
pub(crate) struct ReadFile {
    pub bytes: Vec<u8>,
    pub doubts: Vec<Refused>,
    /// Whether everybody on the host may read it.
    pub public: bool,
}

/// Reads at most `limit` bytes. Owner and mode are those of the file that is then read, not of its name.
pub(crate) fn read(path: &Path, limit: usize, me: Uid) -> Result<ReadFile, Refused> {
    let failed = |error: std::io::Error| cannot_read(path, &error);
    let real = path.canonicalize().map_err(failed)?;
    let file = open(&real).map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    if !metadata.is_file() {
        return Err(refused(
            "this is not a regular file",
            "expected a file, not a directory, device or pipe",
        ));
    }
    let mut doubts: Vec<Refused> = doubt(&real, &metadata, me).into_iter().collect();
    for directory in directories(path, &real) {
        let metadata = directory.metadata().map_err(failed)?;
        doubts.extend(doubt(&directory, &metadata, me));
    }
    let mut bytes = Vec::new();
    file.take(limit as u64 + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() > limit {
        return Err(refused(TOO_LARGE.0, TOO_LARGE.1));
    }
    Ok(ReadFile { bytes, doubts, public: metadata.mode() & 0o004 != 0 })
}

/// Looks at a program that is to be run for `owner` and others: a regular file that can be executed, and nobody else
/// could have written it. What is wrong first is returned.
pub(crate) fn program(path: &Path, owner: Uid) -> Result<(), Refused> {
    let failed = |error: std::io::Error| cannot_read(path, &error);
    let real = path.canonicalize().map_err(failed)?;
    let metadata = real.metadata().map_err(failed)?;
    if !metadata.is_file() {
        return Err(refused(
            "this is not a regular file",
            "expected a program, or a script with its #! line",
        ));
    }
    let beside = directories(path, &real);
    for place in std::iter::once(&real).chain(&beside) {
        let metadata = place.metadata().map_err(failed)?;
        if let Some(doubt) = doubt(place, &metadata, owner) {
            return Err(doubt);
        }
    }
    if metadata.mode() & 0o111 == 0 {
        let path = quoted(path);
        return Err(refused(&format!("{path} cannot be executed"), &format!("run: chmod a+x {path}")));
    }
    Ok(())
}

/// `O_NONBLOCK`, so that a pipe under that name is looked at and refused instead of waited for.
fn open(path: &Path) -> std::io::Result<File> {
    OpenOptions::new().read(true).custom_flags(OFlag::O_NONBLOCK.bits()).open(path)
}

/// Every directory through which somebody could put another file in this one's place, the nearest first: those above
/// the file and, if the name is a link, those above the link.
fn directories(named: &Path, real: &Path) -> Vec<PathBuf> {
    let mut all: Vec<PathBuf> = real.ancestors().skip(1).map(Path::to_owned).collect();
    let parent = named.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let above_link = parent.canonicalize().unwrap_or_default();
    for directory in above_link.ancestors().filter(|directory| !directory.as_os_str().is_empty()) {
        if !all.iter().any(|known| known == directory) {
            all.push(directory.to_owned());
        }
    }
    all
}

/// Why something may not be what its owner wrote. In a sticky directory (`/tmp`) others cannot replace what is ours.
fn doubt(path: &Path, metadata: &Metadata, me: Uid) -> Option<Refused> {
    judge(&quoted(path), metadata.is_dir(), metadata.uid(), metadata.mode(), me)
}

fn judge(path: &str, directory: bool, owner: u32, mode: u32, me: Uid) -> Option<Refused> {
    let what = if directory { "the directory" } else { "the file" };
    if owner != 0 && owner != me.as_raw() {
        let who =
            if me.is_root() { "not to root".to_owned() } else { format!("neither to root nor to uid {me}") };
        return Some(refused(
            &format!("{what} {path} belongs to uid {owner}, {who}"),
            &format!("run: chown root:root {path}"),
        ));
    }
    let sticky = directory && mode & STICKY != 0;
    (mode & GROUP_OR_WORLD_WRITABLE != 0 && !sticky).then(|| {
        refused(
            &format!("others may write to {what} {path} (mode {:04o})", mode & 0o7777),
            &format!("run: chmod go-w {path}"),
        )
    })
}

fn cannot_read(path: &Path, error: &std::io::Error) -> Refused {
    let help = if error.kind() == ErrorKind::NotFound {
        "expected a file there; is the name right?"
    } else if error.kind() == ErrorKind::PermissionDenied {
        "run it as root, or as a member of a group that may read it"
    } else {
        "look at the file and its disk"
    };
    refused(&format!("cannot read {}: {error}", quoted(path)), help)
}

fn refused(message: &str, help: &str) -> Refused {
    Refused { message: message.to_owned(), help: help.to_owned() }
}

/// A path as it can be pasted into a shell.
pub(crate) fn quoted(path: &Path) -> String {
    let text = path.to_string_lossy();
    let plain = text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'/' | b'.' | b'_' | b'-'));
    if plain { text.into_owned() } else { format!("'{}'", text.replace('\'', "'\\''")) }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use nix::unistd::geteuid;

    use super::*;

    #[test]
    fn only_root_and_oneself_may_have_written_it() {
        let (root, joe) = (Uid::from_raw(0), Uid::from_raw(1000));
        let ok = |dir, owner, mode, me| judge("/f", dir, owner, mode, me).is_none();
        assert!(
            ok(false, 0, 0o100_644, root) && ok(false, 0, 0o100_644, joe) && ok(false, 1000, 0o100_600, joe)
        );
        assert!(ok(true, 0, 0o041_777, root), "/tmp is sticky");
        assert!(!ok(false, 1000, 0o100_644, root), "another user's file");
        assert!(
            !ok(false, 0, 0o100_664, root) && !ok(false, 0, 0o100_646, root) && !ok(true, 0, 0o040_775, root)
        );
        assert!(!ok(false, 0, 0o101_666, root), "sticky means nothing on a file");
        let refusal = judge("/etc/keyholder", true, 0, 0o040_777, root).unwrap();
        assert_eq!(refusal.message, "others may write to the directory /etc/keyholder (mode 0777)");
        assert_eq!(refusal.help, "run: chmod go-w /etc/keyholder");
        let refusal = judge("/f", false, 1000, 0o100_644, root).unwrap();
        assert_eq!(refusal.message, "the file /f belongs to uid 1000, not to root");
        assert_eq!(refusal.help, "run: chown root:root /f");
    }

    #[test]
    fn file_and_directories_are_looked_at_through_links() {
        let dir = tempfile::tempdir().unwrap();
        let (inner, file) = (dir.path().join("inner"), dir.path().join("inner/fleet.yaml"));
        std::fs::create_dir(&inner).unwrap();
        std::fs::write(&file, "x").unwrap();
        let link = dir.path().join("link");
        symlink(&file, &link).unwrap();
        let chmod =
            |path: &Path, mode| std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
        let doubts = |path: &Path| read(path, 10, geteuid()).unwrap().doubts;

        chmod(&inner, 0o755);
        chmod(&file, 0o644);
        assert_eq!(doubts(&link), []);
        chmod(&file, 0o664);
        assert_eq!(doubts(&link).len(), 1);
        chmod(&inner, 0o777);
        assert_eq!(doubts(&file).len(), 2);
        assert_eq!(read(&file, 10, geteuid()).unwrap().bytes, b"x");
    }

    #[test]
    fn what_is_no_bounded_regular_file_is_refused_without_waiting() {
        let dir = tempfile::tempdir().unwrap();
        let me = geteuid();
        let pipe = dir.path().join("pipe");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let message = |path: &Path, limit| read(path, limit, me).unwrap_err().message;
        assert_eq!(message(&pipe, 10), "this is not a regular file");
        assert_eq!(message(dir.path(), 10), "this is not a regular file");
        assert_eq!(message(Path::new("/dev/zero"), 10), "this is not a regular file");
        let big = dir.path().join("big");
        std::fs::write(&big, "12345678901").unwrap();
        assert_eq!(message(&big, 10), "the file is too large");
        assert!(read(&big, 11, me).is_ok());
        let missing = read(&dir.path().join("no such"), 10, me).unwrap_err();
        assert!(missing.message.ends_with("no such': No such file or directory (os error 2)"), "{missing:?}");
    }

    #[test]
    fn a_program_is_a_file_that_can_be_executed_and_that_nobody_else_could_have_written() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("alert");
        std::fs::write(&file, "#!/bin/sh\n").unwrap();
        let chmod = |mode| std::fs::set_permissions(&file, PermissionsExt::from_mode(mode)).unwrap();
        let verdict = |path: &Path| program(path, geteuid()).map_err(|refused| refused.message);
        chmod(0o755);
        assert_eq!(verdict(&file), Ok(()));
        chmod(0o775);
        assert!(verdict(&file).unwrap_err().starts_with("others may write to the file"));
        chmod(0o644);
        assert!(verdict(&file).unwrap_err().ends_with("cannot be executed"));
        assert_eq!(verdict(dir.path()).unwrap_err(), "this is not a regular file");
        assert!(verdict(&dir.path().join("none")).unwrap_err().contains("No such file"));
    }

    #[test]
    fn commands_to_paste_are_quoted() {
        assert_eq!(quoted(Path::new("/a b/it's")), "'/a b/it'\\''s'");
    }
}
