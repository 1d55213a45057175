//! Runs cases: each on a fresh world in a runtime of its own, bounded in time, cleaned up whatever happens.

use std::sync::Arc;
use std::time::Duration;

use crate::bench::Bench;
use crate::case::{Case, CaseEnd, Running};
use crate::cases::CASES;
use crate::harness::Harness;
use crate::report::{Report, Verdict};

/// There is no case and no promise of this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no case {name:?}; {instead}")]
pub struct UnknownCase {
    /// The name as given.
    pub name: String,
    /// What could have been meant: the cases of the promise that the name begins with, or else the promises.
    pub instead: String,
}

/// All cases of a table, the one of this name, or those of the promise of this name.
pub(crate) fn chosen<'a, B>(
    cases: &'a [Case<B>],
    only: Option<&str>,
) -> Result<Vec<&'a Case<B>>, UnknownCase> {
    let Some(name) = only else { return Ok(cases.iter().collect()) };
    let meant: Vec<_> = cases.iter().filter(|case| name == case.name || name == case.promise).collect();
    if !meant.is_empty() {
        return Ok(meant);
    }
    let promise = name.split("::").next().unwrap_or_default();
    let near: Vec<_> = cases.iter().filter(|case| case.promise == promise).map(|case| case.name).collect();
    let instead = if near.is_empty() {
        let mut promises: Vec<_> = cases.iter().map(|case| case.promise).collect();
        promises.dedup();
        format!("a name is a promise ({}) or a case, such as {}", promises.join(", "), cases[0].name)
    } else {
        format!("those of {promise} are {}", near.join(", "))
    };
    Err(UnknownCase { name: name.to_owned(), instead })
}

/// Runs every case, or the one named, or all of the promise named. Blocks; not to be called from within a runtime.
///
/// # Errors
/// There is no case of that name.
pub fn run_suite<H: Harness>(make: impl Fn() -> H, only: Option<&str>) -> Result<Report, UnknownCase> {
    run_suite_telling(make, only, |_, _| ())
}

/// The same, and says how each case ended as soon as it has.
///
/// # Errors
/// There is no case of that name.
pub fn run_suite_telling<H: Harness>(
    make: impl Fn() -> H,
    only: Option<&str>,
    mut tell: impl FnMut(&'static str, &Verdict),
) -> Result<Report, UnknownCase> {
    let mut report = Report::default();
    for case in chosen(CASES, only)? {
        let verdict = run_case(&make, case);
        tell(case.name, &verdict);
        report.verdicts.push((case.name, verdict));
    }
    Ok(report)
}

/// Runs one case for a `#[test]`: prints a skip, panics with a failure.
///
/// # Panics
/// The promise is broken, the case is skipped against [`Harness::SKIPS`], or there is no such case.
pub fn run_named<H: Harness>(make: impl Fn() -> H, name: &str) {
    match run_suite(make, Some(name)) {
        Err(unknown) => panic!("{unknown}"),
        Ok(report) => {
            println!("{report}");
            assert!(report.is_pass(), "{report}");
            if let Some(expected) = H::SKIPS.filter(|_| !H::MAY_SKIP.contains(&name)) {
                let (skipped, listed) = (!report.skipped().is_empty(), expected.contains(&name));
                assert!(!skipped || listed, "{report}\nif the reason holds, list the case in Harness::SKIPS");
                assert!(skipped || !listed, "{report}\nit is not skipped; strike it from Harness::SKIPS");
            }
        }
    }
}

/// However slow a world is: a case that takes longer than this many patiences hangs.
const PATIENCES: u32 = 20;

fn run_case<H: Harness>(make: &impl Fn() -> H, case: &Case) -> Verdict {
    let open = || {
        let bench = Arc::new(Bench::new(make()));
        let patience = bench.patience();
        (bench, patience)
    };
    contained(H::VIRTUAL_TIME, open, case.run, async |bench: Arc<Bench>| bench.clean_up().await)
}

/// Runs one case in a runtime of its own, which ends with it: on the bench that `open` makes, within so many of the
/// patience that it has, and cleaned up by `close` whatever came of it.
pub(crate) fn contained<B>(
    virtual_time: bool,
    open: impl FnOnce() -> (Arc<B>, Duration),
    run: fn(Arc<B>) -> Running,
    close: impl AsyncFnOnce(Arc<B>),
) -> Verdict {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().start_paused(virtual_time);
    let runtime = match builder.build() {
        Ok(runtime) => runtime,
        Err(error) => return Verdict::Failed(format!("cannot start a runtime for the case: {error}")),
    };
    let verdict = runtime.block_on(async {
        let (bench, patience) = open();
        let limit = patience * PATIENCES;
        // In a task of its own, so that a panic ends the case and not the suite.
        let mut task = tokio::spawn(run(Arc::clone(&bench)));
        let verdict = match tokio::time::timeout(limit, &mut task).await {
            Ok(Ok(Ok(()))) => Verdict::Ok,
            Ok(Ok(Err(CaseEnd::Failed(why)))) => Verdict::Failed(why),
            Ok(Ok(Err(CaseEnd::Skipped(why)))) => Verdict::Skipped(why),
            Ok(Err(panicked)) => Verdict::Failed(format!("panicked: {}", words(panicked))),
            Err(_) => {
                task.abort();
                Verdict::Failed(format!("did not end within {limit:?}"))
            }
        };
        close(bench).await;
        verdict
    });
    // An executor may still wait in a blocking thread; the next case does not.
    runtime.shutdown_timeout(Duration::from_secs(1));
    verdict
}

fn words(panicked: tokio::task::JoinError) -> String {
    match panicked.try_into_panic() {
        Ok(payload) => match payload.downcast::<String>() {
            Ok(text) => *text,
            Err(payload) => {
                payload.downcast::<&str>().map_or_else(|_| "no words".to_owned(), |t| (*t).to_owned())
            }
        },
        Err(error) => error.to_string(),
    }
}
