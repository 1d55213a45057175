//! What a transport brings: its name, its own settings, and a way to a host. Everything else about a session is
//! the same over all of them.

use std::fmt;

use async_trait::async_trait;
use executor_api::{Endpoint, ProviderName, SpecProblem};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::host::{Host, HostError};

/// Who a host must be, as far as that is known of its attempt, and where what is learnt about it is kept.
#[derive(Clone, Copy)]
pub struct Pin<'a> {
    known: Option<&'a str>,
    keep: &'a (dyn Fn(&str) -> Result<(), HostError> + Send + Sync),
}

impl<'a> Pin<'a> {
    /// What is known, and what to do with what is learnt.
    pub fn new(
        known: Option<&'a str>,
        keep: &'a (dyn Fn(&str) -> Result<(), HostError> + Send + Sync),
    ) -> Self {
        Self { known, keep }
    }

    /// What identified the host on the attempt's first contact; `None` before that.
    pub fn known(&self) -> Option<&str> {
        self.known
    }

    /// Keeps what identifies the host from now on, durably, unless something is known.
    ///
    /// # Errors
    /// It cannot be kept, or somebody has met another host in its place meanwhile: the host must be told nothing.
    pub fn keep(&self, learnt: &str) -> Result<(), HostError> {
        match self.known {
            Some(_) => Ok(()),
            None => (self.keep)(learnt),
        }
    }
}

impl fmt::Debug for Pin<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pin").field("known", &self.known).finish_non_exhaustive()
    }
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
    /// own connect timeout. What is learnt about the host's identity on first contact is kept with the pin before
    /// the host is asked for anything; a host that does not match a pin that is known is [`HostError::WrongHost`].
    async fn connect(
        &self,
        endpoint: &Endpoint,
        settings: &Self::Settings,
        pin: Pin<'_>,
    ) -> Result<Box<dyn Host>, HostError>;
}
