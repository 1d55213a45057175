//! Which executor serves which node: lease providers and bootstrappers by name. A lookup table; it calls
//! nothing but `validate` and `acquaint`.

use std::collections::BTreeMap;
use std::sync::Arc;

use executor_api::{
    Bootstrapper, CreateMode, Executor, LeaseProvider, NodeManagerCommand, NodeTemplate, ProviderName,
    RunNodeGroupSpec, SpecProblem, Visibility,
};
use reconciler_core::{ClusterShape, ClusterState};

use crate::driver::Route;

/// A spec names something that is not in the table.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoExecutor {
    /// The lease provider.
    #[error("no provider {name:?}; there are {known}")]
    Provider {
        /// The name in the spec.
        name: String,
        /// The names in the table.
        known: String,
    },
    /// The bootstrapper.
    #[error("no bootstrapper {name:?}; there are {known}")]
    Bootstrapper {
        /// The name in the spec.
        name: String,
        /// The names in the table.
        known: String,
    },
}

/// Lease providers, each with the bootstrapper that it brings, and bootstrappers that any of them may use.
#[derive(Clone, Debug, Default)]
pub struct ExecutorTable {
    executors: BTreeMap<ProviderName, Executor>,
    bootstrappers: BTreeMap<ProviderName, Arc<dyn Bootstrapper>>,
}

impl ExecutorTable {
    /// An empty table.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a lease provider under its own name, with the bootstrapper that it brings.
    #[must_use]
    pub fn with_executor(mut self, executor: Executor) -> Self {
        let bootstrap = executor.bootstrap();
        self.bootstrappers.insert(bootstrap.name(), Arc::clone(bootstrap));
        self.executors.insert(executor.leases().name(), executor);
        self
    }

    /// Adds a bootstrapper under its own name.
    #[must_use]
    pub fn with_bootstrapper(mut self, bootstrapper: Arc<dyn Bootstrapper>) -> Self {
        self.bootstrappers.insert(bootstrapper.name(), bootstrapper);
        self
    }

    /// Who serves nodes of this template.
    pub fn resolve(&self, template: &NodeTemplate) -> Result<Executor, NoExecutor> {
        self.serving(&Route::of(template))
    }

    /// Who serves this route.
    pub fn serving(&self, route: &Route) -> Result<Executor, NoExecutor> {
        let executor = self.executors.get(&route.provider).ok_or_else(|| NoExecutor::Provider {
            name: route.provider.to_string(),
            known: names(self.executors.keys()),
        })?;
        let Some(via) = &route.via else {
            return Ok(executor.clone());
        };
        let bootstrap = self.bootstrappers.get(via).ok_or_else(|| NoExecutor::Bootstrapper {
            name: via.to_string(),
            known: names(self.bootstrappers.keys()),
        })?;
        Ok(Executor::new(Arc::clone(executor.leases()), Arc::clone(bootstrap)))
    }

    /// Who carries this command out. To make something both halves must be there: nothing is leased that nobody could
    /// bootstrap. What looks for a lease or ends it needs the lease provider alone, so that a node whose bootstrapper is
    /// no longer built in can still be cleaned up. A session that only its bootstrapper could end is not passed
    /// over: it keeps its lease until the bootstrapper is back.
    ///
    /// # Errors
    /// Who is needed is not in the table.
    pub fn carrying_out(&self, route: &Route, command: &NodeManagerCommand) -> Result<Executor, NoExecutor> {
        let needs_only_leases = match command {
            NodeManagerCommand::CreateLease { mode, .. } => *mode == CreateMode::AdoptOnly,
            NodeManagerCommand::LookupEndpoint { .. } | NodeManagerCommand::DestroyLease { .. } => true,
            NodeManagerCommand::StartBootstrap { .. }
            | NodeManagerCommand::BootstrapConvergenceObserved { .. }
            | NodeManagerCommand::CancelBootstrap { .. } => false,
        };
        if needs_only_leases {
            return self.serving(&Route { provider: route.provider.clone(), via: None });
        }
        self.serving(route)
    }

    /// The lease provider of this name.
    pub fn provider(&self, name: &ProviderName) -> Option<&Arc<dyn LeaseProvider>> {
        self.executors.get(name).map(Executor::leases)
    }

    /// All lease providers.
    pub fn providers(&self) -> impl Iterator<Item = &Arc<dyn LeaseProvider>> {
        self.executors.values().map(Executor::leases)
    }

    /// How late and how hidden the effects of a provider's leases, or of a bootstrapper's sessions, may be.
    pub fn visibility(&self, name: &ProviderName, bootstrap: bool) -> Visibility {
        let stated = if bootstrap {
            let own = self.executors.get(name).map(|e| e.bootstrap().visibility());
            self.bootstrappers.get(name).map(|b| b.visibility()).or(own)
        } else {
            self.executors.get(name).map(|e| e.leases().visibility())
        };
        stated.unwrap_or_default()
    }

    /// Tells the providers of everything that is declared, so that they know where to look. Has to come before the
    /// first listing; [`start`](crate::start) does it for the driver.
    pub fn acquaint(&self, desired: &ClusterShape) {
        self.tell(desired.groups.iter().map(|group| &group.template));
    }

    /// As [`acquaint`](Self::acquaint), of everything that is still there.
    pub fn acquaint_with_nodes(&self, state: &ClusterState) {
        self.tell(state.nodes.values().map(|node| &node.record.desired.template));
    }

    fn tell<'a>(&self, templates: impl Iterator<Item = &'a Arc<NodeTemplate>>) {
        // Equal specs share one allocation: a large group is told of once.
        let mut told: Option<&Arc<NodeTemplate>> = None;
        for template in templates {
            if told.is_some_and(|told| Arc::ptr_eq(told, template)) {
                continue;
            }
            told = Some(template);
            if let Some(provider) = self.provider(&template.provider) {
                provider.acquaint(template);
            }
        }
    }

    /// Asks the provider and the bootstrapper of a group what is wrong with it. Makes nothing.
    pub async fn validate(&self, group: &RunNodeGroupSpec) -> Result<(), Vec<SpecProblem>> {
        let executor = match self.resolve(&group.template) {
            Ok(executor) => executor,
            Err(error) => {
                let pointer = match &error {
                    NoExecutor::Provider { .. } => "/provider",
                    NoExecutor::Bootstrapper { .. } => "/boot/via",
                };
                return Err(vec![SpecProblem::new(pointer, error.to_string())]);
            }
        };
        let mut problems = executor.leases().validate(group).await.err().unwrap_or_default();
        problems.extend(executor.bootstrap().validate(group).await.err().unwrap_or_default());
        if problems.is_empty() { Ok(()) } else { Err(problems) }
    }
}

fn names<'a>(known: impl Iterator<Item = &'a ProviderName>) -> String {
    let known: Vec<_> = known.map(ProviderName::as_str).collect();
    if known.is_empty() { "none".to_owned() } else { known.join(", ") }
}
