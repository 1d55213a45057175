//! How a case acts: as an operator does, with a lease, a plan and operations that have ids, each call under a deadline;
//! and how it waits for levels.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use executor_api::host::{
    BondMode, BondOriginal, BondReading, EvictionSetting, FenceValue, Fingerprint, GateToken, HostAction,
    HostError, HostErrorKind, HostName, HostOperation, HostOperationId, HostReport, LeaseHolder, LeaseRecord,
    LinkProbe, LinkProbeSpec, LockError, LockRecords, MemberState, PeerVolumeReading, PlanHold, PlanUid,
    ResourceName, ResourceReading, RunningVm, SatelliteReading, Settled, StorageReading, VmAction, VmName,
    VmOperation, VmPicture, VmReading,
};
use reconciler_driver::maintenance::Hands;

use crate::case::{CaseEnd, CaseResult, ensure};
use crate::harness::CannotInject;
use crate::hosts::harness::{HostHarness, HostTrouble, HostTruth, Site};

/// For how long a lease of a case counts. No case waits it out.
const TTL: Duration = Duration::from_mins(10);

/// A site with a case on it.
pub struct HostBench {
    harness: Box<dyn AnyHostHarness>,
    hands: Hands,
    site: Site,
    begun: SystemTime,
    originals: Mutex<BTreeMap<HostName, BondOriginal>>,
    next: AtomicU64,
}

impl HostBench {
    /// A bench on this site.
    pub fn new<H: HostHarness>(harness: H) -> Self {
        let (hands, site) = (harness.hands(), harness.site());
        let begun = hands.timer.now();
        let originals = Mutex::default();
        Self { harness: Box::new(harness), hands, site, begun, originals, next: AtomicU64::new(0) }
    }

    // Who and what is meant.

    /// The names of what is there.
    pub fn site(&self) -> &Site {
        &self.site
    }

    /// The first host.
    pub fn one(&self) -> &HostName {
        &self.site.nodes[0]
    }

    /// The second host.
    pub fn two(&self) -> &HostName {
        &self.site.nodes[1]
    }

    /// The other host.
    pub fn peer(&self, node: &HostName) -> HostName {
        if node == self.one() { self.two().clone() } else { self.one().clone() }
    }

    /// The instance under test.
    pub fn hands(&self) -> &Hands {
        &self.hands
    }

    /// A new instance, as another start of the operator's process has it.
    pub fn restarted(&self) -> Hands {
        self.harness.hands()
    }

    /// The plan of the case.
    pub fn plan(&self) -> PlanUid {
        plan("suite-plan")
    }

    // The lock.

    /// Takes the lease, whoever had it, and holds the cluster for the case's plan.
    pub async fn lead(&self) -> Result<LeaseRecord, CaseEnd> {
        let lease = self.take("suite-a").await?;
        let hold = PlanHold { plan: self.plan(), since: self.hands.timer.now() };
        self.written(self.hands.lock.place_hold(&lease, &hold)).await?;
        Ok(lease)
    }

    /// Takes the lease for a holder, whoever had it.
    pub async fn take(&self, name: &str) -> Result<LeaseRecord, CaseEnd> {
        let seen = self.lock().await?.lease.map(|lease| lease.version);
        self.written(self.hands.lock.acquire(&holder(name), TTL, seen.as_ref())).await
    }

    /// Both records, as what is under test reads them.
    pub async fn lock(&self) -> Result<LockRecords, CaseEnd> {
        self.written(self.hands.lock.read()).await
    }

    /// A call to the lock that must succeed.
    pub async fn written<T>(&self, call: impl Future<Output = Result<T, LockError>>) -> Result<T, CaseEnd> {
        self.tried(call).await?.map_err(|error| CaseEnd::Failed(format!("the lock refused: {error}")))
    }

    /// A call to the lock that must end.
    pub async fn tried<T>(
        &self,
        call: impl Future<Output = Result<T, LockError>>,
    ) -> Result<Result<T, LockError>, CaseEnd> {
        let within = self.harness.call_timeout();
        let ended = tokio::time::timeout(within, call).await;
        ended.map_err(|_| CaseEnd::Failed(format!("a call to the lock did not end within {within:?}")))
    }

    // Operations.

    /// An operation with an id that was never used.
    pub fn op(&self, lease: &LeaseRecord, node: &HostName, action: HostAction) -> HostOperation {
        HostOperation {
            id: HostOperationId(self.next.fetch_add(1, Ordering::Relaxed) + 1),
            plan: self.plan(),
            node: node.clone(),
            fence: lease.fence,
            action,
        }
    }

