//! A person's approval of one task, for actions that the catalog marks `approval: required`.
//!
//! It says who approves, when and until when, and the SHA-256 of what is approved: the task's bytes as they are signed, bound to
//! one lane of one node. It is signed (Ed25519) by a key that the fleet file lists in `approver_keys`, and lies in the task's
//! envelope beside the signature of who gives the task. Those are two keys: who may give tasks and who may approve them are two
//! questions.
//!
//! To make one: [`Approver::approve`] for an [`Envelope`]. To check one: [`Approval::verify`]; the lane does, whatever came before.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;
use ring::digest::{SHA256, digest};
use ring::signature::{ED25519, UnparsedPublicKey};
use serde::{Deserialize, Serialize};

use super::admit::MAX_AHEAD;
use super::sign::{Context, bytes};
use super::signer::{KeyUse, Signer, SignerError};
use super::task::Envelope;
use crate::vocabulary::{TaskKey, clipped, hex, human, printable};

/// Where an approver's key lies, inside the directory for keys.
pub const APPROVER_KEY_FILE: &str = "approve.pem";
/// The longest time for which something is approved: what was true a day ago need not be true any more.
pub const MAX_APPROVED: Duration = Duration::from_secs(24 * 3600);
/// For how long `keyholder run` approves.
pub const APPROVED_FOR: Duration = Duration::from_secs(3600);

/// The approval of one task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Approval {
    /// Who approves: the name of the key in `approver_keys`.
    pub by: String,
    /// When, RFC 3339.
    pub at: String,
    /// Until when the task may be begun, RFC 3339; at most [`MAX_APPROVED`] after `at`.
    pub until: String,
    /// The SHA-256 of what is approved ([`Context::digest`]), in lower-case hex.
    pub sha256: String,
    /// The Ed25519 signature over all this, in lower-case hex.
    pub sig: String,
}

/// The keys that may approve tasks, by name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ApproverKeys(BTreeMap<String, TaskKey>);

impl FromIterator<(String, TaskKey)> for ApproverKeys {
    fn from_iter<I: IntoIterator<Item = (String, TaskKey)>>(keys: I) -> Self {
        Self(keys.into_iter().collect())
    }
}

impl Approval {
    fn message(&self) -> Vec<u8> {
        let Self { by, at, until, sha256, sig: _ } = self;
        format!("keyholder-approval/1\n{by}\n{at}\n{until}\n{sha256}\n").into_bytes()
    }

    /// Whether a person approves what has this digest, now.
    ///
    /// # Errors
    /// Why not, in one sentence fit for a terminal.
    pub fn verify(&self, digest: &str, keys: &ApproverKeys, now: Timestamp) -> Result<(), String> {
        let by = clipped(&printable(&self.by), 80).into_owned();
        let Some(key) = keys.0.get(&self.by) else {
            return Err(format!("no approver \"{by}\" is known here"));
        };
        let verified = bytes::<64>(&self.sig).is_some_and(|sig| {
            UnparsedPublicKey::new(&ED25519, key.as_bytes()).verify(&self.message(), &sig).is_ok()
        });
        if !verified {
            return Err(format!("the approval's signature is not one of {by}"));
        }
        if self.sha256 != digest {
            return Err(format!("what {by} approved is another task, or one for another lane or node"));
        }
        // What is parsed holds no line feed, so no two approvals give the same message.
        let (Ok(at), Ok(until)) = (self.at.parse::<Timestamp>(), self.until.parse::<Timestamp>()) else {
            return Err(format!("the times in the approval of {by} cannot be read"));
        };
        let valid = until.duration_since(at);
        if valid.is_negative() || valid.unsigned_abs() > MAX_APPROVED {
            return Err(format!("the approval of {by} is for more than {}", human(MAX_APPROVED)));
        }
        let ahead = at.duration_since(now);
        if ahead.is_positive() && ahead.unsigned_abs() > MAX_AHEAD {
            return Err(format!(
                "{by} approved it {} in the future; look at the clocks",
                human(ahead.unsigned_abs())
            ));
        }
        if until < now {
            let over = human(now.duration_since(until).unsigned_abs());
            return Err(format!("the approval of {by} ended {over} ago; ask for it again"));
        }
        Ok(())
    }
}

