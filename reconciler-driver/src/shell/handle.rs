//! What applications hold of a running driver: orders in, status and events out.

use executor_api::{LogicalNodeId, RunId};
use reconciler_core::{ClusterShape, HoldBy, RetryPolicy};
use serde::{Deserialize, Serialize};
use tokio::sync::{broadcast, mpsc, oneshot, watch};

use super::actor::{Command, Message};
use crate::driver::{ClusterDriver, DesiredChange};
use crate::error::DriverError;
use crate::event::Event;
use crate::status::{Explanation, StatusSnapshot};

/// A run in a few numbers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    /// Rises with every change; two equal versions are one state.
    pub version: u64,
    /// The run.
    pub run: RunId,
    /// The accepted generation.
    pub generation: u64,
    /// The latest generation evaluated.
    pub observed_generation: u64,
    /// Whether everything is as declared, as of the accepted generation.
    pub converged: bool,
    /// How many slots are declared.
    pub declared: usize,
    /// How many slots have an attempt.
    pub nodes: usize,
    /// How many do their work.
    pub ready: usize,
}

impl Summary {
    pub(super) fn of(driver: &ClusterDriver) -> Self {
        Self {
            version: driver.revision(),
            run: driver.run().clone(),
            generation: driver.desired().generation,
            observed_generation: driver.state().observed_generation,
            converged: driver.is_converged(),
            declared: driver.expanded().specs.len(),
            nodes: driver.state().nodes.len(),
            ready: driver.ready(),
        }
    }
}

/// Why a driver has stopped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// It was asked to.
    Requested,
    /// State could not be stored.
    StoreFailed(String),
    /// The providers contradict the stored state. Nothing was changed.
    Distrusted(String),
    /// It could not go on.
    Failed(String),
}

/// A handle on a running driver. An order is answered once what it changed is durable. Clones are handles on the same one; dropping them stops nothing.
#[derive(Clone, Debug)]
pub struct DriverHandle {
    mail: mpsc::UnboundedSender<Message>,
    summary: watch::Receiver<Summary>,
    events: broadcast::Sender<Event>,
    reason: watch::Receiver<Option<StopReason>>,
}

impl DriverHandle {
    pub(super) fn new(
        mail: mpsc::UnboundedSender<Message>,
        summary: watch::Receiver<Summary>,
        events: broadcast::Sender<Event>,
        reason: watch::Receiver<Option<StopReason>>,
    ) -> Self {
        Self { mail, summary, events, reason }
    }

    /// Puts a newer shape in force.
    pub async fn set_desired(&self, desired: ClusterShape) -> Result<DesiredChange, DriverError> {
        Ok(self.ask(|reply| Command::SetDesired(desired, reply)).await??)
    }

    /// Puts another timing in force.
    pub async fn set_policy(&self, policy: RetryPolicy) -> Result<(), DriverError> {
        self.ask(|reply| Command::SetPolicy(policy, reply)).await
    }

    /// Leaves a slot, or the cluster for `None`, alone until the release. Once more by the same holder gives the hold
    /// another reason.
    pub async fn hold(
        &self,
        slot: Option<LogicalNodeId>,
        by: HoldBy,
        reason: impl Into<String>,
    ) -> Result<(), DriverError> {
        let reason = reason.into();
        Ok(self.ask(|reply| Command::Hold { slot, by, reason, reply }).await??)
    }

    /// Takes a hold back. Says whether there was one.
    pub async fn release(&self, slot: Option<LogicalNodeId>, by: HoldBy) -> Result<bool, DriverError> {
        self.ask(|reply| Command::Release { slot, by, reply }).await
    }

    /// Asks for a fresh attempt of a slot.
    pub async fn replace(&self, slot: LogicalNodeId) -> Result<(), DriverError> {
        Ok(self.ask(|reply| Command::Replace(slot, reply)).await??)
    }

    /// Keeps something beside the state, or forgets it for `None`.
    pub async fn annotate(&self, key: impl Into<String>, value: Option<String>) -> Result<(), DriverError> {
        let key = key.into();
        self.ask(|reply| Command::Annotate { key, value, reply }).await
    }

    /// The whole run, node by node.
    pub async fn snapshot(&self) -> Result<StatusSnapshot, DriverError> {
        self.ask(Command::Snapshot).await.map(|snapshot| *snapshot)
    }

    /// One slot, what it would do next, and how it came there. `None`: neither declared nor there.
    pub async fn explain(&self, slot: LogicalNodeId) -> Result<Option<Explanation>, DriverError> {
        self.ask(|reply| Command::Explain(slot, reply)).await.map(|explanation| explanation.map(|e| *e))
    }

    /// The shape in force.
    pub async fn desired(&self) -> Result<ClusterShape, DriverError> {
        self.ask(Command::Desired).await
    }

    /// The run in a few numbers, as it changes.
    pub fn watch(&self) -> watch::Receiver<Summary> {
        self.summary.clone()
    }

    /// What happens from now on. A subscriber that lags too far behind is told how much it missed.
    pub fn events(&self) -> broadcast::Receiver<Event> {
        self.events.subscribe()
    }

    /// Completes once everything is as declared; an error if the driver stops before.
    pub async fn converged(&self) -> Result<(), DriverError> {
        let mut summary = self.summary.clone();
        let converged = summary.wait_for(|summary| summary.converged).await;
        converged.map(drop).map_err(|_| DriverError::Stopped)
    }

    /// Completes when the driver has stopped, and says why.
    pub async fn stopped(&self) -> StopReason {
        let mut reason = self.reason.clone();
        let stopped = reason.wait_for(Option::is_some).await.map(|reason| reason.clone());
        let gone = || StopReason::Failed("the driver's task ended without a word".to_owned());
        stopped.ok().flatten().unwrap_or_else(gone)
    }

    /// Stops driving and leaves every node as it is. Running operations are stopped and recorded as unknown,
    /// so that the next driver looks for what they did.
    pub async fn shutdown(&self) -> StopReason {
        // A driver that has stopped already takes no orders.
        let _ = self.mail.send(Message::Command(Box::new(Command::Shutdown)));
        self.stopped().await
    }

    async fn ask<T>(&self, command: impl FnOnce(oneshot::Sender<T>) -> Command) -> Result<T, DriverError> {
        let (reply, answer) = oneshot::channel();
        let message = Message::Command(Box::new(command(reply)));
        self.mail.send(message).map_err(|_| DriverError::Stopped)?;
        tokio::select! {
            biased;
            answer = answer => answer.map_err(|_| DriverError::Stopped),
            _ = self.stopped() => Err(DriverError::Stopped),
        }
    }
}
