//! `maintenance respond` and `maintenance abort`: a request to the process that drives, and its answer.

use std::path::Path;
use std::time::Duration;

use reconciler_driver::maintenance::{PlanStore as _, Request, RequestKind, SqlitePlanStore};
use serde_json::json;

use super::arbiter::Arbiter;
use super::drive::driven;
use super::{AbortArgs, RespondArgs, file, site};
use crate::cli::args::{Format, Global};
use crate::cli::failure::{Code, Failure};
use crate::cli::output::{document, remark};
use crate::run::dir::RunDir;
use crate::run::lock::{Lock, holder};

/// How long the driving process may take to answer: it may be in the middle of an operation.
const PATIENCE: Duration = Duration::from_secs(150);

pub(super) async fn respond(global: &Global, args: RespondArgs) -> Result<Code, Failure> {
    if args.who.trim().is_empty() {
        return Err(Failure::refused(
            "a reply is kept with the name of who gave it: say who answers with --who NAME",
        ));
    }
    let kind = RequestKind::Respond { fingerprint: args.question, answer: args.answer };
    ask(global, &args.plan, Request { who: args.who, kind }, args.output).await
}

pub(super) async fn abort(global: &Global, args: AbortArgs) -> Result<Code, Failure> {
    if args.give_up {
        return give_up(global, &args).await;
    }
    ask(global, &args.plan, Request { who: args.who, kind: RequestKind::Abort }, args.output).await
}

async fn ask(global: &Global, plan: &Path, request: Request, format: Format) -> Result<Code, Failure> {
    let loaded = file::load(plan)?;
    let name = &loaded.file.name;
    let dir = site::dir(global, name)?;
    let mut seen = site::look(&dir)?
        .ok_or_else(|| Failure::no_state(format!("plan {name} has no run: there is nothing to ask")))?;
    let failed = |error| site::failed("asking the process that drives the plan", &error);
    let record = seen.load().map_err(failed)?;
    drop(seen);
    let over = record.is_some_and(|record| record.state.is_over());
    let nobody = || {
        Failure::refused(if over {
            format!("plan {name} is over: there is nothing to ask")
        } else {
            format!(
                "nobody drives plan {name}: only a running plan can be asked. Its simulated hosts ended with the process \
                 that had them; begin anew with `run --approve --again`, or give it up with `abort --give-up`"
            )
        })
    };
    if holder(&dir).is_none() {
        return Err(nobody());
    }
    let store = SqlitePlanStore::open_beside(&site::path(&dir)).map_err(failed)?;
    let id = store.ask(&request).map_err(failed)?;
    let given_up = tokio::time::Instant::now() + PATIENCE;
    loop {
        match store.answer_to(id).map_err(failed)? {
            Some(Ok(done)) => {
                document(format, &json!({ "plan": name, "done": done }), || format!("{done}\n"))?;
                return Ok(Code::Done);
            }
            Some(Err(refused)) => return Err(Failure::refused(refused)),
            None => {}
        }
        let gone = holder(&dir).is_none();
        if gone || tokio::time::Instant::now() >= given_up {
            store.withdraw(id).map_err(failed)?;
            return Err(if gone { nobody() } else { Failure::error("no answer in time; ask again") });
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Ends a plan that can never go on, because the process that had its simulated hosts is gone. What is stored is kept
/// under another name.
async fn give_up(global: &Global, args: &AbortArgs) -> Result<Code, Failure> {
    let loaded = file::load(&args.plan)?;
    let name = &loaded.file.name;
    let dir = site::dir(global, name)?;
    let missing = || Failure::no_state(format!("plan {name} has no run: there is nothing to give up"));
    let _lock = if site::is_there(&dir)? {
        Lock::take(&dir).map_err(|error| driven(name, error))?
    } else {
        return Err(missing());
    };
    let record = site::record(&dir)?.ok_or_else(missing)?;
    if record.state.is_over() {
        return Err(Failure::refused(format!("plan {name} is over: there is nothing to give up")));
    }
    let kept = put_aside(&dir, record.plan.uid.as_str())?;
    let told = match Arbiter::linked(global, &dir) {
        Ok(Some(arbiter)) => arbiter.tell().await,
        Ok(None) => Ok(()),
        Err(failure) => Err(failure),
    };
    if let Err(failure) = told {
        remark(format!("the run beside it was not told and will see for itself: {}", failure.message));
    }
    let done =
        format!("given up by {} while {}; what is stored is in {kept}", args.who, record.state.label());
    document(args.output, &json!({ "plan": name, "done": done }), || format!("{done}\n"))?;
    Ok(Code::Done)
}

fn put_aside(dir: &RunDir, uid: &str) -> Result<String, Failure> {
    let (from, to) = (site::path(dir), dir.path().join(format!("given-up-{uid}.db")));
    for suffix in ["-wal", "-shm", ""] {
        let beside = |path: &Path| {
            let mut path = path.as_os_str().to_owned();
            path.push(suffix);
            std::path::PathBuf::from(path)
        };
        match std::fs::rename(beside(&from), beside(&to)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(Failure::while_doing("putting the plan's state aside", &error));
            }
            _ => {}
        }
    }
    Ok(to.display().to_string())
}
