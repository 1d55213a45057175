//! A line between a case and any executor that loses requests and answers. A harness that puts its executor behind
//! one has three of the faults for nothing, and they are faithful: a request is lost before anything has been done,
//! an answer after everything has.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use executor_api::{
    CreateMode, CreateOutcome, Executor, ExecutorError, LogicalNodeSpec, OperationContext, StartOutcome,
    StartRequest,
};

use crate::between::{Between, in_front};
use crate::harness::Injection;

/// What the next calls of one world lose; shared by all instances of the executor on it.
#[derive(Debug, Default)]
pub struct Losses {
    creates: Mutex<VecDeque<Loss>>,
    starts: Mutex<VecDeque<Loss>>,
}

/// What of a call is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Loss {
    Request,
    Answer,
}

impl Losses {
    /// The executor behind this line.
    pub fn before(self: &Arc<Self>, executor: Executor) -> Executor {
        in_front(Lossy { inner: executor, losses: Arc::clone(self) })
    }

    /// Causes the fault if it is one of the line's: [`Injection::LoseCreateAnswer`], [`Injection::SwallowCreate`]
    /// and [`Injection::LoseStartAnswer`]. Whether it was.
    pub fn cause(&self, fault: &Injection) -> bool {
        let (queue, loss) = match fault {
            Injection::LoseCreateAnswer => (&self.creates, Loss::Answer),
            Injection::SwallowCreate => (&self.creates, Loss::Request),
            Injection::LoseStartAnswer => (&self.starts, Loss::Answer),
            _ => return false,
        };
        Self::lock(queue).push_back(loss);
        true
    }

    /// Nothing more is lost.
    pub fn heal(&self) {
        Self::lock(&self.creates).clear();
        Self::lock(&self.starts).clear();
    }

    fn lock(queue: &Mutex<VecDeque<Loss>>) -> MutexGuard<'_, VecDeque<Loss>> {
        queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An executor behind the line.
#[derive(Debug)]
struct Lossy {
    inner: Executor,
    losses: Arc<Losses>,
}

async fn suffer<T>(loss: Option<Loss>, call: impl Future<Output = T> + Send) -> T {
    match loss {
        None => call.await,
        Some(Loss::Request) => std::future::pending().await,
        Some(Loss::Answer) => {
            let _ = call.await;
            std::future::pending().await
        }
    }
}

#[async_trait]
impl Between for Lossy {
    fn inner(&self) -> &Executor {
        &self.inner
    }

    async fn create(
        &self,
        ctx: &OperationContext,
        desired: &LogicalNodeSpec,
        mode: CreateMode,
    ) -> Result<CreateOutcome, ExecutorError> {
        let loss = Losses::lock(&self.losses.creates).pop_front();
        suffer(loss, self.inner.leases().create(ctx, desired, mode)).await
    }

    async fn start(
        &self,
        ctx: &OperationContext,
        request: &StartRequest,
        mode: CreateMode,
    ) -> Result<StartOutcome, ExecutorError> {
        let loss = Losses::lock(&self.losses.starts).pop_front();
        suffer(loss, self.inner.bootstrap().start(ctx, request, mode)).await
    }
}
