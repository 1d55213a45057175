//! How calls go wrong: the calls, and the faults that can befall them. Which call suffers which is in [`rules`].

pub mod rules;

use std::time::Duration;

use executor_api::host::{HostAction, VmAction};
use serde::{Deserialize, Serialize};

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fault_suits_some_call_and_every_call_some_fault() {
        assert!(Fault::ALL.iter().all(|fault| CallKind::ALL.iter().any(|call| fault.suits(*call))));
        assert!(CallKind::ALL.iter().all(|call| Fault::ALL.iter().any(|fault| fault.suits(*call))));
    }
}
