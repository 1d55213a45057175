//! How calls go wrong: the faults, the rules that script them and the weather that draws them. A fault is chosen
//! when a call arrives, and counted when it really happened.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use executor_api::host::{HostAction, HostName, VmAction, VmName};
use serde::{Deserialize, Serialize};

use crate::chance::Dice;
use crate::span;

/// The calls that a fault can befall.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallKind {
    /// The host operation `suspend-io`
    SuspendIo,
    /// The host operation `resume-io`
    ResumeIo,
    /// The host operation `disconnect`
    Disconnect,
    /// The host operation `connect`
    Connect,
    /// The host operation `drain-satellite`
    Drain,
    /// The host operation `undrain-satellite`
    Undrain,
    /// The host operation that sets a bond's mode
    SetBondMode,
    /// The host operation that probes a link
    ProbeLink,
    /// The machine operation `pin`
    Pin,
    /// The machine operation `restore`
    Restore,
    /// The machine operation that aborts a migration
    Abort,
    /// `HostExecutor::settle`
    SettleHost,
    /// `VirtualMachines::settle`
    SettleVm,
    /// `HostProbe::host`
    ReadHost,
    /// `HostProbe::bond`
    ReadBond,
    /// `StorageProbe::storage`
    ReadStorage,
    /// `StorageProbe::satellite`
    ReadSatellite,
    /// `VirtualMachines::picture`
    ReadVms,
    /// `ClusterLock::read`
    ReadLock,
    /// `ClusterLock::acquire`
    Acquire,
    /// `ClusterLock::renew`
    Renew,
    /// `ClusterLock::release`
    Release,
    /// `ClusterLock::place_hold`
    PlaceHold,
    /// `ClusterLock::lift_hold`
    LiftHold,
}

impl CallKind {
    /// All of them.
    pub const ALL: [Self; 24] = [
        Self::SuspendIo,
        Self::ResumeIo,
        Self::Disconnect,
        Self::Connect,
        Self::Drain,
        Self::Undrain,
        Self::SetBondMode,
        Self::ProbeLink,
        Self::Pin,
        Self::Restore,
        Self::Abort,
        Self::SettleHost,
        Self::SettleVm,
        Self::ReadHost,
        Self::ReadBond,
        Self::ReadStorage,
        Self::ReadSatellite,
        Self::ReadVms,
        Self::ReadLock,
        Self::Acquire,
        Self::Renew,
        Self::Release,
        Self::PlaceHold,
        Self::LiftHold,
    ];

    /// The call that carries this action.
    pub fn of_host(action: &HostAction) -> Self {
        match action {
            HostAction::SuspendIo { .. } => Self::SuspendIo,
            HostAction::ResumeIo { .. } => Self::ResumeIo,
            HostAction::DisconnectResource { .. } => Self::Disconnect,
            HostAction::ConnectResource { .. } => Self::Connect,
            HostAction::DrainSatellite => Self::Drain,
            HostAction::UndrainSatellite { .. } => Self::Undrain,
            HostAction::SetBondMode { .. } => Self::SetBondMode,
            HostAction::ProbeLink { .. } => Self::ProbeLink,
        }
    }

    /// The call that carries this action.
    pub fn of_vm(action: &VmAction) -> Self {
        match action {
            VmAction::Pin => Self::Pin,
            VmAction::Restore { .. } => Self::Restore,
            VmAction::AbortMigration { .. } => Self::Abort,
        }
    }

    /// An operation of an agent.
    pub fn is_operation(self) -> bool {
        self <= Self::Abort
    }

    /// A read, the lock's included.
    pub fn is_read(self) -> bool {
        (Self::ReadHost..=Self::ReadLock).contains(&self)
    }

    /// A write to the lock.
    pub fn is_lock_write(self) -> bool {
        self >= Self::Acquire
    }
}

