//! `maintenance plan` and `maintenance run`: a rehearsal in virtual time, a look, or the real thing.

use std::sync::Arc;
use std::time::SystemTime;

use executor_api::Timer;
use executor_host_fake::HostWorld;
use reconciler_core::maintenance::{Person, Phase, Recovery, Reply};
use reconciler_driver::maintenance::{
    MaintenanceDriver, MaintenanceError, MemoryPlanStore, PlanStore as _, Request, RequestKind,
    SqlitePlanStore,
};
use reconciler_driver::{TokioTimer, VirtualTimer};

use super::{PlanArgs, RunArgs, file, show, site};
use crate::cli::args::{Format, Global};
use crate::cli::failure::{Code, Failure};
use crate::cli::output::{document, line, remark};
use crate::run::lock::Lock;
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
    document(args.output, &report, || {
        let note = if loaded.file.approved { "" } else { "\nThe plan is not approved: it will not run." };
        format!("{}{}{note}\n", show::timeline(&report), truth(&world))
    })?;
    Ok(if driver.state().phase == Phase::Complete { Code::Done } else { Code::Pending })
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
    dir.create()?;
    let _lock = Lock::take(&dir).map_err(|error| error.refusal(name))?;
    clear_way(&dir, name, args.again)?;
    let plan = loaded.plan(&format!("{name}-{}", uid::mint()?))?;
    let (world, start) = site::start(&loaded.scenario, Arc::clone(&timer), Box::new(site::open(&dir)?))?;
    let approval = Person { who: args.who.clone(), at: timer.now() };
    let mut driver = MaintenanceDriver::file(start, plan, Some(approval)).map_err(failed)?;
    let mailbox = site::open(&dir)?;
    let live = Live { mailbox, format: args.output, begun: timer.now(), stays: virtual_clock.is_none() };
    let drive = live.drive(&mut driver, timer.as_ref());
    match &virtual_clock {
        Some(clock) => clock.run(drive).unwrap_or(Ok(()))?,
        None => drive.await?,
    }
    if args.output == Format::Table {
        line(format!("plan {}: {}{}", driver.plan().uid, driver.state().label(), truth(&world)))?;
        if !driver.state().is_over() {
            remark(show::question(driver.state(), &args.plan));
        }
    }
    Ok(match (&driver.state().recovery, driver.state().phase) {
        (Recovery::Forward | Recovery::Resumed, Phase::Complete) => Code::Done,
        _ => Code::Pending,
    })
}

/// Makes room for a new run of the plan, or says why not.
fn clear_way(dir: &crate::run::dir::RunDir, name: &str, again: bool) -> Result<(), Failure> {
    let Some(mut store) = site::existing(dir)? else { return Ok(()) };
    let Some(record) = store.load().map_err(|error| Failure::while_doing("reading the plan", &error))? else {
        return Ok(());
    };
    if !again {
        let label = record.state.label();
        return Err(Failure::refused(format!(
            "plan {name} was run before and is {label}; its simulated hosts ended with the process that had them. \
             Begin anew with --again, or look at it with `reconciler maintenance status`"
        )));
    }
    drop(store);
    for suffix in ["", "-wal", "-shm"] {
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
    let stored = match site::existing(dir)? {
        Some(mut store) => store.load().map_err(|error| Failure::while_doing("reading the plan", &error))?,
        None => None,
    };
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
    let seen = show::Seen::of(&driver);
    document(format, &seen, || seen.table())?;
    Ok(Code::Done)
}

/// What the simulated hosts know to be true.
fn truth(world: &HostWorld) -> String {
    let (lost, breaches) = (world.lost_writes().len(), world.breaches().len());
    format!(
        "\nsimulated hosts: {} writes acknowledged, {lost} lost, {breaches} breaches",
        world.acknowledged()
    )
}

/// The run as it happens: steps to standard output, requests of other commands answered.
struct Live {
    mailbox: SqlitePlanStore,
    format: Format,
    begun: SystemTime,
    /// Waits for a reply where the plan is frozen.
    stays: bool,
}

impl Live {
    async fn drive(&self, driver: &mut MaintenanceDriver, timer: &dyn Timer) -> Result<(), Failure> {
        let mut last = String::new();
        loop {
            let pass = driver.pass().await.map_err(failed)?;
            let step = pass.step.to_string();
            if step != last || pass.outcome.is_some() {
                self.print(driver, pass.at, &step, pass.outcome.as_deref())?;
                last = step;
            }
            for (id, request) in self.mailbox.open_requests().map_err(|error| mail(&error))? {
                let answer = self.serve(driver, request, timer.now()).await;
                self.mailbox.answer(id, &answer).map_err(|error| mail(&error))?;
            }
            if driver.state().is_over() || (!self.stays && driver.is_settled()) {
                return Ok(());
            }
            if pass.next > timer.now() {
                timer.sleep_until(pass.next).await;
            }
        }
    }

    async fn serve(
        &self,
        driver: &mut MaintenanceDriver,
        request: Request,
        now: SystemTime,
    ) -> Result<String, String> {
        match request.kind {
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
            "phase": label, "step": step, "outcome": outcome,
        });
        line(value.to_string())
    }
}

fn mail(error: &dyn std::error::Error) -> Failure {
    Failure::while_doing("looking for requests", error)
}

#[expect(clippy::needless_pass_by_value, reason = "handed to map_err")]
fn failed(error: MaintenanceError) -> Failure {
    Failure::while_doing("driving the plan", &error)
}
