//! Host operations, sabotaged.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use executor_api::host::{
    BondMode, ConnectionState, FenceValue, HostAction, HostError, HostErrorKind, HostExecutor, HostOperation,
    HostReport, LinkProbe, LinkProbeSpec, MemberCounters, ResourceName, Settled, VmName,
};
use executor_host_fake::Incident;

use super::{Content, Saboteur, peer};
use crate::how::How;

#[async_trait]
impl HostExecutor for Saboteur {
    async fn apply(&self, operation: &HostOperation, deadline: SystemTime) -> Result<HostReport, HostError> {
        let late = if self.is(How::ActsAfterTheDeadline) { Duration::from_mins(1) } else { Duration::ZERO };
        let deadline = deadline + late;
        let content = Content::Host(operation.node.clone(), operation.action.clone());
        if let Some(report) = self.remembered(&operation.plan, operation.id, &content) {
            return Ok(report);
        }
        if let Some(report) = self.untouched(operation) {
            return Ok(report);
        }
        if self.is(How::RefusesWhatIsUnderWay) && self.under_way(operation) {
            return Err(HostError::new(HostErrorKind::Refused, "another call carries this operation out"));
        }
        let mut passed = operation.clone();
        passed.fence = self.fence(operation.fence, &operation.plan);
        passed.id = self.id_for(&operation.plan, operation.id, &content);
        self.bend(&mut passed.action, operation.fence);
        self.began(&operation.plan, operation.id, content);
        if self.is(How::AnswersAtOnce) && operation.action.mutates() {
            let seat = Arc::clone(&self.seat);
            tokio::spawn(async move { HostExecutor::apply(&*seat, &passed, deadline).await });
            return Ok(HostReport::Done);
        }
        let outcome = HostExecutor::apply(&*self.seat, &passed, deadline).await;
        match &outcome {
            Ok(report) => {
                self.ended(&operation.plan, operation.id, report);
                self.afterwards(&passed, deadline).await;
            }
            Err(_) => self.never_began(&operation.plan, operation.id),
        }
        self.told(outcome).await
    }

    async fn settle(
        &self,
        operation: &HostOperation,
        fence: FenceValue,
        deadline: SystemTime,
    ) -> Result<Settled, HostError> {
        let done = Ok(Settled::Done(HostReport::Done));
        let mut passed = operation.clone();
        passed.id = self.id(operation.id);
        let mut fence = self.fence(fence, &operation.plan);
        match self.how {
            How::SettlesAsDone => return done,
            How::SettlesAsNeverBegun => return Ok(Settled::NeverBegun),
            How::SettlingActs => {
                self.also(operation, &operation.node, operation.action.clone(), deadline).await;
            }
            How::SettlesWithoutWaiting if self.under_way(operation) => return done,
            How::SettlesWithoutTheFence => fence = operation.fence,
            _ => {}
        }
        self.told(HostExecutor::settle(&*self.seat, &passed, fence, deadline).await).await
    }
}

impl Saboteur {
    /// A report for which nothing is done.
    fn untouched(&self, operation: &HostOperation) -> Option<HostReport> {
        match (self.how, &operation.action) {
            (How::DoesNothing, action) if action.mutates() => Some(HostReport::Done),
            (How::ConnectDoesNothing, HostAction::ConnectResource { .. })
            | (How::UndrainDoesNothing, HostAction::UndrainSatellite { .. }) => Some(HostReport::Done),
            (How::LetsTheNextHolderIn, HostAction::ProbeLink { spec, .. }) => {
                self.busy().then(|| made_up(operation, *spec))
            }
            (How::ProbeMakesUpItsResult, HostAction::ProbeLink { spec, .. }) => {
                Some(made_up(operation, *spec))
            }
            _ => None,
        }
    }

    /// Changes what is asked for.
    fn bend(&self, action: &mut HostAction, fence: FenceValue) {
        match (self.how, action) {
            (How::SuspendsForEver, HostAction::SuspendIo { limit, .. }) => {
                *limit = Duration::from_hours(1_000);
            }
            (How::FlipLosesRoutes, HostAction::SetBondMode { original, .. }) => original.routes.clear(),
            (How::FlipChangesTheAddress, HostAction::SetBondMode { original, .. }) => {
                original.first = original.members.last().cloned();
                original.mac = String::new();
            }
            (How::IgnoresGates, HostAction::UndrainSatellite { gates }) => gates.fence = fence,
            (How::ProbeSendsOnePacket, HostAction::ProbeLink { spec, .. }) => spec.packets = 1,
            _ => {}
        }
    }

