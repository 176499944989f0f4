//! TLS as this protocol uses it, and the only place that knows rustls.
//!
//! TLS 1.3 only, both sides present a certificate, and the only thing that counts in it is its key: SHA-256 of the
//! SubjectPublicKeyInfo is looked up among the pins of the fleet file *as it is now*. No authority, no name, no date,
//! no resumption (a removed pin came back in through a ticket once, see the facts), no early data. That the other side
//! holds the key is proved by its signature over the handshake, which is really checked.

use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{ClientConfig, Resumption};
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, ring, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{NoServerSessionStorage, ParsedCertificate, ServerConfig};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::time_provider::TimeProvider;
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, OtherError, PeerMisbehaved,
    SignatureScheme, version::TLS13,
};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::channel::Carrier;
use super::wire::ALPN;
use crate::fleet::Fleet;
use crate::vocabulary::Pin;

mod distrust;

pub use distrust::Distrust;

/// Makes `ring` the process's default as well, for whatever else in the process uses rustls (Redis). The door itself
/// always names its provider. Calling it again does no harm.
pub fn install_provider() {
    // An error means that one is installed already, which is all that is wanted.
    let _ = provider().install_default();
}

/// What a peer recognises the owner of a certificate by; `None` if it is no certificate.
pub fn pin_of(certificate: &CertificateDer<'_>) -> Option<Pin> {
    let parsed = ParsedCertificate::try_from(certificate).ok()?;
    Some(Pin::of_spki(&parsed.subject_public_key_info()))
}

/// A certificate with its private key, ready to sign.
#[derive(Clone)]
pub struct Credentials(Arc<CertifiedKey>);

impl Credentials {
    /// Takes a certificate (DER) and its key (PKCS#8 DER).
    ///
    /// # Errors
    /// [`TlsError`] if `ring` cannot sign with it.
    pub fn new(certificate: Vec<u8>, key: Vec<u8>) -> Result<Self, TlsError> {
        let key = provider().key_provider.load_private_key(PrivatePkcs8KeyDer::from(key).into())?;
        Ok(Self(Arc::new(CertifiedKey::new(vec![certificate.into()], key))))
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credentials(..)")
    }
}

/// TLS could not be set up on our own side.
#[derive(Debug, thiserror::Error)]
#[error("cannot set up TLS: {0}")]
pub struct TlsError(#[from] Error);

/// The listening side.
pub(super) struct Server(TlsAcceptor);

impl Server {
    /// A server that lets in whatever key the fleet holds at the moment of the handshake.
    pub(super) fn new(ours: &Credentials, fleet: watch::Receiver<Arc<Fleet>>) -> Result<Self, TlsError> {
        let accepted = Accepted::Fleet(fleet);
        let mut config = ServerConfig::builder_with_details(Arc::new(provider()), Arc::new(NoClock))
            .with_protocol_versions(&[&TLS13])?
            .with_client_cert_verifier(Arc::new(PinVerifier::new(accepted)))
            .with_cert_resolver(Arc::new(SingleCertAndKey::from(Arc::clone(&ours.0))));
        config.alpn_protocols = vec![ALPN.to_vec()];
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        config.max_early_data_size = 0;
        Ok(Self(TlsAcceptor::from(Arc::new(config))))
    }

    /// The handshake. No deadline of its own. Answers no application byte.
    pub(super) async fn accept(&self, tcp: TcpStream) -> Result<(Box<dyn Carrier>, Pin), Distrust> {
        let stream = self.0.accept(tcp).await.map_err(|error| Distrust::from_io(&error))?;
        let (_, connection) = stream.get_ref();
        // rustls refuses a wrong protocol name, but not a client that names none.
        if connection.alpn_protocol() != Some(ALPN) {
            return Err(Distrust::WrongProtocol);
        }
        let pin = connection
            .peer_certificates()
            .and_then(<[_]>::first)
            .and_then(pin_of)
            .ok_or(Distrust::NoCertificate)?;
        Ok((Box::new(stream), pin))
    }
}

/// The calling side's handshake with the owner of one of `pins`. No deadline of its own. That it succeeds does not
/// mean that the other side lets us in: only its first frame does.
pub(super) async fn connect(
    ours: &Credentials,
    pins: &BTreeSet<Pin>,
    tcp: TcpStream,
    address: IpAddr,
) -> Result<Box<dyn Carrier>, Distrust> {
    let accepted = Accepted::These(pins.clone());
    let mut config = ClientConfig::builder_with_details(Arc::new(provider()), Arc::new(NoClock))
        .with_protocol_versions(&[&TLS13])
        .map_err(|error| Distrust::from_tls(&error))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(PinVerifier::new(accepted)))
        .with_client_cert_resolver(Arc::new(SingleCertAndKey::from(Arc::clone(&ours.0))));
    config.alpn_protocols = vec![ALPN.to_vec()];
    config.resumption = Resumption::disabled();
    config.enable_early_data = false;
    config.enable_sni = false;
    let stream = TlsConnector::from(Arc::new(config))
        .connect(ServerName::from(address), tcp)
        .await
        .map_err(|error| Distrust::from_io(&error))?;
    if stream.get_ref().1.alpn_protocol() != Some(ALPN) {
        return Err(Distrust::WrongProtocol);
    }
    Ok(Box::new(stream))
}

