//! `maintenance respond` and `maintenance abort`: a request to the process that drives, and its answer.

use std::time::Duration;

use reconciler_driver::maintenance::{Request, RequestKind};

use super::{AbortArgs, RespondArgs, file, site};
use crate::cli::args::Global;
use crate::cli::failure::{Code, Failure};
use crate::cli::output::line;
use crate::run::lock::holder;

/// How long the driving process may take to answer: it may be in the middle of an operation.
const PATIENCE: Duration = Duration::from_secs(150);

pub(super) async fn respond(global: &Global, args: RespondArgs) -> Result<Code, Failure> {
    let kind = RequestKind::Respond { fingerprint: args.question, answer: args.answer };
    ask(global, &args.plan, Request { who: args.who, kind }).await
}

pub(super) async fn abort(global: &Global, args: AbortArgs) -> Result<Code, Failure> {
    ask(global, &args.plan, Request { who: args.who, kind: RequestKind::Abort }).await
}

async fn ask(global: &Global, plan: &std::path::Path, request: Request) -> Result<Code, Failure> {
    let loaded = file::load(plan)?;
    let name = &loaded.file.name;
    let dir = site::dir(global, name)?;
    let store =
        site::existing(&dir)?.ok_or_else(|| Failure::no_state(format!("plan {name} was never run")))?;
    let nobody = || Failure::refused(format!("nobody drives plan {name}: only a running plan can be asked"));
    if holder(&dir).is_none() {
        return Err(nobody());
    }
    let failed = |error| Failure::while_doing("asking the process that drives the plan", &error);
    let id = store.ask(&request).map_err(failed)?;
    let given_up = tokio::time::Instant::now() + PATIENCE;
    loop {
        match store.answer_to(id).map_err(failed)? {
            Some(Ok(done)) => {
                line(done)?;
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
