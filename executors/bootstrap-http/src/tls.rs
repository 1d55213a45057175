//! TLS on both sides, with ring as its cryptography and no choice taken from the process's surroundings.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustls::crypto::{CryptoProvider, ring};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// How long a handshake may take.
const HANDSHAKE: Duration = Duration::from_secs(10);

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

/// Reads certificates from a PEM file.
fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let wrong = |error: &dyn std::fmt::Display| format!("no certificates in {}: {error}", path.display());
    let read: Result<Vec<_>, _> = CertificateDer::pem_file_iter(path).map_err(|e| wrong(&e))?.collect();
    match read {
        Ok(list) if list.is_empty() => Err(wrong(&"the file holds none")),
        Ok(list) => Ok(list),
        Err(error) => Err(wrong(&error)),
    }
}

/// The authorities in a PEM file.
pub(crate) fn roots(path: &Path) -> Result<RootCertStore, String> {
    let mut store = RootCertStore::empty();
    for certificate in certificates(path)? {
        store.add(certificate).map_err(|error| format!("a certificate in {}: {error}", path.display()))?;
    }
    Ok(store)
}

/// A client that trusts the authorities in a PEM file and no others.
pub(crate) fn client(ca: &Path) -> Result<ClientConfig, String> {
    trusting(roots(ca)?)
}

/// A client that trusts these authorities and no others.
pub(crate) fn trusting(roots: RootCertStore) -> Result<ClientConfig, String> {
    let config = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(config)
}

/// A server with this certificate.
pub(crate) fn server(certificate: &Path, key: &Path) -> Result<Arc<ServerConfig>, String> {
    let chain = certificates(certificate)?;
    let key =
        PrivateKeyDer::from_pem_file(key).map_err(|error| format!("no key in {}: {error}", key.display()))?;
    let config = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .map_err(|error| format!("the certificate and the key do not go together: {error}"))?;
    Ok(Arc::new(config))
}

/// Accepts TLS connections. Handshakes run beside one another, so that a slow one holds nobody up.
#[derive(Debug)]
pub(crate) struct TlsListener {
    ready: mpsc::Receiver<(TlsStream<TcpStream>, SocketAddr)>,
    address: SocketAddr,
    accepting: tokio::task::JoinHandle<()>,
}

impl TlsListener {
    pub(crate) fn new(listener: TcpListener, config: Arc<ServerConfig>) -> io::Result<Self> {
        let address = listener.local_addr()?;
        let acceptor = TlsAcceptor::from(config);
        let (send, ready) = mpsc::channel(64);
        let accepting = tokio::spawn(async move {
            loop {
                let (stream, peer) = match listener.accept().await {
                    Ok(accepted) => accepted,
                    Err(error) => {
                        // Out of descriptors, or a connection that was gone already.
                        tracing::warn!(%error, "a connection could not be accepted");
                        tokio::time::sleep(Duration::from_millis(100)).await;
                        continue;
                    }
                };
                let (acceptor, send) = (acceptor.clone(), send.clone());
                tokio::spawn(async move {
                    if let Ok(Ok(stream)) = timeout(HANDSHAKE, acceptor.accept(stream)).await {
                        let _ = send.send((stream, peer)).await;
                    }
                });
            }
        });
        Ok(Self { ready, address, accepting })
    }
}

impl Drop for TlsListener {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl axum::serve::Listener for TlsListener {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, SocketAddr) {
        match self.ready.recv().await {
            Some(accepted) => accepted,
            // The accepting task ends with this listener alone.
            None => std::future::pending().await,
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.address)
    }
}
