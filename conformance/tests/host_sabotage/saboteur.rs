//! Simulated hosts behind an implementation with one deliberate fault. What an agent would remember is shared between
//! instances; what a process would remember is not.

mod deeds;
mod lock;
mod machines;
mod reads;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, SystemTime};

use conformance::hosts::{HostTrouble, SimulatedHosts};
use executor_api::host::{
    BondMode, BondReading, ConnectionState, FenceValue, GenerationIds, HostAction, HostName, HostOperation,
    HostOperationId, HostReport, LeaseHolder, LockRecords, PlanUid, ResourceName, SatelliteReading,
    StorageReading, VmOperation, VmPicture,
};
use executor_host_fake::{Incident, Seat};
use reconciler_driver::maintenance::Hands;

use crate::how::How;

/// Simulated hosts with this fault between them and the suite.
pub(crate) fn site(how: How) -> SimulatedHosts {
    let agents = Arc::new(Agents::default());
    let told = Arc::clone(&agents);
    SimulatedHosts::sabotaged(
        move |seat, timer| {
            let instance = agents.instances.fetch_add(1, Ordering::Relaxed);
            let (seat, agents) = (Arc::clone(seat), Arc::clone(&agents));
            let saboteur = Saboteur { seat, how, agents, instance, memory: Mutex::default() };
            Hands::of(&Arc::new(saboteur), timer)
        },
        move |trouble| match trouble {
            HostTrouble::RestartAgent(_) => {
                told.restarts.fetch_add(1, Ordering::Relaxed);
            }
            HostTrouble::DeleteLease if how == How::FenceStartsAnewAfterADeletion => told.forget_fences(),
            _ => {}
        },
    )
}

/// What outlives an instance.
#[derive(Debug, Default)]
struct Agents {
    instances: AtomicU64,
    restarts: AtomicU64,
    fresh: AtomicU64,
    granted: AtomicU64,
    forgotten: AtomicU64,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    /// What was asked of which operation, and what came of it.
    outcomes: BTreeMap<(PlanUid, HostOperationId), (Content, Option<HostReport>)>,
    asked_mode: BTreeMap<HostName, BondMode>,
    asked_state: BTreeMap<(HostName, ResourceName), ConnectionState>,
    fences: BTreeMap<LeaseHolder, FenceValue>,
}

#[derive(Clone, Debug, PartialEq)]
enum Content {
    Host(HostName, HostAction),
    Vm(executor_api::host::VmName, executor_api::host::VmAction),
}

