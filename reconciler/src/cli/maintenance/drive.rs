//! `maintenance plan` and `maintenance run`: a rehearsal in virtual time, a look, or the real thing.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use executor_api::Timer;
use executor_host_fake::HostWorld;
use reconciler_core::maintenance::{Answer, BondFlipPlan, Person, Recovery, Reply};
use reconciler_driver::maintenance::{
    MaintenanceDriver, MaintenanceError, MemoryPlanStore, Pass, PlanStoreError, Request, RequestKind,
    SqlitePlanStore,
};
use reconciler_driver::{TokioTimer, VirtualTimer};

use super::arbiter::{AGAIN, Arbiter};
use super::plain::plain;
use super::seen::Seen;
use super::{PlanArgs, RunArgs, file, show, site};
use crate::cli::args::{Format, Global};
use crate::cli::failure::{Code, Failure};
use crate::cli::follow::Interrupt;
use crate::cli::output::{document, entry, line, remark};
use crate::run::lock::{Lock, LockError};
use crate::run::uid;

/// Checks a plan and runs it to its end on hosts of its own.
pub(super) fn rehearse(args: &PlanArgs) -> Result<Code, Failure> {
    let loaded = file::load(&args.plan)?;
    let mut plan = loaded.plan(&format!("{}-rehearsal", loaded.file.name))?;
    plan.approved = true;
    let clock = VirtualTimer::new(SystemTime::now());
    let timer: Arc<dyn Timer> = Arc::new(clock.clone());
    let store = MemoryPlanStore::new();
    let (world, start) = site::start(&loaded.scenario, Arc::clone(&timer), Box::new(store.clone()))?;
    let approval = Person { who: "rehearsal".to_owned(), at: timer.now() };
    let mut driver = MaintenanceDriver::file(start, plan, Some(approval)).map_err(failed)?;
    let limit = clock.now() + std::time::Duration::from_hours(2);
    let ended = clock.run(driver.drive(|_, _| clock.now() >= limit));
    ended.unwrap_or(Ok(())).map_err(failed)?;
    let report = show::Report::of(driver.plan(), driver.state(), store.log());
    if let Some(path) = &args.svg {
        std::fs::write(path, report.svg())
            .map_err(|error| Failure::while_doing(format_args!("writing {}", path.display()), &error))?;
    }
    document(args.output, &report.plain()?, || {
        let note = if loaded.file.approved { "" } else { "\nThe plan is not approved: it will not run." };
        format!("{}\n{}{note}\n", report.told(), Truth::of(&world, driver.plan()))
    })?;
    Ok(show::code(driver.state()))
}

