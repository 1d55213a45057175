//! The node agent: a small authenticated door to the sessions of the machine it runs on. Holds no state; a session
//! is what its directory says, and goes on whether the agent lives or not.

mod door;
mod handlers;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::serve::ListenerExt as _;
use bootstrap_hosted::HostError;
use bootstrap_hosted::host::local::LocalRunner;
use bootstrap_hosted::host::script::ScriptHost;
use executor_api::{SecretError, SecretRef};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::timeout;

use crate::tls::{self, TlsListener};
use door::Door;

/// Shortest token that is accepted, in bytes.
const SHORTEST_TOKEN: usize = 16;

/// How an agent is run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentConfig {
    /// Where it listens.
    pub listen: SocketAddr,
    /// Where its sessions live. Made if it is missing; an agent that is started again must be given the same.
    pub dir: PathBuf,
    /// What every request must bring.
    pub token: SecretRef,
    /// Its certificate. Without one it listens on the loopback addresses only, unless `plain` says otherwise.
    pub tls: Option<AgentTls>,
    /// Whether it may listen without TLS where others can listen too.
    pub plain: bool,
}

/// An agent's certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentTls {
    /// PEM file with the certificate and whatever leads to its authority.
    pub certificate: PathBuf,
    /// PEM file with its private key.
    pub key: PathBuf,
}

/// Why an agent does not run.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// The token cannot be read.
    #[error("cannot read the agent's token")]
    Token(#[source] SecretError),
    /// The token is one that could be guessed.
    #[error("the agent's token is shorter than {SHORTEST_TOKEN} bytes; make one with `openssl rand -hex 32`")]
    WeakToken,
    /// Without TLS the token would cross a network as it is.
    #[error("{listen} can be reached by others and there is no certificate; give one, or allow plain text")]
    PlainText {
        /// Where the agent was to listen.
        listen: SocketAddr,
    },
    /// The certificate cannot be used.
    #[error("cannot use the agent's certificate: {0}")]
    Tls(String),
    /// The directory cannot be used.
    #[error("cannot use {dir} for the sessions")]
    Dir {
        /// The directory.
        dir: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// This machine cannot run sessions.
    #[error("this machine cannot run sessions")]
    Unfit(#[source] HostError),
    /// The address cannot be listened on.
    #[error("cannot listen on {listen}")]
    Listen {
        /// Where the agent was to listen.
        listen: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// It stopped serving.
    #[error("the agent stopped serving")]
    Serve(#[source] io::Error),
}

/// An agent that listens and does not answer yet.
#[derive(Debug)]
pub struct Agent {
    listener: TcpListener,
    address: SocketAddr,
    tls: Option<Arc<rustls::ServerConfig>>,
    door: Arc<Door>,
}

impl Agent {
    /// Checks everything, prepares the directory and listens.
    ///
    /// # Errors
    /// What is in the way, and what to do about it. Nothing is served then.
    pub async fn bind(config: AgentConfig) -> Result<Self, AgentError> {
        let AgentConfig { listen, dir, token, tls, plain } = config;
        let token = token.resolve().map_err(AgentError::Token)?;
        if token.expose().len() < SHORTEST_TOKEN {
            return Err(AgentError::WeakToken);
        }
        if tls.is_none() && !plain && !is_loopback(listen.ip()) {
            return Err(AgentError::PlainText { listen });
        }
        let tls =
            tls.map(|tls| tls::server(&tls.certificate, &tls.key)).transpose().map_err(AgentError::Tls)?;
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&dir)
            .map_err(|source| AgentError::Dir { dir: dir.clone(), source })?;
        let dir = dir.canonicalize().map_err(|source| AgentError::Dir { dir, source })?;
        let host = ScriptHost::install(LocalRunner::new(dir)).await.map_err(AgentError::Unfit)?;
        let in_use = |source| AgentError::Listen { listen, source };
        let listener = TcpListener::bind(listen).await.map_err(in_use)?;
        let address = listener.local_addr().map_err(in_use)?;
        Ok(Self { listener, address, tls, door: Arc::new(Door::new(&token, host)) })
    }

    /// Where it listens; the port is the one it got if it asked for any.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until it is dropped.
    ///
    /// # Errors
    /// The system took the address away.
    pub async fn run(self) -> Result<(), AgentError> {
        self.run_until(std::future::pending(), Duration::ZERO).await
    }

    /// Serves until it is told to stop, and then no longer than `last_answers` until what was being asked is answered.
    ///
    /// # Errors
    /// The system took the address away.
    pub async fn run_until(
        self,
        stop: impl Future<Output = ()> + Send,
        last_answers: Duration,
    ) -> Result<(), AgentError> {
        let routes = handlers::routes(self.door);
        tracing::info!(address = %self.address, tls = self.tls.is_some(), "the agent listens");
        let (stopping, mut stopped) = watch::channel(false);
        let graceful = async move {
            // A sender that is gone is as good as a stop.
            let _ = stopped.wait_for(|stopped| *stopped).await;
        };
        let mut serving: Pin<Box<dyn Future<Output = io::Result<()>> + Send>> = if let Some(config) = self.tls
        {
            let listener = TlsListener::new(self.listener, config).map_err(AgentError::Serve)?;
            Box::pin(axum::serve(listener, routes).with_graceful_shutdown(graceful).into_future())
        } else {
            let listener = self.listener.tap_io(|stream| {
                let _ = stream.set_nodelay(true);
            });
            Box::pin(axum::serve(listener, routes).with_graceful_shutdown(graceful).into_future())
        };
        tokio::select! {
            served = &mut serving => return served.map_err(AgentError::Serve),
            () = stop => {}
        }
        stopping.send_replace(true);
        match timeout(last_answers, serving).await {
            Ok(served) => served.map_err(AgentError::Serve),
            // Whoever was cut off asks again; every request may be repeated.
            Err(_) => Ok(()),
        }
    }
}

/// Runs an agent until it is dropped.
///
/// # Errors
/// As [`Agent::bind`] and [`Agent::run`].
pub async fn serve(config: AgentConfig) -> Result<(), AgentError> {
    Agent::bind(config).await?.run().await
}

fn is_loopback(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_loopback(),
        IpAddr::V6(address) => {
            address.is_loopback() || address.to_ipv4_mapped().is_some_and(|address| address.is_loopback())
        }
    }
}
