//! Why a handshake failed, in words for the audit trail and for whoever set up the other side.

use std::io;

use rustls::{AlertDescription, CertificateError, Error, PeerIncompatible};

use crate::vocabulary::Pin;

/// Why one side did not take the other in.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Distrust {
    /// The other side presented no certificate.
    #[error("it presented no certificate")]
    NoCertificate,
    /// Its key is pinned for no node that may be on the other side.
    #[error("its key {0} is not among the pins in fleet.yaml")]
    Unpinned(Pin),
    /// It presented a pinned certificate and could not sign with its key.
    #[error("it presented a certificate without holding its key: an impostor")]
    WrongKey,
    /// It does not speak TLS 1.3 as this protocol uses it.
    #[error("it does not speak TLS 1.3 with this protocol's algorithms")]
    OldTls,
    /// It names another application protocol, or none.
    #[error("it does not name keyholder/1 as its protocol (ALPN)")]
    WrongProtocol,
    /// It speaks something else than TLS.
    #[error("it does not speak TLS")]
    NotTls,
    /// It rejected our certificate: it does not know our key, most of all.
    #[error(
        "it rejected our certificate ({0}): its fleet.yaml does not list our present key, or names another node"
    )]
    TurnedAway(String),
    /// It hung up during the handshake.
    #[error("it hung up during the handshake")]
    HungUp,
    /// Anything else that is wrong with the handshake.
    #[error("the handshake failed: {0}")]
    Other(String),
}

/// Carries the pin through rustls.
#[derive(Debug, thiserror::Error)]
#[error("{0} is not pinned")]
pub(super) struct Unpinned(pub(super) Pin);

impl Distrust {
    pub(super) fn from_io(error: &io::Error) -> Self {
        match error.get_ref().and_then(|inner| inner.downcast_ref::<Error>()) {
            Some(error) => Self::from_tls(error),
            // End of file, reset, broken pipe: all of them are a connection that went away.
            None => Self::HungUp,
        }
    }

    pub(super) fn from_tls(error: &Error) -> Self {
        // rustls' enums are not ours and grow with each version; what is not named here is told as it is.
        #[allow(clippy::wildcard_enum_match_arm)]
        match error {
            Error::NoCertificatesPresented => Self::NoCertificate,
            Error::NoApplicationProtocol => Self::WrongProtocol,
            #[allow(deprecated)]
            Error::InvalidCertificate(
                CertificateError::BadSignature
                | CertificateError::UnsupportedSignatureAlgorithm
                | CertificateError::UnsupportedSignatureAlgorithmForPublicKeyContext { .. },
            ) => Self::WrongKey,
            Error::InvalidCertificate(CertificateError::Other(other)) => {
                match other.0.downcast_ref::<Unpinned>() {
                    Some(Unpinned(pin)) => Self::Unpinned(*pin),
                    None => Self::Other(error.to_string()),
                }
            }
            Error::PeerIncompatible(PeerIncompatible::NoCertificateRequestSignatureSchemesInCommon) => {
                Self::NoCertificate
            }
            Error::PeerIncompatible(_) => Self::OldTls,
            Error::InvalidMessage(_) => Self::NotTls,
            Error::AlertReceived(AlertDescription::NoApplicationProtocol) => Self::WrongProtocol,
            Error::AlertReceived(AlertDescription::ProtocolVersion) => Self::OldTls,
            Error::AlertReceived(alert) => Self::TurnedAway(format!("{alert:?}")),
            other => Self::Other(other.to_string()),
        }
    }
}
