//! One schedule as data: the cluster, the timing, the world, and everything that will disturb them. Drawn
//! from a seed once; printed whole; made smaller by leaving disturbances out.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use executor_api::{
    BootSpec, GroupId, GroupPolicy, JoinSpec, LogicalNodeId, NodeRole, NodeTemplate, ProviderName, RunId,
    RunNodeGroupSpec, UpdatePolicy,
};
use executor_fake::{CallKind, FakeBehaviour, Fault, Incident};
use reconciler_core::{ClusterShape, RetryPolicy};
use reconciler_driver::runner::CrashPoint;

/// A schedule.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What it was drawn from.
    pub seed: u64,
    /// How many steps the disturbed phase has.
    pub steps: u32,
    /// The first shape.
    pub shape: ShapePlan,
    /// Whether the driver asks what there is before it trusts its state, as the command line tool does.
    pub guarded: bool,
    /// The driver's timing.
    pub policy: RetryPolicy,
    /// The world, before anything goes wrong.
    pub behaviour: FakeBehaviour,
    /// A slot on which one kind of call is refused for ever, even when all other faults have ended.
    pub victim: Option<(LogicalNodeId, CallKind)>,
    /// Everything that will go wrong or change.
    pub disturbances: Vec<Disturbance>,
    /// The last disturbance is not drawn: it is one of those that befall every store write in turn.
    pub swept: bool,
}

/// A shape: one entry for each group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShapePlan(pub Vec<GroupPlan>);

/// A group of a shape.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupPlan {
    /// How many slots.
    pub count: u32,
    /// Which spec; another number is another spec.
    pub version: u32,
    /// How many may be unavailable.
    pub limit: Option<u32>,
    /// Its bootstrapper does not exist, so that no start can be submitted.
    pub unserved: bool,
}

/// One thing that goes wrong or changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Disturbance {
    /// The `nth` such call, for that slot where one is named, suffers a fault.
    Call {
        /// Which call.
        call: CallKind,
        /// Whose.
        node: Option<LogicalNodeId>,
        /// Counted from zero.
        nth: u64,
        /// What befalls it.
        fault: Fault,
    },
    /// The `nth` thing told to the driver about that slot, or by listings for `None`.
    Delivery {
        /// About whom.
        node: Option<LogicalNodeId>,
        /// Counted from zero.
        nth: u64,
        /// What becomes of it.
        fate: Fate,
    },
    /// The process dies at the `commit`th store write and starts again.
    Crash {
        /// Counted from zero.
        commit: u64,
        /// Where around that write.
        point: CrashPoint,
        /// What the wall clock says afterwards.
        clock: Clock,
        /// What the disk holds afterwards.
        disk: Disk,
    },
    /// The `commit`th store write fails.
    CommitFails {
        /// Counted from zero.
        commit: u64,
        /// In which way.
        how: WriteFault,
    },
    /// Something done at a step.
    Act {
        /// Before which step.
        step: u32,
        /// What.
        act: Act,
    },
}

/// What becomes of something told to the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It never arrives.
    Lost,
    /// It arrives now and then again, so many times, each so much later.
    Repeated {
        /// How many more times.
        times: u32,
        /// How much later each.
        every: Duration,
    },
    /// It arrives later.
    Delayed(Duration),
}

/// What the wall clock says after a restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// The truth.
    True,
    /// It was set back by so much.
    Back(Duration),
    /// It was set forward by so much.
    Forward(Duration),
}

/// What the disk holds after a restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disk {
    /// What was written last.
    Newest,
    /// A copy from so many writes before.
    Older {
        /// How many.
        writes: usize,
    },
    /// Nothing: the file was deleted.
    Deleted,
    /// Something that does not read.
    Unreadable,
    /// A part of the write in which the process died, which a checksum gives away.
    Torn,
}

/// How a store write fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteFault {
    /// There is no space; nothing was written.
    NoSpace,
    /// The first synchronisation fails, every later one on the same handle would say that all is well.
    SyncFails {
        /// Whether the write reached the disk nevertheless.
        kept: bool,
    },
}

