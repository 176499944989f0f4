//! By which a lane knows its own answers again: Redis keeps them, and whoever can write there can write any answer.

use ring::hmac;

use super::sign::bytes;
use crate::vocabulary::hex;

/// Seals answers under a key that nobody outside the ledger knows.
#[derive(Debug)]
pub(super) struct Seals(hmac::Key);

impl Seals {
    /// Of the ledger with this random name, which never leaves it but as part of a hash.
    pub(super) fn of(ledger: &str) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, format!("keyholder-result/1\n{ledger}").as_bytes()))
    }

    /// The seal of a result of the task whose bytes have this hash, in lower-case hex.
    pub(super) fn seal(&self, hash: &str, result: &[u8]) -> String {
        hex(hmac::sign(&self.0, &message(hash, result)).as_ref())
    }

    /// Whether this ledger sealed just this result of just this task.
    pub(super) fn is_of(&self, hash: &str, result: &[u8], seal: &[u8]) -> bool {
        let seal = std::str::from_utf8(seal).ok().and_then(bytes::<32>);
        seal.is_some_and(|seal| hmac::verify(&self.0, &message(hash, result), &seal).is_ok())
    }
}

/// A hash has one length, so no two pairs give the same bytes.
fn message(hash: &str, result: &[u8]) -> Vec<u8> {
    [hash.as_bytes(), b"\n", result].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seal_is_of_one_ledger_one_task_and_one_result() {
        let ours = Seals::of("a");
        let seal = ours.seal("h", b"{}");
        assert!(ours.is_of("h", b"{}", seal.as_bytes()));
        assert!(!Seals::of("b").is_of("h", b"{}", seal.as_bytes()));
        assert!(!ours.is_of("i", b"{}", seal.as_bytes()) && !ours.is_of("h", b"{ }", seal.as_bytes()));
        for bad in [&b""[..], b"00", b"\xff", &seal.as_bytes()[1..]] {
            assert!(!ours.is_of("h", b"{}", bad));
        }
    }
}