    /// The same for a machine.
    pub fn vm_op(&self, lease: &LeaseRecord, vm: &VmName, action: VmAction) -> VmOperation {
        VmOperation {
            id: HostOperationId(self.next.fetch_add(1, Ordering::Relaxed) + 1),
            plan: self.plan(),
            vm: vm.clone(),
            fence: lease.fence,
            action,
        }
    }

    /// Gates that allow replication again under this lease.
    pub fn gates(&self, lease: &LeaseRecord) -> GateToken {
        GateToken {
            plan: self.plan(),
            fence: lease.fence,
            resume_gates_passed_at: self.hands.timer.now(),
            evidence: Fingerprint::of("suite", "evidence"),
            bonds: Fingerprint::of("suite", "bonds"),
        }
    }

    /// Storage pods may come back.
    pub fn undrain(&self, lease: &LeaseRecord) -> HostAction {
        HostAction::UndrainSatellite { gates: self.gates(lease) }
    }

    /// This side of the site's first resource is taken down.
    pub fn disconnect(&self, node: &HostName) -> HostAction {
        HostAction::DisconnectResource { resource: self.site.resource.clone(), peer: self.peer(node) }
    }

    /// This side of the site's first resource is brought up.
    pub fn connect(&self, lease: &LeaseRecord, node: &HostName) -> HostAction {
        let (resource, peer) = (self.site.resource.clone(), self.peer(node));
        HostAction::ConnectResource { resource, peer, gates: self.gates(lease) }
    }

    /// The bond into this mode, with what it was before anything was done to it.
    pub async fn set_bond(&self, node: &HostName, mode: BondMode) -> Result<HostAction, CaseEnd> {
        let original = self.original(node).await?;
        Ok(HostAction::SetBondMode { bond: self.site.bond.clone(), mode, original })
    }

    /// Packets to the other host.
    pub fn probe(&self, node: &HostName, packets: u32) -> HostAction {
        let spec = LinkProbeSpec { packets, frame_bytes: 1514 };
        HostAction::ProbeLink { bond: self.site.bond.clone(), peer: self.peer(node), spec }
    }

    /// Carries an operation out. A call that does not end by its deadline is a failure of the case.
    pub async fn apply(&self, operation: &HostOperation) -> Result<Result<HostReport, HostError>, CaseEnd> {
        self.apply_through(&self.hands, operation).await
    }

    /// The same through another instance.
    pub async fn apply_through(
        &self,
        hands: &Hands,
        operation: &HostOperation,
    ) -> Result<Result<HostReport, HostError>, CaseEnd> {
        let call = hands.hosts.apply(operation, self.deadline());
        self.ended(call, &format!("{} on {}", operation.action, operation.node)).await
    }

    /// Sends an operation whose deadline is over. It must not succeed.
    pub async fn apply_late(&self, operation: &HostOperation) -> Result<HostError, CaseEnd> {
        let doing = format!("{} on {}", operation.action, operation.node);
        let deadline = self.hands.timer.now() - Duration::from_secs(1);
        match self.ended(self.hands.hosts.apply(operation, deadline), &doing).await? {
            Ok(_) => Err(CaseEnd::Failed(format!("{doing} was carried out after its deadline"))),
            Err(error) => Ok(error),
        }
    }

    /// Carries an operation on a machine out.
    pub async fn apply_vm(&self, operation: &VmOperation) -> Result<Result<HostReport, HostError>, CaseEnd> {
        let call = self.hands.vms.apply(operation, self.deadline());
        self.ended(call, &format!("{} of {}", operation.action, operation.vm)).await
    }

    /// An operation that must succeed.
    pub async fn done(&self, operation: &HostOperation) -> Result<HostReport, CaseEnd> {
        let doing = format!("{} on {}", operation.action, operation.node);
        self.apply(operation).await?.map_err(|error| failed(&doing, &error))
    }

    /// A new operation that must succeed.
    pub async fn act(
        &self,
        lease: &LeaseRecord,
        node: &HostName,
        action: HostAction,
    ) -> Result<HostReport, CaseEnd> {
        self.done(&self.op(lease, node, action)).await
    }

    /// An operation on a machine that must succeed.
    pub async fn vm_done(&self, operation: &VmOperation) -> Result<HostReport, CaseEnd> {
        let doing = format!("{} of {}", operation.action, operation.vm);
        self.apply_vm(operation).await?.map_err(|error| failed(&doing, &error))
    }

    /// A new operation on a machine that must succeed.
    pub async fn vm_act(&self, lease: &LeaseRecord, vm: &VmName, action: VmAction) -> CaseResult {
        self.vm_done(&self.vm_op(lease, vm, action)).await.map(drop)
    }