    /// Does more than was asked for, or undoes some of it.
    async fn afterwards(&self, operation: &HostOperation, deadline: SystemTime) {
        let node = &operation.node;
        let (host, other) = (node.clone(), peer(node));
        match (self.how, &operation.action) {
            (How::DrainEvictsMachines, HostAction::DrainSatellite) => {
                for name in ["v1", "v2"] {
                    self.befall(&Incident::Evicted { vm: VmName::new(name).unwrap() });
                }
            }
            (How::DrainsBothHosts, HostAction::DrainSatellite)
            | (How::FlipsBothHosts, HostAction::SetBondMode { .. }) => {
                self.also(operation, &other, operation.action.clone(), deadline).await;
            }
            (How::DrainedPodsComeBack, HostAction::DrainSatellite) => {
                self.befall_later(Duration::from_secs(20), Incident::PodReturns { host });
            }
            (How::FlipIsNotPersisted, HostAction::SetBondMode { mode, .. }) => {
                let mode =
                    if *mode == BondMode::BalanceRr { BondMode::ActiveBackup } else { BondMode::BalanceRr };
                self.befall(&Incident::ConfigurationSet { host, mode });
            }
            (How::FlipLosesAMember, HostAction::SetBondMode { original, .. }) => {
                let interface = original.members.last().unwrap().clone();
                self.befall(&Incident::MemberLeaves { host, interface });
            }
            (How::DisconnectsEverything, HostAction::DisconnectResource { .. }) => {
                for name in ["r1", "r2"] {
                    let resource = ResourceName::new(name).unwrap();
                    let action = HostAction::DisconnectResource { resource, peer: other.clone() };
                    self.also(operation, node, action, deadline).await;
                }
            }
            (How::DisconnectedComesBack, HostAction::DisconnectResource { resource, .. }) => {
                let resource = resource.clone();
                self.befall_later(Duration::from_secs(10), Incident::Reconnects { resource, host });
            }
            (How::ConnectDiscards, HostAction::ConnectResource { resource, .. }) => {
                self.befall(&Incident::DayZero { resource: resource.clone(), host });
            }
            (How::ProbeDropsRoutes, HostAction::ProbeLink { .. }) => {
                self.befall(&Incident::RoutesLost { host });
            }
            (_, HostAction::SetBondMode { mode, .. }) => {
                self.agents.kept().asked_mode.insert(host, mode.clone());
            }
            (_, HostAction::DisconnectResource { resource, .. }) => {
                let mut kept = self.agents.kept();
                kept.asked_state.insert((host, resource.clone()), ConnectionState::StandAlone);
            }
            _ => {}
        }
    }

    /// What is told of an outcome.
    pub(super) async fn told<T: MadeUp>(&self, outcome: Result<T, HostError>) -> Result<T, HostError> {
        let Err(error) = outcome else { return outcome };
        match (self.how, &error.kind) {
            (How::HangsWhenLost, HostErrorKind::Ambiguous) => std::future::pending().await,
            (How::LostIsDone, HostErrorKind::Ambiguous | HostErrorKind::Failed) => Ok(T::done()),
            (How::LostIsRefused, HostErrorKind::Ambiguous)
            | (How::StaleIsOnlyRefused, HostErrorKind::StaleFence { .. }) => {
                Err(HostError::new(HostErrorKind::Refused, error.context))
            }
            _ => Err(error),
        }
    }

    fn busy(&self) -> bool {
        self.agents.kept().outcomes.values().any(|(content, outcome)| {
            outcome.is_none() && matches!(content, Content::Host(_, HostAction::SetBondMode { .. }))
        })
    }

    fn under_way(&self, operation: &HostOperation) -> bool {
        let kept = self.agents.kept();
        let known = kept.outcomes.get(&(operation.plan.clone(), operation.id));
        known.is_some_and(|(_, outcome)| outcome.is_none())
    }
}

/// What can be said to be done.
pub(super) trait MadeUp {
    fn done() -> Self;
}

impl MadeUp for HostReport {
    fn done() -> Self {
        Self::Done
    }
}

impl MadeUp for Settled {
    fn done() -> Self {
        Self::Done(HostReport::Done)
    }
}

fn made_up(operation: &HostOperation, spec: LinkProbeSpec) -> HostReport {
    let packets = u64::from(spec.packets);
    let moved = MemberCounters { tx: packets, rx: packets, rx_nohandler: 0 };
    let counters = BTreeMap::from([(executor_api::host::InterfaceName::new("s0").unwrap(), moved)]);
    HostReport::Probed(LinkProbe {
        from: operation.node.clone(),
        to: peer(&operation.node),
        sent: spec.packets,
        received: spec.packets,
        frame_bytes: spec.frame_bytes,
        sender: counters.clone(),
        receiver: counters,
    })
}