/// One way to go wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fault {
    /// The call never arrives, and that is known.
    Unavailable,
    /// The call never arrives, and nobody can tell.
    RequestLost,
    /// The call is carried out, and the answer is lost.
    AnswerLost,
    /// Nothing happens, and the call ends by its deadline without an answer.
    Hangs,
    /// The caller hears nothing certain; the operation arrives this much later.
    LandsLate {
        /// How much later.
        #[serde(with = "span")]
        after: Duration,
    },
    /// The operation arrives a second time, this much later.
    Repeats {
        /// How much later.
        #[serde(with = "span")]
        after: Duration,
    },
    /// Takes this many times as long.
    Slow {
        /// How many times.
        times: u32,
    },
    /// Refused: nothing is done.
    Refused,
    /// Begun, over, and nothing of it is there.
    Fails,
    /// Reported as done; nothing was done.
    DoneNothing,
    /// The agent stops after so many steps and says so. What it did stays.
    FailsAfter {
        /// Steps.
        steps: usize,
    },
    /// The agent dies after so many steps and comes back. What it did stays.
    AgentDies {
        /// Steps.
        steps: usize,
    },
    /// Reported as done; the last member was not put back.
    MemberMissing,
    /// Reported as done; static routes were not put back.
    RoutesLost,
    /// Reported as done; the configuration was not written.
    NotPersisted,
    /// Reported as done; another member was put in first, and the bond has its address.
    WrongFirst,
    /// Done; this much later something on the host brings the old mode back.
    Reverts {
        /// How much later.
        #[serde(with = "span")]
        after: Duration,
    },
    /// The drain takes machines' pods along.
    EvictsMachines,
    /// The suspension ends at once.
    EndsEarly,
    /// Declared, and the running instance keeps what it had.
    NotPropagated,
    /// Pinned, without anything that refuses evictions and migrations.
    NoShield,
    /// Restored to `None` whatever was saved.
    RestoresNone,
    /// Nothing can be read.
    Unreadable,
    /// Counters are left out.
    NoCounters,
    /// Identifiers are left out.
    NoIdentifiers,
    /// Peers are left out, as some versions do for a connection that stands alone.
    NoPeers,
    /// Events of the past cannot be told.
    NoEvents,
    /// Parts are from different moments.
    Torn,
    /// States come as words that nobody knows.
    Garbled,
    /// A list is cut short.
    CutShort,
    /// The configuration, or the module's version, cannot be read.
    NoConfiguration,
}

impl Fault {
    /// All of them, with middling numbers.
    pub const ALL: [Self; 31] = [
        Self::Unavailable,
        Self::RequestLost,
        Self::AnswerLost,
        Self::Hangs,
        Self::LandsLate { after: Duration::from_secs(20) },
        Self::Repeats { after: Duration::from_secs(7) },
        Self::Slow { times: 20 },
        Self::Refused,
        Self::Fails,
        Self::DoneNothing,
        Self::FailsAfter { steps: 3 },
        Self::AgentDies { steps: 4 },
        Self::MemberMissing,
        Self::RoutesLost,
        Self::NotPersisted,
        Self::WrongFirst,
        Self::Reverts { after: Duration::from_secs(5) },
        Self::EvictsMachines,
        Self::EndsEarly,
        Self::NotPropagated,
        Self::NoShield,
        Self::RestoresNone,
        Self::Unreadable,
        Self::NoCounters,
        Self::NoIdentifiers,
        Self::NoPeers,
        Self::NoEvents,
        Self::Torn,
        Self::Garbled,
        Self::CutShort,
        Self::NoConfiguration,
    ];

    /// The name under which it is counted.
    pub fn name(self) -> &'static str {
        match self {
            Self::Unavailable => "unavailable",
            Self::RequestLost => "request-lost",
            Self::AnswerLost => "answer-lost",
            Self::Hangs => "hangs",
            Self::LandsLate { .. } => "lands-late",
            Self::Repeats { .. } => "repeats",
            Self::Slow { .. } => "slow",
            Self::Refused => "refused",
            Self::Fails => "fails",
            Self::DoneNothing => "done-nothing",
            Self::FailsAfter { .. } => "fails-after",
            Self::AgentDies { .. } => "agent-dies",
            Self::MemberMissing => "member-missing",
            Self::RoutesLost => "routes-lost-in-flip",
            Self::NotPersisted => "not-persisted",
            Self::WrongFirst => "wrong-first",
            Self::Reverts { .. } => "reverts",
            Self::EvictsMachines => "evicts-machines",
            Self::EndsEarly => "ends-early",
            Self::NotPropagated => "not-propagated",
            Self::NoShield => "no-shield",
            Self::RestoresNone => "restores-none",
            Self::Unreadable => "unreadable",
            Self::NoCounters => "no-counters",
            Self::NoIdentifiers => "no-identifiers",
            Self::NoPeers => "no-peers",
            Self::NoEvents => "no-events",
            Self::Torn => "torn",
            Self::Garbled => "garbled",
            Self::CutShort => "cut-short",
            Self::NoConfiguration => "no-configuration",
        }
    }

    /// Whether it can befall this call.
    pub fn suits(self, call: CallKind) -> bool {
        use CallKind::{Drain, Pin, ReadBond, ReadSatellite, ReadStorage, Restore, SetBondMode, SuspendIo};
        match self {
            Self::Unavailable | Self::RequestLost | Self::AnswerLost => !call.is_read(),
            Self::Hangs => !call.is_read() && !call.is_lock_write(),
            Self::Slow { .. } => call != CallKind::SettleHost && call != CallKind::SettleVm,
            Self::LandsLate { .. } | Self::Repeats { .. } | Self::Refused | Self::Fails => {
                call.is_operation()
            }
            Self::DoneNothing => call.is_operation() && call != CallKind::ProbeLink,
            Self::AgentDies { .. } => call.is_operation() && call < Pin,
            Self::FailsAfter { .. }
            | Self::MemberMissing
            | Self::RoutesLost
            | Self::NotPersisted
            | Self::WrongFirst
            | Self::Reverts { .. } => call == SetBondMode,
            Self::EvictsMachines => call == Drain,
            Self::EndsEarly => call == SuspendIo,
            Self::NotPropagated => matches!(call, Pin | Restore),
            Self::NoShield => call == Pin,
            Self::RestoresNone => call == Restore,
            Self::Unreadable => call.is_read(),
            Self::NoCounters | Self::NoIdentifiers | Self::NoPeers | Self::NoEvents | Self::Torn => {
                call == ReadStorage
            }
            Self::Garbled => matches!(call, ReadStorage | ReadBond | CallKind::ReadVms),
            Self::CutShort => matches!(call, ReadBond | ReadSatellite),
            Self::NoConfiguration => matches!(call, ReadBond | ReadStorage),
        }
    }
}

