//! What a plan asks of the run whose nodes live on its hosts: to leave them alone, before anything is touched, and to
//! take them back when the plan is over. Says only *look now*; what is held is read from the plan's record.

use std::time::Duration;

use executor_api::LogicalNodeId;
use reconciler_driver::maintenance::{MaintenanceDriver, hold_of};

use super::file::Loaded;
use crate::cli::args::Global;
use crate::cli::drive::driver_of;
use crate::cli::failure::{Code, Failure};
use crate::cli::output::remark;
use crate::run::dir::RunDir;
use crate::run::live::Live;
use crate::run::plans::Link;
use crate::run::protocol::Request;
use crate::run::state::Stored;
use crate::run::status::explain_stored;

/// How long until a run that did not answer is asked again.
pub(super) const AGAIN: Duration = Duration::from_secs(1);

/// The run beside a plan.
#[derive(Debug)]
pub(super) struct Arbiter {
    run: RunDir,
    /// What the run was told last.
    held: bool,
    /// Why the run has not taken notice yet, as it was said last.
    waits: Option<String>,
}

impl Arbiter {
    /// Checks that the run has the nodes that the plan names, and keeps the link.
    pub(super) fn link(global: &Global, plan: &RunDir, loaded: &Loaded) -> Result<Option<Self>, Failure> {
        let link = loaded.link();
        let arbiter = link.as_ref().map(|link| Self::of(global, link)).transpose()?;
        if let (Some(arbiter), Some(link)) = (&arbiter, &link) {
            arbiter.knows(&link.nodes, loaded)?;
        }
        Link::keep(link.as_ref(), plan)?;
        Ok(arbiter)
    }

    /// The run that a stored plan is linked to.
    pub(super) fn linked(global: &Global, plan: &RunDir) -> Result<Option<Self>, Failure> {
        Link::of(plan.path())?.map(|link| Self::of(global, &link)).transpose()
    }

    fn of(global: &Global, link: &Link) -> Result<Self, Failure> {
        Ok(Self { run: global.dir_of(&link.run)?, held: false, waits: None })
    }

    /// Has the run take notice of where the plan is, if that changes what it must leave alone: one try. Whether the plan
    /// may go on: not while its hosts' nodes may be replaced. One that is over, or was called off before anything was
    /// touched, waits for nobody.
    pub(super) async fn follow(&mut self, driver: &MaintenanceDriver) -> bool {
        let held = hold_of(driver.plan(), driver.state()).is_some();
        if held == self.held || (held && driver.state().abort.is_some()) {
            return true;
        }
        match self.tell().await {
            Ok(()) => {
                self.held = held;
                self.waits = None;
                true
            }
            Err(failure) => {
                if self.waits.as_ref() != Some(&failure.message) {
                    remark(format!("waiting for run {}: {}", self.run.run(), failure.message));
                    self.waits = Some(failure.message);
                }
                // When the plan is over, the run's driver looks by itself before long.
                !held
            }
        }
    }

    /// Whom a plan that stops here goes on holding back, by its record.
    pub(super) fn left_held(&self, driver: &MaintenanceDriver) -> Option<String> {
        hold_of(driver.plan(), driver.state()).map(|_| self.run.run().to_owned())
    }

    /// Has the run look at the plans now.
    pub(super) async fn tell(&self) -> Result<(), Failure> {
        for _ in 0..5 {
            let Some(mut client) = driver_of(&self.run).await? else {
                return match Live::heed_plans_offline(&self.run) {
                    // Somebody begins to drive it in this very moment.
                    Err(Failure { code: Code::Refused, .. }) => continue,
                    // A run that is not there yet looks when it is made.
                    other => other.map(drop),
                };
            };
            match client.order(Request::HeedPlans).await {
                Err(_) if client.is_lost() => {}
                ordered => return ordered.map(drop),
            }
        }
        Err(Failure::refused(format!("run {} changes its driver all the time; try again", self.run.run())))
    }

    fn knows(&self, nodes: &[LogicalNodeId], loaded: &Loaded) -> Result<(), Failure> {
        let Some(stored) = Stored::look(&self.run)? else { return Ok(()) };
        let unknown: Vec<_> = nodes
            .iter()
            .enumerate()
            .filter(|(_, node)| explain_stored(&stored, node).is_err())
            .map(|(index, node)| {
                let what =
                    format!("run {} has no node {node}; `reconciler status` lists them", self.run.run());
                (format!("/cluster/nodes/{index}"), what)
            })
            .collect();
        if unknown.is_empty() { Ok(()) } else { Err(loaded.problems(unknown).into()) }
    }
}