    /// An operation that must be refused, in this way.
    pub async fn refused(&self, operation: &HostOperation) -> Result<HostErrorKind, CaseEnd> {
        let doing = format!("{} on {}", operation.action, operation.node);
        refusal(&doing, self.apply(operation).await?)
    }

    /// The same for a machine.
    pub async fn vm_refused(&self, operation: &VmOperation) -> Result<HostErrorKind, CaseEnd> {
        let doing = format!("{} of {}", operation.action, operation.vm);
        refusal(&doing, self.apply_vm(operation).await?)
    }

    /// An operation whose outcome must be unknown to its caller.
    pub async fn lost(&self, operation: &HostOperation) -> CaseResult {
        unknown(self.apply(operation).await?)
    }

    /// The same for a machine.
    pub async fn vm_lost(&self, operation: &VmOperation) -> CaseResult {
        unknown(self.apply_vm(operation).await?)
    }

    /// Makes an outcome certain.
    pub async fn settle(
        &self,
        operation: &HostOperation,
        fence: FenceValue,
    ) -> Result<Result<Settled, HostError>, CaseEnd> {
        let call = self.hands.hosts.settle(operation, fence, self.deadline());
        self.ended(call, &format!("settling {} on {}", operation.action, operation.node)).await
    }

    /// An outcome that can be made certain.
    pub async fn settled(&self, operation: &HostOperation, fence: FenceValue) -> Result<Settled, CaseEnd> {
        self.settle(operation, fence).await?.map_err(|error| failed("settling", &error))
    }

    /// The same for a machine.
    pub async fn vm_settled(&self, operation: &VmOperation, fence: FenceValue) -> Result<Settled, CaseEnd> {
        let call = self.hands.vms.settle(operation, fence, self.deadline());
        self.ended(call, "settling").await?.map_err(|error| failed("settling", &error))
    }

    /// Everything that goes before a flip: machines pinned, replication apart, storage pods gone.
    pub async fn quiet(&self, lease: &LeaseRecord) -> CaseResult {
        for vm in [&self.site.set, &self.site.unset] {
            self.vm_act(lease, vm, VmAction::Pin).await?;
        }
        for resource in [&self.site.resource, &self.site.other] {
            for node in &self.site.nodes {
                let (resource, peer) = (resource.clone(), self.peer(node));
                self.act(lease, node, HostAction::DisconnectResource { resource, peer }).await?;
            }
        }
        for node in &self.site.nodes {
            self.act(lease, node, HostAction::DrainSatellite).await?;
        }
        Ok(())
    }

    /// Both sides of the site's first resource taken down.
    pub async fn apart(&self, lease: &LeaseRecord) -> CaseResult {
        for node in &self.site.nodes {
            self.act(lease, node, self.disconnect(node)).await?;
        }
        Ok(())
    }

    /// What a probe found.
    pub async fn probed(
        &self,
        lease: &LeaseRecord,
        node: &HostName,
        packets: u32,
    ) -> Result<LinkProbe, CaseEnd> {
        match self.act(lease, node, self.probe(node, packets)).await? {
            HostReport::Probed(found) => Ok(found),
            HostReport::Done => Err(CaseEnd::Failed("a probe came back without what it found".to_owned())),
        }
    }

    // Reads through what is under test.

    /// The bond.
    pub async fn bond(&self, node: &HostName) -> Result<BondReading, CaseEnd> {
        self.try_bond(node).await?.map_err(|error| failed("reading the bond", &error))
    }

    /// The bond, or why not.
    pub async fn try_bond(&self, node: &HostName) -> Result<Result<BondReading, HostError>, CaseEnd> {
        self.ended(self.hands.probe.bond(node, &self.site.bond), "reading the bond").await
    }

    /// Storage, both resources, since the case began.
    pub async fn storage(&self, node: &HostName) -> Result<StorageReading, CaseEnd> {
        let both = self.both();
        self.storage_of(node, &both).await
    }

    /// Storage, these resources.
    pub async fn storage_of(
        &self,
        node: &HostName,
        resources: &BTreeSet<ResourceName>,
    ) -> Result<StorageReading, CaseEnd> {
        let call = self.hands.storage.storage(node, resources, self.begun);
        self.ended(call, "reading storage").await?.map_err(|error| failed("reading storage", &error))
    }

    /// What a node says about the site's first resource.
    pub async fn resource(&self, node: &HostName) -> Result<ResourceReading, CaseEnd> {
        let reading = self.storage(node).await?;
        let found = reading.resources.get(&self.site.resource).cloned();
        found.ok_or_else(|| CaseEnd::Failed(format!("{node} shows no {}", self.site.resource)))
    }

