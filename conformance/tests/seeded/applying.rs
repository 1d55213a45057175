//! Bugs in the application of actions, and around the driver: its store and what calls its executor.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use conformance::between::{Between, in_front};
use conformance::simulate::Subject;
use executor_api::{
    CreateMode, CreateOutcome, Executor, ExecutorError, LogicalNodeSpec, OperationContext, Visibility,
};
use reconciler_core::{
    ClusterState, ManagedNode, NodeAction, NodeIntent, NodeStage, Stale, apply, reconcile_slots,
};
use reconciler_driver::{Changeset, Rules, StateImage, StateStore, StoreError};

use crate::plant::{Bug, applied_more, bug, called_by, stored_by};

pub(crate) fn bugs() -> Vec<Bug> {
    let mut bugs = transitions();
    bugs.extend(operations());
    bugs.extend(around());
    bugs
}

fn transitions() -> Vec<Bug> {
    vec![
        bug("an attempt id is given out twice", "S11", || {
            applied_more(|_, action, state, _, _| {
                if matches!(action, NodeAction::Restart { .. }) {
                    state.next_attempt_id -= 1;
                }
            })
        }),
        bug("an edit changes an attempt in place", "S3", || {
            applied_more(|before, action, state, _, _| {
                if let (NodeAction::BeginDelete { node, .. }, Some(_)) = (action, before)
                    && let Some(managed) = state.nodes.get_mut(node)
                {
                    let mut template = (*managed.record.desired.template).clone();
                    template.role.0.push('x');
                    managed.record.desired.template = Arc::new(template);
                }
            })
        }),
        bug("a create's backoff delays the cleanup", "S10", || {
            applied_more(|before, action, state, _, _| {
                if let NodeAction::BeginDelete { node, .. } = action
                    && let (Some(before), Some(managed)) = (before, state.nodes.get_mut(node))
                {
                    managed.retry.next_effect_at = before.retry.next_effect_at;
                }
            })
        }),
        bug("destroyed before the lease is", "S10", destroyed_too_early),
        bug("reaped and still there", "P11", || {
            applied_more(|before, action, state, _, _| {
                if let (NodeAction::Reap { node, .. }, Some(before)) = (action, before) {
                    state.nodes.insert(node.clone(), before.clone());
                }
            })
        }),
        bug("a reap takes its neighbour with it", "P11", || {
            applied_more(|_, action, state, _, _| {
                if matches!(action, NodeAction::Reap { .. }) {
                    state.nodes.pop_first();
                }
            })
        }),
        bug("one failing slot slows all others down", "S12", || {
            applied_more(|_, action, state, now, _| {
                // Only what is refused for ever is refused so often.
                let refused = |node: &ManagedNode| {
                    let error = node.retry.last_error.as_deref().unwrap_or_default();
                    node.retry.consecutive_failures > 5 && error.contains("refused")
                };
                if state.nodes.get(action.node()).is_some_and(refused) {
                    let day = now.checked_add(Duration::from_hours(24));
                    let others = state.nodes.iter_mut().filter(|(slot, _)| *slot != action.node());
                    for (_, other) in others.filter(|(_, node)| !node.is_ready()) {
                        other.retry.next_effect_at = day;
                    }
                }
            })
        }),
    ]
}

/// Decider and application agree that a lease which refuses to go is as good as gone.
fn destroyed_too_early() -> Subject {
    let impatient = |node: &ManagedNode| {
        node.intent == NodeIntent::Deleting && node.retry.consecutive_failures > 1 && node.pending.is_none()
    };
    let forget = move |node: &mut ManagedNode| {
        if impatient(node) && node.record.stage != NodeStage::Destroyed {
            node.record.lease = None;
            node.active_bootstrap = None;
            node.retry.ambiguous_operation = None;
            node.retry.extra.absent_counts_from = None;
        }
    };
    let decide = move |state: &ClusterState, desired: &_, slots: &_, now: SystemTime| {
        let mut state = state.clone();
        state.nodes.values_mut().for_each(forget);
        reconcile_slots(&state, desired, slots, now)
    };
    let apply = move |state: &mut ClusterState, action: &NodeAction, now: SystemTime, policy: &_| {
        if let (NodeAction::MarkDestroyed { .. }, Some(node)) = (action, state.nodes.get_mut(action.node())) {
            forget(node);
        }
        apply(state, action, now, policy)
    };
    let rules = Rules { reconcile: Arc::new(decide), apply: Arc::new(apply), ..Rules::default() };
    Subject { rules, ..Subject::default() }
}

