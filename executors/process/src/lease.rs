//! The lease half: node directories and their ports. A lease is committed by one rename, done between two
//! points at which the call may be dropped, so that a dropped create has made a whole lease or none.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use async_trait::async_trait;
use executor_api::{
    AttemptKey, CreateMode, CreateOutcome, EndpointLookup, ExecutorError, ExecutorErrorKind, FoundLease,
    LeaseFacts, LeaseId, LeaseOwner, LeaseProvider, Life, ListedLease, Listing, LogicalNodeId,
    LogicalNodeSpec, OperationContext, OperationKind, ProviderName, Reading, RejectReason, RunId,
    RunNodeGroupSpec, SpecProblem, Visibility,
};
use tokio::{task, time};

use crate::executor::{ProcessExecutor, SessionLife, endpoint, lease_facts, provider_name, time_left};
use crate::layout::{self, LeaseRecord, NodePlace, file};
use crate::ports::{PortError, Ports, SlotPorts};
use crate::settings::{self, DataPolicy, ProcessShape};
use crate::{logs, stop, validate};

/// Sets hidden names of one process apart.
static HIDDEN: AtomicU64 = AtomicU64::new(0);

#[async_trait]
impl LeaseProvider for ProcessExecutor {
    fn name(&self) -> ProviderName {
        provider_name()
    }

    /// Nothing is late: a directory is seen as soon as it is there, and a dropped call commits nothing.
    fn visibility(&self) -> Visibility {
        Visibility::default()
    }

    async fn validate(&self, group: &RunNodeGroupSpec) -> Result<(), Vec<SpecProblem>> {
        validate::shape(group, &self.config.port_range)
    }

    async fn create(
        &self,
        ctx: &OperationContext,
        desired: &LogicalNodeSpec,
        mode: CreateMode,
    ) -> Result<CreateOutcome, ExecutorError> {
        let place = self.place(&ctx.attempt);
        if let Some(found) = existing(&place, ctx).await? {
            return Ok(found);
        }
        if mode == CreateMode::AdoptOnly {
            return Ok(CreateOutcome::Absent { as_of: SystemTime::now() });
        }
        let invalid = |problem: SpecProblem| {
            failed(
                ExecutorErrorKind::Rejected(RejectReason::Validation),
                format!("{}: {}; correct it", problem.pointer, problem.message),
            )
        };
        let shape = settings::read_shape(&desired.template.shape).map_err(invalid)?;
        if let Some(problem) = validate::port_names(&shape).pop() {
            return Err(invalid(problem));
        }
        let own = self.reserve(ctx, &shape).await?;
        commit(&place, &ctx.attempt, &shape, &own)?;
        existing(&place, ctx).await?.ok_or_else(|| {
            failed(
                ExecutorErrorKind::Ambiguous,
                format!("the directory of {} vanished as it was made; look who removes it", ctx.attempt),
            )
        })
    }

    async fn find(&self, attempt: &AttemptKey) -> Reading<FoundLease> {
        let place = self.place(attempt);
        let as_of = SystemTime::now();
        match look(&place) {
            Ok(Some((record, session))) => Reading::Present {
                facts: FoundLease { lease: lease_facts(&place, &record), endpoint: Some(endpoint(&record)) },
                life: lease_life(&session),
                as_of,
            },
            Ok(None) => Reading::Absent { as_of },
            Err(error) => {
                Reading::Unknown { reason: format!("cannot read {}: {error}", place.dir.display()), as_of }
            }
        }
    }

    async fn lookup_endpoint(
        &self,
        ctx: &OperationContext,
        _lease: &LeaseFacts,
    ) -> Result<EndpointLookup, ExecutorError> {
        let place = self.place(&ctx.attempt);
        let error = |kind, context| ExecutorError::new(kind, OperationKind::LookupEndpoint, context);
        match look(&place) {
            Ok(Some((_, SessionLife::Ended(exit)))) => Err(error(
                ExecutorErrorKind::Gone,
                format!("the node of {} is over: {}", ctx.attempt, exit.describe()),
            )),
            Ok(Some((record, _))) => Ok(EndpointLookup::Found(endpoint(&record))),
            Ok(None) => Err(error(
                ExecutorErrorKind::Gone,
                format!("the directory {} of {} is gone", place.dir.display(), ctx.attempt),
            )),
            Err(source) => Err(error(
                ExecutorErrorKind::Unavailable,
                format!("cannot read {} of {}", place.dir.display(), ctx.attempt),
            )
            .with_source(source)),
        }
    }