    /// What a node says about its peer's copy of the site's first resource.
    pub async fn peer_volume(&self, node: &HostName) -> Result<PeerVolumeReading, CaseEnd> {
        let resource = self.resource(node).await?;
        let connection = resource.connections.get(&self.peer(node));
        let volume = connection.and_then(|connection| connection.volumes.values().next()).cloned();
        volume.ok_or_else(|| CaseEnd::Failed(format!("{node} shows nothing of its peer")))
    }

    /// Storage pods.
    pub async fn satellite(&self, node: &HostName) -> Result<SatelliteReading, CaseEnd> {
        let call = self.hands.storage.satellite(node);
        self.ended(call, "reading pods").await?.map_err(|error| failed("reading storage pods", &error))
    }

    /// Machines on both resources.
    pub async fn picture(&self) -> Result<VmPicture, CaseEnd> {
        let both = self.both();
        self.picture_of(&both).await
    }

    /// Machines on these resources.
    pub async fn picture_of(&self, resources: &BTreeSet<ResourceName>) -> Result<VmPicture, CaseEnd> {
        let call = self.hands.vms.picture(resources);
        self.ended(call, "reading machines").await?.map_err(|error| failed("reading machines", &error))
    }

    /// One machine.
    pub async fn machine(&self, vm: &VmName) -> Result<VmReading, CaseEnd> {
        let picture = self.picture().await?;
        picture.vms.get(vm).cloned().ok_or_else(|| CaseEnd::Failed(format!("{vm} is not shown")))
    }

    /// Both resources.
    pub fn both(&self) -> BTreeSet<ResourceName> {
        BTreeSet::from([self.site.resource.clone(), self.site.other.clone()])
    }

    // The truth, and what happens to it.

    /// What is really there.
    pub async fn truth(&self) -> HostTruth {
        self.harness.truth().await
    }

    /// A bond as it really is.
    pub async fn true_bond(&self, node: &HostName) -> Result<BondReading, CaseEnd> {
        let found = self.truth().await.bonds.remove(node);
        found.ok_or_else(|| CaseEnd::Failed(format!("the harness shows no bond of {node}")))
    }

    /// A machine as it really is.
    pub async fn true_machine(&self, vm: &VmName) -> Result<VmReading, CaseEnd> {
        let found = self.truth().await.machines.vms.remove(vm);
        found.ok_or_else(|| CaseEnd::Failed(format!("the harness shows no machine {vm}")))
    }

    /// The connection of the site's first resource as a host really has it.
    pub async fn true_connection(&self, node: &HostName) -> String {
        let truth = self.truth().await;
        let resource = truth.storage.get(node).and_then(|s| s.resources.get(&self.site.resource));
        let connection = resource.and_then(|resource| resource.connections.get(&self.peer(node)));
        connection.map_or_else(|| "none".to_owned(), |connection| connection.state.to_string())
    }

    /// Whether a host is really drained.
    pub async fn is_drained(&self, node: &HostName) -> bool {
        self.truth().await.satellites.get(node).is_some_and(SatelliteReading::is_drained)
    }

    /// Makes something go wrong.
    pub async fn inject(&self, trouble: HostTrouble) -> Result<(), CannotInject> {
        self.harness.inject(trouble).await
    }

    /// Lets so much time pass.
    pub async fn pass(&self, time: Duration) {
        tokio::time::sleep(time).await;
    }

    /// Waits until the truth is so.
    pub async fn until(&self, what: &str, holds: impl Fn(&HostTruth) -> bool) -> CaseResult {
        let end = tokio::time::Instant::now() + self.harness.patience();
        while !holds(&self.truth().await) {
            ensure!(tokio::time::Instant::now() < end, "waited in vain until {what}");
            tokio::time::sleep(self.harness.pace()).await;
        }
        Ok(())
    }

    /// Waits until the agent on a host answers a call that changes nothing.
    pub async fn until_agent(&self, lease: &LeaseRecord, node: &HostName) -> CaseResult {
        let end = tokio::time::Instant::now() + self.harness.patience();
        while self.apply(&self.op(lease, node, self.probe(node, 10))).await?.is_err() {
            ensure!(tokio::time::Instant::now() < end, "the agent on {node} does not come back");
            tokio::time::sleep(self.harness.pace()).await;
        }
        Ok(())
    }

    pub(crate) fn patience(&self) -> Duration {
        self.harness.patience()
    }

    pub(crate) async fn clean_up(&self) {
        self.harness.clean_up().await;
    }

