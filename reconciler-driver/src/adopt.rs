//! State made anew from what providers show, for a run whose own was lost. Every node that lives is taken as one
//! whose create has no known outcome: the driver may only adopt it until it has seen it. A slot that is not seen gets a
//! new node, so that a listing counts only once it must show all that the driver before this one made. Reaches nothing
//! itself.

use std::collections::BTreeMap;
use std::time::SystemTime;

use executor_api::{
    LeaseOwner, Life, Listing, LogicalNodeId, NodeAttemptId, OperationKind, ProviderName, RunId, Visibility,
};
use reconciler_core::{ClusterState, Expanded, ManagedNode, NodeStage};

/// How far the allocator is moved past the highest attempt that is seen: later ones may have ended unseen.
const HEADROOM: u64 = 1000;

/// What a provider showed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    /// When it was asked.
    pub asked_at: SystemTime,
    /// How late and how hidden what was made may be.
    pub visibility: Visibility,
    /// What it answered.
    pub listing: Listing,
}

impl Shown {
    /// From when on a listing shows all that was begun before `began`.
    fn counts_from(&self, began: SystemTime) -> SystemTime {
        self.visibility.absent_counts_from(began)
    }
}

/// Why nothing can be adopted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AdoptError {
    /// A listing may lack something.
    #[error("{provider} did not list everything; try again when it does")]
    Incomplete {
        /// Whose.
        provider: ProviderName,
    },
    /// Something may live that was not shown yet.
    #[error("{provider} was listed too early to show everything that was made before; list it again")]
    TooEarly {
        /// Whose.
        provider: ProviderName,
        /// From when on a listing counts.
        counts_from: SystemTime,
    },
    /// A node lives that is not declared: it would be removed at once.
    #[error(
        "{node} lives at {provider} but is not declared; declare it for the adoption, and take it away afterwards"
    )]
    Undeclared {
        /// Which.
        node: LogicalNodeId,
        /// Who leases it.
        provider: ProviderName,
    },
    /// A node lives at another provider than is declared: it would be replaced at once.
    #[error("{node} lives at {provider}, but {declared} is declared for it; declare what is there")]
    OtherProvider {
        /// Which.
        node: LogicalNodeId,
        /// Who leases it.
        provider: ProviderName,
        /// Who is declared.
        declared: ProviderName,
    },
    /// There is nothing of this run.
    #[error("no provider shows a living node of {run}; check the uid that was given")]
    Nothing {
        /// The run.
        run: RunId,
    },
}

/// The state of a run as its providers show it. Of several attempts of a slot the latest is kept; the others are
/// orphans from then on. `began` is when nobody else drove the run any more; each provider has to be asked its whole
/// visibility allowance after that.
pub fn state_from_listings(
    run: &RunId,
    desired: &Expanded,
    shown: &BTreeMap<ProviderName, Shown>,
    began: SystemTime,
    now: SystemTime,
) -> Result<ClusterState, AdoptError> {
    let mut highest = 0;
    let mut found: BTreeMap<LogicalNodeId, (NodeAttemptId, &ProviderName)> = BTreeMap::new();
    for (provider, shown) in shown {
        if !shown.listing.complete {
            return Err(AdoptError::Incomplete { provider: provider.clone() });
        }
        let counts_from = shown.counts_from(began);
        if shown.asked_at < counts_from {
            return Err(AdoptError::TooEarly { provider: provider.clone(), counts_from });
        }
        for listed in &shown.listing.leases {
            let LeaseOwner::Attempt(key) = &listed.owner else { continue };
            if key.run != *run {
                continue;
            }
            highest = highest.max(key.attempt.0);
            let lives = matches!(listed.life, Life::Pending | Life::Live);
            let latest = found.get(&key.node).is_none_or(|(attempt, _)| *attempt < key.attempt);
            if lives && latest {
                found.insert(key.node.clone(), (key.attempt, provider));
            }
        }
    }
    if found.is_empty() {
        return Err(AdoptError::Nothing { run: run.clone() });
    }
    let mut state = ClusterState { next_attempt_id: highest + HEADROOM, ..ClusterState::default() };
    for (slot, (attempt, provider)) in found {
        let (node, provider) = (slot.clone(), provider.clone());
        let Some(spec) = desired.specs.get(&slot) else {
            return Err(AdoptError::Undeclared { node, provider });
        };
        if spec.template.provider != provider {
            let declared = spec.template.provider.clone();
            return Err(AdoptError::OtherProvider { node, provider, declared });
        }
        let mut node = ManagedNode::new(attempt, spec.clone(), now);
        node.record.stage = NodeStage::LeaseRequested;
        node.retry.ambiguous_operation = Some(OperationKind::CreateLease);
        // Counted anew by the driver that goes on from here, with its provider's own allowance.
        node.retry.extra.absent_counts_from = Some(now);
        state.nodes.insert(slot, node);
    }
    Ok(state)
}
