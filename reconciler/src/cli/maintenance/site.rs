//! Where a plan's state is, and how its hosts are reached.

use std::path::PathBuf;
use std::sync::Arc;

use executor_api::Timer;
use executor_api::host::LeaseHolder;
use executor_host_fake::{HostWorld, Scenario};
use reconciler_driver::maintenance::{Hands, PlanRules, PlanStore, SqlitePlanStore, Start};

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

/// Opens the plan's file; `None` where there is none.
pub(super) fn existing(dir: &RunDir) -> Result<Option<SqlitePlanStore>, Failure> {
    if !path(dir).exists() {
        return Ok(None);
    }
    open(dir).map(Some)
}

/// Opens the plan's file, made if need be.
pub(super) fn open(dir: &RunDir) -> Result<SqlitePlanStore, Failure> {
    dir.create()?;
    SqlitePlanStore::open(&path(dir))
        .map_err(|error| Failure::while_doing("opening the plan's state", &error))
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