/// Something done at a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Act {
    /// The shape is edited; of several edits at once only the last may ever be acted on.
    Edit(Vec<ShapePlan>),
    /// Something befalls a slot's lease or session.
    Befall(LogicalNodeId, Incident),
    /// The machine is suspended; everybody's clock moves on.
    Suspend(Duration),
    /// The next inputs carry a time that is so much too early.
    ClockBehind {
        /// By how much.
        by: Duration,
        /// How many inputs.
        inputs: u32,
    },
    /// The process dies and starts again.
    Die(Clock),
    /// An operator holds a slot, or all for `None`.
    Hold(Option<LogicalNodeId>),
    /// An operator takes that back.
    Release(Option<LogicalNodeId>),
    /// An operator asks for a fresh attempt.
    Replace(LogicalNodeId),
    /// A safety tick out of turn.
    Tick,
    /// Another run of the same name makes a lease for a slot of the same name.
    Alien(LogicalNodeId),
}

/// The run of every schedule.
pub(super) fn run() -> RunId {
    #[expect(clippy::expect_used, reason = "literal names")]
    RunId::new("sim", "u1").expect("valid names")
}

/// The run that a driver makes up when its state is gone: of the same name.
pub(super) fn run_anew() -> RunId {
    #[expect(clippy::expect_used, reason = "literal names")]
    RunId::new("sim", "u9").expect("valid names")
}

/// A slot of one of the two groups.
pub(super) fn slot(group: usize, index: u32) -> LogicalNodeId {
    LogicalNodeId::of(&group_id(group), index)
}

#[expect(clippy::expect_used, reason = "literal names")]
fn group_id(group: usize) -> GroupId {
    GroupId::new(["a", "b", "c"][group.min(2)]).expect("a valid name")
}

#[expect(clippy::expect_used, reason = "literal names")]
fn provider(name: &str) -> ProviderName {
    ProviderName::new(name).expect("a valid name")
}

impl ShapePlan {
    /// The shape as the driver of this run takes it.
    pub(super) fn shape(&self, run_id: &RunId, generation: u64) -> ClusterShape {
        let groups = self.0.iter().enumerate().map(|(index, group)| RunNodeGroupSpec {
            run_id: run_id.clone(),
            group_id: group_id(index),
            count: group.count,
            template: Arc::new(NodeTemplate {
                role: NodeRole(format!("v{}", group.version)),
                provider: provider("fake"),
                shape: serde_json::Value::Null,
                boot: BootSpec {
                    via: group.unserved.then(|| provider("nobody")),
                    settings: serde_json::Value::Null,
                },
                join: JoinSpec::default(),
            }),
            policy: GroupPolicy::default(),
            update: UpdatePolicy { max_unavailable: group.limit },
        });
        ClusterShape { run_id: run_id.clone(), generation, groups: groups.collect() }
    }
}

impl Plan {
    /// The longest that anything in this schedule may keep a cluster from converging once nothing goes wrong
    /// any more, taken generously.
    pub(super) fn bound(&self) -> Duration {
        let policy = &self.policy;
        let allowance = self.behaviour.visibility;
        let once = policy.cap
            + policy.operation_timeout
            + policy.endpoint_probe_interval
            + policy.extra.join_within
            + policy.extra.stable_after
            + policy.extra.observe_every
            + policy.extra.loss_timeout.unwrap_or_default()
            + allowance.listing_lag
            + allowance.late_landing;
        // Told late, torn down, waited out, and brought up again, one slot after the other.
        once * 16
    }

    /// How long after the last disturbance something that was set going before may still happen.
    pub(super) fn echo(&self) -> Duration {
        let echo = |disturbance: &Disturbance| match disturbance {
            Disturbance::Delivery { fate: Fate::Delayed(by), .. } => *by,
            Disturbance::Delivery { fate: Fate::Repeated { times, every }, .. } => *every * *times,
            Disturbance::Call {
                fault:
                    Fault::Dies(after)
                    | Fault::Vanishes(after)
                    | Fault::Moves(after)
                    | Fault::LandsLate { after, .. },
                ..
            } => *after,
            _ => Duration::ZERO,
        };
        // Whatever a call under way will suffer it has suffered by its deadline.
        self.disturbances.iter().map(echo).max().unwrap_or_default() + self.policy.operation_timeout
    }

