//! The other end of a signed task: whoever gives it.

use std::collections::BTreeMap;
use std::path::Path;

use ring::signature::{Ed25519KeyPair, KeyPair as _};

use super::sign::{Context, seal};
use super::task::Envelope;
use crate::peer::identity::{self, IdentityError};
use crate::vocabulary::{TaskKey, hex};

/// Where the key for tasks lies, inside the directory for keys. It is never a node's own key: who may give tasks and who may
/// relaunch workers are two questions.
pub const TASK_KEY_FILE: &str = "task.pem";

/// A key for tasks cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SignerError {
    /// The file cannot be used.
    #[error("no key to {} tasks with; make one: keyholder key generate {}", purpose.verb(), purpose.option())]
    File {
        /// What it was to do.
        purpose: KeyUse,
        /// Why.
        source: IdentityError,
    },
    /// It is no Ed25519 key.
    #[error("{path} is no Ed25519 key, and nothing else can {} tasks; make one: keyholder key generate {}", purpose.verb(), purpose.option())]
    Algorithm {
        /// What it was to do.
        purpose: KeyUse,
        /// Where it is.
        path: String,
    },
    /// Nobody would accept it.
    #[error("this key is in no line of `{}` in the fleet file, so no lane would believe it: add NAME: \"{key}\"", purpose.list())]
    Unknown {
        /// What it was to do.
        purpose: KeyUse,
        /// The public key.
        key: TaskKey,
    },
}

/// What a key is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyUse {
    /// It signs tasks.
    Sign,
    /// It approves them.
    Approve,
}

impl KeyUse {
    fn verb(self) -> &'static str {
        match self {
            Self::Sign => "sign",
            Self::Approve => "approve",
        }
    }

    fn option(self) -> &'static str {
        match self {
            Self::Sign => "--task",
            Self::Approve => "--approver",
        }
    }

    /// Where the fleet file lists such keys.
    pub fn list(self) -> &'static str {
        match self {
            Self::Sign => "task_keys",
            Self::Approve => "approver_keys",
        }
    }
}

/// Signs tasks.
#[derive(Debug)]
pub struct Signer {
    purpose: KeyUse,
    pair: Ed25519KeyPair,
    public: TaskKey,
}

impl Signer {
    /// Reads the key at `path`, which only its owner may read.
    ///
    /// # Errors
    /// [`SignerError::File`] and [`SignerError::Algorithm`].
    pub fn load(path: &Path) -> Result<Self, SignerError> {
        Self::load_for(path, KeyUse::Sign)
    }

    pub(super) fn load_for(path: &Path, purpose: KeyUse) -> Result<Self, SignerError> {
        let der = identity::load_pkcs8(path).map_err(|source| SignerError::File { purpose, source })?;
        let other = || SignerError::Algorithm { purpose, path: path.display().to_string() };
        let pair = Ed25519KeyPair::from_pkcs8_maybe_unchecked(&der).map_err(|_| other())?;
        let public = pair.public_key().as_ref().try_into().map_err(|_| other())?;
        Ok(Self { purpose, pair, public: TaskKey::from_bytes(public) })
    }

    /// What belongs into `task_keys`.
    pub fn public(&self) -> TaskKey {
        self.public
    }

    /// What the fleet calls this key.
    ///
    /// # Errors
    /// [`SignerError::Unknown`].
    pub fn name<'k>(&self, known: &'k BTreeMap<String, TaskKey>) -> Result<&'k str, SignerError> {
        let found = known.iter().find(|(_, key)| **key == self.public);
        found
            .map(|(name, _)| name.as_str())
            .ok_or(SignerError::Unknown { purpose: self.purpose, key: self.public })
    }

    pub(super) fn signature(&self, message: &[u8]) -> String {
        hex(self.pair.sign(message).as_ref())
    }

    /// Signs a task's JSON text for one lane, under the name that the fleet has for this key.
    pub fn sign(&self, task: String, name: &str, context: &Context<'_>) -> Envelope {
        seal(task, name, &self.pair, context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::Mode;
    use crate::lane::TaskKeys;

    #[test]
    fn what_it_signs_counts_for_that_lane_of_that_node_only() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(TASK_KEY_FILE);
        assert!(matches!(
            Signer::load(&path),
            Err(SignerError::File { source: IdentityError::Missing(_), .. })
        ));
        identity::generate(&path, false).unwrap();
        let signer = Signer::load(&path).unwrap();
        let known = BTreeMap::from([("ada".to_owned(), signer.public())]);
        assert_eq!(signer.name(&known).unwrap(), "ada");
        assert!(matches!(signer.name(&BTreeMap::new()), Err(SignerError::Unknown { .. })));
        let (mars, venus) = ("mars".parse().unwrap(), "venus".parse().unwrap());
        let context = Context { node: &mars, lane: Mode::Write };
        let envelope = signer.sign("{}".to_owned(), "ada", &context);
        let keys: TaskKeys = known.into_iter().collect();
        assert_eq!(keys.verify(&envelope, &context), Ok(()));
        for other in [Context { lane: Mode::Read, ..context }, Context { node: &venus, ..context }] {
            assert!(keys.verify(&envelope, &other).is_err());
        }
    }
}