    async fn destroy(&self, ctx: &OperationContext, lease: &LeaseFacts) -> Result<(), ExecutorError> {
        let place = self.place(&ctx.attempt);
        let effect = OperationKind::DestroyLease;
        if place.dir.is_dir() && lease.lease_id.0 != place.id {
            return Err(ExecutorError::new(
                ExecutorErrorKind::Rejected(RejectReason::Validation),
                effect,
                format!("lease {} is not the one of {}, which is {}", lease.lease_id, ctx.attempt, place.id),
            ));
        }
        end(&place, ctx, effect).await
    }

    async fn list(&self, run: &RunId) -> Result<Listing, ExecutorError> {
        let (root, run) = (self.config.root.clone(), run.clone());
        let effect = OperationKind::LookupEndpoint;
        let shown = root.display().to_string();
        let context = move || format!("cannot list the nodes in {shown}");
        match task::spawn_blocking(move || list(&root, &run)).await {
            Ok(Ok(listing)) => Ok(listing),
            Ok(Err(source)) => {
                Err(ExecutorError::new(ExecutorErrorKind::Unavailable, effect, context()).with_source(source))
            }
            Err(source) => Err(ExecutorError::ambiguous(effect, context()).with_source(source)),
        }
    }

    async fn retain_slots(&self, run: &RunId, slots: &[LogicalNodeId]) -> Result<(), ExecutorError> {
        let (root, ports, run, slots) =
            (self.config.root.clone(), self.ports.clone(), run.clone(), slots.to_vec());
        let effect = OperationKind::DestroyLease;
        let context = "cannot free the ports of removed slots; they are freed at the next try";
        match task::spawn_blocking(move || retain(&root, &ports, &run, &slots)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(source)) => {
                Err(ExecutorError::new(ExecutorErrorKind::Unavailable, effect, context).with_source(source))
            }
            Err(source) => Err(ExecutorError::ambiguous(effect, context).with_source(source)),
        }
    }
}

impl ProcessExecutor {
    /// Reserves ports for the whole group, so that peers can be named before they exist; those of this slot.
    async fn reserve(
        &self,
        ctx: &OperationContext,
        shape: &ProcessShape,
    ) -> Result<SlotPorts, ExecutorError> {
        let mut slots = ctx.group.slots.to_vec();
        if !slots.contains(&ctx.attempt.node) {
            slots.push(ctx.attempt.node.clone());
        }
        let (ports, run, names) = (self.ports.clone(), ctx.attempt.run.clone(), shape.ports.clone());
        // Ports belong to the slot: a reservation that comes after the deadline is found by the next create.
        let reserve = task::spawn_blocking(move || ports.reserve(&run, &slots, &names));
        let Ok(reserved) = time::timeout(time_left(ctx.deadline), reserve).await else {
            let context = format!("the ports of {} could not be reserved before the deadline", ctx.attempt);
            return Err(failed(ExecutorErrorKind::Unavailable, context));
        };
        let context = format!("no lease for {} without its ports", ctx.attempt);
        match reserved {
            Ok(Ok(mut all)) => Ok(all.remove(&ctx.attempt.node).unwrap_or_default()),
            Ok(Err(error)) => {
                let kind = match &error {
                    PortError::Exhausted { .. } => ExecutorErrorKind::Rejected(RejectReason::Capacity),
                    PortError::Registry { source, .. } => refusal(source),
                    PortError::Locked { .. } => ExecutorErrorKind::Unavailable,
                };
                Err(failed(kind, context).with_source(error))
            }
            Err(error) => Err(failed(ExecutorErrorKind::Unavailable, context).with_source(error)),
        }
    }
}

fn failed(kind: ExecutorErrorKind, context: String) -> ExecutorError {
    ExecutorError::new(kind, OperationKind::CreateLease, context)
}

/// Why nothing was made, as the file system says it.
fn refusal(source: &io::Error) -> ExecutorErrorKind {
    match source.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            ExecutorErrorKind::Rejected(RejectReason::Authorisation)
        }
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            ExecutorErrorKind::Rejected(RejectReason::Capacity)
        }
        _ => ExecutorErrorKind::Unavailable,
    }
}

/// The lease that the attempt holds, if it does. A dead one is the end of the attempt, and nothing is left of
/// it: whoever is told `Gone` has no lease that it could destroy.
async fn existing(place: &NodePlace, ctx: &OperationContext) -> Result<Option<CreateOutcome>, ExecutorError> {
    let key = &ctx.attempt;
    match look(place) {
        Ok(None) => Ok(None),
        Ok(Some((_, SessionLife::Ended(exit)))) => {
            end(place, ctx, OperationKind::CreateLease).await?;
            Err(failed(ExecutorErrorKind::Gone, format!("the node of {key} is over: {}", exit.describe())))
        }
        Ok(Some((record, _))) => Ok(Some(CreateOutcome::Leased {
            lease: lease_facts(place, &record),
            endpoint: Some(endpoint(&record)),
        })),
        Err(source) => Err(failed(
            ExecutorErrorKind::Ambiguous,
            format!("cannot tell whether {key} has a lease in {}; make it readable", place.dir.display()),
        )
        .with_source(source)),
    }
}

