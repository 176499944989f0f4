//! Why a lane must not run as it is.

use std::io;
use std::path::PathBuf;

use crate::catalog::sudoers::USER;

/// The lane must not run as it is; starting it again changes nothing.
#[derive(Debug, thiserror::Error)]
pub enum GuardError {
    /// Another lane has the directory.
    #[error("another lane runs on this host already and holds {}; stop it first", .0.display())]
    NotAlone(PathBuf),
    /// The lock cannot be taken.
    #[error("{} cannot be locked", path.display())]
    Lock {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A read lane that could gain rights.
    #[error("a read lane must not be able to gain rights; set NoNewPrivileges=yes in its unit")]
    CanGain,
    /// A write lane whose catalog needs rights that it cannot gain.
    #[error(
        "the catalog uses sudo and this lane cannot gain rights; set NoNewPrivileges=no in its unit, and no sandbox \
         directive that implies it"
    )]
    CannotGain,
    /// `sudo` knows no line for this lane's user.
    #[error(
        "the catalog uses sudo, and `sudo -n -l` fails ({0}); install the lines of `keyholder catalog sudoers`"
    )]
    NoSudoLines(String),
    /// `sudo` fails for another reason.
    #[error(
        "the catalog uses sudo, and `sudo -n -l` fails ({0}); fix that and start the lane again. The same question by hand: \
         runuser -u {USER} -- sudo -n -l"
    )]
    Sudo(String),
}
