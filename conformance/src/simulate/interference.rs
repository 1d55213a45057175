//! What happens between the driver and its surroundings: results and facts that are lost, repeated, late or
//! out of order; a process that dies around a store write; a clock that is behind.

use std::time::SystemTime;

use executor_api::LogicalNodeId;
use reconciler_driver::DriverInput;
use reconciler_driver::runner::{CrashPoint, Hooks};

use super::oracle::{Oracle, Watch};
use super::plan::Fate;

pub(super) struct Interference(pub(super) Watch);

impl Hooks for Interference {
    fn deliver(&mut self, input: &DriverInput, now: SystemTime) -> Option<Vec<(SystemTime, DriverInput)>> {
        let (kind, node) = kind_of(input)?;
        self.0.with(|oracle| {
            let nth = oracle.delivered.entry(node.clone()).or_default();
            let key = (node.clone(), *nth);
            *nth += 1;
            if oracle.delayed_until.get(&node).is_some_and(|until| now < *until) {
                oracle.count("out of order");
            }
            if oracle.calm {
                return None;
            }
            let fate = oracle.deliveries.remove(&key)?;
            remember(oracle, input);
            oracle.tell(now, || format!("! {} about {}: {fate:?}", kind[3], whom(node.as_ref())));
            Some(match fate {
                Fate::Lost => {
                    oracle.count(kind[0]);
                    Vec::new()
                }
                Fate::Repeated { times, every } => {
                    oracle.count(kind[1]);
                    let at = |n: u32| now.checked_add(every * n).unwrap_or(now);
                    (0..=times).map(|n| (at(n), input.clone())).collect()
                }
                Fate::Delayed(by) => {
                    oracle.count(kind[2]);
                    let at = now.checked_add(by).unwrap_or(now);
                    oracle.delayed_until.insert(node, at);
                    vec![(at, input.clone())]
                }
            })
        })
    }

    fn crashes(&mut self, point: CrashPoint, _seq: u64) -> bool {
        self.0.with(|oracle| {
            if point == CrashPoint::BeforeCommit {
                oracle.commits += 1;
            }
            let number = oracle.commits.saturating_sub(1);
            let Some(planned) = oracle.crash_points.get_mut(&number) else { return false };
            let Some(at) = planned.iter().position(|(at, _, _)| *at == point) else { return false };
            let (_, clock, disk) = planned.remove(at);
            oracle.clock = Some(clock);
            oracle.count_clock(clock);
            oracle.disk = Some(disk);
            oracle.count(match point {
                CrashPoint::BeforeCommit => "crash before commit",
                CrashPoint::AfterCommit => "crash after commit",
                CrashPoint::BeforeDispatch => "crash before dispatch",
                CrashPoint::AfterDispatch => "crash after dispatch",
                CrashPoint::UnderWay => "crash with effects under way",
                CrashPoint::AfterAnswer => "crash after an answer",
            });
            oracle.reborn();
            true
        })
    }

    fn stamp(&mut self, input: &DriverInput, now: SystemTime) -> SystemTime {
        if let DriverInput::Listing { listing: Ok(listing), .. } = input {
            self.0.with(|oracle| oracle.listed(listing));
        }
        // A result comes with the end of its call, by the clock that the call itself was timed with.
        if matches!(input, DriverInput::Outcome { .. }) {
            return now;
        }
        self.0.with(|oracle| {
            let Some((by, left)) = oracle.behind.filter(|(_, left)| *left > 0 && !oracle.calm) else {
                return now;
            };
            oracle.behind = Some((by, left - 1));
            oracle.count("clock behind");
            now.checked_sub(by).unwrap_or(now)
        })
    }
}

impl Oracle {
    pub(super) fn count_clock(&mut self, clock: super::plan::Clock) {
        match clock {
            super::plan::Clock::True => {}
            super::plan::Clock::Back(_) => self.count("wall clock back over a restart"),
            super::plan::Clock::Forward(_) => self.count("wall clock forward over a restart"),
        }
    }
}

/// The names under which it is counted when lost, repeated, delayed, and what it is.
fn kind_of(input: &DriverInput) -> Option<([&'static str; 4], Option<LogicalNodeId>)> {
    match input {
        DriverInput::Outcome { node, .. } => {
            Some((["result lost", "result repeated", "result delayed", "result"], Some(node.clone())))
        }
        DriverInput::Observation(report) => {
            Some((["fact lost", "fact repeated", "fact delayed", "fact"], Some(report.node.clone())))
        }
        DriverInput::Listing { .. } => {
            Some((["listing lost", "listing repeated", "listing delayed", "listing"], None))
        }
        DriverInput::SubmitFailed { .. }
        | DriverInput::Hold { .. }
        | DriverInput::Release { .. }
        | DriverInput::Replace { .. }
        | DriverInput::Annotate { .. }
        | DriverInput::Swept { .. }
        | DriverInput::Panicked
        | DriverInput::Committed(_)
        | DriverInput::CommitFailed(_)
        | DriverInput::Tick => None,
    }
}

fn whom(node: Option<&LogicalNodeId>) -> String {
    node.map_or_else(|| "the run".to_owned(), ToString::to_string)
}

fn remember(oracle: &mut Oracle, input: &DriverInput) {
    if let DriverInput::Outcome { report, .. } = input {
        oracle.reports.insert(report.operation, report.clone());
    }
}
