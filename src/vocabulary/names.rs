//! Names of nodes, workers and units. Each is checked once, where it enters, so that no later code has to wonder
//! what a string from a file or a peer may contain.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize};

/// Why a name was refused: what it was meant to be, what was given and what is allowed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{given:?} is not a {what}: {rule}")]
pub struct NameError {
    what: &'static str,
    given: String,
    rule: &'static str,
}

impl NameError {
    fn new(what: &'static str, given: &str, rule: &'static str) -> Self {
        // Bounded, because the text comes from outside and goes into logs.
        Self { what, given: given.chars().take(80).collect(), rule }
    }

    /// What is allowed, for an error message that already shows the offending text.
    pub fn rule(&self) -> &'static str {
        self.rule
    }
}

macro_rules! name {
    ($(#[$doc:meta])* $type:ident, $what:literal, $rule:literal, $check:expr) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
        #[serde(transparent)]
        pub struct $type(String);

        impl $type {
            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $type {
            type Err = NameError;

            fn from_str(text: &str) -> Result<Self, NameError> {
                let check: fn(&str) -> bool = $check;
                if check(text) { Ok(Self(text.to_owned())) } else { Err(NameError::new($what, text, $rule)) }
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }

        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

fn plain(text: &str, max: usize, also: &[u8]) -> bool {
    !text.is_empty()
        && text.len() <= max
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || also.contains(&b))
        && text.as_bytes().first().is_some_and(u8::is_ascii_alphanumeric)
}

name!(
    /// A host of the fleet, as `fleet.yaml` calls it. It becomes part of Redis keys (`tasks:maintenance:<node>:read`),
    /// which is why `:`, `{` and `}` can never be in it.
    NodeName,
    "node name",
    "letters, digits, '-', '_' and '.', starting with a letter or digit, at most 63",
    |text| plain(text, 63, b"-_.")
);

name!(
    /// A worker within its node. No dot is allowed, so a unit name or a path can never pass for a worker.
    WorkerName,
    "worker name",
    "letters, digits, '-' and '_', starting with a letter or digit, at most 63",
    |text| plain(text, 63, b"-_")
);

name!(
    /// A systemd service unit. Only services are accepted (a worker is something that runs), and a bare template
    /// (`x@.service`) is not, because nothing can be started under that name.
    UnitName,
    "service unit name",
    "a systemd unit that ends in .service, at most 255 characters of letters, digits and ':-_.\\@', no bare template",
    |text| {
        plain(text, 255, b":-_.\\@")
            && text.strip_suffix(".service").is_some_and(|stem| !stem.is_empty() && !stem.ends_with('@'))
    }
);

name!(
    /// What a node may be asked to do, as its catalog calls it (`service.logs`). It becomes part of log lines and of
    /// rate limit keys.
    ActionName,
    "action name",
    "lower-case letters, digits and '_', in parts joined by dots, such as service.logs, at most 64",
    |text| {
        text.len() <= 64
            && text.split('.').all(|part| {
                !part.is_empty()
                    && part.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
            })
    }
);

name!(
    /// A parameter of an action. Its placeholder in the command is the name in braces.
    ParamName,
    "parameter name",
    "lower-case letters, digits and '_', starting with a letter, at most 32",
    |text| {
        text.len() <= 32
            && text.starts_with(|c: char| c.is_ascii_lowercase())
            && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
    }
);

/// A worker of a node, written `node/worker`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Target {
    /// The node that the worker runs on.
    pub node: NodeName,
    /// The worker on that node.
    pub worker: WorkerName,
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.node, self.worker)
    }
}

impl FromStr for Target {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let (node, worker) = text.split_once('/').ok_or_else(|| {
            NameError::new("target", text, "write it as NODE/WORKER, for example mars/write")
        })?;
        Ok(Self { node: node.parse()?, worker: worker.parse()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_name_or_a_path_is_no_worker_name() {
        for bad in ["ssh.service", "../x", "a/b", "", "-x", "x:read", "wörker", "x\n", "x\0"] {
            assert!(bad.parse::<WorkerName>().is_err(), "{bad:?}");
        }
        assert!("write".parse::<WorkerName>().is_ok());
    }

    #[test]
    fn only_startable_services_are_units() {
        for bad in ["x.socket", ".service", "x@.service", "--evil.service", "a b.service", "x.service\n"] {
            assert!(bad.parse::<UnitName>().is_err(), "{bad:?}");
        }
        for good in ["x.service", "x@1.service", "keyholder-lane-write.service", "a\\x2db.service"] {
            assert!(good.parse::<UnitName>().is_ok(), "{good:?}");
        }
    }

    #[test]
    fn actions_are_dotted_words_and_parameters_are_words() {
        for good in ["service.logs", "queue.length_mars_peer", "reboot", "a.b.c", "0._"] {
            assert!(good.parse::<ActionName>().is_ok(), "{good:?}");
        }
        for bad in
            ["", ".", "a.", ".a", "a..b", "Service.logs", "a-b", "a b", "a\n", "a/b", "é", &"a".repeat(65)]
        {
            assert!(bad.parse::<ActionName>().is_err(), "{bad:?}");
        }
        assert!("unit_2".parse::<ParamName>().is_ok());
        for bad in ["", "2", "_x", "a.b", "Unit", "unit\0", "{unit}", &"a".repeat(33)] {
            assert!(bad.parse::<ParamName>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn node_names_cannot_break_a_redis_key() {
        for bad in ["a:read", "{a}", "a b", ""] {
            assert!(bad.parse::<NodeName>().is_err(), "{bad:?}");
        }
    }
}