/// Carries a plan out, or only looks.
pub(super) async fn run(global: &Global, args: RunArgs) -> Result<Code, Failure> {
    let loaded = file::load(&args.plan)?;
    let name = &loaded.file.name;
    let dir = site::dir(global, name)?;
    let virtual_clock = args.fast.then(|| VirtualTimer::new(SystemTime::now()));
    let timer: Arc<dyn Timer> = match &virtual_clock {
        Some(clock) => Arc::new(clock.clone()),
        None => Arc::new(TokioTimer::new()),
    };
    if args.observe {
        return observe(&loaded, &dir, timer, virtual_clock.as_ref(), args.output).await;
    }
    loaded.plan("unminted")?;
    if !loaded.file.approved || !args.approve {
        return Err(Failure::refused(format!(
            "plan {name} is not approved: it runs only with `approved: true` in its file ({}) and --approve here \
             ({}). Look first with --observe",
            if loaded.file.approved { "given" } else { "missing" },
            if args.approve { "given" } else { "missing" },
        )));
    }
    if args.fast && loaded.link().is_some() {
        return Err(Failure::refused(
            "--fast lives faster than the clock, and the run that the plan names under `cluster` does not; leave one out",
        ));
    }
    let interrupt = if args.fast { None } else { Some(Interrupt::new()?) };
    dir.create()?;
    let _lock = Lock::take(&dir).map_err(|error| driven(name, error))?;
    clear_way(&dir, name, args.again)?;
    let arbiter = Arbiter::link(global, &dir, &loaded)?;
    let plan = loaded.plan(&format!("{name}-{}", uid::mint()?))?;
    let mailbox = site::open(&dir)?;
    let (world, start) = site::start(&loaded.scenario, Arc::clone(&timer), Box::new(mailbox.clone()))?;
    let approval = Person { who: args.who.clone(), at: timer.now() };
    let mut driver = MaintenanceDriver::file(start, plan, Some(approval)).map_err(failed)?;
    let live = Live {
        mailbox,
        format: args.output,
        begun: timer.now(),
        stays: virtual_clock.is_none(),
        plan: args.plan.clone(),
        arbiter,
        interrupt,
        stopping: false,
    };
    let drive = live.drive(&mut driver, timer.as_ref());
    let stopped = match &virtual_clock {
        Some(clock) => clock.run(drive).unwrap_or(Ok(None))?,
        None => drive.await?,
    };
    let truth = Truth::of(&world, driver.plan());
    if args.output == Format::Table {
        line(format!("plan {}: {}\n{truth}", driver.plan().uid, driver.state().label()))?;
        if !driver.state().is_over() && virtual_clock.is_some() {
            remark(
                "its simulated hosts lived as fast as they could and are gone with this process; leave --fast out to \
                 be able to answer",
            );
        }
    } else {
        let value = serde_json::json!({
            "plan": driver.plan().uid, "label": driver.state().label(), "phase": driver.state().phase,
            "recovery": driver.state().recovery.as_str(), "over": driver.state().is_over(), "simulated_hosts": truth,
        });
        entry(args.output, &value)?;
    }
    if let Some(Stopped { held }) = stopped {
        let held =
            held.map_or_else(String::new, |run| format!("run {run} goes on leaving its nodes alone; "));
        remark(format!(
            "stopped by a signal while {}, with no operation under way: nothing more is done. {held}{}",
            driver.state().label(),
            show::gone(&args.plan).trim_end()
        ));
    }
    Ok(show::code(driver.state()))
}

/// A plan is driven already: what can be done about that. Ending its driver is no help.
pub(super) fn driven(name: &str, error: LockError) -> Failure {
    match error {
        error @ (LockError::Failed(_) | LockError::Elsewhere(..)) => error.refusal(name),
        LockError::Held(holder) => {
            let by = holder.map_or_else(
                || "another process".to_owned(),
                |holder| format!("process {} since {}", holder.pid, holder.since),
            );
            Failure::refused(format!(
                "plan {name} is being driven by {by}: look at it with `reconciler maintenance status`, speak to it with \
                 `respond` and `abort`"
            ))
        }
    }
}

/// Makes room for a new run of the plan, or says why not.
fn clear_way(dir: &crate::run::dir::RunDir, name: &str, again: bool) -> Result<(), Failure> {
    let Some(record) = site::record(dir)? else { return Ok(()) };
    if !again {
        let label = record.state.label();
        return Err(Failure::refused(format!(
            "plan {name} was run before and is {label}; its simulated hosts ended with the process that had them, so \
             that it cannot be taken up. Begin anew with --again, or look at it with `reconciler maintenance status`"
        )));
    }
    // The log goes first: a file without it is older, a log without its file is damage.
    for suffix in ["-wal", "-shm", ""] {
        let mut path = site::path(dir).into_os_string();
        path.push(suffix);
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(Failure::while_doing("removing the plan's former state", &error));
            }
            _ => {}
        }
    }
    Ok(())
}

async fn observe(
    loaded: &file::Loaded,
    dir: &crate::run::dir::RunDir,
    timer: Arc<dyn Timer>,
    clock: Option<&VirtualTimer>,
    format: Format,
) -> Result<Code, Failure> {
    let stored = site::record(dir)?;
    // A copy: nothing that is seen here is stored.
    let begun = stored.is_some();
    let store = stored.map_or_else(MemoryPlanStore::new, MemoryPlanStore::holding);
    let (_world, start) = site::start(&loaded.scenario, Arc::clone(&timer), Box::new(store))?;
    let mut driver = if begun {
        MaintenanceDriver::resume(start)
    } else {
        let approval = Person { who: "a look".to_owned(), at: timer.now() };
        MaintenanceDriver::file(start, loaded.plan(&format!("{}-look", loaded.file.name))?, Some(approval))
    }
    .map_err(failed)?;
    match clock {
        Some(clock) => clock.run(driver.look()).unwrap_or(()),
        None => driver.look().await,
    }
    let seen = Seen::of(&driver);
    document(format, &plain(&seen)?, || seen.table())?;
    Ok(Code::Done)
}

