//! Where a plan's state is, and how its hosts are reached.

use std::path::PathBuf;
use std::sync::Arc;

use executor_api::Timer;
use executor_api::host::LeaseHolder;
use executor_host_fake::{HostWorld, Scenario};
use reconciler_driver::maintenance::{
    Hands, PlanRecord, PlanRules, PlanStore, PlanStoreError, SqlitePlanStore, Start,
};

use crate::cli::args::Global;
use crate::cli::failure::Failure;
use crate::run::dir::RunDir;
use crate::run::plans::PREFIX;
use crate::run::uid;

/// The directory of a plan. Plans and runs share a root and cannot be mistaken for each other.
pub(super) fn dir(global: &Global, name: &str) -> Result<RunDir, Failure> {
    global.dir_of(&format!("{PREFIX}{name}"))
}

/// The plan's file in its directory.
pub(super) fn path(dir: &RunDir) -> PathBuf {
    dir.path().join("plan.db")
}

/// Whether there is a plan's file.
pub(super) fn is_there(dir: &RunDir) -> Result<bool, Failure> {
    let path = path(dir);
    let failed = |error| Failure::while_doing(format_args!("looking for {}", path.display()), &error);
    SqlitePlanStore::is_there(&path).map_err(failed)
}

/// The plan's file, to look at it; `None` where there is none.
pub(super) fn look(dir: &RunDir) -> Result<Option<SqlitePlanStore>, Failure> {
    let opened = is_there(dir)?.then(|| SqlitePlanStore::open_read_only(&path(dir)));
    opened.transpose().map_err(|error| failed("reading the plan", &error))
}

/// What is stored of a plan, if anything is.
pub(super) fn record(dir: &RunDir) -> Result<Option<PlanRecord>, Failure> {
    let Some(mut store) = look(dir)? else { return Ok(None) };
    store.load().map_err(|error| failed("reading the plan", &error))
}

/// Opens the plan's file to drive the plan, made if need be.
pub(super) fn open(dir: &RunDir) -> Result<SqlitePlanStore, Failure> {
    dir.create()?;
    SqlitePlanStore::open(&path(dir)).map_err(|error| failed("opening the plan's state", &error))
}

/// What a plan's file came to. One that is of no use to this program is told as such.
pub(super) fn failed(doing: &str, error: &PlanStoreError) -> Failure {
    let failure = Failure::while_doing(doing, error);
    if error.is_unusable() { Failure::no_state(failure.message) } else { failure }
}

/// Simulated hosts in the time of `timer`, and one operator among them that never was before.
pub(super) fn start(
    scenario: &Scenario,
    timer: Arc<dyn Timer>,
    store: Box<dyn PlanStore>,
) -> Result<(HostWorld, Start), Failure> {
    let world = HostWorld::of(Arc::clone(&timer), scenario)
        .map_err(|error| Failure::while_doing("setting the simulated hosts up", &error))?;
    let name = format!("{}-{}", std::process::id(), uid::mint()?);
    let me = LeaseHolder::new(name.as_str()).map_err(|error| Failure::error(error.to_string()))?;
    let hands = Hands::of(&Arc::new(world.seat(&name)), timer);
    Ok((world, Start { store, hands, me, rules: PlanRules::default() }))
}