    /// What the bond was when the case first asked.
    async fn original(&self, node: &HostName) -> Result<BondOriginal, CaseEnd> {
        let known = self.originals.lock().unwrap_or_else(PoisonError::into_inner).get(node).cloned();
        if let Some(original) = known {
            return Ok(original);
        }
        let original = original(&self.true_bond(node).await?);
        let mut kept = self.originals.lock().unwrap_or_else(PoisonError::into_inner);
        kept.insert(node.clone(), original.clone());
        Ok(original)
    }

    fn deadline(&self) -> SystemTime {
        self.hands.timer.now() + self.harness.call_timeout()
    }

    async fn ended<T>(
        &self,
        call: impl Future<Output = Result<T, HostError>>,
        doing: &str,
    ) -> Result<Result<T, HostError>, CaseEnd> {
        // A little more than the deadline that the call was given.
        let within = self.harness.call_timeout() + Duration::from_secs(5);
        let ended = tokio::time::timeout(within, call).await;
        ended.map_err(|_| CaseEnd::Failed(format!("{doing} did not end by its deadline")))
    }
}

impl fmt::Debug for HostBench {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("HostBench").field(&self.harness).finish()
    }
}

/// A machine that runs.
pub(crate) fn running(vm: &VmReading) -> Result<&RunningVm, CaseEnd> {
    vm.running.as_ref().ok_or_else(|| CaseEnd::Failed("the machine does not run".to_owned()))
}

/// Whether the running instance has this setting.
pub(crate) fn has(vm: &VmReading, setting: &EvictionSetting) -> bool {
    vm.running.as_ref().is_some_and(|running| running.effective == *setting)
}

/// A plan by name.
pub(crate) fn plan(name: &str) -> PlanUid {
    #[expect(clippy::expect_used, reason = "cases write legal names")]
    PlanUid::new(name).expect("a case names a legal plan")
}

/// A holder by name.
pub(crate) fn holder(name: &str) -> LeaseHolder {
    #[expect(clippy::expect_used, reason = "cases write legal names")]
    LeaseHolder::new(name).expect("a case names a legal holder")
}

fn original(bond: &BondReading) -> BondOriginal {
    let active = |state: &MemberState| *state == MemberState::Active;
    let carrying: Vec<_> = bond.members.iter().filter(|(_, member)| active(&member.state)).collect();
    BondOriginal {
        mode: bond.mode.clone(),
        members: bond.members.keys().cloned().collect(),
        first: (carrying.len() == 1).then(|| carrying[0].0.clone()),
        mtu: bond.mtu.unwrap_or_default(),
        mac: bond.mac.clone().unwrap_or_default(),
        addresses: bond.addresses.clone(),
        routes: bond.routes.clone(),
    }
}

fn failed(doing: &str, error: &HostError) -> CaseEnd {
    CaseEnd::Failed(format!("{doing} failed and should not: {}", error.failure().message))
}

fn unknown(outcome: Result<HostReport, HostError>) -> CaseResult {
    let kind = outcome.map_err(|error| error.kind);
    ensure!(kind == Err(HostErrorKind::Ambiguous), "an outcome that nobody can know was told as {kind:?}");
    Ok(())
}

fn refusal(doing: &str, outcome: Result<HostReport, HostError>) -> Result<HostErrorKind, CaseEnd> {
    match outcome {
        Ok(report) => Err(CaseEnd::Failed(format!("{doing} should be refused, and was answered {report:?}"))),
        Err(error) => Ok(error.kind),
    }
}

/// A harness of any kind.
#[async_trait::async_trait]
trait AnyHostHarness: Send + Sync + fmt::Debug {
    fn hands(&self) -> Hands;
    async fn truth(&self) -> HostTruth;
    async fn inject(&self, trouble: HostTrouble) -> Result<(), CannotInject>;
    async fn clean_up(&self);
    fn call_timeout(&self) -> Duration;
    fn patience(&self) -> Duration;
    fn pace(&self) -> Duration;
}

#[async_trait::async_trait]
impl<H: HostHarness> AnyHostHarness for H {
    fn hands(&self) -> Hands {
        HostHarness::hands(self)
    }
    async fn truth(&self) -> HostTruth {
        HostHarness::truth(self).await
    }
    async fn inject(&self, trouble: HostTrouble) -> Result<(), CannotInject> {
        HostHarness::inject(self, trouble).await
    }
    async fn clean_up(&self) {
        HostHarness::clean_up(self).await;
    }
    fn call_timeout(&self) -> Duration {
        HostHarness::call_timeout(self)
    }
    fn patience(&self) -> Duration {
        HostHarness::patience(self)
    }
    fn pace(&self) -> Duration {
        HostHarness::pace(self)
    }
}