    /// The command that plays it again.
    pub fn replay(&self) -> String {
        if self.swept {
            let command = "cargo test --profile checked -p conformance --test crashes";
            return format!("SIMULATE_SEED={} SIMULATE_BASES=1 {command}", self.seed);
        }
        format!("reconciler simulate --seed {} --steps {} --story", self.seed, self.steps)
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, steps, shape, guarded, policy, behaviour, victim, disturbances, swept: _ } = self;
        let asks = if *guarded { ", asks before it trusts its state" } else { "" };
        writeln!(f, "seed {seed}, {steps} steps, {shape}{asks}")?;
        writeln!(f, "policy {policy:?}")?;
        writeln!(f, "world {behaviour:?}")?;
        if let Some((slot, call)) = victim {
            writeln!(f, "for ever: {call:?} of {slot} is refused")?;
        }
        for disturbance in disturbances {
            writeln!(f, "{disturbance}")?;
        }
        Ok(())
    }
}

impl fmt::Display for ShapePlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, group) in self.0.iter().enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            write!(f, "{comma}{}={} v{}", group_id(index), group.count, group.version)?;
            if let Some(limit) = group.limit {
                write!(f, " (at most {limit} down)")?;
            }
            if group.unserved {
                write!(f, " (without a bootstrapper)")?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for Disturbance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whose = |node: &Option<LogicalNodeId>, other: &'static str| {
            node.as_ref().map_or_else(|| other.to_owned(), ToString::to_string)
        };
        match self {
            Self::Call { call, node, nth, fault } => {
                write!(f, "call {call:?} #{nth} of {}: {fault:?}", whose(node, "the run"))
            }
            Self::Delivery { node, nth, fate } => {
                write!(f, "message #{nth} about {}: {fate:?}", whose(node, "the listing"))
            }
            Self::Crash { commit, point, clock, disk } => write!(f, "crash {point:?} #{commit}{clock}{disk}"),
            Self::CommitFails { commit, how } => write!(f, "store write #{commit} fails: {how}"),
            Self::Act { step, act } => write!(f, "step {step}: {act}"),
        }
    }
}

impl fmt::Display for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::True => Ok(()),
            Self::Back(by) => write!(f, ", wall clock {by:?} back"),
            Self::Forward(by) => write!(f, ", wall clock {by:?} forward"),
        }
    }
}

impl fmt::Display for Disk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Newest => Ok(()),
            Self::Older { writes } => write!(f, ", the state of {writes} writes before is put back"),
            Self::Deleted => f.write_str(", the state is deleted"),
            Self::Unreadable => f.write_str(", the state does not read"),
            Self::Torn => f.write_str(", the write is torn and the state does not read"),
        }
    }
}

impl fmt::Display for WriteFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoSpace => "no space left",
            Self::SyncFails { kept: false } => "it is not synchronised, and lost",
            Self::SyncFails { kept: true } => "it is not synchronised, and there nevertheless",
        })
    }
}

impl fmt::Display for Act {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whom = |slot: &Option<LogicalNodeId>| {
            slot.as_ref().map_or_else(|| "the cluster".to_owned(), ToString::to_string)
        };
        match self {
            Self::Edit(shapes) => {
                let shapes: Vec<_> = shapes.iter().map(|shape| format!("edit to {shape}")).collect();
                f.write_str(&shapes.join(", at once "))
            }
            Self::Befall(slot, incident) => write!(f, "{slot} befallen: {incident:?}"),
            Self::Suspend(time) => write!(f, "suspended for {time:?}"),
            Self::ClockBehind { by, inputs } => write!(f, "clock {by:?} behind for {inputs} inputs"),
            Self::Die(clock) => write!(f, "killed and started again{clock}"),
            Self::Hold(slot) => write!(f, "hold {}", whom(slot)),
            Self::Release(slot) => write!(f, "release {}", whom(slot)),
            Self::Replace(slot) => write!(f, "replace {slot}"),
            Self::Tick => f.write_str("safety tick"),
            Self::Alien(slot) => write!(f, "another run of that name leases for its {slot}"),
        }
    }
}
