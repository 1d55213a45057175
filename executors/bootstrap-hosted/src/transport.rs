//! What a transport brings: its name, its own settings, and a way to a host. Everything else about a session is
//! the same over all of them.

use std::fmt;

use async_trait::async_trait;
use executor_api::{Endpoint, ProviderName, SpecProblem};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::host::{Host, HostError};

/// An open way to a host.
#[derive(Debug)]
pub struct Connection {
    /// The host.
    pub host: Box<dyn Host>,
    /// What identifies the host from now on, if this transport learns that on first contact.
    pub pin: Option<String>,
}

/// A way to hosts.
#[async_trait]
pub trait Transport: Send + Sync + fmt::Debug + 'static {
    /// What a user writes below `boot/connect`.
    type Settings: Serialize + DeserializeOwned + Default + Clone + fmt::Debug + Send + Sync;

    /// The name under which specs ask for it.
    fn name(&self) -> ProviderName;

    /// What is wrong with the settings as far as that can be known without reaching anything; pointers begin
    /// with `/boot/connect`.
    fn check(&self, settings: &Self::Settings) -> Vec<SpecProblem>;

    /// Reaches a host, proves that it is the one meant, and proves ourselves to it. Ends within the transport's
    /// own connect timeout. Whatever is learnt about the host's identity on first contact comes back as the pin;
    /// a host that does not match a pin given is [`HostError::WrongHost`].
    async fn connect(
        &self,
        endpoint: &Endpoint,
        settings: &Self::Settings,
        pin: Option<&str>,
    ) -> Result<Connection, HostError>;
}
