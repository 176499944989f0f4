//! What can go wrong with Redis, in words that name the way out and hide passwords.

use std::time::Duration;

use redis::{ErrorKind, RedisError, ServerErrorKind};

use super::conn::EXCESS;
use super::server::DEADLINE;
use crate::vocabulary::{clipped, printable};

/// The longest text from the server that is shown, in characters.
const MAX_SHOWN: usize = 200;

/// Redis does not do what is needed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum QueueError {
    /// The address is none.
    #[error(
        "{url} is not a valid Redis URL: {why}; write redis://[user:password@]host:port, rediss://…, redis-sentinel://host:port,…/master, or unix:///path"
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
    /// A file of ours for TLS cannot be used.
    #[error(
        "{path} cannot be used as {what} for Redis: {why}; correct `ca`, `cert` and `key`, and let our user read the files"
    )]
    TlsFile {
        /// What it was to be.
        what: &'static str,
        /// The file; empty for the host's own authorities.
        path: String,
        /// Why.
        why: String,
    },
    /// It asks for a certificate of ours, or does not accept the one that it got.
    #[error(
        "{url} does not accept our TLS certificate, or asks for one: {why}; write `cert` and `key` beside `ca`, or set \
         tls-auth-clients no on the server"
    )]
    ClientCertificate {
        /// The address without its password.
        url: String,
        /// What TLS said.
        why: String,
    },
    /// It answers, and with an error that is about neither rights nor memory.
    #[error("{url} answers with an error: {why}; {}", way_out(why))]
    Refused {
        /// The address without its password.
        url: String,
        /// What the server said.
        why: String,
    },
    /// It says more than is read, or something that is not the protocol.
    #[error(
        "{url} sent a reply that is not read: {why}; is it a Redis, and who else writes to it? redis-cli --bigkeys finds \
         what is too large"
    )]
    Excess {
        /// The address without its password.
        url: String,
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
        if error.is_timeout() {
            return Self::Late { url, deadline: DEADLINE };
        }
        // The server's own words, without those of the library. Of several commands the first that was refused.
        let several = error.clone().into_server_errors();
        let said = match several.as_deref().and_then(|all| all.first()) {
            Some((_, first)) => Some((first.code().to_owned(), first.details().map(str::to_owned))),
            None => error.code().map(|code| (code.to_owned(), error.detail().map(str::to_owned))),
        };
        let why = match &said {
            Some((code, Some(detail))) => shown(&format!("{code} {detail}"), address),
            Some((code, None)) => shown(code, address),
            None => shown(&error.to_string(), address),
        };
        match said.as_ref().map(|(code, _)| code.as_str()) {
            Some("NOAUTH" | "WRONGPASS" | "NOPERM" | "DENIED") => Self::Denied { url, why },
            Some(EXCESS) => Self::Excess { url, why: shown(error.detail().unwrap_or_default(), address) },
            Some("OOM") => Self::Full { url, why },
            Some("READONLY" | "UNBLOCKED" | "MISCONF" | "NOREPLICAS" | "MASTERDOWN") => {
                Self::ReadOnly { url, why }
            }
            Some("LOADING") => Self::Loading { url, why },
            _ if error.kind() == ErrorKind::AuthenticationFailed => Self::Denied { url, why },
            Some(_) => Self::Refused { url, why },
            None if CERTIFICATE_ALERTS.iter().any(|alert| why.contains(alert)) => {
                Self::ClientCertificate { url, why }
            }
            None => Self::Unreachable { url, why },
        }
    }

    /// The cause alone.
    pub(super) fn why(self) -> String {
        match self {
            Self::Late { deadline, .. } => format!("no answer within {deadline:?}"),
            Self::Url { why, .. }
            | Self::Unreachable { why, .. }
            | Self::NoMaster { why, .. }
            | Self::TlsFile { why, .. }
            | Self::ClientCertificate { why, .. }
            | Self::Refused { why, .. }
            | Self::Excess { why, .. }
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

/// What rustls calls the alerts with which a server refuses a client for its certificate.
const CERTIFICATE_ALERTS: [&str; 6] = [
    "CertificateRequired",
    "alert: HandshakeFailure",
    "alert: BadCertificate",
    "alert: UnknownCA",
    "alert: CertificateUnknown",
    "alert: CertificateExpired",
];

/// What to do about an error of the server.
fn way_out(why: &str) -> &'static str {
    let has = |word: &str| why.contains(word);
    match () {
        () if has("unknown command") || has("unknown subcommand") => {
            "keyholder needs that command: take the rename-command for it out of the server's configuration, or use Redis 6.2 or newer"
        }
        () if has("WRONGTYPE") => {
            "a key of ours holds something else than we keep there: look at it with redis-cli TYPE, and rename or delete it"
        }
        () if has("max number of clients") => {
            "raise maxclients, or see with redis-cli CLIENT LIST who holds the connections"
        }
        () if has("invalid DB index") || has("DB index is out of range") => {
            "correct the database number in the address, or raise `databases` on the server"
        }
        () => "look into the server's log and configuration",
    }
}

/// Text from the library or the server, short, fit for a terminal, and without the password in `address`.
pub(super) fn shown(text: &str, address: &str) -> String {
    let mut text = text.to_owned();
    for secret in
        password(address).into_iter().chain(query_password(address)).filter(|secret| !secret.is_empty())
    {
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

/// A socket's address has no place for a password but its parameters.
fn query_password(url: &str) -> Option<&str> {
    url.split_once('?')?.1.split(['&', '#']).find_map(|pair| pair.strip_prefix("pass="))
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