/// What the simulated hosts know to be true.
#[derive(Debug, serde::Serialize)]
struct Truth {
    /// Writes that a machine was told are done.
    acknowledged: u64,
    /// Of those, the ones that no copy holds.
    lost: usize,
    /// The ones that some copy lacks.
    missing_on_a_copy: usize,
    /// Machines whose setting is not what it was, or that are still held in place.
    unrestored: Vec<String>,
    /// Rules that were broken.
    breaches: Vec<String>,
}

impl Truth {
    fn of(world: &HostWorld, plan: &BondFlipPlan) -> Self {
        let copies =
            plan.resources.iter().flat_map(|resource| plan.nodes.iter().map(move |node| (resource, node)));
        Self {
            acknowledged: world.acknowledged(),
            lost: world.lost_writes().len(),
            missing_on_a_copy: copies.map(|(resource, node)| world.missing_on(resource, node).len()).sum(),
            unrestored: world.unrestored().iter().map(ToString::to_string).collect(),
            breaches: world.breaches().iter().map(ToString::to_string).collect(),
        }
    }
}

impl fmt::Display for Truth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "simulated hosts: {} writes acknowledged, {} lost, {} missing on a copy; {} machines not as they were; {} \
             breaches",
            self.acknowledged,
            self.lost,
            self.missing_on_a_copy,
            self.unrestored.len(),
            self.breaches.len()
        )
    }
}

/// How a plan was left that is not over.
struct Stopped {
    /// The run that goes on leaving nodes alone.
    held: Option<String>,
}

/// The run as it happens: steps to standard output, requests of other commands answered.
struct Live {
    mailbox: SqlitePlanStore,
    format: Format,
    begun: SystemTime,
    /// Waits for a reply where the plan is frozen.
    stays: bool,
    /// The plan's file, for those who are told how to answer.
    plan: PathBuf,
    /// The run that leaves the plan's nodes alone.
    arbiter: Option<Arbiter>,
    /// Ctrl-C and SIGTERM, where the plan lives as long as the clock says.
    interrupt: Option<Interrupt>,
    /// A signal came.
    stopping: bool,
}

impl Live {
    /// Until the plan is over, or a signal stops it.
    async fn drive(
        mut self,
        driver: &mut MaintenanceDriver,
        timer: &dyn Timer,
    ) -> Result<Option<Stopped>, Failure> {
        let (mut last, mut asked) = (String::new(), None);
        loop {
            let pass = match self.interrupt.as_mut() {
                Some(interrupt) => whole(driver, interrupt, &mut self.stopping).await,
                None => driver.pass().await,
            };
            let pass = pass.map_err(failed)?;
            let step = pass.step.to_string();
            if step != last || pass.outcome.is_some() {
                self.print(driver, pass.at, &step, pass.outcome.as_deref())?;
                last = step;
            }
            let open = driver.state().escalation.as_ref().map(|open| open.fingerprint.clone());
            if open.is_some() && open != asked && self.format == Format::Table {
                line(show::question(driver.state(), &self.plan))?;
            }
            asked = open;
            loop {
                let heeded = match (&mut self.arbiter, &mut self.interrupt) {
                    (Some(arbiter), Some(interrupt)) => interrupt.unless(arbiter.follow(driver)).await,
                    (Some(arbiter), None) => Some(arbiter.follow(driver).await),
                    (None, _) => Some(true),
                };
                self.stopping |= heeded.is_none();
                let heeded = heeded == Some(true);
                for (id, request) in self.mailbox.open_requests().map_err(|error| mail(&error))? {
                    let answer = self.serve(driver, request, timer.now()).await;
                    self.mailbox.answer(id, &answer).map_err(|error| mail(&error))?;
                }
                if driver.state().is_over() || (!self.stays && driver.is_settled()) {
                    return Ok(None);
                }
                let until = if heeded { pass.next } else { timer.now() + AGAIN };
                if self.stopping || self.sleep(timer, until).await {
                    let held = self.arbiter.as_ref().and_then(|arbiter| arbiter.left_held(driver));
                    return Ok(Some(Stopped { held }));
                }
                if heeded {
                    break;
                }
            }
        }
    }

