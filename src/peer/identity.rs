//! This node's key: what peers recognise it by.
//!
//! One file, PKCS#8 in PEM, 0600 and root's. A new key is Ed25519: with `ring` a handshake's signature and its check
//! cost a few dozen microseconds, and signing needs no random number that could be bad. An ECDSA P-256 key is read as
//! well, for keys that come from elsewhere (a TPM, `openssl`). The certificate around the key is made in memory at each
//! start; nothing in it counts but the key, and its dates are as far apart as X.509 can say.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::libc::O_NOFOLLOW;
use nix::unistd::Uid;
use rcgen::{CertificateParams, KeyPair, PublicKeyData, date_time_ymd};

use super::tls::{self, Credentials};
use crate::vocabulary::Pin;

/// Where the key lies, inside the directory for keys.
pub const KEY_FILE: &str = "key.pem";
/// Where the key that is to follow lies until `keyholder key switch`.
pub const NEXT_FILE: &str = "key.next.pem";
/// Where the key before the last switch is kept.
pub const OLD_FILE: &str = "key.old.pem";
/// The largest key file that is read, in bytes; an Ed25519 or P-256 key takes about 250.
const MAX_FILE: u64 = 16 * 1024;

/// Why a key cannot be used, made or stored, and what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// There is none.
    #[error("{} does not exist: make a key with `keyholder key generate`", .0.display())]
    Missing(PathBuf),
    /// There is one already.
    #[error("{} exists and is not overwritten: whoever pinned it would no longer know this node", .0.display())]
    Exists(PathBuf),
    /// Others than its owner may use it.
    #[error("{} has mode {mode:04o}, so others may read or change the key: chmod 0600 {}", path.display(), path.display())]
    Mode {
        /// The file.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// It is not ours.
    #[error("{} belongs to uid {uid}: chown 0:0 {} (and see who has read it)", path.display(), path.display())]
    Owner {
        /// The file.
        path: PathBuf,
        /// Whose it is.
        uid: u32,
    },
    /// It is no key that we use.
    #[error("{} is no Ed25519 or ECDSA P-256 key in PKCS#8 PEM form: {why}", path.display())]
    NotAKey {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// It could not be read or written.
    #[error("cannot {doing} {}", path.display())]
    Io {
        /// `read` or `write`.
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The cryptographic library could not do it.
    #[error("cannot make a key or its certificate: {0}")]
    Crypto(String),
}

/// A node's key with its certificate, ready for handshakes. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Identity {
    pin: Pin,
    algorithm: &'static str,
    credentials: Credentials,
}

impl Identity {
    /// Reads a key file.
    ///
    /// # Errors
    /// [`IdentityError`], in particular if anybody but its owner (root, or the user we run as) could use the file.
    pub fn load(path: &Path) -> Result<Self, IdentityError> {
        let io = |source| IdentityError::Io { doing: "read", path: path.to_owned(), source };
        // The checks are made on the open file, so that it cannot be exchanged between check and use.
        let file = match OpenOptions::new().read(true).custom_flags(O_NOFOLLOW).open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(IdentityError::Missing(path.to_owned()));
            }
            other => other.map_err(io)?,
        };
        let meta = file.metadata().map_err(io)?;
        let mode = meta.mode() & 0o7777;
        if mode & 0o077 != 0 {
            return Err(IdentityError::Mode { path: path.to_owned(), mode });
        }
        if meta.uid() != 0 && meta.uid() != Uid::effective().as_raw() {
            return Err(IdentityError::Owner { path: path.to_owned(), uid: meta.uid() });
        }
        let mut pem = String::new();
        file.take(MAX_FILE).read_to_string(&mut pem).map_err(io)?;
        let key = KeyPair::from_pem(&pem)
            .map_err(|error| IdentityError::NotAKey { path: path.to_owned(), why: error.to_string() })?;
        let other = || IdentityError::NotAKey {
            path: path.to_owned(),
            why: "it is a key of another algorithm".to_owned(),
        };
        let algorithm = algorithm(&key).ok_or_else(other)?;
        Self::from_key(&key, algorithm)
    }

    /// An identity that exists in memory only; for tests and rehearsals.
    ///
    /// # Errors
    /// [`IdentityError::Crypto`].
    pub fn ephemeral() -> Result<Self, IdentityError> {
        Self::from_key(&new_key()?, ED25519)
    }

    /// What peers write into their fleet file for this node.
    pub fn pin(&self) -> Pin {
        self.pin
    }

    /// `Ed25519` or `ECDSA P-256`.
    pub fn algorithm(&self) -> &'static str {
        self.algorithm
    }

    pub(super) fn credentials(&self) -> &Credentials {
        &self.credentials
    }

    fn from_key(key: &KeyPair, algorithm: &'static str) -> Result<Self, IdentityError> {
        let crypto = |error: &dyn std::fmt::Display| IdentityError::Crypto(error.to_string());
        let mut params = CertificateParams::default();
        // A pin knows no expiry; these dates only have to be valid X.509.
        params.not_before = date_time_ymd(1970, 1, 1);
        params.not_after = date_time_ymd(9999, 12, 31);
        let certificate = params.self_signed(key).map_err(|error| crypto(&error))?;
        let credentials = Credentials::new(certificate.der().to_vec(), key.serialize_der())
            .map_err(|error| crypto(&error))?;
        let pin = Pin::of_spki(&key.subject_public_key_info());
        // What a peer will compute from the certificate must be what we print, or nobody would ever let us in.
        if tls::pin_of(certificate.der()) != Some(pin) {
            return Err(IdentityError::Crypto(
                "the certificate does not carry the key it was made for".to_owned(),
            ));
        }
        Ok(Self { pin, algorithm, credentials })
    }
}

