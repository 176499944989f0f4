//! Fixed-size identifiers, written in lower-case hexadecimal everywhere.

use std::fmt;
use std::str::FromStr;

use ring::digest::{SHA256, digest};
use ring::rand::{SecureRandom, SystemRandom};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The text is not the identifier it should be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not {what}: expected {expected}")]
pub struct IdError {
    what: &'static str,
    expected: &'static str,
}

fn from_hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    if text.len() != 2 * N || !text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')) {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(bytes)
}

macro_rules! id {
    ($(#[$doc:meta])* $type:ident, $len:literal, $prefix:literal, $what:literal, $expected:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $type([u8; $len]);

        impl $type {
            /// Wraps the raw bytes.
            pub fn from_bytes(bytes: [u8; $len]) -> Self {
                Self(bytes)
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str($prefix)?;
                self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
        }

        impl fmt::Debug for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl FromStr for $type {
            type Err = IdError;

            fn from_str(text: &str) -> Result<Self, IdError> {
                text.strip_prefix($prefix)
                    .and_then(from_hex)
                    .map(Self)
                    .ok_or(IdError { what: $what, expected: $expected })
            }
        }

        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

id!(
    /// systemd's 128-bit id of one run of a unit (`InvocationID`): a new start gets a new one, a reload does not.
    InvocationId, 16, "", "an invocation id", "32 lower-case hexadecimal digits"
);
id!(
    /// A supervisor's 128-bit random name for its own present run. A request names the nonce it was made for, so a
    /// recorded one is refused after a restart without any clock.
    BootNonce, 16, "", "a boot nonce", "32 lower-case hexadecimal digits"
);
id!(
    /// A request's 128-bit random id. The same id again gets the remembered reply, never a second act.
    ReqId, 16, "", "a request id", "32 lower-case hexadecimal digits"
);
id!(
    /// SHA-256 of a key's SubjectPublicKeyInfo (DER): what a node is recognised by.
    Pin, 32, "sha256:", "a pin", "sha256: and 64 lower-case hexadecimal digits, as `keyholder key show` prints it"
);
id!(
    /// SHA-256 of the fleet file's bytes. Peers exchange it, so that drift between their files is shown.
    FleetHash, 32, "sha256:", "a fleet hash", "sha256: and 64 lower-case hexadecimal digits"
);
id!(
    /// SHA-256 of a catalog's bytes: says which catalog a lane serves and which one sudoers lines were made from.
    CatalogHash, 32, "sha256:", "a catalog hash", "sha256: and 64 lower-case hexadecimal digits"
);

impl InvocationId {
    /// The first eight digits: enough for a person to tell two runs apart.
    pub fn short(&self) -> String {
        self.to_string().chars().take(8).collect()
    }
}

fn sha256(bytes: &[u8]) -> [u8; 32] {
    let mut hash = [0; 32];
    for (to, from) in hash.iter_mut().zip(digest(&SHA256, bytes).as_ref()) {
        *to = *from;
    }
    hash
}

impl Pin {
    /// The pin of a SubjectPublicKeyInfo in DER form.
    pub fn of_spki(der: &[u8]) -> Self {
        Self(sha256(der))
    }
}

impl FleetHash {
    /// The hash of a fleet file's bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self(sha256(bytes))
    }
}

impl CatalogHash {
    /// The hash of a catalog's bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self(sha256(bytes))
    }
}

/// 128 bits from the kernel. `ring` fails only if the kernel has no randomness source at all.
fn random() -> Result<[u8; 16], IdError> {
    let mut bytes = [0; 16];
    SystemRandom::new()
        .fill(&mut bytes)
        .map_err(|_| IdError { what: "a random id", expected: "the kernel's random source to answer" })?;
    Ok(bytes)
}

impl BootNonce {
    /// A fresh nonce; an error if the kernel's random source does not answer.
    pub fn random() -> Result<Self, IdError> {
        random().map(Self)
    }
}

impl ReqId {
    /// A fresh id; an error if the kernel's random source does not answer.
    pub fn random() -> Result<Self, IdError> {
        random().map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_take_exactly_their_own_form() {
        let id = "0123456789abcdef0123456789abcdef";
        assert_eq!(id.parse::<InvocationId>().unwrap().to_string(), id);
        for bad in ["", "0123", "0123456789ABCDEF0123456789abcdef", "+123456789abcdef0123456789abcdef0"] {
            assert!(bad.parse::<InvocationId>().is_err(), "{bad}");
        }
        let pin = Pin::of_spki(b"");
        assert_eq!(
            pin.to_string(),
            "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
        );
        assert_eq!(pin.to_string().parse::<Pin>().unwrap(), pin);
        assert!(pin.to_string().trim_start_matches("sha256:").parse::<Pin>().is_err());
    }

    #[test]
    fn random_ids_differ() {
        assert_ne!(ReqId::random().unwrap(), ReqId::random().unwrap());
    }
}
