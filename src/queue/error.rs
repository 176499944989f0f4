//! What can go wrong with Redis, in words that name the way out and hide passwords.

use std::time::Duration;

use redis::{ErrorKind, RedisError, ServerErrorKind};

use crate::vocabulary::{clipped, printable};

/// The longest text from the server that is shown, in characters.
const MAX_SHOWN: usize = 200;

/// Redis does not do what is needed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum QueueError {
    /// The address is none.
    #[error(
        "{url} is no address of a Redis: {why}; write redis://[user:password@]host:port, rediss://…, or redis-sentinel://host:port,…/master"
    )]
    Url {
        /// The address without its password.
        url: String,
        /// What is wrong with it.
        why: String,
    },
    /// No answer.
    #[error(
        "{url} does not answer within {deadline:?}; is there a firewall between, or does the server hang?"
    )]
    Late {
        /// The address without its password.
        url: String,
        /// How long was waited.
        deadline: Duration,
    },
    /// No connection, or it broke.
    #[error(
        "{url} cannot be reached: {why}; does redis-server run there, on that port, with or without TLS as written?"
    )]
    Unreachable {
        /// The address without its password.
        url: String,
        /// What the connection said.
        why: String,
    },
    /// No sentinel leads to a master.
    #[error(
        "no master is to be found through {url}: {why}; do the sentinels run there, do they call it {master}, and is \
         one elected?"
    )]
    NoMaster {
        /// The address without its password.
        url: String,
        /// What the master is called.
        master: String,
        /// What each sentinel, or the server that they name, said.
        why: String,
    },
    /// The file that says whose certificates are believed cannot be used.
    #[error(
        "{path} cannot be used as the certificate authority of Redis: {why}; correct `ca`, and let our user read the file"
    )]
    Authority {
        /// The file.
        path: String,
        /// Why.
        why: String,
    },
    /// It wants another password, or one at all, or forbids the command.
    #[error(
        "{url} does not let us in: {why}; correct user and password in fleet.yaml or KEYHOLDER_REDIS, or what the user may do (catalogs/redis-users.acl)"
    )]
    Denied {
        /// The address without its password.
        url: String,
        /// What the server said.
        why: String,
    },
    /// Its memory is used up.
    #[error("{url} is full: {why}; raise its maxmemory or look for what fills it")]
    Full {
        /// The address without its password.
        url: String,
        /// What the server said.
        why: String,
    },
    /// It takes no writes: a replica, a master without enough replicas, or one whose disk is full.
    #[error("{url} takes no tasks: {why}; is it a replica by now, or is its disk full?")]
    ReadOnly {
        /// The address without its password.
        url: String,
        /// What the server said.
        why: String,
    },
    /// It has just been started.
    #[error("{url} is still loading its data ({why})")]
    Loading {
        /// The address without its password.
        url: String,
        /// What the server said.
        why: String,
    },
}

impl QueueError {
    /// What `error` from the server at `address` means.
    pub(super) fn of(error: &RedisError, address: &str) -> Self {
        let url = mask(address);
        let why = shown(&error.to_string(), address);
        match error.code() {
            Some("NOAUTH" | "WRONGPASS" | "NOPERM") => Self::Denied { url, why },
            Some("OOM") => Self::Full { url, why },
            Some("READONLY" | "UNBLOCKED" | "MISCONF" | "NOREPLICAS" | "MASTERDOWN") => {
                Self::ReadOnly { url, why }
            }
            Some("LOADING") => Self::Loading { url, why },
            _ if error.kind() == ErrorKind::AuthenticationFailed => Self::Denied { url, why },
            _ => Self::Unreachable { url, why },
        }
    }

    /// The cause alone.
    pub(super) fn why(self) -> String {
        match self {
            Self::Late { deadline, .. } => format!("no answer within {deadline:?}"),
            Self::Url { why, .. }
            | Self::Unreachable { why, .. }
            | Self::NoMaster { why, .. }
            | Self::Authority { why, .. }
            | Self::Denied { why, .. }
            | Self::Full { why, .. }
            | Self::ReadOnly { why, .. }
            | Self::Loading { why, .. } => why,
        }
    }

    /// Whether the server's access list forbids the command.
    pub(super) fn forbids(error: &RedisError) -> bool {
        error.kind() == ErrorKind::Server(ServerErrorKind::NoPerm)
    }
}

/// Text from the library or the server, short, fit for a terminal, and without the password in `address`.
pub(super) fn shown(text: &str, address: &str) -> String {
    let mut text = text.to_owned();
    for secret in password(address).into_iter().filter(|secret| !secret.is_empty()) {
        text = text.replace(secret, "***");
    }
    clipped(&printable(&text), MAX_SHOWN).into_owned()
}

/// Everything before the last `@`: a password with an unescaped `@` or `/` in it is still one.
fn userinfo(url: &str) -> Option<(&str, &str, &str)> {
    let (scheme, rest) = url.split_once("://")?;
    let (user, host) = rest.rsplit_once('@')?;
    Some((scheme, user, host))
}

fn password(url: &str) -> Option<&str> {
    userinfo(url)?.1.split_once(':').map(|(_, password)| password)
}

/// The address without password and without parameters, fit for a terminal.
pub(super) fn mask(url: &str) -> String {
    let masked = match userinfo(url) {
        None => url.to_owned(),
        Some((scheme, user, host)) => match user.split_once(':') {
            Some((user, _)) => format!("{scheme}://{user}:***@{host}"),
            None => format!("{scheme}://{user}@{host}"),
        },
    };
    let plain = masked.split(['?', '#']).next().unwrap_or_default();
    clipped(&printable(plain), MAX_SHOWN).into_owned()
}
