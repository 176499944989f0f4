//! Clients that do everything wrong: raw TLS with any certificate, key, version and protocol, or none of it.

use std::net::SocketAddr;
use std::sync::Arc;

use keyholder::peer::codec::{FrameReader, decode_server, encode};
use keyholder::peer::wire::{ClientFrame, MAX_REPLY, ServerFrame};
use rustls::client::ResolvesClientCert;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{ClientConfig, DigitallySignedStruct, Error, SignatureScheme};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::house::{Key, PATIENCE, PEER_ADDRESS, hello};

#[derive(Debug)]
struct TrustsAnybody;

impl ServerCertVerifier for TrustsAnybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        ring::default_provider().signature_verification_algorithms.supported_schemes()
    }
}

/// A client that presents `certificate` and signs with `key`, which need not belong together.
pub(super) fn presents(certificate: &Key, key: &Key) -> ClientConfig {
    let signing = ring::default_provider()
        .key_provider
        .load_private_key(PrivatePkcs8KeyDer::from(key.pair.serialize_der()).into())
        .unwrap();
    let certified = CertifiedKey::new(vec![certificate.certificate.clone().into()], signing);
    let resolver: Arc<dyn ResolvesClientCert> = Arc::new(SingleCertAndKey::from(certified));
    with(|builder| builder.with_client_cert_resolver(resolver))
}

pub(super) fn without_certificate() -> ClientConfig {
    with(|builder| builder.with_no_client_auth())
}

type Builder = rustls::ConfigBuilder<ClientConfig, rustls::client::WantsClientCert>;

fn with(finish: impl FnOnce(Builder) -> ClientConfig) -> ClientConfig {
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(TrustsAnybody));
    let mut config = finish(builder);
    config.alpn_protocols = vec![b"keyholder/1".to_vec()];
    config
}

pub(super) async fn tcp(to: SocketAddr, from: [u8; 4]) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind((from, 0).into()).unwrap();
    socket.connect(to).await.unwrap()
}

pub(super) async fn tls(to: SocketAddr, config: &Arc<ClientConfig>) -> std::io::Result<TlsStream<TcpStream>> {
    let stream = tcp(to, PEER_ADDRESS).await;
    let name = ServerName::try_from("mars.invalid").unwrap();
    TlsConnector::from(Arc::clone(config)).connect(name, stream).await
}

/// Everything that comes until the other side closes; panics if it does not.
pub(super) async fn rest(stream: &mut (impl AsyncRead + Unpin)) -> Vec<u8> {
    let mut bytes = Vec::new();
    // An error is an end as well: an alert or a reset.
    let _ = timeout(PATIENCE, stream.read_to_end(&mut bytes)).await.expect("it is closed in the end");
    bytes
}

/// Handshake, hello, and every application byte that comes back.
pub(super) async fn try_hello(to: SocketAddr, config: ClientConfig) -> Vec<u8> {
    try_hello_with(to, &Arc::new(config)).await
}

pub(super) async fn try_hello_with(to: SocketAddr, config: &Arc<ClientConfig>) -> Vec<u8> {
    let Ok(mut stream) = tls(to, config).await else { return Vec::new() };
    let frame = encode(&ClientFrame::Hello(hello("ai-core")), 4096).unwrap();
    let _ = stream.write_all(&frame).await;
    let _ = stream.flush().await;
    rest(&mut stream).await
}

/// A genuine peer's connection past the hello, for sending it bytes of any kind.
pub(super) struct Raw {
    pub(super) stream: TlsStream<TcpStream>,
    reader: FrameReader,
}

impl Raw {
    pub(super) async fn open(to: SocketAddr, key: &Key) -> Self {
        let mut raw = Self::silent(to, key).await;
        raw.send(&encode(&ClientFrame::Hello(hello("ai-core")), 4096).unwrap()).await;
        assert!(matches!(raw.next().await, Some(ServerFrame::Hello(_))));
        raw
    }

    /// The same before the hello.
    pub(super) async fn silent(to: SocketAddr, key: &Key) -> Self {
        let stream = tls(to, &Arc::new(presents(key, key))).await.unwrap();
        Self { stream, reader: FrameReader::default() }
    }

    pub(super) async fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.unwrap();
        self.stream.flush().await.unwrap();
    }

    /// A frame with this JSON in it.
    pub(super) async fn say(&mut self, json: &str) {
        self.send(&framed(json.as_bytes())).await;
    }

    pub(super) async fn next(&mut self) -> Option<ServerFrame> {
        let frame = timeout(PATIENCE, self.reader.next(&mut self.stream, MAX_REPLY)).await.expect("a frame");
        frame.ok()?.map(|bytes| decode_server(&bytes).unwrap())
    }

    /// The next frame that is neither news nor keepalive.
    pub(super) async fn reply(&mut self) -> Option<ServerFrame> {
        // Keepalives would keep it waiting for ever.
        let by = tokio::time::Instant::now() + PATIENCE;
        loop {
            assert!(tokio::time::Instant::now() < by, "no reply");
            match self.next().await {
                Some(ServerFrame::Keepalive | ServerFrame::Snapshot(_) | ServerFrame::Change(_)) => {}
                other => return other,
            }
        }
    }
}

pub(super) fn framed(bytes: &[u8]) -> Vec<u8> {
    let mut frame = u32::try_from(bytes.len()).unwrap().to_be_bytes().to_vec();
    frame.extend_from_slice(bytes);
    frame
}

#[derive(Debug)]
struct TakesAnybody;

impl rustls::server::danger::ClientCertVerifier for TakesAnybody {
    fn root_hint_subjects(&self) -> &[rustls::DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<rustls::server::danger::ClientCertVerified, Error> {
        Ok(rustls::server::danger::ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        ring::default_provider().signature_verification_algorithms.supported_schemes()
    }
}

/// A server that presents `certificate` and signs with `key`.
pub(super) fn impostor(certificate: &Key, key: &Key) -> tokio_rustls::TlsAcceptor {
    let signing = ring::default_provider()
        .key_provider
        .load_private_key(PrivatePkcs8KeyDer::from(key.pair.serialize_der()).into())
        .unwrap();
    let certified = CertifiedKey::new(vec![certificate.certificate.clone().into()], signing);
    let mut config = rustls::ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_client_cert_verifier(Arc::new(TakesAnybody))
        .with_cert_resolver(Arc::new(SingleCertAndKey::from(certified)));
    config.alpn_protocols = vec![b"keyholder/1".to_vec()];
    Arc::new(config).into()
}
