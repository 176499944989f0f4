//! Which node this is: said on the command line, in the environment, or in `/etc/keyholder/node`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use nix::unistd::geteuid;

use crate::config::problem::escape;
use crate::config::trust;
use crate::vocabulary::{NameError, NodeName};

/// Where the node's name lies, one line.
pub const NODE_FILE: &str = "/etc/keyholder/node";
/// The variable that overrides it.
pub const NODE_VARIABLE: &str = "NODE_NAME";

/// A name and a line end.
const MAX_FILE: usize = 256;

/// Why this node's name is not known.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WhoamiError {
    /// It is said nowhere.
    #[error("this node's name is not said: write it to {}, or set {NODE_VARIABLE} or --node", .0.display())]
    NotSaid(PathBuf),
    /// What is said is not a name. The source says why.
    #[error("{origin} does not hold a node's name")]
    Bad {
        /// Where it was said.
        origin: String,
        /// What is wrong with it.
        source: NameError,
    },
    /// The file cannot be read or trusted.
    #[error("{0}")]
    Unreadable(String),
}

/// This node's name, from `explicit` (`--node`), `NODE_NAME` or `/etc/keyholder/node`, the first that says anything.
///
/// # Errors
/// [`WhoamiError::NotSaid`] if none does; the others if what is said cannot be used. A bad word in one place never
/// falls through to the next.
pub fn whoami(explicit: Option<&str>) -> Result<NodeName, WhoamiError> {
    resolve(explicit, std::env::var_os(NODE_VARIABLE), Path::new(NODE_FILE))
}

fn resolve(explicit: Option<&str>, variable: Option<OsString>, file: &Path) -> Result<NodeName, WhoamiError> {
    if let Some(name) = explicit {
        return named("--node", name);
    }
    if let Some(name) = variable.filter(|name| !name.is_empty()) {
        return named(NODE_VARIABLE, &name.to_string_lossy());
    }
    // A file that is there and cannot be seen is not the same as no file.
    if matches!(file.try_exists(), Ok(false)) {
        return Err(WhoamiError::NotSaid(file.to_owned()));
    }
    let unreadable =
        |doubt: trust::Refused| WhoamiError::Unreadable(format!("{} ({})", doubt.message, doubt.help));
    let read = trust::read(file, MAX_FILE, geteuid()).map_err(unreadable)?;
    if let Some(doubt) = read.doubts.into_iter().next().filter(|_| geteuid().is_root()) {
        return Err(unreadable(doubt));
    }
    let text = String::from_utf8_lossy(&read.bytes);
    named(&escape(&file.to_string_lossy()), text.strip_suffix('\n').unwrap_or(&text).trim_end_matches('\r'))
}

fn named(origin: &str, name: &str) -> Result<NodeName, WhoamiError> {
    name.parse().map_err(|source| WhoamiError::Bad { origin: origin.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_that_speaks_is_believed_and_a_bad_word_never_falls_through() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("node");
        let ask = |explicit, variable: &str| {
            resolve(explicit, Some(variable.into()), &file).map(|name| name.to_string())
        };
        assert_eq!(ask(None, ""), Err(WhoamiError::NotSaid(file.clone())));
        std::fs::write(&file, "mars\n").unwrap();
        assert_eq!(ask(None, "").unwrap(), "mars");
        assert_eq!(ask(None, "venus").unwrap(), "venus");
        assert_eq!(ask(Some("earth"), "venus").unwrap(), "earth");
        assert!(matches!(ask(Some("a:b"), "venus"), Err(WhoamiError::Bad { .. })));
        assert!(matches!(ask(None, "a b"), Err(WhoamiError::Bad { .. })));
        for bad in ["", "\n", "mars\nvenus\n", " mars\n", "m\0rs", "m\x1b[31mrs"] {
            std::fs::write(&file, bad).unwrap();
            let error = ask(None, "").unwrap_err();
            assert!(matches!(error, WhoamiError::Bad { .. }), "{bad:?}: {error:?}");
            let shown = format!("{error}: {:?}", std::error::Error::source(&error).map(ToString::to_string));
            assert!(!shown.contains('\x1b'));
        }
        std::fs::write(&file, "m".repeat(300)).unwrap();
        assert!(matches!(ask(None, ""), Err(WhoamiError::Unreadable(_))));
    }
}