impl Agents {
    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap()
    }

    /// From now on fences begin at one again.
    fn forget_fences(&self) {
        self.forgotten.store(self.granted.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    fn fresh_id(&self) -> HostOperationId {
        HostOperationId(1_000_000_000 + self.fresh.fetch_add(1, Ordering::Relaxed))
    }
}

/// What an instance remembers by itself.
#[derive(Debug, Default)]
struct Memory {
    bonds: BTreeMap<HostName, BondReading>,
    storage: BTreeMap<HostName, StorageReading>,
    pods: BTreeMap<HostName, SatelliteReading>,
    identifiers: BTreeMap<HostName, GenerationIds>,
    machines: Option<VmPicture>,
    lock: Option<LockRecords>,
}

/// All five traits, with one fault.
struct Saboteur {
    seat: Arc<Seat>,
    how: How,
    agents: Arc<Agents>,
    instance: u64,
    memory: Mutex<Memory>,
}

impl Saboteur {
    fn is(&self, how: How) -> bool {
        self.how == how
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap()
    }

    fn befall(&self, incident: &Incident) {
        self.seat.world().befall(incident);
    }

    /// Something that comes about by itself later.
    fn befall_later(&self, after: Duration, incident: Incident) {
        let world = self.seat.world().clone();
        tokio::spawn(async move {
            tokio::time::sleep(after).await;
            world.befall(&incident);
        });
    }

    /// The fence as it is passed on.
    fn fence(&self, fence: FenceValue, plan: &PlanUid) -> FenceValue {
        let restarts = self.agents.restarts.load(Ordering::Relaxed);
        match self.how {
            How::AcceptsOldFences => FenceValue(1_000_000),
            How::ForgetsTheFenceAtRestart => FenceValue(fence.0 + restarts * 1_000),
            How::FencesEachPlanByItself if plan.as_str() != "suite-plan" => FenceValue(1_000_000),
            _ => fence,
        }
    }

    /// The id as it is passed on.
    fn id(&self, id: HostOperationId) -> HostOperationId {
        let restarts = self.agents.restarts.load(Ordering::Relaxed);
        match self.how {
            How::ActsEveryTime => self.agents.fresh_id(),
            How::ForgetsIdsAtRestart => HostOperationId(id.0 + restarts * 1_000_000),
            How::KnowsIdsInMemoryOnly => HostOperationId(id.0 + self.instance * 1_000_000),
            _ => id,
        }
    }

    /// Under which id something else than before is carried out, where ids are not bound to content.
    fn id_for(&self, plan: &PlanUid, id: HostOperationId, content: &Content) -> HostOperationId {
        let kept = self.agents.kept();
        let other = kept.outcomes.get(&(plan.clone(), id)).is_some_and(|(known, _)| known != content);
        if self.is(How::TakesAnyContent) && other { self.agents.fresh_id() } else { self.id(id) }
    }

    /// What is answered without asking anybody.
    fn remembered(&self, plan: &PlanUid, id: HostOperationId, content: &Content) -> Option<HostReport> {
        let kept = self.agents.kept();
        match self.how {
            How::AnswersFromMemory => {
                let (known, outcome) = kept.outcomes.get(&(plan.clone(), id))?;
                (known == content).then(|| outcome.clone())?
            }
            How::KnowsIdsWithoutPlans => {
                let mut others = kept.outcomes.iter();
                others.find(|((other, known), _)| other != plan && *known == id)?;
                Some(HostReport::Done)
            }
            _ => None,
        }
    }

    fn began(&self, plan: &PlanUid, id: HostOperationId, content: Content) {
        self.agents.kept().outcomes.entry((plan.clone(), id)).or_insert((content, None));
    }

    fn ended(&self, plan: &PlanUid, id: HostOperationId, report: &HostReport) {
        if let Some((_, outcome)) = self.agents.kept().outcomes.get_mut(&(plan.clone(), id)) {
            *outcome = Some(report.clone());
        }
    }

    /// Nothing came of it, and nothing is under way.
    fn never_began(&self, plan: &PlanUid, id: HostOperationId) {
        let mut kept = self.agents.kept();
        if kept.outcomes.get(&(plan.clone(), id)).is_some_and(|(_, outcome)| outcome.is_none()) {
            kept.outcomes.remove(&(plan.clone(), id));
        }
    }

    /// Something else that is done besides.
    async fn also(&self, like: &HostOperation, node: &HostName, action: HostAction, deadline: SystemTime) {
        let id = self.agents.fresh_id();
        let operation = HostOperation { id, node: node.clone(), action, ..like.clone() };
        let _ = executor_api::host::HostExecutor::apply(&*self.seat, &operation, deadline).await;
    }

    async fn also_vm(&self, operation: VmOperation, deadline: SystemTime) {
        let operation = VmOperation { id: self.agents.fresh_id(), ..operation };
        let _ = executor_api::host::VirtualMachines::apply(&*self.seat, &operation, deadline).await;
    }
}

impl fmt::Debug for Saboteur {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Saboteur").field(&self.how).finish()
    }
}

fn w(number: u8) -> HostName {
    HostName::new(format!("w{number}")).unwrap()
}

fn peer(node: &HostName) -> HostName {
    if *node == w(1) { w(2) } else { w(1) }
}