    /// Waits, and says whether a signal came.
    async fn sleep(&mut self, timer: &dyn Timer, until: SystemTime) -> bool {
        let sleep = async {
            if until > timer.now() {
                timer.sleep_until(until).await;
            }
        };
        let Some(interrupt) = &mut self.interrupt else {
            sleep.await;
            return false;
        };
        interrupt.unless(sleep).await.is_none()
    }

    async fn serve(
        &self,
        driver: &mut MaintenanceDriver,
        request: Request,
        now: SystemTime,
    ) -> Result<String, String> {
        match request.kind {
            RequestKind::Abort if driver.state().recovery == Recovery::Escalated => {
                let offered = driver.state().escalation.as_ref().map(|open| open.answers.clone());
                let back = if offered.is_some_and(|answers| answers.contains(&Answer::RollBack)) {
                    "answer it with `respond --answer roll-back`"
                } else {
                    "the way back is not offered, for it cannot be proved safe; answer it with `respond`"
                };
                Err(format!("the plan is frozen and goes nowhere before its question is answered: {back}"))
            }
            RequestKind::Abort => {
                let person = Person { who: request.who, at: now };
                driver.abort(person).map_err(|error| error.to_string())?;
                Ok("noted; the plan goes back, or to its end where that is nearer".to_owned())
            }
            RequestKind::Respond { fingerprint, answer } => {
                let open = driver.state().escalation.as_ref().map(|open| open.fingerprint.clone());
                let fingerprint = open
                    .filter(|open| fingerprint.len() >= 8 && open.0.starts_with(&fingerprint))
                    .unwrap_or(executor_api::host::Fingerprint(fingerprint));
                let reply = Reply { fingerprint, answer, who: request.who };
                driver.respond(reply).await.map_err(|error| error.to_string())?;
                Ok(format!("taken: {answer}"))
            }
        }
    }

    fn print(
        &self,
        driver: &MaintenanceDriver,
        at: SystemTime,
        step: &str,
        outcome: Option<&str>,
    ) -> Result<(), Failure> {
        let since = at.duration_since(self.begun).unwrap_or_default();
        let label = driver.state().label();
        if self.format == Format::Table {
            let outcome = outcome.map_or_else(String::new, |outcome| format!(": {outcome}"));
            return line(format!("+{:>7.1}s  {label:<20} {step}{outcome}", since.as_secs_f64()));
        }
        let value = serde_json::json!({
            "at_ms": u64::try_from(since.as_millis()).unwrap_or(u64::MAX),
            "label": label, "phase": driver.state().phase, "step": step, "outcome": outcome,
        });
        entry(self.format, &value)
    }
}

/// A pass, never broken off: a signal is noted, and counts once the operation under way has ended.
async fn whole(
    driver: &mut MaintenanceDriver,
    interrupt: &mut Interrupt,
    stopping: &mut bool,
) -> Result<Pass, MaintenanceError> {
    let pass = driver.pass();
    tokio::pin!(pass);
    tokio::select! {
        biased;
        done = &mut pass => return done,
        () = interrupt.wait() => {}
    }
    *stopping = true;
    remark("stopping once the operation under way has ended");
    pass.await
}

fn mail(error: &PlanStoreError) -> Failure {
    site::failed("looking for requests", error)
}

#[expect(clippy::needless_pass_by_value, reason = "handed to map_err")]
fn failed(error: MaintenanceError) -> Failure {
    Failure::while_doing("driving the plan", &error)
}