/// A scripted fault: which calls, how often, when. Rules are tried in order; the first that matches is used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// The call.
    pub call: CallKind,
    /// The fault.
    pub fault: Fault,
    /// Only calls to this host.
    #[serde(default)]
    pub host: Option<HostName>,
    /// Only calls about this machine.
    #[serde(default)]
    pub vm: Option<VmName>,
    /// Only calls of this operator.
    #[serde(default)]
    pub seat: Option<String>,
    /// So many matching calls pass first.
    #[serde(default)]
    pub skip: u64,
    /// So many matching calls suffer it; left out: every one.
    #[serde(default = "once")]
    pub times: Option<u64>,
    /// Only from this long after the world's beginning on.
    #[serde(default, with = "span")]
    pub from: Duration,
    /// Only until then; left out: for ever.
    #[serde(default, with = "span::maybe")]
    pub until: Option<Duration>,
}

#[expect(clippy::unnecessary_wraps, reason = "the default of an optional field")]
fn once() -> Option<u64> {
    Some(1)
}

impl Rule {
    /// The next such call suffers this fault, once.
    pub fn new(call: CallKind, fault: Fault) -> Self {
        Self {
            call,
            fault,
            host: None,
            vm: None,
            seat: None,
            skip: 0,
            times: once(),
            from: Duration::ZERO,
            until: None,
        }
    }

    /// Only calls to this host.
    #[must_use]
    pub fn host(mut self, host: &HostName) -> Self {
        self.host = Some(host.clone());
        self
    }

    /// Only calls about this machine.
    #[must_use]
    pub fn vm(mut self, vm: &VmName) -> Self {
        self.vm = Some(vm.clone());
        self
    }

    /// Only calls of this operator.
    #[must_use]
    pub fn seat(mut self, seat: &str) -> Self {
        self.seat = Some(seat.to_owned());
        self
    }

    /// Lets so many matching calls pass first.
    #[must_use]
    pub fn after_calls(mut self, skip: u64) -> Self {
        self.skip = skip;
        self
    }

    /// So many matching calls.
    #[must_use]
    pub fn times(mut self, times: u64) -> Self {
        self.times = Some(times);
        self
    }

    /// Every matching call.
    #[must_use]
    pub fn always(mut self) -> Self {
        self.times = None;
        self
    }

    /// Whether the rule takes this call; counts it if it matches.
    fn takes(&mut self, whose: &Whose<'_>, age: Duration) -> bool {
        let matches = self.call == whose.call
            && self.times != Some(0)
            && self.host.as_ref().is_none_or(|host| whose.host == Some(host))
            && self.vm.as_ref().is_none_or(|vm| whose.vm == Some(vm))
            && self.seat.as_ref().is_none_or(|seat| whose.seat == seat)
            && self.from <= age
            && self.until.is_none_or(|until| age < until);
        if !matches {
            return false;
        }
        if self.skip > 0 {
            self.skip -= 1;
            return false;
        }
        if let Some(times) = &mut self.times {
            *times -= 1;
        }
        true
    }
}