/// `ring` with the one key exchange that both sides of this protocol speak: less to be attacked.
fn provider() -> CryptoProvider {
    CryptoProvider { kx_groups: vec![ring::kx_group::X25519], ..ring::default_provider() }
}

/// Nothing here depends on a clock, and a host whose clock is lost must still be reachable.
#[derive(Debug)]
struct NoClock;

impl TimeProvider for NoClock {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(std::time::Duration::ZERO))
    }
}

/// Whose keys are accepted.
#[derive(Debug)]
enum Accepted {
    /// Those of every enabled node in the fleet as of now.
    Fleet(watch::Receiver<Arc<Fleet>>),
    /// These, the expected node's.
    These(BTreeSet<Pin>),
}

#[derive(Debug)]
struct PinVerifier {
    accepted: Accepted,
    algorithms: WebPkiSupportedAlgorithms,
}

impl PinVerifier {
    fn new(accepted: Accepted) -> Self {
        Self { accepted, algorithms: provider().signature_verification_algorithms }
    }

    fn check(&self, certificate: &CertificateDer<'_>) -> Result<(), Error> {
        let pin = pin_of(certificate).ok_or(Error::InvalidCertificate(CertificateError::BadEncoding))?;
        let known = match &self.accepted {
            Accepted::Fleet(fleet) => fleet.borrow().node_of(&pin).is_some(),
            Accepted::These(pins) => pins.contains(&pin),
        };
        if known {
            return Ok(());
        }
        Err(CertificateError::Other(OtherError(Arc::new(distrust::Unpinned(pin)))).into())
    }

    fn signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        // Which signature schemes we offer does not bind an impostor, so it is checked here as well.
        if !SCHEMES.contains(&signed.scheme) {
            return Err(PeerMisbehaved::SignedHandshakeWithUnadvertisedSigScheme.into());
        }
        verify_tls13_signature(message, certificate, signed, &self.algorithms)
    }
}

const SCHEMES: [SignatureScheme; 2] = [SignatureScheme::ED25519, SignatureScheme::ECDSA_NISTP256_SHA256];

fn tls13_only() -> Error {
    PeerMisbehaved::SelectedUnofferedKxGroup.into()
}

impl ClientCertVerifier for PinVerifier {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        certificate: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.check(certificate).map(|()| ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(tls13_only())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        SCHEMES.to_vec()
    }
}

impl ServerCertVerifier for PinVerifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.check(certificate).map(|()| ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(tls13_only())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        SCHEMES.to_vec()
    }
}

/// The reason behind an error while reading or writing, if it is TLS that speaks: an alert from the other side.
pub(super) fn distrust_in(error: &io::Error) -> Option<Distrust> {
    error.get_ref()?.downcast_ref::<Error>().map(Distrust::from_tls)
}