impl Context<'_> {
    /// The SHA-256 of what is signed for this lane, in lower-case hex: what an approval names.
    pub fn digest(&self, task: &str) -> String {
        hex(digest(&SHA256, &self.message(task.as_bytes())).as_ref())
    }
}

/// Approves tasks.
#[derive(Debug)]
pub struct Approver(Signer);

impl Approver {
    /// Reads the key at `path`, which only its owner may read.
    ///
    /// # Errors
    /// [`SignerError`].
    pub fn load(path: &Path) -> Result<Self, SignerError> {
        Signer::load_for(path, KeyUse::Approve).map(Self)
    }

    /// What belongs into `approver_keys`.
    pub fn public(&self) -> TaskKey {
        self.0.public()
    }

    /// What the fleet calls this key.
    ///
    /// # Errors
    /// [`SignerError`].
    pub fn name<'k>(&self, known: &'k BTreeMap<String, TaskKey>) -> Result<&'k str, SignerError> {
        self.0.name(known)
    }

    /// Approves a signed task for one lane: `name` is what the fleet calls this key, `at` when the person approved. Whoever
    /// calls this has shown that person the task's node, action and parameters.
    pub fn approve(
        &self,
        envelope: Envelope,
        name: &str,
        context: &Context<'_>,
        (at, valid): (Timestamp, Duration),
    ) -> Envelope {
        let until = at.checked_add(valid).unwrap_or(at);
        let mut approval = Approval {
            by: name.to_owned(),
            at: format!("{at:.3}"),
            until: format!("{until:.3}"),
            sha256: context.digest(&envelope.task),
            sig: String::new(),
        };
        approval.sig = self.0.signature(&approval.message());
        Envelope { approval: Some(approval), ..envelope }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::Mode;
    use crate::peer::identity;

    #[test]
    fn an_approval_is_one_persons_word_for_one_task_of_one_lane_for_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(APPROVER_KEY_FILE);
        let missing = Approver::load(&path).unwrap_err();
        assert!(missing.to_string().contains("keyholder key generate --approver"), "{missing}");
        identity::generate(&path, false).unwrap();
        let approver = Approver::load(&path).unwrap();
        let known = BTreeMap::from([("ada".to_owned(), approver.public())]);
        assert_eq!(approver.name(&known).unwrap(), "ada");
        let unknown = approver.name(&BTreeMap::new()).unwrap_err();
        assert!(unknown.to_string().contains("`approver_keys`"), "{unknown}");

        let (mars, venus) = ("mars".parse().unwrap(), "venus".parse().unwrap());
        let context = Context { node: &mars, lane: Mode::Write };
        let envelope = Envelope { task: "{}".into(), key: "hub".into(), sig: String::new(), approval: None };
        let now: Timestamp = "2026-12-01T10:00:00Z".parse().unwrap();
        let approve = |at, valid| approver.approve(envelope.clone(), "ada", &context, (at, valid));
        let good = approve(now, APPROVED_FOR).approval.unwrap();
        let keys: ApproverKeys = known.into_iter().collect();
        let digest = context.digest("{}");
        assert_eq!(good.verify(&digest, &keys, now), Ok(()));
        let later = |hours: i64| now + jiff::SignedDuration::from_hours(hours);
        let why = |approval: &Approval, digest: &str, now| approval.verify(digest, &keys, now).unwrap_err();
        assert!(
            why(&good, &digest, later(2)).contains("ended 1h 00m ago"),
            "{}",
            why(&good, &digest, later(2))
        );
        assert!(why(&good, &digest, later(-1)).contains("in the future"));
        for other in [
            Context { node: &venus, ..context }.digest("{}"),
            Context { lane: Mode::Read, ..context }.digest("{}"),
            context.digest("{ }"),
        ] {
            assert!(why(&good, &other, now).contains("another task"));
        }
        let long = approve(now, MAX_APPROVED * 2).approval.unwrap();
        assert!(why(&long, &digest, now).contains("for more than"));
        for bad in [
            Approval { by: "bob".into(), ..good.clone() },
            Approval { until: long.until, ..good.clone() },
            Approval { at: later(-1).to_string(), ..good.clone() },
            Approval { sha256: "0".repeat(64), ..good.clone() },
            Approval { sig: good.sig.to_uppercase(), ..good.clone() },
            Approval { sig: String::new(), ..good.clone() },
        ] {
            assert!(bad.verify(&bad.sha256, &keys, now).is_err(), "{bad:?}");
        }
    }
}
