//! Drivers are opened here, and those that fail or do not trust what they find are dealt with as a person would:
//! the driver is left alone for a while, the newest state is put back, and it is started again.

use executor_api::Timer;
use executor_fake::FakeWorld;
use reconciler_core::{ClusterShape, RetryPolicy};
use reconciler_driver::{
    Distrust, Distrusted, DriverError, ExecutorTable, MemoryStore, Rules, Runner, StateStore, VirtualTimer,
};

use super::Stage;
use crate::simulate::Subject;
use crate::simulate::interference::Interference;
use crate::simulate::oracle::{Astray, Oracle, Watch};
use crate::simulate::plan::{Plan, run, run_anew};
use crate::simulate::store::WatchedStore;

/// Steps that a driver whose store failed is given to do something that it must not do.
const LEFT_ALONE: u32 = 20;

/// What every opening of a driver has in common.
pub(super) struct Opening<'a> {
    pub(super) plan: &'a Plan,
    pub(super) subject: &'a Subject,
    pub(super) watch: &'a Watch,
    pub(super) world: &'a FakeWorld,
    pub(super) disk: &'a MemoryStore,
}

impl Opening<'_> {
    /// A runner on the disk of this schedule, interfered with, and guarded where the schedule says so.
    pub(super) fn open(
        &self,
        shape: ClusterShape,
        executors: &ExecutorTable,
        timer: &VirtualTimer,
        rules: &Rules,
    ) -> Result<Runner, Box<DriverError>> {
        let store: Box<dyn StateStore> = Box::new(WatchedStore::over(self.disk, self.watch, self.world));
        let store = (self.subject.store)(store);
        let policy: RetryPolicy = self.plan.policy.clone();
        let runner = Runner::open(store, shape, policy, executors.clone(), timer.clone(), rules.clone())?
            .with_hooks(Box::new(Interference(self.watch.clone())));
        if !self.plan.guarded || !self.subject.guarded {
            return Ok(runner);
        }
        let mut runner = runner.guarded();
        // A process is guarded before it listens to anybody.
        runner.crash()?;
        Ok(runner)
    }
}

impl Stage<'_> {
    /// A driver whose store failed is left alone for a while, to see that it sends nothing, and then started
    /// again.
    pub(super) fn reopen(&mut self) {
        if !self.watch.with(|oracle| oracle.store_failed) {
            self.failed_for = 0;
            return;
        }
        self.failed_for = self.failed_for.saturating_add(1);
        if self.failed_for > LEFT_ALONE {
            self.failed_for = 0;
            self.die();
            self.observe();
        }
    }

    /// The process cannot go on. Where its state does not read, the newest one is put back.
    pub(super) fn stopped(&mut self, error: &DriverError) {
        if let DriverError::Load(source) = error
            && source.is_damage()
        {
            return self.die();
        }
        self.violated("L1", None, || format!("the driver stopped: {error}"));
    }

    /// Without its state file a driver makes up a run of its own.
    pub(super) fn begin_anew(&mut self) {
        if self.run == run()
            && self.watch.with(|oracle| oracle.astray.as_ref().is_some_and(|astray| astray.image.is_none()))
        {
            self.open_as(false);
        }
    }

    /// A driver that does not trust its state says why. It must be right, and the newest state is put back.
    pub(super) fn distrusted(&mut self, distrust: &Distrust) {
        let now = self.timer.now();
        self.watch.with(|oracle| oracle.tell(now, || format!("! refused: {distrust}")));
        let astray = self.watch.with(|oracle| oracle.astray.clone());
        let name = match (distrust.what, &astray) {
            (Distrusted::Older, Some(Astray { image: Some(_) })) => "old state refused",
            (_, Some(_)) => "lost state refused",
            (Distrusted::Empty, None) if !self.aliens.is_empty() => {
                // Somebody else's run has the name; its people end it.
                for alien in std::mem::take(&mut self.aliens) {
                    self.world.kill(&alien, "ended by its owner");
                }
                self.watch.with(|oracle| oracle.count("name of another run refused"));
                return self.die();
            }
            (_, None) => {
                return self.violated("P8", None, || format!("the newest state was not trusted: {distrust}"));
            }
        };
        self.watch.with(|oracle| oracle.count(name));
        self.put_back();
    }

    /// The newest state is put back, and the driver started again.
    pub(super) fn put_back(&mut self) {
        self.watch.with(|oracle| oracle.astray = None);
        self.open_as(true);
    }

    fn open_as(&mut self, own: bool) {
        self.watch.with(Oracle::reborn);
        self.run = if own { run() } else { run_anew() };
        let opening = Opening {
            plan: self.plan,
            subject: self.subject,
            watch: &self.watch,
            world: &self.world,
            disk: &self.disk,
        };
        let shape = self.shape.shape(&self.run, self.generation);
        match opening.open(shape, &self.executors, &self.timer, &self.rules) {
            Ok(runner) => {
                self.runner = runner;
                // Another life, however often that runner died before.
                self.crashes = u64::MAX;
            }
            Err(error) => self.violated("L1", None, || format!("cannot start again: {error}")),
        }
    }
}