/// A call that arrives.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Whose<'a> {
    pub(crate) call: CallKind,
    pub(crate) host: Option<&'a HostName>,
    pub(crate) vm: Option<&'a VmName>,
    pub(crate) seat: &'a str,
}

/// How likely a fault is for a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Chance {
    /// The call.
    pub call: CallKind,
    /// The fault.
    pub fault: Fault,
    /// How often in a thousand calls.
    pub per_mille: u32,
}

/// Seeded misbehaviour.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Weather {
    /// Decides every draw.
    pub seed: u64,
    /// Tried in order; the first that hits is used.
    pub chances: Vec<Chance>,
    /// From this long after the world's beginning on the sky is clear; left out: never.
    #[serde(default, with = "span::maybe")]
    pub until: Option<Duration>,
}

impl Weather {
    /// Every fault for every call that it can befall, each with this likelihood.
    pub fn everything(seed: u64, per_mille: u32, until: Option<Duration>) -> Self {
        let chances = CallKind::ALL.into_iter().flat_map(|call| {
            Fault::ALL.into_iter().filter(move |fault| fault.suits(call)).map(move |fault| Chance {
                call,
                fault,
                per_mille,
            })
        });
        Self { seed, chances: chances.collect(), until }
    }
}

/// A fault was scripted for a call that it cannot befall.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the fault {fault:?} cannot befall the call {call:?}; see Fault::suits")]
pub struct Unsuited {
    /// The fault.
    pub fault: Fault,
    /// The call.
    pub call: CallKind,
}

/// The rules, the weather, and how often each fault really happened.
#[derive(Clone, Debug, Default)]
pub(crate) struct FaultPlan {
    rules: Vec<Rule>,
    weather: Option<(Weather, Dice)>,
    pub(crate) fired: BTreeMap<&'static str, u64>,
}

impl FaultPlan {
    pub(crate) fn script(&mut self, rule: Rule) -> Result<(), Unsuited> {
        if !rule.fault.suits(rule.call) {
            return Err(Unsuited { fault: rule.fault, call: rule.call });
        }
        self.rules.push(rule);
        Ok(())
    }

    pub(crate) fn set_weather(&mut self, weather: Option<Weather>) {
        self.weather = weather.map(|weather| {
            let dice = Dice::new(weather.seed);
            (weather, dice)
        });
    }

    pub(crate) fn clear(&mut self) {
        self.rules.clear();
        self.weather = None;
    }

    /// The fault of a call that arrives, if it suffers one.
    pub(crate) fn draw(&mut self, whose: &Whose<'_>, start: SystemTime, now: SystemTime) -> Option<Fault> {
        let age = now.duration_since(start).unwrap_or_default();
        if let Some(rule) =
            self.rules.iter_mut().find_map(|rule| rule.takes(whose, age).then_some(rule.fault))
        {
            return Some(rule);
        }
        let (weather, dice) = self.weather.as_mut()?;
        if weather.until.is_some_and(|until| age >= until) {
            return None;
        }
        let chances = weather.chances.iter();
        let mut suited =
            chances.filter(|chance| chance.call == whose.call && chance.fault.suits(chance.call));
        suited.find_map(|chance| dice.hits(chance.per_mille).then_some(chance.fault))
    }

    pub(crate) fn fire(&mut self, name: &'static str) {
        *self.fired.entry(name).or_default() += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fault_suits_some_call_and_every_call_some_fault() {
        assert!(Fault::ALL.iter().all(|fault| CallKind::ALL.iter().any(|call| fault.suits(*call))));
        assert!(CallKind::ALL.iter().all(|call| Fault::ALL.iter().any(|fault| fault.suits(*call))));
    }

    #[test]
    fn a_rule_skips_then_counts_down() {
        let mut plan = FaultPlan::default();
        let rule = Rule::new(CallKind::Renew, Fault::AnswerLost).seat("a").after_calls(1).times(2);
        plan.script(rule).unwrap();
        let now = SystemTime::UNIX_EPOCH;
        let mut draw =
            |seat| plan.draw(&Whose { call: CallKind::Renew, host: None, vm: None, seat }, now, now);
        let drawn: Vec<_> = ["a", "b", "a", "a", "a"].into_iter().map(|seat| draw(seat).is_some()).collect();
        assert_eq!(drawn, [false, false, true, true, false]);
        assert!(plan.script(Rule::new(CallKind::Renew, Fault::MemberMissing)).is_err());
    }
}