/// Ends everything of an attempt and removes it. The lock is kept until everything is gone, so that nothing
/// is started in between.
async fn end(place: &NodePlace, ctx: &OperationContext, effect: OperationKind) -> Result<(), ExecutorError> {
    let lock = stop::stop(place, &ctx.attempt, ctx.deadline)
        .await
        .map_err(|error| error.into_executor_error(effect, &ctx.attempt))?;
    let gone = place.clone();
    let removed = task::spawn_blocking(move || {
        let done = remove(&gone);
        drop(lock);
        done
    });
    match removed.await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(source)) => Err(ExecutorError::ambiguous(
            effect,
            format!("cannot remove all of {} of {}; remove it by hand", place.dir.display(), ctx.attempt),
        )
        .with_source(source)),
        Err(source) => {
            Err(ExecutorError::ambiguous(effect, format!("removing {} was cut short", place.dir.display()))
                .with_source(source))
        }
    }
}

/// What an attempt's directory says.
fn look(place: &NodePlace) -> io::Result<Option<(LeaseRecord, SessionLife)>> {
    match layout::read_record::<LeaseRecord>(&place.dir, file::LEASE)? {
        None => Ok(None),
        Some(record) => Ok(Some((record, SessionLife::read(&place.dir)?))),
    }
}

/// A lease whose session begins is usable all the same; one whose end was asked for is not lost but ending,
/// until its directory is gone.
fn lease_life(session: &SessionLife) -> Life {
    match session {
        SessionLife::Ended(exit) if exit.asked => Life::Ending,
        SessionLife::Ended(_) => Life::Dead,
        SessionLife::None | SessionLife::Starting | SessionLife::Live => Life::Live,
    }
}

/// Makes the directory under a hidden name and renames it: the moment in which the lease begins to exist. If
/// another call was quicker, its lease stands.
fn commit(
    place: &NodePlace,
    key: &AttemptKey,
    shape: &ProcessShape,
    ports: &SlotPorts,
) -> Result<(), ExecutorError> {
    let hidden = hidden_name(place, "new");
    let make = || -> io::Result<()> {
        layout::make_dir(&hidden)?;
        let record = LeaseRecord {
            attempt: key.clone(),
            created_at: SystemTime::now(),
            ports: shape
                .ports
                .iter()
                .filter_map(|name| ports.get(name).map(|port| (name.clone(), *port)))
                .collect(),
            data: shape.data,
        };
        layout::write_record(&hidden, file::LEASE, &record)?;
        fs::write(hidden.join(file::LOCK), "")?;
        layout::make_dir(&hidden.join("work"))?;
        match shape.data {
            DataPolicy::Discard => layout::make_dir(&hidden.join("data"))?,
            DataPolicy::Keep => layout::make_dir(&place.data(DataPolicy::Keep))?,
        }
        fs::rename(&hidden, &place.dir)
    };
    match make() {
        Ok(()) => Ok(()),
        Err(source) => {
            // Best effort: a hidden directory is no lease, and the slot's removal takes it away.
            let _ = layout::remove_dir(&hidden);
            if place.dir.is_dir() {
                return Ok(());
            }
            // Without the rename there is no lease, whatever went wrong before.
            let kind = refusal(&source);
            Err(failed(kind, format!("cannot make the directory {} of {key}", place.dir.display()))
                .with_source(source))
        }
    }
}

fn hidden_name(place: &NodePlace, purpose: &str) -> std::path::PathBuf {
    let name = place.dir.file_name().unwrap_or_default().to_string_lossy();
    let number = HIDDEN.fetch_add(1, Ordering::Relaxed);
    place.slot.join(format!(".{purpose}-{name}.{}-{number}", std::process::id()))
}

/// Removes an attempt's directory: out of sight first, so that half a lease is never seen. Leftovers of calls
/// that were cut short go too.
fn remove(place: &NodePlace) -> io::Result<()> {
    if place.dir.is_dir() {
        // Without its log the next attempt is still a good one.
        let _ = logs::keep_tail(place);
        fs::rename(&place.dir, hidden_name(place, "gone"))?;
    }
    let name = place.dir.file_name().unwrap_or_default().to_string_lossy().into_owned();
    remove_hidden(&place.slot, |attempt| attempt == name)?;
    // Goes only if nothing of the slot is left.
    let _ = fs::remove_dir(&place.slot);
    Ok(())
}

