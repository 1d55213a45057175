//! Permanent trouble: some share of all calls fails, for ever. A cluster is then seldom as declared, and still
//! has to do most of its work.

use std::time::Duration;

use executor_api::RejectReason;
use executor_fake::{CallKind, Chance, Fault, Silence, Weather};

use super::Options;
use super::draw;
use super::oracle::Violation;
use super::stage::endure;

/// The least share of an hour that nodes must be ready under whatever share of calls a caller lets fail, in
/// thousandths. Far below what is seen, far above what a driver reaches that gives up.
const LEAST: u32 = 250;

/// What a cluster did under permanent trouble.
#[derive(Clone, Debug)]
pub struct Endured {
    /// For each hour, how much of the time that its declared nodes should have been ready they were, in
    /// thousandths.
    pub ready_per_mille: Vec<u32>,
    /// What must not be, if anything.
    pub violation: Option<Violation>,
}

/// Lets so many per mille of all calls fail, for some hours.
pub fn run(seed: u64, per_mille: u32, hours: u32, options: &Options) -> Endured {
    super::quiet_panics();
    let mut plan = draw::plan(seed, options);
    plan.disturbances.clear();
    plan.victim = None;
    let each = per_mille / 5;
    let acting = [
        CallKind::Create,
        CallKind::Lookup,
        CallKind::Destroy,
        CallKind::Start,
        CallKind::Complete,
        CallKind::Cancel,
    ];
    let faults = [
        Fault::NotActed(Silence::Ambiguous),
        Fault::NotActed(Silence::Hangs),
        Fault::Rejected(RejectReason::Capacity),
        Fault::Throttled { retry_after: None },
        Fault::Unavailable,
    ];
    let calls = acting
        .iter()
        .flat_map(|&call| faults.iter().map(move |&fault| Chance { call, fault, per_mille: each }));
    let lost = [CallKind::Create, CallKind::Start, CallKind::Destroy].map(|call| Chance {
        call,
        fault: Fault::AnswerLost(Silence::Ambiguous),
        per_mille: each,
    });
    let reads = [CallKind::FindLease, CallKind::FindSession, CallKind::List];
    let reads = reads.map(|call| Chance { call, fault: Fault::Unknown, per_mille });
    // Nodes die too, so that there is always something to do.
    let deaths =
        [Chance { call: CallKind::Create, fault: Fault::Dies(Duration::from_mins(10)), per_mille: 500 }];
    let chances = calls.chain(lost).chain(reads).chain(deaths).collect();
    let mut endured = endure(&plan, &options.subject, Weather { seed, chances, until: None }, hours);
    let worst = endured.ready_per_mille.iter().copied().min().unwrap_or_default();
    if worst < LEAST && endured.violation.is_none() {
        let what = format!("{:?} per mille ready, hour by hour", endured.ready_per_mille);
        endured.violation = Some(Violation { rule: "L5", node: None, what });
    }
    endured
}