/// Makes a new key and stores it, complete or not at all. With `replace` an existing file is replaced.
///
/// # Errors
/// [`IdentityError::Exists`] if there is a file already and `replace` was not said, or what the system reports.
pub fn generate(path: &Path, replace: bool) -> Result<Identity, IdentityError> {
    let key = new_key()?;
    let identity = Identity::from_key(&key, ED25519)?;
    let fail = |source| IdentityError::Io { doing: "write", path: path.to_owned(), source };
    let directory = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let temporary = temporary_in(directory);
    let stored = (|| {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
        file.write_all(key.serialize_pem().as_bytes())?;
        file.sync_all()?;
        if replace {
            std::fs::rename(&temporary, path)?;
        } else {
            // Unlike a rename, a link fails if the name is taken.
            std::fs::hard_link(&temporary, path)?;
            std::fs::remove_file(&temporary)?;
        }
        File::open(directory)?.sync_all()
    })();
    stored.map(|()| identity).map_err(|error| {
        // Our own file, or none; either way nothing else can be done about it here.
        let _ = std::fs::remove_file(&temporary);
        if error.kind() == io::ErrorKind::AlreadyExists && path.exists() {
            IdentityError::Exists(path.to_owned())
        } else {
            fail(error)
        }
    })
}

/// Puts the next key in the place of the present one, which is kept as [`OLD_FILE`]. At no moment is there no key.
///
/// # Errors
/// What the system reports; the present key is unchanged then.
pub fn activate_next(directory: &Path) -> Result<(), IdentityError> {
    let (key, next, old) = (directory.join(KEY_FILE), directory.join(NEXT_FILE), directory.join(OLD_FILE));
    let temporary = temporary_in(directory);
    let fail = |source| IdentityError::Io { doing: "write", path: key.clone(), source };
    match std::fs::hard_link(&key, &temporary) {
        Ok(()) => std::fs::rename(&temporary, &old).map_err(fail)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(fail(error)),
    }
    std::fs::rename(&next, &key).map_err(fail)?;
    File::open(directory).and_then(|directory| directory.sync_all()).map_err(fail)
}

fn temporary_in(directory: &Path) -> PathBuf {
    directory.join(format!(".keyholder-{}.tmp", std::process::id()))
}

const ED25519: &str = "Ed25519";
const P256: &str = "ECDSA P-256";

fn new_key() -> Result<KeyPair, IdentityError> {
    KeyPair::generate_for(&rcgen::PKCS_ED25519).map_err(|error| IdentityError::Crypto(error.to_string()))
}

fn algorithm(key: &KeyPair) -> Option<&'static str> {
    if key.is_compatible(&rcgen::PKCS_ED25519) {
        Some(ED25519)
    } else if key.is_compatible(&rcgen::PKCS_ECDSA_P256_SHA256) {
        Some(P256)
    } else {
        None
    }
}

#[cfg(test)]
mod tests;