/// Removes what calls that were cut short left of attempts' directories: none of it is a lease.
fn remove_hidden(slot: &Path, of: impl Fn(&str) -> bool) -> io::Result<()> {
    for entry in read_dir(slot)? {
        let hidden = entry.file_name();
        let hidden = hidden.to_string_lossy();
        let named = [".gone-", ".new-"].iter().find_map(|kind| hidden.strip_prefix(kind));
        if named.and_then(|rest| rest.split_once('.')).is_some_and(|(attempt, _)| of(attempt)) {
            layout::remove_dir(&entry.path())?;
        }
    }
    Ok(())
}

/// The entries of a directory; none if it is not there.
fn read_dir(path: &Path) -> io::Result<Vec<fs::DirEntry>> {
    match fs::read_dir(path) {
        Ok(entries) => entries.collect(),
        Err(error) if layout::is_absent(&error) => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// The attempts' directories below a slot's.
fn attempt_dirs(slot: &Path) -> io::Result<Vec<(String, fs::DirEntry)>> {
    let entries =
        read_dir(slot)?.into_iter().map(|entry| (entry.file_name().to_string_lossy().into_owned(), entry));
    Ok(entries.filter(|(name, _)| name.starts_with('a')).collect())
}

fn list(root: &Path, run: &RunId) -> io::Result<Listing> {
    let as_of = SystemTime::now();
    let mut leases = Vec::new();
    for slot in read_dir(root)? {
        let slot_name = slot.file_name().to_string_lossy().into_owned();
        for (name, entry) in attempt_dirs(&slot.path())? {
            let dir = entry.path();
            let id = format!("{slot_name}/{name}");
            match layout::read_record::<LeaseRecord>(&dir, file::LEASE) {
                Ok(Some(record)) if record.attempt.run.name() == run.name() => {
                    let place = NodePlace { id, ..NodePlace::of(root, &record.attempt) };
                    let session = SessionLife::read(&dir)?;
                    let reason = match &session {
                        SessionLife::Ended(exit) => Some(exit.describe()),
                        SessionLife::None | SessionLife::Starting | SessionLife::Live => None,
                    };
                    leases.push(ListedLease {
                        lease: lease_facts(&place, &record),
                        endpoint: Some(endpoint(&record)),
                        owner: LeaseOwner::Attempt(record.attempt),
                        life: lease_life(&session),
                        reason,
                    });
                }
                // Another run's, or one that was destroyed just now.
                Ok(Some(_)) => {}
                Ok(None) if !dir.is_dir() => {}
                Ok(None) | Err(_) => leases.push(ListedLease {
                    owner: LeaseOwner::Incomplete,
                    lease: LeaseFacts {
                        lease_id: LeaseId(id),
                        provider: provider_name(),
                        created_at: None,
                        attributes: BTreeMap::from([("directory".to_owned(), dir.display().to_string())]),
                    },
                    endpoint: None,
                    life: Life::Live,
                    reason: Some(format!("{} cannot be read", file::LEASE)),
                }),
            }
        }
    }
    Ok(Listing { as_of, complete: true, leases })
}

/// Frees what belongs to slots that are not wanted and hold no lease of this run.
fn retain(root: &Path, ports: &Ports, run: &RunId, slots: &[LogicalNodeId]) -> Result<(), RetainError> {
    let is_wanted =
        |slot: &LogicalNodeId| slots.contains(slot) || holds_lease(&root.join(slot.as_str()), run);
    ports.retain(run, is_wanted)?;
    for entry in read_dir(root)? {
        let Ok(slot) = LogicalNodeId::parse(entry.file_name().to_string_lossy()) else { continue };
        if is_wanted(&slot) {
            continue;
        }
        layout::remove_dir(&layout::keep_dir(root, run, &slot))?;
        // An attempt whose create was cut short had no lease to destroy.
        remove_hidden(&entry.path(), |_| true)?;
        // Goes only if it is empty: another run of the same name may have something there.
        let _ = fs::remove_dir(entry.path());
    }
    Ok(())
}

#[derive(Debug, thiserror::Error)]
enum RetainError {
    #[error("freeing ports")]
    Ports(#[from] PortError),
    #[error("removing what belongs to the slot")]
    Files(#[from] io::Error),
}

/// Whether an attempt of the run has a directory there. What cannot be read counts as one.
fn holds_lease(slot: &Path, run: &RunId) -> bool {
    let Ok(dirs) = attempt_dirs(slot) else { return true };
    dirs.iter().any(|(_, entry)| match layout::read_record::<LeaseRecord>(&entry.path(), file::LEASE) {
        Ok(Some(record)) => record.attempt.run == *run,
        Ok(None) | Err(_) => true,
    })
}
