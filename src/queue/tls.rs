//! TLS towards Redis: authorities, and a client certificate if the server wants one. The peers' door has rules of its own
//! (`peer/tls.rs`).

use std::io::{self, Read as _};
use std::sync::Arc;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// The longest file that is read, in bytes.
const MAX_FILE: u64 = 1024 * 1024;

/// How a connection is encrypted.
#[derive(Clone)]
pub(super) struct Tls(TlsConnector);

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tls(..)")
    }
}

/// What files an address names, if any.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Files<'a> {
    /// The authorities that the server's certificate is checked against; without it the host's own.
    pub(super) ca: Option<&'a str>,
    /// Our certificate.
    pub(super) cert: Option<&'a str>,
    /// Its key.
    pub(super) key: Option<&'a str>,
}

/// A file that cannot be used: what it was to be, its path, and why. The path is empty for the host's own.
pub(super) type Unfit = (&'static str, String, String);

impl Tls {
    /// Reads the files, so that new ones need a new connection and no restart.
    ///
    /// # Errors
    /// [`Unfit`].
    pub(super) fn of(files: Files<'_>) -> Result<Self, Unfit> {
        const CA: &str = "the certificate authority";
        let roots = match files.ca {
            Some(path) => roots(path).map_err(|why| (CA, path.to_owned(), why))?,
            None => native().map_err(|why| (CA, String::new(), why))?,
        };
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let broken = |error: rustls::Error| (CA, String::new(), error.to_string());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(broken)?
            .with_root_certificates(roots);
        let config = match files.cert.zip(files.key) {
            None => config.with_no_client_auth(),
            Some((cert, key)) => {
                const CERT: &str = "our certificate";
                let chain = certificates(cert).map_err(|why| (CERT, cert.to_owned(), why))?;
                let secret =
                    private(key).map_err(|why| ("the key of our certificate", key.to_owned(), why))?;
                let ours = config.with_client_auth_cert(chain, secret);
                ours.map_err(|error| (CERT, cert.to_owned(), error.to_string()))?
            }
        };
        Ok(Self(TlsConnector::from(Arc::new(config))))
    }

    /// The handshake. No deadline of its own.
    pub(super) async fn connect(&self, host: &str, tcp: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        let bare = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let name = ServerName::try_from(bare).map_err(io::Error::other)?;
        self.0.connect(name, tcp).await
    }
}

fn read(path: &str) -> Result<Vec<u8>, String> {
    let mut pem = Vec::new();
    let file = std::fs::File::open(path).map_err(|error| error.to_string())?;
    file.take(MAX_FILE).read_to_end(&mut pem).map_err(|error| error.to_string())?;
    Ok(pem)
}

fn certificates(path: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&read(path)?).collect();
    let all = all.map_err(|error| error.to_string())?;
    if all.is_empty() {
        return Err("there is no certificate in PEM form in it".to_owned());
    }
    Ok(all)
}

fn private(path: &str) -> Result<PrivateKeyDer<'static>, String> {
    PrivateKeyDer::from_pem_slice(&read(path)?)
        .map_err(|_| "there is no private key in PEM form in it".to_owned())
}

fn roots(path: &str) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        roots.add(certificate).map_err(|error| error.to_string())?;
    }
    Ok(roots)
}

/// As the library did: all that the host trusts, or an error.
fn native() -> Result<RootCertStore, String> {
    let mut found = rustls_native_certs::load_native_certs();
    if let Some(error) = found.errors.pop() {
        return Err(error.to_string());
    }
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(found.certs);
    Ok(roots)
}