fn operations() -> Vec<Bug> {
    vec![
        bug("an operation id is given out twice", "S11", || {
            applied_more(|_, action, state, _, _| {
                if let (NodeAction::Dispatch(_), Some(node)) = (action, state.nodes.get_mut(action.node())) {
                    node.next_operation_sequence -= 1;
                }
            })
        }),
        bug("sent without a record", "S7", || {
            applied_more(|_, action, state, _, _| {
                if let (NodeAction::Dispatch(_), Some(node)) = (action, state.nodes.get_mut(action.node())) {
                    node.pending = None;
                }
            })
        }),
        bug("operations get half their time", "P9", || {
            applied_more(|_, _, state, now, policy| {
                for pending in state.nodes.values_mut().filter_map(|node| node.pending.as_mut()) {
                    let half = now.checked_add(policy.operation_timeout / 2).unwrap();
                    pending.deadline = pending.deadline.min(half);
                }
            })
        }),
        bug("a stale plan is applied to whoever is there", "S6", || {
            let apply = |state: &mut ClusterState, action: &NodeAction, now: SystemTime, policy: &_| {
                let node = action.node().clone();
                match action {
                    NodeAction::Dispatch(effect) if effect.operation.sequence > 3 => {
                        Err(Stale::NoAttempt { node })
                    }
                    action => apply(state, action, now, policy),
                }
            };
            Subject { rules: Rules { apply: Arc::new(apply), ..Rules::default() }, ..Subject::default() }
        }),
    ]
}

fn around() -> Vec<Bug> {
    vec![
        bug("the store forgets every fourth write", "S7", || {
            stored_by(|inner| {
                Box::new(Careless { inner, writes: 0, older: None, kind: Carelessness::Forgets })
            })
        }),
        bug("the store says yes when it could not write", "P7", || {
            stored_by(|inner| {
                Box::new(Careless { inner, writes: 0, older: None, kind: Carelessness::HidesErrors })
            })
        }),
        bug("the store hands out what it held a write ago", "P6", || {
            stored_by(|inner| {
                Box::new(Careless { inner, writes: 0, older: None, kind: Carelessness::IsBehind })
            })
        }),
        bug("every create is sent twice", "P5", || called_by(|inner| wrapped(inner, Calls::Twice))),
        bug("the provider keeps quiet about late creates", "P1", || {
            called_by(|inner| wrapped(inner, Calls::LateUnsaid))
        }),
    ]
}

#[derive(Debug)]
enum Carelessness {
    Forgets,
    HidesErrors,
    IsBehind,
}

#[derive(Debug)]
struct Careless {
    inner: Box<dyn StateStore>,
    writes: u32,
    older: Option<StateImage>,
    kind: Carelessness,
}

impl StateStore for Careless {
    fn load(&mut self) -> Result<Option<StateImage>, StoreError> {
        let held = self.inner.load()?;
        Ok(match self.kind {
            Carelessness::IsBehind => self.older.take().or(held),
            Carelessness::Forgets | Carelessness::HidesErrors => held,
        })
    }

    fn commit(&mut self, changes: &Changeset) -> Result<(), StoreError> {
        self.writes += 1;
        match self.kind {
            Carelessness::Forgets if self.writes.is_multiple_of(4) => Ok(()),
            Carelessness::Forgets => self.inner.commit(changes),
            Carelessness::HidesErrors => {
                let _ = self.inner.commit(changes);
                Ok(())
            }
            Carelessness::IsBehind => {
                // What is loaded is what was there before.
                self.older = self.inner.load()?;
                self.inner.commit(changes)
            }
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Calls {
    Twice,
    LateUnsaid,
}

fn wrapped(inner: Executor, calls: Calls) -> Executor {
    in_front(Wrapped { inner, calls })
}

#[derive(Debug)]
struct Wrapped {
    inner: Executor,
    calls: Calls,
}

#[async_trait]
impl Between for Wrapped {
    fn inner(&self) -> &Executor {
        &self.inner
    }

    fn visibility(&self) -> Visibility {
        let stated = self.inner.leases().visibility();
        match self.calls {
            Calls::Twice => stated,
            Calls::LateUnsaid => Visibility { late_landing: Duration::ZERO, ..stated },
        }
    }

    async fn create(
        &self,
        ctx: &OperationContext,
        desired: &LogicalNodeSpec,
        mode: CreateMode,
    ) -> Result<CreateOutcome, ExecutorError> {
        if matches!(self.calls, Calls::Twice) {
            self.inner.leases().create(ctx, desired, mode).await?;
        }
        self.inner.leases().create(ctx, desired, mode).await
    }
}
